//! Events of a round, and the effects that it requests.

use crate::kept_because::KeptBecause;
use crate::watermark::{Incarnation, RoundName, Watermark};

/// The answer of a replica; a late or missing answer is [`KeptBecause::ReplicaDown`].
pub type ReplicaAnswer<T> = Result<T, KeptBecause>;

/// An event of a round. Each question has one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEvent {
    /// The agreed log has accepted or refused the announcement.
    Announced {
        /// True if it was accepted. An unknown outcome counts as refused.
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
        /// True if it was complete among these replicas, and began after the request.
        is_complete: bool,
    },
    /// A member's requests that were under way when it was asked have ended.
    Settled {
        /// Its place among the members.
        member: usize,
        /// True if they have ended; false if the member has not answered.
        is_settled: bool,
    },
    /// A member has looked for hints of keys of the preference list, for any partition: after a
    /// change of the ring they go to all replicas.
    Hints {
        /// Its place among the members.
        member: usize,
        /// The number of hints; zero only if the member has noted that durably. `None` without an
        /// answer.
        hints: Option<u64>,
    },
    /// A member has checked whether a hint was stored since its note.
    HintsAgain {
        /// Its place among the members.
        member: usize,
        /// `Ok` if no hint was stored, or the reason why this is not certain.
        answer: ReplicaAnswer<()>,
    },
    /// A replica's extent and its mark are durable.
    Noted {
        /// Its place in the preference list.
        replica: usize,
        /// The reason, if they are not.
        answer: ReplicaAnswer<()>,
    },
    /// The agreed log has accepted or refused the watermark.
    Agreed {
        /// True if it was accepted. An unknown outcome counts as refused.
        is_agreed: bool,
    },
    /// A member has the watermark, and its store of hints has the note.
    HintsConfirmed {
        /// Its place among the members.
        member: usize,
        /// The reason, if this is not so.
        answer: ReplicaAnswer<()>,
    },
    /// A replica has the watermark and its mark.
    Confirmed {
        /// Its place in the preference list.
        replica: usize,
        /// The reason, if this is not so.
        answer: ReplicaAnswer<()>,
    },
    /// A replica has removed its tombstones.
    Reaped {
        /// Its place in the preference list.
        replica: usize,
        /// Their number.
        answer: ReplicaAnswer<u64>,
    },
    /// Ring or members have changed, or rounds are switched off.
    Stop,
}

/// An effect that a round requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundEffect {
    /// Propose this announcement to the agreed log.
    Announce(RoundName),
    /// Ask a replica to fix its extent, and then to wait for the holders of its key locks.
    AskOpen {
        /// Its place in the preference list.
        replica: usize,
    },
    /// Compare the replicas by an exchange that begins now.
    Compare,
    /// Ask a member to answer when its requests that are under way now have ended.
    AskSettle {
        /// Its place among the members.
        member: usize,
    },
    /// Ask a member to look for hints, and to note durably if it has none.
    AskHints {
        /// Its place among the members.
        member: usize,
    },
    /// Ask a member whether a hint was stored since its note ([`crate::HintsNote::still_none`]).
    AskHintsAgain {
        /// Its place among the members.
        member: usize,
    },
    /// Ask a replica to make its extent durable, and then its mark.
    AskNote {
        /// Its place in the preference list.
        replica: usize,
    },
    /// Propose this watermark to the agreed log.
    Propose(Watermark),
    /// Ask a member to confirm that it has the watermark ([`crate::HintsNote::confirm`]).
    AskConfirmHints {
        /// Its place among the members.
        member: usize,
    },
    /// Ask a replica to confirm that it has the watermark.
    AskConfirm {
        /// Its place in the preference list.
        replica: usize,
    },
    /// Ask a replica to remove the tombstones within its mark.
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
    /// The reason why tombstones stay, if they do; after a removal, the reason why some stay on
    /// some replica.
    pub kept: Option<KeptBecause>,
    /// The replica or member that gave the reason in an answer, if one did.
    pub kept_by: Option<Asked>,
    /// The watermark, if the round has raised it.
    pub raised: Option<Watermark>,
    /// Tombstones removed, over all replicas.
    pub reaped: u64,
}
