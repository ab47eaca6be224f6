//! The least time that tombstones stay.

/// Riak's `delete_mode`, of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMode {
    /// Tombstones stay for ever, on all replicas that share a preference list with this node.
    Keep,
    /// Tombstones stay as long as a round takes.
    Immediate,
    /// Tombstones stay this many microseconds longer than a round takes.
    After(u64),
}

impl DeleteMode {
    /// The age, in microseconds, of the extent with which a replica opens a round: tombstones
    /// written later stay. `None` if the replica opens no round.
    pub fn extent_age_micros(self) -> Option<u64> {
        match self {
            Self::Keep => None,
            Self::Immediate => Some(0),
            Self::After(micros) => Some(micros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_says_what_a_round_may_take() {
        assert_eq!(DeleteMode::Keep.extent_age_micros(), None);
        assert_eq!(DeleteMode::Immediate.extent_age_micros(), Some(0));
        assert_eq!(DeleteMode::After(3).extent_age_micros(), Some(3));
    }
}
