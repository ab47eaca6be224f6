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
    /// It failed to answer.
    Failed,
}

/// A replica's answer about branches of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchesAnswer {
    /// The leaves of each branch.
    Branches {
        /// In the order in which they were asked for.
        branches: Vec<Vec<u32>>,
        /// The tree is being built by now.
        is_building: bool,
    },
    /// It failed to answer, or its tree has become smaller than the requested size.
    Failed,
}

/// A replica's entries in some leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAnswer {
    /// Its entries, by ascending key.
    Keys {
        /// The entries, tombstones among them. Expired ones may be left out.
        seen: Vec<EntrySummary>,
        /// There are more behind the last one.
        is_cut: bool,
        /// The time by the replica's clock, in microseconds since the Unix epoch: it judges expiry by it.
        now: u64,
    },
    /// It failed to answer.
    Failed,
}

/// An input to an exchange. Each question has one answer; a late one counts as failed.
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
        /// Every replica has the same of it now.
        is_mended: bool,
    },
    /// The exchange is to end at once.
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
        /// The size of the tree whose leaves are meant.
        size: TreeSize,
        /// The leaves, ascending.
        leaves: Arc<[u32]>,
        /// Only entries of this range.
        hint: Option<RangeHint>,
        /// Only entries behind this key.
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
    /// Have a replica count leaves of its tree again from its store: trees differ there, and keys and
    /// versions do not. The exchange does not wait for its end.
    Recount {
        /// Its place in the preference list.
        replica: usize,
        /// The size of the tree whose leaves are meant.
        size: TreeSize,
        /// The leaves, ascending.
        leaves: Arc<[u32]>,
    },
    /// The exchange is over; nothing more will happen.
    End(Outcome),
}
