//! The sessions of a source: their position and the amount sent.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kvorum_encoding::StorageKey;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Moment;

use crate::chain::Chain;
use crate::transfer_id::TransferKind;
use crate::wire::Session;

/// The maximum number of sessions; beyond it the longest idle session is dropped.
const SESSIONS_MAX: usize = 1_000;

/// A session without a question for this long is dropped: a receiver that asks again begins a new
/// session after its confirmed part.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The receiver, the kind, and the target and source vnodes of a transfer from this node.
pub(crate) type Place = (NodeId, TransferKind, Partition, Partition);

/// The sessions of one source.
#[derive(Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<Place, Remembered>,
}

pub(crate) struct Remembered {
    number: u64,
    /// The page that was sent last.
    sequence: u32,
    before: Point,
    after: Point,
    /// The body of the object that was too large for the last page.
    large: Bytes,
    /// No page follows the last one.
    is_last: bool,
    /// Everything was sent.
    is_over: bool,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    pub(crate) begun_at: Moment,
    asked_at: Moment,
}

impl Remembered {
    /// True when `session` names the page that was sent last.
    fn is_at(&self, session: Session) -> bool {
        self.number == session.number && self.sequence == session.sequence
    }
}

/// A place in the order of keys, and the chain up to it.
#[derive(Clone, Default)]
struct Point {
    chain: Chain,
    through: Option<StorageKey>,
}

/// The position after the entries that were sent.
pub(crate) struct Sent {
    pub(crate) chain: Chain,
    pub(crate) through: Option<StorageKey>,
    pub(crate) large: Bytes,
    pub(crate) bytes: u64,
    pub(crate) is_last: bool,
}

impl Sessions {
    /// Number of other places that have asked within `recent`.
    pub(crate) fn others(&self, place: Place, now: Moment, recent: Duration) -> usize {
        let active = self.active(now, recent);
        active.filter(|(other, _)| **other != place).count()
    }

    /// The chain before the requested page; `None` if it is not known.
    pub(crate) fn before(
        &self,
        place: Place,
        session: Session,
        after: Option<&StorageKey>,
    ) -> Option<Chain> {
        if session.sequence == 0 {
            return Some(Chain::default());
        }
        let known = self.sessions.get(&place)?;
        let point = if session.sequence == known.sequence.wrapping_add(1) {
            &known.after
        } else if session.sequence == known.sequence {
            &known.before
        } else {
            return None;
        };
        let fits = known.number == session.number && point.through.as_ref() == after;
        fits.then_some(point.chain)
    }

    /// Records that a page was sent.
    pub(crate) fn sent(
        &mut self,
        place: Place,
        session: Session,
        after: Option<StorageKey>,
        before: Chain,
        sent: Sent,
        now: Moment,
    ) {
        let known = self.sessions.get(&place);
        let known = known.filter(|it| it.number == session.number && session.sequence > 0);
        let (keys, bytes) = known.map_or((0, 0), |it| (it.keys, it.bytes));
        let remembered = Remembered {
            number: session.number,
            sequence: session.sequence,
            begun_at: known.map_or(now, |it| it.begun_at),
            before: Point {
                chain: before,
                through: after.clone(),
            },
            keys: keys + (sent.chain.count - before.count),
            bytes: bytes + sent.bytes,
            after: Point {
                chain: sent.chain,
                through: sent.through.or(after),
            },
            is_last: sent.is_last,
            is_over: sent.is_last && sent.large.is_empty(),
            large: sent.large,
            asked_at: now,
        };
        self.sessions
            .retain(|_, it| now.since(it.asked_at) < SILENCE_MAX);
        self.sessions.insert(place, remembered);
        if self.sessions.len() > SESSIONS_MAX {
            let silent = self.sessions.iter().min_by_key(|(_, it)| it.asked_at);
            if let Some(place) = silent.map(|(place, _)| *place) {
                self.sessions.remove(&place);
            }
        }
    }

    /// The body of the large object of the page that was sent last.
    pub(crate) fn large(&mut self, place: Place, session: Session, now: Moment) -> Option<Bytes> {
        let known = self.sessions.get_mut(&place)?;
        known.asked_at = now;
        known.is_at(session).then(|| known.large.clone())
    }

    /// Records that the end of the large object's body was sent, which completes the last page.
    pub(crate) fn sent_large(&mut self, place: Place, session: Session) {
        let known = self.sessions.get_mut(&place);
        if let Some(known) = known.filter(|it| it.is_at(session)) {
            known.is_over = known.is_last;
        }
    }

    /// Unfinished sessions with a question within `recent`.
    pub(crate) fn active(
        &self,
        now: Moment,
        recent: Duration,
    ) -> impl Iterator<Item = (&Place, &Remembered)> {
        let is_active = move |it: &Remembered| !it.is_over && now.since(it.asked_at) < recent;
        self.sessions.iter().filter(move |(_, it)| is_active(it))
    }
}

#[cfg(test)]
mod tests {
    use kvorum_ring::RingSize;

    use super::*;

    const PAGE: Sent = Sent {
        chain: Chain {
            count: 1,
            digest: 0,
        },
        through: None,
        large: Bytes::new(),
        bytes: 10,
        is_last: true,
    };

    /// Regression: a session whose last object came in pieces counted as under way until it was
    /// idle for seconds, and others waited for its place.
    #[test]
    fn a_session_is_over_when_the_end_of_its_last_object_was_sent() {
        let now = Moment::default();
        let partition = RingSize::new(64).unwrap().partition(3).unwrap();
        let session = Session {
            kind: TransferKind::Repair,
            target: partition,
            source: partition,
            number: 1,
            sequence: 0,
        };
        let next = Session {
            sequence: 1,
            ..session
        };
        let place = (
            NodeId::from_bytes([1; 16]),
            session.kind,
            partition,
            partition,
        );
        let mut sessions = Sessions::default();
        let active = |sessions: &Sessions| sessions.active(now, SILENCE_MAX).count();
        let large = |is_last| Sent {
            large: Bytes::from_static(b"large"),
            is_last,
            ..PAGE
        };
        sessions.sent(place, session, None, Chain::default(), large(false), now);
        sessions.sent_large(place, session);
        assert_eq!(active(&sessions), 1, "pages are left");
        sessions.sent(place, next, None, PAGE.chain, large(true), now);
        sessions.sent_large(place, session);
        assert_eq!(active(&sessions), 1, "it was asked of an earlier page");
        sessions.sent_large(place, next);
        assert_eq!(active(&sessions), 0);
        assert!(
            sessions.large(place, next, now).is_some(),
            "its answer may be lost"
        );
        assert_eq!(active(&sessions), 0);
    }
}
