//! Inputs and outputs of an exchange.

use std::sync::Arc;

use kvorum_encoding::StorageKey;
use kvorum_tictac::TreeSize;

use crate::entry_summary::EntrySummary;
use crate::outcome::Outcome;
use crate::range_hint::RangeHint;

/// A replica's answer about its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootAnswer {
    /// The root of its tree.
    Root {
        /// The size of the tree.
        size: TreeSize,
        /// The version of the hash in its leaves.
        hash_version: u8,
        /// The root, at that size.
        root: Vec<u32>,
        /// The tree is being built: it lacks entries that are stored.
        is_building: bool,
    },
    /// The replica failed to answer.
    Failed,
}

/// A replica's answer about branches of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchesAnswer {
    /// The leaves of each branch.
    Branches {
        /// The leaves, in the order of the requested branches.
        branches: Vec<Vec<u32>>,
        /// The tree is being built meanwhile.
        is_building: bool,
    },
    /// The replica failed to answer, or its tree has become smaller than the requested size.
    Failed,
}

/// A replica's entries in some leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAnswer {
    /// Its entries, by ascending key.
    Keys {
        /// The entries, tombstones among them. Expired ones may be left out.
        seen: Vec<EntrySummary>,
        /// True when more entries follow the last one.
        is_cut: bool,
        /// The time on the replica's clock, which decides expiry, in microseconds since the Unix
        /// epoch.
        now: u64,
    },
    /// The replica failed to answer.
    Failed,
}

/// An input to an exchange. Each question has one answer; a late answer counts as failed.
#[derive(Clone, Debug)]
pub enum ExchangeEvent {
    /// A replica answered [`ExchangeEffect::AskRoot`].
    Root {
        /// Its place in the preference list.
        replica: usize,
        /// The answer.
        answer: RootAnswer,
    },
    /// A replica answered [`ExchangeEffect::AskBranches`].
    Branches {
        /// Its place in the preference list.
        replica: usize,
        /// The answer.
        answer: BranchesAnswer,
    },
    /// A replica answered [`ExchangeEffect::AskKeys`].
    Keys {
        /// Its place in the preference list.
        replica: usize,
        /// The answer.
        answer: KeysAnswer,
    },
    /// The pause is over.
    PauseOver,
    /// A repair has ended.
    Repaired {
        /// The key.
        key: StorageKey,
        /// True when every replica has the same version now.
        is_mended: bool,
    },
    /// The exchange must end at once.
    Stop,
}

/// An order to the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum ExchangeEffect {
    /// Ask a replica for the root of its tree.
    AskRoot {
        /// Its place in the preference list.
        replica: usize,
    },
    /// Ask a replica for branches of its tree, folded to a size.
    AskBranches {
        /// Its place in the preference list.
        replica: usize,
        /// The size to which the tree is folded.
        size: TreeSize,
        /// The branches, ascending.
        branches: Arc<[u32]>,
    },
    /// Ask a replica for keys and versions of leaves.
    AskKeys {
        /// Its place in the preference list.
        replica: usize,
        /// The size of the tree that numbers the leaves.
        size: TreeSize,
        /// The leaves, ascending.
        leaves: Arc<[u32]>,
        /// Only entries of this range.
        hint: Option<RangeHint>,
        /// Only entries after this key.
        after: Option<StorageKey>,
        /// The largest number of entries.
        keys_max: usize,
    },
    /// Wait, so that writes under way arrive, and answer with [`ExchangeEvent::PauseOver`].
    Pause,
    /// Compare all replicas of this key and mend outdated ones, when [`crate::Pace`] admits it.
    Repair {
        /// The key.
        key: StorageKey,
    },
    /// Ask a replica to count leaves of its tree again from its store: trees differ there, but keys
    /// and versions do not. The exchange does not wait for the end.
    Recount {
        /// Its place in the preference list.
        replica: usize,
        /// The size of the tree that numbers the leaves.
        size: TreeSize,
        /// The leaves, ascending.
        leaves: Arc<[u32]>,
    },
    /// The exchange is over, and has no further effects.
    End(Outcome),
}
