//! The conditions under which a tombstone may go.
//!
//! A tombstone may go when every replica is known to hold it or something newer, and nothing older than
//! it can arrive any more. No clock is needed to establish that:
//!
//! - A complete exchange has made all replicas equal in the entries that any of them had when it began.
//!   A replica notes the last batch that its store had put by then: each tombstone up to that batch is
//!   on all replicas.
//! - The exchange counts in the epoch of the ring in which it was made, and for the replicas that took part
//!   in it: one that was wiped, restored or replaced since is another *incarnation*.
//! - No hint for the partition is outstanding on any node, up or down: a hint may hold a deleted
//!   object.
//! - The tombstone is older than any request may last: a write that was let in before is over.
//!
//! All replicas have to be up, since each lets go of the tombstone: the one that keeps it would bring it
//! back.

use kvorum_planted_defects::is_planted;

/// One lifetime of a replica's data: another one when it was wiped, restored from a backup or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The last complete exchange of a preference list; agreed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Counts the complete exchanges of the preference list, from one.
    pub number: u64,
    /// The epoch of the ring.
    pub epoch: u64,
    /// All replicas of the preference list that took part, in its order.
    pub replicas: Vec<Incarnation>,
}

/// A replica's note of an exchange, durable with its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMark {
    /// The number of the complete exchange.
    pub number: u64,
    /// The identity of the store.
    pub store: u64,
    /// The last batch that the store had put when the exchange began.
    pub sequence: u64,
}

/// A tombstone as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTombstone {
    /// The identity of the store.
    pub store: u64,
    /// The batch that wrote it.
    pub sequence: u64,
    /// Its age, in microseconds.
    pub age_micros: u64,
}

/// Least age of tombstones, apart from all other conditions (Riak's `delete_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMode {
    /// For ever.
    Keep,
    /// As long as is needed.
    Immediate,
    /// This many microseconds.
    After(u64),
}

/// The state of the cluster as it is when a tombstone is judged.
#[derive(Clone, Copy, Debug)]
pub struct PresentFacts<'a> {
    /// The epoch of the ring.
    pub epoch: u64,
    /// The replicas of the preference list, in its order.
    pub replicas: &'a [Incarnation],
    /// All of them are up.
    pub are_all_up: bool,
    /// Hints for the partition on all nodes; `None` while the answer of a node is missing.
    pub hints: Option<u64>,
    /// No request lasts longer, in microseconds.
    pub request_micros_max: u64,
}

/// The reason why a tombstone stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBecause {
    /// The settings keep it, for ever or for this age.
    DeleteMode,
    /// A write from before it may be under way.
    RequestsUnderWay,
    /// No complete exchange has compared it.
    NotCompared,
    /// The ring has changed since.
    OtherEpoch,
    /// A replica is another one, or none was.
    OtherReplicas,
    /// A replica is not up.
    ReplicaDown,
    /// Hints are outstanding.
    HintsOutstanding,
    /// A node has not reported its hints.
    HintsUnknown,
}

/// The verdict on a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go, at all replicas.
    Go,
    /// It stays.
    Keep(KeptBecause),
}

/// Decides if a tombstone may go.
pub fn judge_tombstone(
    tombstone: &StoredTombstone,
    mark: Option<&LocalMark>,
    completed: Option<&Completed>,
    present: &PresentFacts<'_>,
    mode: DeleteMode,
) -> Verdict {
    let reasons = [
        reason_of_age(tombstone, present, mode),
        reason_of_exchange(tombstone, mark, completed, present),
        reason_of_hints(present),
    ];
    match reasons.into_iter().flatten().next() {
        Some(reason) => Verdict::Keep(reason),
        None => Verdict::Go,
    }
}

fn reason_of_age(
    tombstone: &StoredTombstone,
    present: &PresentFacts<'_>,
    mode: DeleteMode,
) -> Option<KeptBecause> {
    let age_min = match mode {
        DeleteMode::Keep => return Some(KeptBecause::DeleteMode),
        DeleteMode::Immediate => 0,
        DeleteMode::After(micros) => micros,
    };
    if tombstone.age_micros < age_min {
        return Some(KeptBecause::DeleteMode);
    }
    let is_young = tombstone.age_micros <= present.request_micros_max;
    is_young.then_some(KeptBecause::RequestsUnderWay)
}

fn reason_of_exchange(
    tombstone: &StoredTombstone,
    mark: Option<&LocalMark>,
    completed: Option<&Completed>,
    present: &PresentFacts<'_>,
) -> Option<KeptBecause> {
    let (Some(mark), Some(completed)) = (mark, completed) else {
        return Some(KeptBecause::NotCompared);
    };
    let is_compared = mark.number <= completed.number
        && mark.store == tombstone.store
        && tombstone.sequence <= mark.sequence;
    if !is_compared {
        return Some(KeptBecause::NotCompared);
    }
    if completed.epoch != present.epoch {
        return Some(KeptBecause::OtherEpoch);
    }
    if completed.replicas != present.replicas {
        return Some(KeptBecause::OtherReplicas);
    }
    (!present.are_all_up).then_some(KeptBecause::ReplicaDown)
}

fn reason_of_hints(present: &PresentFacts<'_>) -> Option<KeptBecause> {
    if is_planted!(TombstoneReapedBesideHint) {
        return None;
    }
    match present.hints {
        Some(0) => None,
        Some(_) => Some(KeptBecause::HintsOutstanding),
        None => Some(KeptBecause::HintsUnknown),
    }
}
