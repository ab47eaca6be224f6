//! Operations on data types, at the replica that coordinates them: the stored value is read, changed
//! and written back under the key's lock, and takes one dot.

use std::sync::Arc;

use kvorum_backend::{Durability, ReadAt};
use kvorum_data_types::OperationError;
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Head};
use kvorum_ring::Epoch;

use crate::data_type_update::{DataTypeUpdate, NotApplied};
use crate::replica_request::{ReplicaFailure, ReplicaReply};
use crate::vnode::{Interrupted, Vnode};
use crate::writing::{Old, object_time, update_failure};

pub(crate) fn failure_of(error: NotApplied) -> ReplicaFailure {
    match error {
        NotApplied::Object(error) => update_failure(error),
        NotApplied::Operation(error @ OperationError::NotPresent(_)) => {
            ReplicaFailure::NotPresent(error.riak_text())
        }
        NotApplied::Operation(error) => ReplicaFailure::OperationRefused(error.riak_text()),
    }
}

impl Vnode {
    /// Carries out an operation on a data type and gives it its dot.
    pub(crate) fn update_data_type(
        &self,
        key: &StorageKey,
        update: &DataTypeUpdate,
        durability: Durability,
        epoch: Epoch,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        self.check_writable()?;
        let _turn = self.take_turn(key, epoch, at.reading)?;
        let old = Old::of(
            self.unless_damaged(key, self.find_head(key, at))?,
            at.reading,
        );
        if let Some(reply) = self.update_in_pages(key, &old, update, durability, at)? {
            return Ok(reply);
        }
        let stored = match &old.head {
            None => None,
            // Not even the clock of a damaged value counts, as with other writes.
            Some(_) => self.unless_damaged(key, self.read_object(key, at))?,
        };
        let stored = stored.map(Arc::unwrap_or_clone);
        let dot = self.next_dot(key, &Clock::new(), old.head.as_ref());
        let begun = self.work_begins();
        let applied = update.apply(stored, dot, object_time(at.now));
        let (object, facts) = applied.map_err(failure_of)?;
        let measured = begun.map(|(stopwatch, began)| (stopwatch, began, stopwatch.clock.now()));
        self.check_limits(
            key,
            object.size(),
            old.head.as_ref().map(Head::size),
            at.now,
        )?;
        let durable = self.write(key, &old, &object, update.tag, durability)?;
        if let Some((stopwatch, began, ended)) = measured {
            let meter = &stopwatch.meter;
            meter.value_changed(facts, ended.since(began), ended);
        }
        Ok(ReplicaReply::Stored {
            object: Arc::new(object),
            durable,
        })
    }
}
