//! Events of a round, and the effects that it asks for.

use crate::kept_because::KeptBecause;
use crate::watermark::{Incarnation, RoundName, Watermark};

/// The answer of a replica; a late one, or none, is [`KeptBecause::ReplicaDown`].
pub type ReplicaAnswer<T> = Result<T, KeptBecause>;

/// An event of a round. Each question has one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEvent {
    /// The agreed log has taken the announcement, or it has not.
    Announced {
        /// It has. An unknown end counts as not.
        is_agreed: bool,
    },
    /// A replica has fixed its extent.
    Opened {
        /// Its place in the preference list.
        replica: usize,
        /// Its incarnation.
        answer: ReplicaAnswer<Incarnation>,
    },
    /// The exchange has ended.
    Compared {
        /// It was complete, among these replicas, and began when it was asked for.
        is_complete: bool,
    },
    /// A member's requests that were under way when it was asked are over.
    Settled {
        /// Its place among the members.
        member: usize,
        /// They are; otherwise it has not answered.
        is_settled: bool,
    },
    /// A member has looked for hints of keys of the preference list, whichever partition they are
    /// kept for: after a change of the ring they go to all replicas.
    Hints {
        /// Its place among the members.
        member: usize,
        /// So many; none only if it has noted that durably. `None` without an answer.
        hints: Option<u64>,
    },
    /// A member has looked whether a hint has come since it noted that it has none.
    HintsAgain {
        /// Its place among the members.
        member: usize,
        /// No hint has come; or the reason why that is not known.
        answer: ReplicaAnswer<()>,
    },
    /// A replica's extent and its mark are durable.
    Noted {
        /// Its place in the preference list.
        replica: usize,
        /// Or the reason why not.
        answer: ReplicaAnswer<()>,
    },
    /// The agreed log has taken the watermark, or it has not.
    Agreed {
        /// It has. An unknown end counts as not.
        is_agreed: bool,
    },
    /// A member has learned the watermark, and its store of hints has the note.
    HintsConfirmed {
        /// Its place among the members.
        member: usize,
        /// Or the reason why not.
        answer: ReplicaAnswer<()>,
    },
    /// A replica has learned the watermark and has its mark.
    Confirmed {
        /// Its place in the preference list.
        replica: usize,
        /// Or the reason why not.
        answer: ReplicaAnswer<()>,
    },
    /// A replica has removed its tombstones.
    Reaped {
        /// Its place in the preference list.
        replica: usize,
        /// So many.
        answer: ReplicaAnswer<u64>,
    },
    /// Ring or members have changed, or rounds are switched off.
    Stop,
}

/// An effect that a round asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundEffect {
    /// The agreed log is to take this, before anything is asked.
    Announce(RoundName),
    /// A replica is to fix its extent, and then to wait for the holders of its key locks.
    AskOpen {
        /// Its place in the preference list.
        replica: usize,
    },
    /// The replicas are to be compared by an exchange that begins now.
    Compare,
    /// A member is to answer when its requests that are under way now are over.
    AskSettle {
        /// Its place among the members.
        member: usize,
    },
    /// A member is to look for hints, and to note durably if it has none.
    AskHints {
        /// Its place among the members.
        member: usize,
    },
    /// A member is to look whether a hint has come since ([`crate::HintsNote::still_none`]).
    AskHintsAgain {
        /// Its place among the members.
        member: usize,
    },
    /// A replica is to make its extent durable, and then its mark.
    AskNote {
        /// Its place in the preference list.
        replica: usize,
    },
    /// The agreed log is to take this.
    Propose(Watermark),
    /// A member is to answer when it has learned the watermark ([`crate::HintsNote::confirm`]).
    AskConfirmHints {
        /// Its place among the members.
        member: usize,
    },
    /// A replica is to answer when it has learned the watermark.
    AskConfirm {
        /// Its place in the preference list.
        replica: usize,
    },
    /// A replica is to remove the tombstones within its mark.
    AskReap {
        /// Its place in the preference list.
        replica: usize,
    },
    /// The round is over.
    End(RoundOutcome),
}

/// A replica or a member that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// By its place in the preference list.
    Replica(usize),
    /// By its place among the members.
    Member(usize),
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundOutcome {
    /// Why tombstones stay, if they do; after some have gone, why others of them stay at some
    /// replica.
    pub kept: Option<KeptBecause>,
    /// The one whose answer that was, if it was an answer.
    pub kept_by: Option<Asked>,
    /// The watermark, if the round has raised it.
    pub raised: Option<Watermark>,
    /// Tombstones removed, over all replicas.
    pub reaped: u64,
}
