//! The machine: phases, orders, and the transitions by their results.

use std::fmt;

use bytes::Bytes;

use crate::progress::Progress;

/// The number of parts of one run that may differ, or be left, before the move is given up, with
/// both copies in place.
const FAILURES_MAX: u8 = 16;
/// The free space that a move leaves, as a share of the bytes that it copies.
const SPARE_DIVISOR: u64 = 8;

/// A move's scope, source and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The backend that has the entries.
    pub source: String,
    /// The backend that will have them.
    pub target: String,
    /// The common prefix of all its storage keys: of a type, of a bucket, or empty for everything.
    pub scope: Bytes,
    /// The source's bytes in the scope, by estimate.
    pub bytes_estimate: u64,
}

/// The phase of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Free space is compared with the bytes to copy.
    Room,
    /// Entries that the target lacks are copied.
    Copy,
    /// The source's entries are compared with the target's.
    Verify,
    /// The source's entries are removed.
    Remove,
    /// Nothing is left to do.
    Ended(End),
}

/// The end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All entries are in the target, and none in the source.
    Moved,
    /// It was cancelled, and all entries are in the source again.
    TakenBack,
    /// Too little free space. Nothing was copied.
    NoRoom,
    /// The copies remained different. Both exist, and both are read.
    Differs,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Measure the free space of the target's device: [`Event::Room`].
    LookForRoom,
    /// Copy entries that the target lacks, and remove entries from the source if the target has
    /// another version of them: [`Event::Copied`].
    Copy(Part),
    /// Count and digest the source's entries and the target's entries of the same keys: [`Event::Verified`].
    Verify(Part),
    /// Remove entries from the source that the target has too: [`Event::Removed`].
    Remove(Part),
}

/// The part of a scope for an order: from its beginning, as much as the caller's limits allow, but
/// at least one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The backend that is read.
    pub source: String,
    /// The backend that will have all entries.
    pub target: String,
    /// The bytes that all keys start with.
    pub scope: Bytes,
    /// The key behind which it begins; `None` for the beginning of the scope.
    pub after: Option<Bytes>,
}

/// Entries, counted and digested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Their number.
    pub keys: u64,
    /// A digest of keys, fields, heads, bodies and index entries, independent of their order.
    pub digest: u64,
}

/// The result of an order. `last` is the last key of the part, or `None` when it reached the end of
/// the scope.
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
        /// Entries that were removed.
        keys: u64,
        /// Entries that were left, since the target lacks them.
        left: u64,
    },
}

impl Event {
    /// The phase of such orders.
    fn phase(&self) -> Phase {
        match self {
            Self::Room { .. } => Phase::Room,
            Self::Copied { .. } => Phase::Copy,
            Self::Verified { .. } => Phase::Verify,
            Self::Removed { .. } => Phase::Remove,
        }
    }
}

/// Reason that a move cannot be cancelled.
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

/// The free space that a move of this many bytes needs, in bytes.
pub fn room_needed(bytes_estimate: u64) -> u64 {
    bytes_estimate.saturating_add(bytes_estimate / SPARE_DIVISOR)
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    pub(crate) plan: Plan,
    pub(crate) phase: Phase,
    /// The move was cancelled: source and target have changed places.
    pub(crate) is_taken_back: bool,
    /// The last key that is done in this phase.
    pub(crate) after: Option<Bytes>,
    /// Parts that were found different in this run.
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

    /// The plan of the move.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The phase of the move.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// True after a cancellation.
    pub fn is_taken_back(&self) -> bool {
        self.is_taken_back
    }

    /// The work done so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The estimated part of the work that is done, in thousandths: copy, comparison and removal
    /// are a third each. For a cancelled move only the phase is known.
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

    /// The next order; `None` when the move has ended. It is the same until [`Migration::step`]
    /// gets the result: a failed order is repeated.
    pub fn order(&self) -> Option<Order> {
        Some(match self.phase {
            Phase::Room => Order::LookForRoom,
            Phase::Copy => Order::Copy(self.part()),
            Phase::Verify => Order::Verify(self.part()),
            Phase::Remove => Order::Remove(self.part()),
            Phase::Ended(_) => return None,
        })
    }

    /// Continues with the result of the present order.
    ///
    /// # Panics
    /// When the result belongs to another kind of order.
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

    /// Reverses the move, from its present state: the routes must lead to the source again before
    /// this call.
    ///
    /// # Errors
    /// [`CancelError`] if there is nothing to cancel.
    pub fn cancel(&mut self) -> Result<(), CancelError> {
        if let Phase::Ended(end) = self.phase {
            return Err(CancelError::Ended(end));
        }
        if self.is_taken_back {
            return Err(CancelError::Cancelled);
        }
        self.is_taken_back = true;
        self.failures = 0;
        // Writes go to the target from the beginning, so that even a move without a copy has
        // entries to bring back.
        self.begin(Phase::Copy);
        Ok(())
    }

    /// Must be called when the move continues from its record. A run that ended between a write and the
    /// removal of the replaced entry has left a difference in the source, which does not mean a wrong copy.
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
            // From this part on: the parts before it were equal.
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

/// At most 1,000; repeated work counts twice.
fn permille(done: u64, all: u64) -> u16 {
    let part = u128::from(done.min(all)) * 1_000 / u128::from(all.max(1));
    u16::try_from(part).unwrap_or(1_000)
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
