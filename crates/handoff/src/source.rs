//! The answering side: pages of a vnode's entries, and confirmations of epochs.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kvorum_backend::{FoldClock, FoldRange, Lease, Moves, Timestamp};
use kvorum_cluster::ClusterState;
use kvorum_coordinator::LocalVnodes;
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, NodeId, Partition};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::{
    PageFailure, ScanLimits, ScanPage, ScanRequest, StoredObject, Vnode, fold_clock,
};
use parking_lot::Mutex;

use crate::agreed_cluster::AgreedCluster;
use crate::belonging::is_wanted;
use crate::chain::Chain;
use crate::sessions::{Place, Sent, Sessions};
use crate::settings::Budget;
use crate::transfer_id::TransferKind;
use crate::wire::{Answer, Content, Entry, Page, PageQuestion, Question, Session};

/// A receiver that has not asked for this long counts as stopped or waiting.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// A page ends when the bytes of skipped keys are this many times its limit.
const SKIPPED_PAGES_MAX: u64 = 4;
/// Time after which a receiver that has to wait asks again.
const WAIT: Duration = Duration::from_millis(200);
/// The least that a page is charged, since its length is known only after it was read.
const PAGE_BYTES_MIN: u64 = 4 << 10;
/// The longest wait for the budget before the receiver has to ask again.
const BUDGET_WAIT_MAX: Duration = Duration::from_secs(2);

/// The answering side of transfers.
pub(crate) struct Source {
    pub(crate) runtime: Runtime,
    pub(crate) cluster: Arc<dyn AgreedCluster>,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) budget: Arc<dyn Budget>,
    pub(crate) is_enabled: AtomicBool,
    pub(crate) transfers_max: AtomicUsize,
    pub(crate) sessions: Mutex<Sessions>,
    /// Questions refused because there was no room.
    pub(crate) rejected: AtomicU64,
    /// Bytes of pages already read, which are charged with the next page.
    pub(crate) unpaid: AtomicU64,
}

/// The parameters of reading one page.
struct Reading {
    state: Arc<ClusterState>,
    vnode: Arc<Vnode>,
    question: PageQuestion,
    before: Chain,
    lease: Lease,
    clock: FoldClock,
}

/// A page as read.
struct Read {
    entries: Vec<Entry>,
    large: Option<(Entry, u64)>,
    chain: Chain,
    through: Option<StorageKey>,
    is_last: bool,
    bytes: u64,
    skipped: u64,
    damaged: u64,
}

impl Source {
    /// Answers a question of `caller`, this node itself included.
    pub(crate) async fn answer(
        &self,
        caller: NodeId,
        question: Question,
        deadline: Moment,
    ) -> Answer {
        match question {
            Question::Knows { partition, epoch } => Answer::Knows(self.knows(partition, epoch)),
            Question::LacksNothing { partition } => {
                let vnode = self.vnodes.vnode(partition);
                Answer::Knows(vnode.is_some_and(|vnode| vnode.is_complete()))
            }
            Question::Pin { partition, epoch } => self.pin(partition, epoch),
            Question::Piece {
                session,
                offset,
                bytes_max,
            } => self.piece(caller, session, offset, bytes_max).await,
            Question::Page(page) => self.page(caller, page, deadline).await,
        }
    }

    /// The pin of a partition that moves. It does not change here after the move's epoch.
    fn pin(&self, partition: Partition, epoch: Epoch) -> Answer {
        let Some(vnode) = self.vnodes.vnode(partition) else {
            return later("the partition is not open");
        };
        if self.known_epoch(partition) < epoch {
            return later("the ring in which this begins is not known yet");
        }
        let moves = vnode.store_for_upkeep().moves();
        Answer::Pin(moves.and_then(Moves::pinned).map(|it| it.name))
    }

    /// True when this node uses no older ring any more, even after a crash.
    fn knows(&self, partition: Partition, epoch: Epoch) -> bool {
        self.known_epoch(partition) >= epoch
    }

    /// The epoch of a partition that this node has reached both in its agreed state, which survives
    /// a crash, and in the vnode, which refuses older epochs. A vnode that is not open yet will
    /// open with the agreed state.
    fn known_epoch(&self, partition: Partition) -> Epoch {
        let agreed = self.cluster.current().ring().epoch(partition);
        let vnode = self.vnodes.vnode(partition);
        vnode.map_or(agreed, |vnode| agreed.min(vnode.status().epoch))
    }

    async fn page(&self, caller: NodeId, question: PageQuestion, deadline: Moment) -> Answer {
        let session = question.session;
        let Some(vnode) = self.vnodes.vnode(session.source) else {
            return later("the partition is not open");
        };
        let epoch = self.known_epoch(session.source);
        if epoch < question.epoch && !is_planted!(EpochRuleSkippedOnSender | SentBeforeLearned) {
            return later("the ring of this transfer has not arrived yet");
        }
        // The planted defect skips the whole rule, so its answers must not reveal the older epoch:
        // receivers check too.
        let epoch = if is_planted!(EpochRuleSkippedOnSender) {
            epoch.max(question.epoch)
        } else {
            epoch
        };
        // Repairs fetch from all replicas, even from incomplete ones, so that two incomplete
        // replicas do not wait for each other.
        if !vnode.is_complete() && session.kind != TransferKind::Repair {
            return later("the partition is being repaired there");
        }
        let place = (caller, session.kind, session.target, session.source);
        if !self.has_room(place, self.runtime.now()) {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return later("no more may be sent at present");
        }
        let unpaid = self.unpaid.load(Ordering::Relaxed);
        if let Some(refused) = self.until_admitted(unpaid.max(PAGE_BYTES_MIN)).await {
            return refused;
        }
        let order = Ordering::Relaxed;
        let paid = |left: u64| Some(left.saturating_sub(unpaid));
        let _always_updated = self.unpaid.fetch_update(order, order, paid);
        let before = self
            .sessions
            .lock()
            .before(place, session, question.after.as_ref());
        let Some(before) = before else {
            return Answer::UnknownSession;
        };
        let (now, wall) = (self.runtime.now(), self.runtime.wall_time());
        let clock = fold_clock(self.runtime.clock());
        let reading = Reading {
            state: self.cluster.current(),
            vnode,
            question: question.clone(),
            before,
            lease: Lease::Until(Timestamp(wall.plus(deadline.since(now)).micros())),
            clock,
        };
        match self.runtime.blocking(move || reading.read()).await {
            Ok((read, keys_about)) => {
                // The body of a large object is charged piece by piece.
                let large = read.large.as_ref().map_or(0, |(_, body_len)| *body_len);
                let bytes = read.bytes.saturating_add(read.skipped);
                let bytes = bytes.saturating_sub(large);
                self.unpaid.fetch_add(bytes, Ordering::Relaxed);
                self.sent(place, question, before, epoch, read, keys_about)
            }
            Err(reason) => Answer::Later { wait: WAIT, reason },
        }
    }

    fn has_room(&self, place: Place, now: Moment) -> bool {
        let others = self.sessions.lock().others(place, now, SILENCE_MAX);
        let transfers_max = self.transfers_max.load(Ordering::Relaxed);
        self.is_enabled.load(Ordering::Relaxed) && others < transfers_max
    }

    fn sent(
        &self,
        place: Place,
        question: PageQuestion,
        before: Chain,
        epoch: Epoch,
        read: Read,
        keys_about: u64,
    ) -> Answer {
        if read.damaged > 0 {
            let partition = question.session.source.number();
            tracing::warn!(
                event = "transfer_skips_damaged",
                partition,
                objects = read.damaged
            );
        }
        let large_body = read.large.as_ref().map(|(entry, _)| entry.body.clone());
        let sent = Sent {
            chain: read.chain,
            through: read.through.clone(),
            large: large_body.unwrap_or_default(),
            bytes: read.bytes,
            is_last: read.is_last,
        };
        let now = self.runtime.now();
        let session = question.session;
        self.sessions
            .lock()
            .sent(place, session, question.after, before, sent, now);
        Answer::Page(Page {
            session,
            epoch,
            total: read.chain,
            keys_about,
            is_last: read.is_last,
            through: read.through,
            content: match read.large {
                Some((entry, body_len)) => Content::Large {
                    key: entry.key,
                    head: entry.head,
                    body_len,
                },
                None => Content::Entries(read.entries),
            },
        })
    }

    /// Waits for the budget; returns the answer "later" if that takes long.
    async fn until_admitted(&self, bytes: u64) -> Option<Answer> {
        let until = self.runtime.now().plus(BUDGET_WAIT_MAX);
        loop {
            let wait = self.budget.ask(bytes);
            if wait.is_zero() {
                return None;
            }
            if self.runtime.now().plus(wait) > until {
                let reason = "there is more urgent work".to_owned();
                return Some(Answer::Later { wait, reason });
            }
            self.runtime.sleep(wait).await;
        }
    }

    async fn piece(&self, caller: NodeId, session: Session, offset: u64, bytes_max: u32) -> Answer {
        let place = (caller, session.kind, session.target, session.source);
        if let Some(refused) = self.until_admitted(u64::from(bytes_max)).await {
            return refused;
        }
        let now = self.runtime.now();
        let Some(body) = self.sessions.lock().large(place, session, now) else {
            return Answer::UnknownSession;
        };
        let len = body.len();
        let from = usize::try_from(offset).unwrap_or(len).min(len);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(len);
        let to = from.saturating_add(bytes_max).min(len);
        let keeps_turn = is_planted!(SentTransferKeepsTurn);
        if to == len && !keeps_turn {
            self.sessions.lock().sent_large(place, session);
        }
        Answer::Piece {
            session,
            offset,
            bytes: body.slice(from..to),
        }
    }
}

fn later(reason: &str) -> Answer {
    Answer::Later {
        wait: WAIT,
        reason: reason.to_owned(),
    }
}

impl Reading {
    /// Reads a page from a snapshot of its own; also returns the approximate number of keys.
    /// Blocks.
    fn read(&self) -> Result<(Read, u64), String> {
        let question = &self.question;
        // The snapshot has to include writes that were admitted before this node applied the move.
        self.vnode.await_earlier_writes();
        let (target, wanted) = (question.session.target, &question.wanted);
        let is_wanted = &mut |key: &StorageKey| is_wanted(&self.state, target, wanted, key);
        let page = self.vnode.scan(&self.request(), is_wanted);
        let page = page.map_err(|failure| match failure {
            PageFailure::OutOfTime => "the time for a page ran out".to_owned(),
            PageFailure::Failed(failure) => failure.to_string(),
        })?;
        let is_first = question.session.sequence == 0;
        let keys_about = if is_first {
            self.vnode.store_status().keys
        } else {
            0
        };
        Ok((self.take(page), keys_about))
    }

    fn request(&self) -> ScanRequest {
        let question = &self.question;
        let from = question.after.as_ref();
        let bytes_max = u64::from(question.bytes_max);
        ScanRequest {
            range: FoldRange {
                from: from.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_bytes())),
                ..FoldRange::all()
            },
            clock: self.clock.clone(),
            lease: self.lease,
            limits: ScanLimits {
                entries_max: usize::try_from(question.entries_max).unwrap_or(usize::MAX),
                bytes_max,
                shared_body_bytes_max: u64::from(question.piece_bytes_max),
                passed_over_bytes_max: bytes_max.saturating_mul(SKIPPED_PAGES_MAX),
            },
        }
    }

    /// Extracts the answer from a page. Bodies are slices of the engine's buffers, since they are
    /// sent at once.
    fn take(&self, page: ScanPage<StoredObject>) -> Read {
        let chained =
            |chain: Chain, it: &StoredObject| chain.with(it.key.as_bytes(), it.head.clock());
        let chain = page.entries.iter().fold(self.before, chained);
        let mut entries: Vec<Entry> = page.entries.into_iter().map(Entry::from).collect();
        let piece_bytes_max = u64::from(self.question.piece_bytes_max);
        let large = entries.pop_if(|entry| entry.body.len() as u64 > piece_bytes_max);
        Read {
            entries,
            large: large.map(|entry| {
                let body_len = entry.body.len() as u64;
                (entry, body_len)
            }),
            chain,
            through: page.through,
            is_last: page.next.is_none(),
            bytes: page.bytes,
            skipped: page.passed_over_bytes,
            damaged: page.undecodable,
        }
    }
}
