//! Events of a replica's keeper, and the effects that it requests.

use crate::extent::Extent;
use crate::note::Note;
use crate::round_event::ReplicaAnswer;
use crate::watermark::{Incarnation, RoundName, Watermark};

/// An event at a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// The node has stored a watermark durably; watermarks come in the order of the agreed log.
    Learned(Watermark),
    /// The partition joined this list in an epoch, by a move or because the list has grown. The
    /// event may be repeated.
    Joined {
        /// The epoch.
        epoch: u64,
        /// Everything that the stores have before the transfer begins, including remains of an
        /// earlier time on the list.
        extent: Extent,
    },
    /// A transfer or a repair has brought everything that the other replicas have.
    Repaired,
    /// No source is left, and the operator accepts the present entries.
    LossAccepted,
    /// A round asks the replica to open. The caller has checked that the vnode is complete, its
    /// trees are exact, and `delete_mode` allows it.
    Open {
        /// The round.
        round: RoundName,
        /// Everything that the stores had put as long ago as `delete_mode` demands. The caller
        /// waits for the holders of the key locks before it sends the answer.
        extent: Extent,
    },
    /// A round asks the replica to note its mark.
    MakeNote {
        /// The round.
        round: RoundName,
    },
    /// A round asks the replica to confirm the watermark.
    Confirm {
        /// The round.
        round: RoundName,
    },
    /// A round asks the replica to remove its tombstones.
    Reap {
        /// The round.
        round: RoundName,
    },
}

/// An effect that a keeper requests. Effects are carried out one after the other, in order. If one
/// fails, the later ones are not carried out, and the keeper is opened again from its stored note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEffect {
    /// The vnode answers no reads until it is repaired.
    MarkIncomplete,
    /// The vnode takes a fresh actor: a write over a hidden entry would claim to have seen it.
    TakeFreshActor,
    /// Remove the entries of these batches durably, before the vnode counts as complete.
    RemoveHidden(Extent),
    /// Make all batches of this extent durable.
    Sync(Extent),
    /// Store the note durably.
    Store(Note),
    /// Send this answer to the round.
    Answer(KeeperAnswer),
}

/// The answer of a replica to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperAnswer {
    /// The answer to [`KeeperEvent::Open`].
    Opened(ReplicaAnswer<Incarnation>),
    /// The answer to [`KeeperEvent::MakeNote`].
    Noted(ReplicaAnswer<()>),
    /// The answer to [`KeeperEvent::Confirm`].
    Confirmed(ReplicaAnswer<()>),
    /// The answer to [`KeeperEvent::Reap`]: the caller removes and counts the tombstones that
    /// [`crate::Keeper::may_reap`] admits.
    MayReap(ReplicaAnswer<()>),
}
