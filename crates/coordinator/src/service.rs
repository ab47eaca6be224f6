//! The answering side: carries out other nodes' requests to this node's replicas.
//!
//! As with requests of this node's clients, a request that memory can answer is answered on the
//! thread that received it, and the rest goes to the blocking pool. A write has one answer, once it
//! is as durable as requested. Riak sends two, one for w and one for dw. The first helps only if w
//! is larger than dw, and costs a message for each replica of every write.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durable, ErrorKind, FoldClock, Lease, Reading, SyncTicket};
use kvorum_peer::{Caller, Message, PeerService, Served};
use kvorum_ring::{Epoch, Partition, Role};
use kvorum_runtime::Moment;
use kvorum_vnode::wire::{PeerRequest, WireMessage, decode_request, encode_reply};
use kvorum_vnode::{
    Handled, Operation, PageFailure, PageKind, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode,
};

use crate::gate::Gate;
use crate::hints::HintStore;
use crate::local_vnodes::{LocalReplica, read_blocking, synced};
use crate::parts::Parts;
use crate::peers::value_sent;

/// Answers other nodes.
pub struct ReplicaService {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    /// The hints that this node keeps for other nodes.
    hints: Arc<dyn HintStore>,
    waiting: Arc<Gate>,
}

impl ReplicaService {
    /// A service over this node's replicas. While `waiting_max` requests wait for devices or
    /// threads, further ones are refused with `overload`. Puts are also refused while
    /// [`Parts::maintenance`] refuses them.
    pub fn new(parts: Parts, hints: Arc<dyn HintStore>, waiting_max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                parts,
                hints,
                waiting: Arc::new(Gate::new(waiting_max)),
            }),
        }
    }

    fn has_room_for(&self, operation: &Operation) -> bool {
        let makes_room = match operation {
            Operation::Coordinate { update, .. } => update.content.metadata.deleted,
            Operation::Apply { .. } | Operation::Follow { .. } => false,
            Operation::Store { object, .. } => object.is_tombstone(),
            Operation::Get { .. } | Operation::Mend { .. } | Operation::Reap { .. } => true,
        };
        makes_room || !self.shared.parts.maintenance.refuses_puts()
    }

    fn serve_replica(&self, role: Role, request: ReplicaRequest, sent: Bytes) -> Served {
        let under_way = self.shared.parts.under_way.begin_owned();
        if !self.has_room_for(&request.operation) {
            return Served::Overload;
        }
        let replica = match self.shared.replica(role, request.partition, request.epoch) {
            Ok(replica) => replica,
            Err(failure) => return answered(&ReplicaReply::Failed(failure)),
        };
        let now = self.shared.parts.wall_time();
        let partition = request.partition;
        let handled = replica.handle(&request, now, Reading::CachedOnly);
        let work = match handled {
            Handled::Done(reply) => match ticket_of(&reply) {
                None => return Served::Now(message(&reply, &sent)),
                Some(ticket) => Ok((reply, ticket)),
            },
            Handled::WouldBlock => Err((replica, request)),
        };
        let counted = self.shared.waiting.enter_owned();
        if counted.is_none() && work.is_err() {
            return Served::Overload;
        }
        // A write that is not synced yet cannot be undone: it is answered even beyond the limit.
        let shared = self.shared.clone();
        Served::Later(Box::pin(async move {
            let _counted = counted;
            let reply = match work {
                Ok((reply, ticket)) => return shared.synced(partition, reply, ticket, &sent).await,
                Err((replica, request)) => {
                    let now = shared.parts.wall_time();
                    // The thread continues after the caller has stopped waiting.
                    let work = move || {
                        let _under_way = under_way;
                        replica.handle_blocking(&request, now)
                    };
                    shared.parts.runtime.blocking(work).await
                }
            };
            match ticket_of(&reply) {
                Some(ticket) => shared.synced(partition, reply, ticket, &sent).await,
                None => message(&reply, &sent),
            }
        }))
    }

    /// Reads a part of a listing, an index query or a fold, or an answer of a tree.
    fn serve_part<T: Send + 'static>(
        &self,
        (partition, epoch): (Partition, Epoch),
        deadline: Moment,
        read: impl FnOnce(&Vnode, &FoldClock, Lease) -> Result<T, PageFailure> + Send + 'static,
        reply: impl FnOnce(T) -> ReplicaReply + Send + 'static,
    ) -> Served {
        let known = self.shared.epoch_known(partition, epoch);
        let vnode = self.shared.parts.vnodes.vnode(partition);
        let absent = || self.shared.absent(partition);
        let vnode = match known.and(vnode.ok_or_else(absent)) {
            Ok(vnode) => vnode,
            Err(failure) => return answered(&ReplicaReply::Failed(failure)),
        };
        let Some(counted) = self.shared.waiting.enter_owned() else {
            return Served::Overload;
        };
        let shared = self.shared.clone();
        Served::Later(Box::pin(async move {
            let _counted = counted;
            let Parts { runtime, meter, .. } = &shared.parts;
            let remaining = deadline.since(runtime.now());
            let read = move |clock: &FoldClock, lease| read(&vnode, clock, lease);
            let (part, _) = read_blocking(runtime, meter, remaining, read).await;
            let reply = match part {
                Ok(part) => reply(part),
                Err(PageFailure::Failed(failure)) => ReplicaReply::Failed(failure),
                Err(PageFailure::OutOfTime) => ReplicaReply::Failed(ReplicaFailure::Storage(
                    "the time to read it ran out".into(),
                )),
            };
            message(&reply, &Bytes::new())
        }))
    }
}

impl PeerService for ReplicaService {
    fn handle(&self, caller: Caller, asked: Message, deadline: Moment) -> Served {
        if !caller.is_member {
            return answered(&ReplicaReply::Failed(ReplicaFailure::NotServing));
        }
        let Message { head, body } = asked;
        match decode_request(&WireMessage { head, body }) {
            Ok(request) => {
                let sent = value_sent(&request);
                match request {
                    PeerRequest::Replica { role, request } => {
                        self.serve_replica(role, request, sent)
                    }
                    PeerRequest::Page(page) if page.kind == PageKind::Count => self.serve_part(
                        (page.partition, page.epoch),
                        deadline,
                        move |vnode, clock, lease| vnode.count_page(&page, clock, lease),
                        ReplicaReply::Counted,
                    ),
                    PeerRequest::Page(page) => self.serve_part(
                        (page.partition, page.epoch),
                        deadline,
                        move |vnode, clock, lease| vnode.page(&page, clock, lease),
                        ReplicaReply::Listed,
                    ),
                    PeerRequest::IndexPage(page) => self.serve_part(
                        (page.partition, page.epoch),
                        deadline,
                        move |vnode, clock, lease| vnode.index_page(&page, clock, lease),
                        ReplicaReply::IndexListed,
                    ),
                    PeerRequest::Tree(asked) => self.serve_part(
                        (asked.partition, asked.epoch),
                        deadline,
                        move |vnode, clock, lease| vnode.answer_about_trees(&asked, clock, lease),
                        ReplicaReply::Trees,
                    ),
                    PeerRequest::KeyFold(asked) => self.serve_part(
                        (asked.partition, asked.epoch),
                        deadline,
                        move |vnode, clock, lease| vnode.key_fold_part(&asked, clock, lease),
                        |part| ReplicaReply::Folded(Box::new(part)),
                    ),
                }
            }
            Err(error) => {
                tracing::warn!(
                    event = "peer_request_malformed",
                    node = %caller.node,
                    error = %error,
                );
                answered(&ReplicaReply::Failed(ReplicaFailure::Internal(
                    error.to_string(),
                )))
            }
        }
    }
}

impl Shared {
    /// The reason why there is no vnode.
    fn absent(&self, partition: Partition) -> ReplicaFailure {
        self.parts.vnodes.absence(partition).into()
    }

    fn replica(
        &self,
        role: Role,
        partition: Partition,
        epoch: Epoch,
    ) -> Result<LocalReplica, ReplicaFailure> {
        match role {
            Role::Primary => {
                let vnode = self.parts.vnodes.vnode(partition);
                vnode
                    .map(LocalReplica::Vnode)
                    .ok_or_else(|| self.absent(partition))
            }
            Role::Fallback => {
                // A stand-in has no epoch of its own: the ring's counts.
                self.epoch_known(partition, epoch)?;
                Ok(LocalReplica::Hints(self.hints.clone()))
            }
        }
    }

    /// Refuses a request with an older ring than this node's.
    fn epoch_known(&self, partition: Partition, got: Epoch) -> Result<(), ReplicaFailure> {
        let expected = self.parts.cluster.look().ring().epoch(partition);
        if got < expected {
            return Err(ReplicaFailure::StaleEpoch { got, expected });
        }
        Ok(())
    }

    /// The answer, once the write is as durable as promised.
    async fn synced(
        &self,
        partition: Partition,
        reply: ReplicaReply,
        ticket: SyncTicket,
        sent: &Bytes,
    ) -> Message {
        match synced(&self.parts.runtime, ticket).await {
            Ok(()) => message(&reply, sent),
            Err(error) => {
                let detail = error.to_string();
                let failure = match error.kind() {
                    ErrorKind::Full => {
                        if let Some(vnode) = self.parts.vnodes.vnode(partition) {
                            vnode.note_disk_full();
                        }
                        ReplicaFailure::Full(detail)
                    }
                    _ => ReplicaFailure::Storage(detail),
                };
                message(&ReplicaReply::Failed(failure), sent)
            }
        }
    }
}

fn ticket_of(reply: &ReplicaReply) -> Option<SyncTicket> {
    match reply {
        ReplicaReply::Stored { durable, .. }
        | ReplicaReply::Updated { durable, .. }
        | ReplicaReply::Received { durable } => match durable {
            Durable::Already => None,
            Durable::After(ticket) => Some(ticket.clone()),
        },
        _ => None,
    }
}

fn message(reply: &ReplicaReply, sent: &Bytes) -> Message {
    let WireMessage { head, body } = encode_reply(reply, sent);
    Message { head, body }
}

fn answered(reply: &ReplicaReply) -> Served {
    Served::Now(message(reply, &Bytes::new()))
}
