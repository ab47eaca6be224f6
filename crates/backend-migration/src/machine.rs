//! The machine: phases, orders, and what follows from their results.

use std::fmt;

use bytes::Bytes;

use crate::progress::Progress;

/// Parts of one run that were found to differ, or to be left: a move that gets nowhere is given up, with both
/// copies in place.
const FAILURES_MAX: u8 = 16;
/// Free space that a move leaves, as a share of what it copies.
const SPARE_DIVISOR: u64 = 8;

/// What moves, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The backend that has it.
    pub source: String,
    /// The backend that is to have it.
    pub target: String,
    /// The bytes that all its storage keys start with: of a type, of a bucket, or none for everything.
    pub scope: Bytes,
    /// What the source has of it, by estimate, in bytes.
    pub bytes_estimate: u64,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Free space is compared with what is to be copied.
    Room,
    /// Entries are copied that the target lacks.
    Copy,
    /// What the source has is compared with what the target has.
    Verify,
    /// The source's entries go.
    Remove,
    /// Nothing is left to do.
    Ended(End),
}

/// What a move came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is in the target, and nothing of it in the source.
    Moved,
    /// It was cancelled, and everything is in the source again.
    TakenBack,
    /// There is too little free space. Nothing was copied.
    NoRoom,
    /// The copies went on to differ. Both are there, and both are read.
    Differs,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Tell how much free space the target's device has: [`Event::Room`].
    LookForRoom,
    /// Copy entries that the target lacks; take those out of the source of which the target has another version:
    /// [`Event::Copied`].
    Copy(Part),
    /// Count and digest the source's entries and the target's entries of the same keys: [`Event::Verified`].
    Verify(Part),
    /// Take entries out of the source that the target has too: [`Event::Removed`].
    Remove(Part),
}

/// The part of a scope that an order is for: as much as whoever carries it out has leave for, from its beginning
/// on, but at least one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The backend that is read.
    pub source: String,
    /// The backend that is to have all.
    pub target: String,
    /// The bytes that all keys start with.
    pub scope: Bytes,
    /// The key behind which it begins; `None` for the beginning of the scope.
    pub after: Option<Bytes>,
}

/// Entries, counted and digested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub keys: u64,
    /// A digest of keys, fields, heads, bodies and index entries, the same whatever the order.
    pub digest: u64,
}

/// What came of an order. `last` is the last key that the part had, or `None` when it reached the end of the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The free space for the target.
    Room {
        /// In bytes.
        available_bytes: u64,
    },
    /// A part was copied.
    Copied {
        /// See [`Event`].
        last: Option<Bytes>,
        /// Entries that the target got.
        keys: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A part was compared.
    Verified {
        /// See [`Event`].
        last: Option<Bytes>,
        /// The source's entries.
        source: Tally,
        /// The target's entries of the same keys.
        target: Tally,
    },
    /// A part was removed.
    Removed {
        /// See [`Event`].
        last: Option<Bytes>,
        /// Entries that went.
        keys: u64,
        /// Entries that stayed, since the target does not have them.
        left: u64,
    },
}

impl Event {
    /// The phase with such orders.
    fn phase(&self) -> Phase {
        match self {
            Self::Room { .. } => Phase::Room,
            Self::Copied { .. } => Phase::Copy,
            Self::Verified { .. } => Phase::Verify,
            Self::Removed { .. } => Phase::Remove,
        }
    }
}

/// Why a move cannot be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelError {
    /// It has ended.
    Ended(End),
    /// It was cancelled before.
    Cancelled,
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended(End::Moved) => {
                "the move has ended, everything is in its new backend: move it back to undo it"
            }
            Self::Ended(_) => "the move has ended without moving anything",
            Self::Cancelled => "the move was cancelled before, and is being taken back",
        })
    }
}

impl std::error::Error for CancelError {}

/// The free space that a move of so many bytes needs, in bytes.
pub fn room_needed(bytes_estimate: u64) -> u64 {
    bytes_estimate.saturating_add(bytes_estimate / SPARE_DIVISOR)
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    pub(crate) plan: Plan,
    pub(crate) phase: Phase,
    /// Cancelled: source and target have changed places.
    pub(crate) is_taken_back: bool,
    /// The last key that is done in this phase.
    pub(crate) after: Option<Bytes>,
    /// Parts that were found wrong in this run.
    pub(crate) failures: u8,
    pub(crate) progress: Progress,
}

impl Migration {
    /// A move that has not begun.
    pub fn new(plan: Plan) -> Self {
        let progress = Progress::of(plan.bytes_estimate);
        Self {
            plan,
            phase: Phase::Room,
            is_taken_back: false,
            after: None,
            failures: 0,
            progress,
        }
    }

    /// As it was asked for.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True from a cancellation on.
    pub fn is_taken_back(&self) -> bool {
        self.is_taken_back
    }

    /// What was done so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The part of the work that is done, by estimate, in thousandths: copy, comparison and removal are a third
    /// each. Of one that is taken back no more is known than its phase.
    pub fn done_permille(&self) -> u16 {
        let (progress, is_known) = (&self.progress, !self.is_taken_back);
        let part = |done: u64, all: u64| match is_known {
            true => permille(done, all),
            false => 0,
        };
        let thirds = match self.phase {
            Phase::Room | Phase::Ended(End::NoRoom | End::Differs) => 0,
            Phase::Copy => part(progress.bytes_copied, progress.bytes_estimate),
            Phase::Verify => 1_000 + part(progress.keys_verified, progress.keys_copied),
            Phase::Remove => 2_000 + part(progress.keys_removed, progress.keys_copied),
            Phase::Ended(End::Moved | End::TakenBack) => 3_000,
        };
        thirds / 3
    }

    /// The free space that it needs, in bytes.
    pub fn room_needed_bytes(&self) -> u64 {
        room_needed(self.plan.bytes_estimate)
    }

    /// What is to be done next; `None` when it has ended. The same until [`Migration::step`] is told the result:
    /// an order that failed is tried again.
    pub fn order(&self) -> Option<Order> {
        Some(match self.phase {
            Phase::Room => Order::LookForRoom,
            Phase::Copy => Order::Copy(self.part()),
            Phase::Verify => Order::Verify(self.part()),
            Phase::Remove => Order::Remove(self.part()),
            Phase::Ended(_) => return None,
        })
    }

    /// Goes on by the result of its order.
    ///
    /// # Panics
    /// When the result is one of another kind of order.
    pub fn step(&mut self, event: Event) {
        let phase = self.phase;
        assert_eq!(
            event.phase(),
            phase,
            "{event:?} is the result of another order"
        );
        match event {
            Event::Room { available_bytes } => self.with_room(available_bytes),
            Event::Copied { last, keys, bytes } => {
                self.progress.count_copied(keys, bytes);
                self.go_on(last, Phase::Verify);
            }
            Event::Verified {
                last,
                source,
                target,
            } => self.verified(last, source, target),
            Event::Removed { last, keys, left } => self.removed(last, keys, left),
        }
    }

    /// Turns it round, from where it is: the routes are the source's again from before this on.
    ///
    /// # Errors
    /// [`CancelError`] where there is nothing to cancel.
    pub fn cancel(&mut self) -> Result<(), CancelError> {
        if let Phase::Ended(end) = self.phase {
            return Err(CancelError::Ended(end));
        }
        if self.is_taken_back {
            return Err(CancelError::Cancelled);
        }
        self.is_taken_back = true;
        self.failures = 0;
        // Writes go to the target from the beginning on, so that even a move without a copy has some to bring back.
        self.begin(Phase::Copy);
        Ok(())
    }

    /// To be called when it goes on by its record: a run that ended between a write and the removal of what that
    /// replaced has left something in the source that differs, and that says nothing of the copies.
    pub fn resume(&mut self) {
        self.failures = 0;
    }

    fn part(&self) -> Part {
        let (source, target) = match self.is_taken_back {
            false => (&self.plan.source, &self.plan.target),
            true => (&self.plan.target, &self.plan.source),
        };
        Part {
            source: source.clone(),
            target: target.clone(),
            scope: self.plan.scope.clone(),
            after: self.after.clone(),
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.after = None;
    }

    fn go_on(&mut self, last: Option<Bytes>, next: Phase) {
        match last {
            Some(last) => self.after = Some(last),
            None => self.begin(next),
        }
    }

    fn with_room(&mut self, available_bytes: u64) {
        self.begin(match available_bytes < self.room_needed_bytes() {
            true => Phase::Ended(End::NoRoom),
            false => Phase::Copy,
        });
    }

    fn verified(&mut self, last: Option<Bytes>, source: Tally, target: Tally) {
        if source != target {
            // From this part on: what is before it was right.
            return self.copy_again(self.after.clone());
        }
        self.progress.count_verified(source.keys);
        self.go_on(last, Phase::Remove);
    }

    fn removed(&mut self, last: Option<Bytes>, keys: u64, left: u64) {
        self.progress.count_removed(keys);
        if left > 0 {
            return self.copy_again(None);
        }
        let end = match self.is_taken_back {
            true => End::TakenBack,
            false => End::Moved,
        };
        self.go_on(last, Phase::Ended(end));
    }

    fn copy_again(&mut self, after: Option<Bytes>) {
        self.failures += 1;
        match self.failures > FAILURES_MAX {
            true => self.begin(Phase::Ended(End::Differs)),
            false => {
                self.phase = Phase::Copy;
                self.after = after;
            }
        }
    }
}

/// At most 1,000; what is done twice counts twice.
fn permille(done: u64, all: u64) -> u16 {
    let part = u128::from(done.min(all)) * 1_000 / u128::from(all.max(1));
    u16::try_from(part).unwrap_or(1_000)
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
