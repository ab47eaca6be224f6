//! Merging a page into a vnode: stored, durable, read back.

use std::sync::Arc;

use kvorum_backend::{Durability, Durable, Reading, SyncTicket, Timestamp};
use kvorum_cluster::ClusterState;
use kvorum_encoding::StorageKey;
use kvorum_object::{Object, ObjectTag, Resolution};
use kvorum_runtime::Runtime;
use kvorum_vnode::{
    Detail, Handled, Operation, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode,
};

/// Objects of other replicas, with their keys.
pub(crate) type Objects = Vec<(StorageKey, Arc<Object>)>;

/// Merges objects, waits until they are durable, and checks that each is stored. When this fails, some
/// may be there and some not; merging again does no harm.
pub(crate) async fn store(
    runtime: &Runtime,
    vnode: Arc<Vnode>,
    state: Arc<ClusterState>,
    objects: Objects,
) -> Result<(), String> {
    let merging = Merging {
        vnode,
        state,
        now: Timestamp(runtime.wall_time().micros()),
    };
    let (merging, objects, tickets) = {
        let merge = move || {
            let tickets = merging.merge(&objects);
            tickets.map(|tickets| (merging, objects, tickets))
        };
        runtime.blocking(merge).await?
    };
    let failed = |error: kvorum_backend::BackendError| error.to_string();
    let mut undriven = Vec::new();
    for ticket in tickets {
        if ticket.is_driven() {
            ticket.await.map_err(failed)?;
        } else {
            undriven.push(ticket);
        }
    }
    let read_back = move || {
        for ticket in undriven {
            ticket.wait().map_err(failed)?;
        }
        let holds = |(key, object): &(StorageKey, Arc<Object>)| merging.check(key, object);
        objects.iter().try_for_each(holds)
    };
    runtime.blocking(read_back).await
}

struct Merging {
    vnode: Arc<Vnode>,
    state: Arc<ClusterState>,
    now: Timestamp,
}

impl Merging {
    fn merge(&self, objects: &Objects) -> Result<Vec<SyncTicket>, String> {
        let mut tickets = Vec::new();
        let mut is_mended = false;
        for (key, object) in objects {
            let (resolution, tag) = self.rules(key);
            let store = Operation::Store {
                key: key.clone(),
                object: object.clone(),
                resolution,
                tag,
                durability: Durability::Grouped,
            };
            let mut reply = self.carry_out(store);
            if matches!(reply, ReplicaReply::Failed(ReplicaFailure::Damaged(_))) {
                let mend = Operation::Mend {
                    key: key.clone(),
                    object: object.clone(),
                    resolution,
                    tag,
                };
                reply = self.carry_out(mend);
                is_mended = true;
            }
            match reply {
                ReplicaReply::Received {
                    durable: Durable::After(ticket),
                } => tickets.push(ticket),
                ReplicaReply::Received {
                    durable: Durable::Already,
                } => {}
                ReplicaReply::Failed(failure) => return Err(failure.to_string()),
                other => return Err(format!("a vnode answered {other:?} to a store")),
            }
        }
        if is_mended {
            // A mended entry is buffered.
            let synced = self.vnode.sync();
            synced.map_err(|failure| failure.to_string())?;
        }
        Ok(tickets)
    }

    /// Checks that the stored object has seen the sent one.
    fn check(&self, key: &StorageKey, sent: &Object) -> Result<(), String> {
        let get = Operation::Get {
            key: key.clone(),
            detail: Detail::Head,
        };
        let is_over = || {
            let expiry = sent.expires_at().map(kvorum_object::Timestamp::as_micros);
            expiry.is_some_and(|expiry| expiry <= self.now.0)
        };
        match self.carry_out(get) {
            ReplicaReply::Found(found) if found.clock().descends(sent.clock()) => Ok(()),
            ReplicaReply::NotFound if is_over() => Ok(()),
            ReplicaReply::Failed(failure) => Err(failure.to_string()),
            _ => Err("a stored object is not there when it is read back".into()),
        }
    }

    /// The rules of the key's bucket. Those of a type that is gone are unknown: all siblings are kept.
    fn rules(&self, key: &StorageKey) -> (Resolution, ObjectTag) {
        let properties = key.decode().ok().and_then(|address| {
            let state = &self.state;
            let properties = state.stored_properties(&address.bucket_type, &address.bucket);
            properties.ok()
        });
        let Some(properties) = properties else {
            return (Resolution::KeepSiblings, ObjectTag::default());
        };
        let resolution = Resolution::keeping_siblings(properties.keeps_siblings());
        (resolution, ObjectTag::chosen(properties.object_tag()))
    }

    fn carry_out(&self, operation: Operation) -> ReplicaReply {
        let request = ReplicaRequest {
            partition: self.vnode.partition(),
            epoch: self.vnode.status().epoch,
            operation,
        };
        match self
            .vnode
            .handle_filling(&request, self.now, Reading::MayBlock)
        {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => ReplicaReply::Failed(ReplicaFailure::Internal(
                "a request that may block said it would".into(),
            )),
        }
    }
}
