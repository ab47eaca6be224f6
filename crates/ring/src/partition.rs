//! Partitions by number, the ring's size, and Riak's 160-bit index text for both.
//!
//! Inside, a partition is a number from 0 to `ring_size - 1`. Outside, operators, directories and
//! statistics use the *index*: the position at which it starts, a decimal of up to 49 digits. Only this
//! file converts between the two.

use std::fmt;

/// The smallest ring.
pub const RING_SIZE_MIN: u16 = 8;
/// The largest ring.
pub const RING_SIZE_MAX: u16 = 4096;

/// The number of partitions in the ring: a power of two from 8 to 4096, fixed for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSize(u16);

/// The reason why a number cannot be a ring size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring size {got} is not a power of two from {RING_SIZE_MIN} to {RING_SIZE_MAX}")]
pub struct RingSizeError {
    /// The number as it was given.
    pub got: u64,
}

/// The reason why a text is not the index of a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the index of a partition in a ring of {size}")]
pub struct IndexError {
    /// The text as it was given.
    pub text: String,
    /// The size of the ring.
    pub size: RingSize,
}

impl RingSize {
    /// The size of the smallest ring.
    pub const SMALLEST: Self = Self(RING_SIZE_MIN);

    /// A ring of `partitions`, or the reason why there is none.
    pub fn new(partitions: u64) -> Result<Self, RingSizeError> {
        match u16::try_from(partitions) {
            Ok(size)
                if size.is_power_of_two() && (RING_SIZE_MIN..=RING_SIZE_MAX).contains(&size) =>
            {
                Ok(Self(size))
            }
            _ => Err(RingSizeError { got: partitions }),
        }
    }

    /// The number of partitions.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// All partitions, from 0 upward.
    pub fn partitions(
        self,
    ) -> impl ExactSizeIterator<Item = Partition> + DoubleEndedIterator + Clone {
        (0..self.0).map(Partition)
    }

    /// The partition with this number, if the ring has one.
    pub fn partition(self, number: u16) -> Option<Partition> {
        (number < self.0).then_some(Partition(number))
    }

    /// The partition that lies `steps` further around the circle.
    pub fn after(self, partition: Partition, steps: u16) -> Partition {
        self.wrap(partition.0.wrapping_add(steps))
    }

    /// The partition that lies `steps` back around the circle.
    pub fn before(self, partition: Partition, steps: u16) -> Partition {
        self.wrap(partition.0.wrapping_sub(steps))
    }

    /// Number of steps from `from` forward to `to`.
    pub fn distance(self, from: Partition, to: Partition) -> u16 {
        to.0.wrapping_sub(from.0) & (self.0 - 1)
    }

    /// The partition at `number` modulo the size.
    pub(crate) const fn wrap(self, number: u16) -> Partition {
        // The size is a power of two: the mask computes the modulus, and 2^16 is a multiple of the
        // size.
        Partition(number & (self.0 - 1))
    }

    /// The number of leading bits of a position that name its partition.
    pub(crate) const fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }
}

impl fmt::Display for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One of the ring's equal slices, by number from 0; as the home of data it is a vnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

/// A 160-bit number in 32-bit digits, the most significant first.
type Wide = [u32; 5];
const DECIMAL_CHUNK: u64 = 1_000_000_000;
const DECIMAL_CHUNK_DIGITS: usize = 9;

impl Partition {
    /// The first partition of every ring.
    pub const FIRST: Self = Self(0);

    /// The partition of this number in the largest ring. The caller checks that its own ring has
    /// it.
    pub fn of_number(number: u16) -> Option<Self> {
        (u64::from(number) < u64::from(RING_SIZE_MAX)).then_some(Self(number))
    }

    /// The partition's number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The partition's number as an index into a slice with one element for each partition.
    pub fn slot(self) -> usize {
        usize::from(self.0)
    }

    /// Riak's name for the partition: `number * 2^160 / ring_size` as a decimal.
    pub fn index_decimal(self, size: RingSize) -> String {
        let mut wide: Wide = [0; 5];
        // At most 12 bits of number, shifted to the top of the first digit: nothing is lost.
        wide[0] = u32::from(self.0) << (32 - size.bits());
        decimal(wide)
    }

    /// The partition whose index in a ring of `size` is `text`.
    pub fn from_index_decimal(text: &str, size: RingSize) -> Result<Self, IndexError> {
        parse_decimal(text)
            .filter(|wide| wide[1..].iter().all(|digit| *digit == 0))
            .filter(|wide| wide[0].trailing_zeros() >= 32 - size.bits())
            .and_then(|wide| u16::try_from(wide[0] >> (32 - size.bits())).ok())
            .map(Self)
            .ok_or_else(|| IndexError {
                text: text.to_owned(),
                size,
            })
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn decimal(mut wide: Wide) -> String {
    let mut chunks = Vec::new();
    while wide != [0; 5] {
        let mut remainder = 0u64;
        for digit in &mut wide {
            let value = (remainder << 32) | u64::from(*digit);
            *digit = low_half(value / DECIMAL_CHUNK);
            remainder = value % DECIMAL_CHUNK;
        }
        chunks.push(remainder);
    }
    let Some(first) = chunks.pop() else {
        return "0".to_owned();
    };
    let mut text = first.to_string();
    for chunk in chunks.iter().rev() {
        text.push_str(&format!("{chunk:0DECIMAL_CHUNK_DIGITS$}"));
    }
    text
}

/// `None` for anything but digits, for an empty text and for numbers of more than 160 bits.
fn parse_decimal(text: &str) -> Option<Wide> {
    if text.is_empty() {
        return None;
    }
    let mut wide: Wide = [0; 5];
    for character in text.bytes() {
        if !character.is_ascii_digit() {
            return None;
        }
        let mut carry = u64::from(character - b'0');
        for digit in wide.iter_mut().rev() {
            let value = u64::from(*digit) * 10 + carry;
            *digit = low_half(value);
            carry = value >> 32;
        }
        if carry != 0 {
            return None;
        }
    }
    Some(wide)
}

fn low_half(value: u64) -> u32 {
    let bytes = value.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(partitions: u64) -> RingSize {
        RingSize::new(partitions).unwrap()
    }

    #[test]
    fn a_ring_size_is_a_power_of_two_within_limits() {
        for good in [8, 16, 64, 1024, 4096] {
            assert_eq!(u64::from(size(good).get()), good);
        }
        for bad in [0, 1, 4, 7, 9, 63, 8192, 65_536, u64::MAX] {
            assert_eq!(RingSize::new(bad), Err(RingSizeError { got: bad }));
        }
    }

    #[test]
    fn indexes_are_those_that_riak_prints() {
        // 2^160 / 64 and its multiples, as in Riak's logs.
        let ring = size(64);
        let text = |number| ring.partition(number).unwrap().index_decimal(ring);
        assert_eq!(text(0), "0");
        assert_eq!(text(1), "22835963083295358096932575511191922182123945984");
        assert_eq!(text(2), "45671926166590716193865151022383844364247891968");
        assert_eq!(text(32), "730750818665451459101842416358141509827966271488");
        assert_eq!(
            text(63),
            "1438665674247607560106752257205091097473808596992"
        );
    }

    #[test]
    fn every_index_reads_back_in_every_ring() {
        for bits in 3..=12 {
            let ring = size(1 << bits);
            for partition in ring.partitions() {
                let text = partition.index_decimal(ring);
                assert_eq!(Partition::from_index_decimal(&text, ring), Ok(partition));
            }
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        let past_the_end = "1461501637330902918203684832716283019655932542976";
        for text in ["", "1", "-0", "12a", " 0", past_the_end, &"9".repeat(60)] {
            assert!(
                Partition::from_index_decimal(text, size(64)).is_err(),
                "{text}"
            );
        }
        // An index of a ring of 64 lies between those of a ring of 8.
        let text = "22835963083295358096932575511191922182123945984";
        assert!(Partition::from_index_decimal(text, size(8)).is_err());
    }

    #[test]
    fn steps_go_around_the_circle() {
        let ring = size(8);
        let last = ring.partition(7).unwrap();
        assert_eq!(ring.after(last, 2).number(), 1);
        assert_eq!(ring.before(ring.after(last, 2), 2), last);
        assert_eq!(ring.distance(last, ring.partition(1).unwrap()), 2);
        assert_eq!(ring.partition(8), None);
    }
}
