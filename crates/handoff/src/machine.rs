//! One transfer, pure: the next question, the checks of an answer, and the confirmed part.
//!
//! A page is confirmed when everything in it is stored, read back and durable; only then does the
//! transfer continue after it. A session is a series of pages over which both sides count and
//! digest the entries sent. An answer that does not fit the receiver's count is not merged, and a
//! new session begins after the confirmed part. The same happens after a crash of either side, or
//! when the source has dropped the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_encoding::StorageKey;
use kvorum_object::{Head, Object};
use kvorum_planted_defects::is_planted;
use kvorum_ring::Epoch;
use kvorum_runtime::Moment;

use crate::chain::Chain;
use crate::progress::Progress;
use crate::settings::TransferSettings;
use crate::transfer_id::{Leg, TransferId};
use crate::wire::{Content, Entry, Page, PageQuestion, Question, Session};

/// Consecutive failures of a session under way after which the transfer gives up its turn.
const FAILURES_MAX: u32 = 3;
/// Consecutive answers "not ready" in a session under way after which the transfer gives up its
/// turn. A transfer does not wait for a session that cannot begin.
const WAITS_MAX: u32 = 5;
/// Consecutive waits of a transfer that keeps its turn while its source is not ready: a planted defect.
const WAITS_MAX_PLANTED: u32 = 20;
/// The least that a page takes from the budget. A page's length is known only on arrival, and is
/// charged with the next page.
const PAGE_BYTES_MIN: u64 = 4 << 10;
/// Consecutive digests that do not match, after which a leg starts again.
const MISMATCHES_MAX: u32 = 3;

/// The event since the last step.
#[derive(Debug)]
pub(crate) enum Event {
    /// Begin, or continue after a pause.
    Go,
    /// The budget admits the next question; the present epoch of the partition to ask.
    Admitted(Epoch),
    /// A page has arrived.
    Page(Page),
    /// A piece of a large object has arrived.
    Piece {
        session: Session,
        offset: u64,
        bytes: Bytes,
    },
    /// The source has dropped the session.
    SessionUnknown,
    /// The source is not ready, for this reason.
    Later { wait: Duration, reason: String },
    /// No answer, or an invalid one.
    Unanswered(String),
    /// The entries are stored, read back and durable.
    Stored,
    /// The entries may not be stored.
    NotStored(String),
    /// The note is durable, or could not be made durable, which only costs time.
    Noted,
}

/// The next action.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Ask the budget, and look up the source's epoch.
    Admit { bytes: u64 },
    /// Ask the source of the present leg.
    Ask(Question),
    /// Merge, make durable, read back.
    Store(Vec<(StorageKey, Arc<Object>)>),
    /// Note the progress.
    Note,
    /// Wait, then continue.
    Pause(Duration, Option<String>),
    /// Give up the turn.
    Rest(String),
    /// Everything is here.
    Finish,
}

/// One transfer.
pub(crate) struct Machine {
    id: TransferId,
    legs: Vec<Leg>,
    settings: TransferSettings,
    progress: Progress,
    /// The leg that is being fetched.
    at: usize,
    session: u64,
    sequence: u32,
    /// The confirmed part of this session.
    chain: Chain,
    asked_epoch: Epoch,
    storing: Option<Storing>,
    large: Option<Large>,
    failures: u32,
    waits: u32,
    mismatches: u32,
    /// Number of consecutive legs that could not begin.
    turned_away: usize,
    /// Bytes of the last page, which are charged to the budget before the next one.
    unpaid: u64,
    noted_at: Moment,
    /// True when nothing was confirmed since the last note.
    is_noted: bool,
    /// Counts for operators.
    keys: u64,
    bytes: u64,
    keys_about: u64,
}

/// A page on its way into the store.
struct Storing {
    through: Option<StorageKey>,
    is_last: bool,
    chain: Chain,
    keys: u64,
    bytes: u64,
    /// The bytes were charged to the budget piece by piece.
    is_paid: bool,
    /// Entries that a planted defect holds back.
    late: Vec<(StorageKey, Arc<Object>)>,
}

/// A partly received large object.
struct Large {
    page: Page,
    body: BytesMut,
    body_len: u64,
}

/// Sizes for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    pub(crate) keys_about: u64,
}

impl Machine {
    /// A transfer that continues from `progress`. `session` is a random number, so that no source
    /// confuses this run with an earlier one.
    pub(crate) fn new(
        id: TransferId,
        legs: Vec<Leg>,
        progress: Progress,
        session: u64,
        settings: TransferSettings,
        now: Moment,
    ) -> Self {
        let at = progress.next_leg(0).unwrap_or(0);
        Self {
            id,
            legs,
            settings,
            is_noted: true,
            progress,
            at,
            session,
            sequence: 0,
            chain: Chain::default(),
            asked_epoch: Epoch::FIRST,
            storing: None,
            large: None,
            failures: 0,
            waits: 0,
            mismatches: 0,
            turned_away: 0,
            unpaid: 0,
            noted_at: now,
            keys: 0,
            bytes: 0,
            keys_about: 0,
        }
    }

    /// The present leg.
    pub(crate) fn leg(&self) -> Option<&Leg> {
        self.legs.get(self.at)
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            keys: self.keys,
            bytes: self.bytes,
            keys_about: self.keys_about,
        }
    }

    /// True when confirmed progress is not noted yet.
    pub(crate) fn has_news(&self) -> bool {
        !self.is_noted
    }

    /// Bytes received last that are not charged to the budget yet.
    pub(crate) fn unpaid(&self) -> u64 {
        self.unpaid
    }

    /// Handles an event; returns the next action.
    pub(crate) fn step(&mut self, event: Event, now: Moment) -> Effect {
        match event {
            Event::Go => self.next(now),
            Event::Admitted(epoch) => self.ask(epoch),
            Event::Page(page) => self.take_page(page, now),
            Event::Piece {
                session,
                offset,
                bytes,
            } => self.take_piece(session, offset, &bytes, now),
            Event::SessionUnknown => {
                self.begin_session();
                self.fail("the source no longer has the pages that it sent".into())
            }
            Event::Later { wait, reason } if self.has_begun() => self.wait(wait, reason),
            Event::Later { reason, .. } => self.try_another_leg(reason, now),
            Event::Unanswered(reason) if self.has_begun() => self.fail(reason),
            Event::Unanswered(reason) => self.try_another_leg(reason, now),
            Event::NotStored(reason) => {
                self.storing = None;
                self.begin_session();
                self.fail(reason)
            }
            Event::Stored => self.confirm(now),
            Event::Noted => {
                self.noted_at = now;
                match self.storing.as_mut().map(|it| std::mem::take(&mut it.late)) {
                    Some(late) => Effect::Store(late),
                    None => {
                        self.is_noted = true;
                        self.next(now)
                    }
                }
            }
        }
    }

    fn next(&mut self, now: Moment) -> Effect {
        if is_planted!(MoveClosedEarly) {
            return Effect::Finish;
        }
        if self.progress.is_done() {
            return Effect::Finish;
        }
        let is_due = now.since(self.noted_at) >= self.settings.cursor_period;
        if is_due && !self.is_noted && self.storing.is_none() && self.large.is_none() {
            return Effect::Note;
        }
        let bytes = match &self.large {
            Some(large) => {
                let missing = large.body_len.saturating_sub(large.body.len() as u64);
                missing.clamp(1, u64::from(self.settings.piece_bytes_max))
            }
            None => self.unpaid.max(PAGE_BYTES_MIN),
        };
        Effect::Admit { bytes }
    }

    /// True when the source has answered in the present session.
    fn has_begun(&self) -> bool {
        let keeps_its_turn = is_planted!(WaitingTransferKeepsTurn);
        self.sequence > 0 || self.large.is_some() || keeps_its_turn
    }

    fn session(&self) -> Option<Session> {
        let leg = self.leg()?;
        Some(Session {
            kind: self.id.kind,
            target: self.id.partition,
            source: leg.source,
            number: self.session,
            sequence: self.sequence,
        })
    }

    fn ask(&mut self, epoch: Epoch) -> Effect {
        let (Some(session), Some(leg)) = (self.session(), self.leg()) else {
            return Effect::Finish;
        };
        if let Some(large) = &self.large {
            return Effect::Ask(Question::Piece {
                session,
                offset: large.body.len() as u64,
                bytes_max: self.settings.piece_bytes_max,
            });
        }
        let question = PageQuestion {
            session,
            epoch,
            wanted: leg.wanted.clone(),
            after: self.progress.legs[self.at].through.clone(),
            bytes_max: self.settings.page_bytes_max,
            entries_max: self.settings.page_entries_max,
            piece_bytes_max: self.settings.piece_bytes_max,
        };
        self.asked_epoch = epoch;
        self.unpaid = 0;
        Effect::Ask(Question::Page(question))
    }

    fn take_page(&mut self, page: Page, now: Moment) -> Effect {
        if Some(page.session) != self.session() {
            return self.fail("an answer to another question".into());
        }
        let is_early = page.epoch < self.asked_epoch;
        if is_early && !is_planted!(EpochRuleSkippedOnReceiver) {
            let (got, expected) = (page.epoch, self.asked_epoch);
            return self.fail(format!("a page of epoch {got} where {expected} was asked"));
        }
        if !self.goes_on(&page) {
            return self.fail("a page out of order".into());
        }
        self.keys_about = self.keys_about.max(page.keys_about);
        match &page.content {
            Content::Large { body_len, .. } => {
                self.large = Some(Large {
                    body_len: *body_len,
                    body: BytesMut::new(),
                    page,
                });
                self.next(now)
            }
            Content::Entries(entries) => {
                let entries = entries.clone();
                self.take_entries(&page, &entries, false, now)
            }
        }
    }

    /// True for a page of ordered keys after the confirmed part.
    fn goes_on(&self, page: &Page) -> bool {
        let mut last = self.progress.legs[self.at].through.as_ref();
        let keys: Vec<&StorageKey> = match &page.content {
            Content::Entries(entries) => entries.iter().map(|entry| &entry.key).collect(),
            Content::Large { key, .. } => vec![key],
        };
        for key in keys {
            if last.is_some_and(|last| key.as_bytes() <= last.as_bytes()) {
                return false;
            }
            last = Some(key);
        }
        let before = self.progress.legs[self.at].through.as_ref();
        match &page.through {
            None => page.is_last && last == before,
            Some(through) => {
                let leads_on = before.is_none_or(|it| through.as_bytes() > it.as_bytes());
                let holds_all = last.is_none_or(|it| through.as_bytes() >= it.as_bytes());
                (leads_on || page.is_last) && holds_all
            }
        }
    }

    fn take_piece(&mut self, session: Session, offset: u64, bytes: &Bytes, now: Moment) -> Effect {
        let asked = self.session();
        let Some(large) = &mut self.large else {
            return self.fail("a piece that was not asked for".into());
        };
        let missing = large.body_len.saturating_sub(large.body.len() as u64);
        let fits = Some(session) == asked
            && offset == large.body.len() as u64
            && bytes.len() as u64 <= missing
            && !(bytes.is_empty() && missing > 0);
        if !fits {
            return self.fail("a piece out of order".into());
        }
        large.body.extend_from_slice(bytes);
        self.failures = 0;
        if bytes.len() as u64 != missing {
            return self.next(now);
        }
        let Some(Large { page, body, .. }) = self.large.take() else {
            return self.next(now);
        };
        let Content::Large { key, head, .. } = &page.content else {
            return self.next(now);
        };
        let (key, head, body) = (key.clone(), head.clone(), body.freeze());
        self.take_entries(&page, &[Entry { key, head, body }], true, now)
    }

    fn take_entries(
        &mut self,
        page: &Page,
        entries: &[Entry],
        is_paid: bool,
        now: Moment,
    ) -> Effect {
        let mut chain = self.chain;
        let mut objects = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            if place % 3 == 0 && is_planted!(TransferCompletedWithoutDigest) {
                continue;
            }
            let object = Head::decode(&entry.head);
            let object = object.and_then(|head| Object::from_parts(head, &entry.body));
            match object {
                Ok(object) => {
                    chain = chain.with(entry.key.as_bytes(), object.clock());
                    objects.push((entry.key.clone(), Arc::new(object)));
                }
                Err(error) => return self.mismatch(format!("a damaged object came: {error}")),
            }
        }
        if chain != page.total && !is_planted!(DigestNotCompared | TransferCompletedWithoutDigest) {
            let (got, expected) = (chain.count, page.total.count);
            return self.mismatch(format!(
                "{got} objects came, and their digest is not that of the {expected} that were sent"
            ));
        }
        let mut storing = Storing {
            through: page.through.clone(),
            is_last: page.is_last,
            chain,
            keys: objects.len() as u64,
            bytes: entries.iter().map(|entry| entry.len() as u64).sum(),
            is_paid,
            late: Vec::new(),
        };
        if is_planted!(CursorBeforeDurable) {
            storing.late = objects;
            self.progress.legs[self.at].through = storing.through.clone();
            self.storing = Some(storing);
            return Effect::Note;
        }
        self.storing = Some(storing);
        if objects.is_empty() {
            return self.confirm(now);
        }
        Effect::Store(objects)
    }

    fn confirm(&mut self, now: Moment) -> Effect {
        let Some(stored) = self.storing.take() else {
            return self.next(now);
        };
        (self.failures, self.waits, self.mismatches) = (0, 0, 0);
        self.turned_away = 0;
        self.unpaid = if stored.is_paid { 0 } else { stored.bytes };
        self.is_noted = false;
        self.keys += stored.keys;
        self.bytes += stored.bytes;
        self.chain = stored.chain;
        self.sequence = self.sequence.wrapping_add(1);
        let leg = &mut self.progress.legs[self.at];
        leg.through = stored.through.or_else(|| leg.through.take());
        if stored.is_last {
            leg.is_done = true;
            self.turn_to(self.at + 1);
        }
        self.next(now)
    }

    /// Handles entries that differ from the sent ones: fetches the page again, and after a few
    /// times the whole leg.
    fn mismatch(&mut self, reason: String) -> Effect {
        self.mismatches += 1;
        if self.mismatches >= MISMATCHES_MAX {
            self.mismatches = 0;
            self.progress.legs[self.at].through = None;
        }
        self.begin_session();
        self.fail(reason)
    }

    fn fail(&mut self, reason: String) -> Effect {
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            return Effect::Pause(self.settings.retry_pause, Some(reason));
        }
        self.failures = 0;
        // The source of another leg may answer.
        self.turn_to(self.at + 1);
        Effect::Rest(reason)
    }

    fn wait(&mut self, wait: Duration, reason: String) -> Effect {
        self.waits += 1;
        let waits_max = match is_planted!(WaitingTransferKeepsTurn) {
            true => WAITS_MAX_PLANTED,
            false => WAITS_MAX,
        };
        if self.waits < waits_max {
            return Effect::Pause(wait.max(self.settings.retry_pause), None);
        }
        self.waits = 0;
        Effect::Rest(reason)
    }

    /// Tries another leg, since the present one cannot begin. When no leg can, gives up the turn at
    /// once.
    fn try_another_leg(&mut self, reason: String, now: Moment) -> Effect {
        self.turned_away += 1;
        self.turn_to(self.at + 1);
        let undone = self.progress.legs.iter().filter(|leg| !leg.is_done);
        if self.turned_away < undone.count() {
            return self.next(now);
        }
        self.turned_away = 0;
        Effect::Rest(reason)
    }

    fn turn_to(&mut self, leg: usize) {
        self.at = self.progress.next_leg(leg).unwrap_or(0);
        self.begin_session();
    }

    fn begin_session(&mut self) {
        self.session = self.session.wrapping_add(1);
        self.sequence = 0;
        self.chain = Chain::default();
        self.large = None;
    }
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;

#[cfg(test)]
#[path = "machine_script_test.rs"]
mod scripts;
