//! The delivery of updates of large sets: a replica that cannot follow an update gets the whole object.
//!
//! An update carries only its changes. A replica that lacks earlier updates, or keeps the object in
//! another form, answers that it needs the whole object. It gets the object from a replica that has
//! carried out the update, or a newer object, which suffices.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Durability;
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Object, ObjectTag, Resolution};
use kvorum_runtime::Moment;
use kvorum_vnode::{Detail, Operation, PagedUpdate, ReplicaFailure, ReplicaReply};

use crate::error::RequestError;
use crate::plan::Plan;
use crate::replicas::{ReplicaWork, Replicas, WorkDone};

/// An object as a put makes it.
#[derive(Clone)]
pub(crate) struct Made {
    /// An object in pages has the head of its set as its value.
    pub(crate) object: Arc<Object>,
    /// The update of a large set that made it.
    pub(crate) update: Option<Arc<PagedUpdate>>,
}

impl From<Arc<Object>> for Made {
    fn from(object: Arc<Object>) -> Self {
        Self {
            object,
            update: None,
        }
    }
}

impl From<Arc<PagedUpdate>> for Made {
    fn from(update: Arc<PagedUpdate>) -> Self {
        Self {
            object: update.object.clone(),
            update: Some(update),
        }
    }
}

/// Work of a replica that a put waits for.
pub(crate) enum Delivery {
    /// The work alone.
    Plain(ReplicaWork),
    /// An update, and the object for a replica that needs it whole.
    Update(ReplicaWork, Box<WholeObject>),
    /// The object, for a replica that has asked for it.
    Whole(Box<WholeObject>),
}

/// A replica that may need a whole object, and the replicas that may have the object.
pub(crate) struct WholeObject {
    key: StorageKey,
    target: ReplicaWork,
    sources: Vec<ReplicaWork>,
    /// The clock that the whole object must have seen.
    seen: Clock,
    rules: (Resolution, ObjectTag, Durability),
}

impl Delivery {
    /// True when another node does it.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            Self::Plain(work) | Self::Update(work, _) => work.is_remote(),
            Self::Whole(whole) => whole.target.is_remote(),
        }
    }
}

impl Replicas {
    /// The delivery of the whole object to a replica of a plan. `first` is the replica that most
    /// likely has it.
    pub(crate) fn whole_object(
        &self,
        plan: &Plan,
        (slot, first): (usize, Option<usize>),
        update: &PagedUpdate,
        durability: Durability,
    ) -> Result<Box<WholeObject>, RequestError> {
        let sources = self.sources(plan, first, Some(slot));
        Ok(Box::new(WholeObject {
            key: plan.key.clone(),
            target: self.work(plan, slot, get(&plan.key))?,
            sources,
            seen: update.object.clock().clone(),
            rules: (plan.resolution(), plan.tag(), durability),
        }))
    }

    /// Gets of the whole object from each replica but one, with the replica `first` in front.
    fn sources(
        &self,
        plan: &Plan,
        first: Option<usize>,
        left_out: Option<usize>,
    ) -> Vec<ReplicaWork> {
        let others = (0..plan.replicas.len()).filter(|it| Some(*it) != first);
        let slots = first.into_iter().chain(others);
        let slots = slots.filter(|it| Some(*it) != left_out);
        slots
            .filter_map(|slot| self.work(plan, slot, get(&plan.key)).ok())
            .collect()
    }

    /// The whole object of an update made under this plan, or a newer one.
    pub(crate) async fn whole_of(
        self: &Arc<Self>,
        plan: &Plan,
        first: Option<usize>,
        seen: &Clock,
        deadline: Moment,
    ) -> Result<Arc<Object>, RequestError> {
        let sources = self.sources(plan, first, None);
        self.first_with(sources, seen, deadline).await
    }

    /// Carries out work, and gets the whole object for a replica that needs it.
    pub(crate) async fn deliver(
        self: Arc<Self>,
        slot: usize,
        delivery: Delivery,
        deadline: Moment,
    ) -> WorkDone {
        let whole = match delivery {
            Delivery::Plain(work) => return self.work_elsewhere(slot, work, deadline).await,
            Delivery::Update(work, whole) => {
                let done = self.work_elsewhere(slot, work, deadline).await;
                match done.replied {
                    Ok(ReplicaReply::NeedsWhole) => whole,
                    _ => return done,
                }
            }
            Delivery::Whole(whole) => whole,
        };
        // Rare: the future of all other work stays small.
        Box::pin(self.deliver_whole(slot, *whole, deadline)).await
    }

    async fn deliver_whole(
        self: Arc<Self>,
        slot: usize,
        whole: WholeObject,
        deadline: Moment,
    ) -> WorkDone {
        let WholeObject {
            key,
            target,
            sources,
            seen,
            rules: (resolution, tag, durability),
        } = whole;
        let object = match self.first_with(sources, &seen, deadline).await {
            Ok(object) => object,
            Err(error) => {
                return WorkDone {
                    slot,
                    replied: Err(error),
                    queued: Duration::ZERO,
                    is_without_effect: false,
                };
            }
        };
        let store = Operation::Store {
            key,
            object,
            resolution,
            tag,
            durability,
        };
        self.work_elsewhere(slot, target.with(store), deadline)
            .await
    }

    /// The first object among those of the sources that has seen a clock.
    async fn first_with(
        self: &Arc<Self>,
        sources: Vec<ReplicaWork>,
        seen: &Clock,
        deadline: Moment,
    ) -> Result<Arc<Object>, RequestError> {
        for source in sources {
            match self.work_elsewhere(0, source, deadline).await.replied {
                Ok(ReplicaReply::Found(object)) if object.clock().descends(seen) => {
                    return Ok(object);
                }
                Err(RequestError::Timeout) => return Err(RequestError::Timeout),
                _ => {}
            }
        }
        let detail = "no replica could give the whole object of an update".to_owned();
        Err(RequestError::of_replica(ReplicaFailure::Storage(detail)))
    }
}

fn get(key: &StorageKey) -> Operation {
    Operation::Get {
        key: key.clone(),
        detail: Detail::Whole,
    }
}
