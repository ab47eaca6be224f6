//! Quorum values of requests and bucket properties: a number, or one of four symbolic values.
//!
//! On the wire the symbolic values sit at the top of the unsigned 32-bit range, where no real
//! number of replicas can be.

/// Wire value of `one`.
pub const ONE: u32 = 4_294_967_294;
/// Wire value of `quorum`: more than half of the replicas.
pub const QUORUM: u32 = 4_294_967_293;
/// Wire value of `all`.
pub const ALL: u32 = 4_294_967_292;
/// Wire value of `default`: as if the field were absent.
pub const DEFAULT: u32 = 4_294_967_291;

/// A quorum as a request names it, before the bucket's properties resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quorum {
    /// The bucket's value.
    Default,
    /// One replica.
    One,
    /// More than half of the replicas.
    Quorum,
    /// Every replica.
    All,
    /// This many replicas.
    Count(u32),
}

impl Quorum {
    /// Reads a wire value; every number has a meaning.
    pub fn from_wire(value: u32) -> Quorum {
        match value {
            ONE => Quorum::One,
            QUORUM => Quorum::Quorum,
            ALL => Quorum::All,
            DEFAULT => Quorum::Default,
            count => Quorum::Count(count),
        }
    }

    /// The wire value. A count that collides with a symbolic value is sent as it is.
    pub fn to_wire(self) -> u32 {
        match self {
            Quorum::Default => DEFAULT,
            Quorum::One => ONE,
            Quorum::Quorum => QUORUM,
            Quorum::All => ALL,
            Quorum::Count(count) => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolic_values_round_trip_and_numbers_stay_numbers() {
        for quorum in [Quorum::Default, Quorum::One, Quorum::Quorum, Quorum::All] {
            assert_eq!(Quorum::from_wire(quorum.to_wire()), quorum);
        }
        assert_eq!(Quorum::from_wire(3), Quorum::Count(3));
        assert_eq!(Quorum::from_wire(u32::MAX), Quorum::Count(u32::MAX));
        assert_eq!(ONE, 0xFFFF_FFFE);
    }
}
