//! Events of a replica's keeper, and the effects that it asks for.

use crate::extent::Extent;
use crate::note::Note;
use crate::round_event::ReplicaAnswer;
use crate::watermark::{Incarnation, RoundName, Watermark};

/// An event at a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// Its node has learned a watermark, durably; those that were agreed before come before.
    Learned(Watermark),
    /// Its partition has come to this list in an epoch, by a move or because the list has grown. It
    /// may be said again.
    Joined {
        /// The epoch.
        epoch: u64,
        /// All that its stores have, leftovers of a former time included; taken before the transfer
        /// begins.
        extent: Extent,
    },
    /// A transfer or a repair has brought all that the other replicas have.
    Repaired,
    /// No source is left, and the operator accepts the entries that are here.
    LossAccepted,
    /// A round asks it to open. The caller has checked the rest: that the vnode is complete and its
    /// trees are exact, and `delete_mode`.
    Open {
        /// The round.
        round: RoundName,
        /// All that its stores had put, as long ago as `delete_mode` says. The caller waits for the
        /// holders of the key locks before it gives the answer.
        extent: Extent,
    },
    /// A round asks it to note its mark.
    MakeNote {
        /// The round.
        round: RoundName,
    },
    /// A round asks it to confirm the watermark.
    Confirm {
        /// The round.
        round: RoundName,
    },
    /// A round asks it to remove its tombstones.
    Reap {
        /// The round.
        round: RoundName,
    },
}

/// An effect that a keeper asks for. Effects are carried out in their order, each before the next.
/// If one fails, those behind it are not carried out, and the keeper is opened again from its stored
/// note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEffect {
    /// The vnode answers no reads until it is repaired.
    MarkIncomplete,
    /// The vnode gives its next dots under a fresh actor: a write over a hidden entry would claim to
    /// have seen it.
    TakeFreshActor,
    /// The entries of these batches are to be removed, durably, before the vnode counts as
    /// complete.
    RemoveHidden(Extent),
    /// All batches of this extent are to be made durable.
    Sync(Extent),
    /// The note is to be stored, durably.
    Store(Note),
    /// The round gets this answer.
    Answer(KeeperAnswer),
}

/// The answer of a replica to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperAnswer {
    /// To [`KeeperEvent::Open`].
    Opened(ReplicaAnswer<Incarnation>),
    /// To [`KeeperEvent::MakeNote`].
    Noted(ReplicaAnswer<()>),
    /// To [`KeeperEvent::Confirm`].
    Confirmed(ReplicaAnswer<()>),
    /// To [`KeeperEvent::Reap`]: the caller removes what [`crate::Keeper::may_reap`] admits, and
    /// counts.
    MayReap(ReplicaAnswer<()>),
}
