//! The list of a node's connections, for its operators, and the limits on their number.
//!
//! Each connection is an open file, and a node must not run out of files. A node needs one
//! connection for each lane and member in each direction. A member may have a few more inbound
//! ones, since connections of a broken link are detected only after a while; the newest are in use.
//! Callers that have not introduced themselves as members yet share a fixed number of places.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kvorum_ring::NodeId;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::answers::Answers;
use crate::lane::Lane;
use crate::service::Caller;

/// Connections that a member may have on one lane; one more ends the oldest.
const ANSWERED_PER_LANE_MAX: usize = 3;
/// Connections of callers that are not members, or have not introduced themselves yet; further ones are
/// closed.
const GUESTS_MAX: usize = 64;

/// The most connections, in both directions, of a node with this many `others` in its cluster.
#[must_use]
pub const fn connections_max(others: u64) -> u64 {
    let per_member = Lane::COUNT as u64 * (1 + ANSWERED_PER_LANE_MAX as u64);
    others.saturating_mul(per_member) + GUESTS_MAX as u64
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connected {
    /// The node at the other end.
    pub node: NodeId,
    /// Its lane.
    pub lane: Lane,
    /// True when this node sends requests over it, false when it answers them.
    pub is_asking: bool,
    /// True when the connection is encrypted.
    pub is_encrypted: bool,
}

/// The connections on which this node answers.
#[derive(Default)]
pub(crate) struct Callers {
    known: Mutex<Known>,
    guests: AtomicUsize,
    /// Notified when a connection has ended.
    ended: Notify,
    /// The last caller was refused, since all places were taken.
    is_crowded: AtomicBool,
}

#[derive(Default)]
struct Known {
    next: u64,
    connected: BTreeMap<u64, Entry>,
    /// Connections that are being read, including dismissed ones.
    read: BTreeMap<u64, (NodeId, Lane)>,
    is_leaving: bool,
}

struct Entry {
    connected: Connected,
    is_member: bool,
    answers: Arc<Answers>,
    /// Dropped to end the connection.
    _standing: oneshot::Sender<()>,
}

/// One answered connection, for as long as it is open.
pub(crate) struct Calling {
    callers: Arc<Callers>,
    number: u64,
    /// Resolves when the connection has to end, because of newer connections or the end of the
    /// caller's membership.
    pub(crate) dismissed: oneshot::Receiver<()>,
}

/// The place of a caller that is not a member, or has not introduced itself yet.
pub(crate) struct Guest(Arc<Callers>);

impl Callers {
    /// A place for a caller before its introduction, if there is one.
    pub(crate) fn welcome(self: &Arc<Self>, peer: SocketAddr) -> Option<Guest> {
        let before = self.guests.fetch_add(1, Ordering::Relaxed);
        // Dropping the guest gives the place back.
        let guest = Guest(self.clone());
        if before < GUESTS_MAX {
            self.is_crowded.store(false, Ordering::Relaxed);
            return Some(guest);
        }
        if !self.is_crowded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "peer_connections_refused",
                peer = %peer,
                most = GUESTS_MAX,
                "that many callers at the peer listener have not identified themselves as members",
            );
        }
        None
    }

    /// Adds a connection. If the member has too many on the lane, its oldest is ended.
    pub(crate) fn note(
        self: &Arc<Self>,
        connected: Connected,
        is_member: bool,
        answers: Arc<Answers>,
    ) -> Calling {
        let (standing, dismissed) = oneshot::channel();
        let mut known = self.known.lock();
        let number = known.next;
        known.next += 1;
        if is_member {
            known.make_room_for(&connected);
        }
        if known.is_leaving && connected.lane == Lane::Requests {
            answers.take_leave();
        }
        let entry = Entry {
            connected,
            is_member,
            answers,
            _standing: standing,
        };
        known.connected.insert(number, entry);
        known.read.insert(number, (connected.node, connected.lane));
        Calling {
            callers: self.clone(),
            number,
            dismissed,
        }
    }

    /// Ends the connections that a node opened as a member.
    pub(crate) fn dismiss(&self, node: NodeId) {
        let mut known = self.known.lock();
        known
            .connected
            .retain(|_, entry| !entry.is_member || entry.connected.node != node);
    }

    /// Ends the caller's earlier connections on the same lane, and waits until they are no longer
    /// read.
    pub(crate) async fn end_older(&self, caller: Caller) {
        let of_caller = (caller.node, caller.lane);
        let is_older = |number: u64, connected: (NodeId, Lane)| {
            number < caller.connection && connected == of_caller
        };
        self.known.lock().connected.retain(|number, entry| {
            let Connected { node, lane, .. } = entry.connected;
            !is_older(*number, (node, lane))
        });
        loop {
            let mut ended = pin!(self.ended.notified());
            // Enabled before the check, so that no end is missed.
            ended.as_mut().enable();
            let is_any_read = {
                let known = self.known.lock();
                let mut read = known.read.iter();
                read.any(|(number, connected)| is_older(*number, *connected))
            };
            if !is_any_read {
                return;
            }
            ended.await;
        }
    }

    /// Sends a farewell on all connections of [`Lane::Requests`], after the answers of requests in
    /// progress. Waits until the callers have ended these connections.
    pub(crate) async fn take_leave(&self) {
        {
            let mut known = self.known.lock();
            known.is_leaving = true;
            known.of_requests().for_each(|it| it.answers.take_leave());
        }
        loop {
            let mut ended = pin!(self.ended.notified());
            // Enabled before the check, so that no end is missed.
            ended.as_mut().enable();
            if self.known.lock().of_requests().next().is_none() {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn all(&self) -> Vec<Connected> {
        let known = self.known.lock();
        known.connected.values().map(|it| it.connected).collect()
    }
}

impl Known {
    fn of_requests(&self) -> impl Iterator<Item = &Entry> {
        let all = self.connected.values();
        all.filter(|it| it.connected.lane == Lane::Requests)
    }

    fn make_room_for(&mut self, connected: &Connected) {
        let is_like = |entry: &Entry| {
            let (node, lane) = (entry.connected.node, entry.connected.lane);
            entry.is_member && (node, lane) == (connected.node, connected.lane)
        };
        let like = self.connected.iter().filter(|(_, entry)| is_like(entry));
        let numbers: Vec<u64> = like.map(|(number, _)| *number).collect();
        let beyond = (numbers.len() + 1).saturating_sub(ANSWERED_PER_LANE_MAX);
        for number in &numbers[..beyond.min(numbers.len())] {
            self.connected.remove(number);
            tracing::warn!(
                event = "peer_connection_replaced",
                node = %connected.node,
                lane = connected.lane.name(),
                most = ANSWERED_PER_LANE_MAX,
                "a member with that many connections on a lane loses the oldest",
            );
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Calling {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let mut known = self.callers.known.lock();
        known.connected.remove(&self.number);
        known.read.remove(&self.number);
        drop(known);
        self.callers.ended.notify_waiters();
    }
}
