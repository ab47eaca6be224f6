//! The identity of a transfer, and its parts.

use std::fmt;

use kvorum_ring::{Epoch, Partition};

/// The reason for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferKind {
    /// A partition moves to this node.
    Ownership,
    /// A vnode of this node becomes a replica of more keys.
    Growth,
    /// A partition is repaired from its other replicas, because an operator orders it or data was
    /// lost.
    Repair,
}

impl TransferKind {
    /// The word for operators and file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ownership => "ownership",
            Self::Growth => "growth",
            Self::Repair => "repair",
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ownership => 1,
            Self::Growth => 2,
            Self::Repair => 3,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Ownership),
            2 => Some(Self::Growth),
            3 => Some(Self::Repair),
            _ => None,
        }
    }
}

/// One transfer into a partition of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId {
    /// The reason.
    pub kind: TransferKind,
    /// The vnode that is filled.
    pub partition: Partition,
    /// Its epoch when the transfer was decided.
    pub epoch: Epoch,
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            partition,
            epoch,
        } = self;
        write!(f, "{}.{}.{epoch}", kind.name(), partition.number())
    }
}

/// A part of a transfer: the keys of one vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    /// The source vnode.
    pub(crate) source: Partition,
    /// The wanted keys.
    pub(crate) wanted: Wanted,
}

/// The wanted keys of a vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All its keys.
    All,
    /// The keys of these owner partitions whose replicas the receiving vnode holds, if keys have up
    /// to `replicas` replicas.
    Owners {
        owners: Vec<Partition>,
        replicas: u16,
    },
}
