//! `bucket count` and `bucket drop`: the keys of a bucket, counted and deleted.
//!
//! A drop uses a listing of the bucket. Each call of the verb deletes listed keys for a second, and
//! the rest of the listing waits for the next call. So the command line shows the progress, and no
//! work continues when the calls stop. A call on another node, or after a restart, begins anew and
//! finds the keys that are left. Keys are deleted like a client's, with a tombstone through the
//! coordinator, a few at a time. A key that is written meanwhile may stay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::{Coordinator, DeleteOptions, Deleted, KeyListing, RequestError};
use kvorum_encoding::{Address, Key};
use kvorum_maintenance::counted;
use kvorum_runtime::Moment;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::bucket_place::BucketPlace;
use crate::cluster::ClusterAdmin;
use crate::request::{AdminReply, Replied};

/// Keys that are being deleted at a time.
const AT_ONCE: usize = 32;
/// Time for which a call deletes.
const STEP: Duration = Duration::from_secs(1);
/// Time limit of one listing. After that, a new one begins.
const LISTING: Duration = Duration::from_secs(600);
/// The same for a count, which is one call.
const COUNT: Duration = Duration::from_secs(3600);
/// Pause after the node was too busy for a delete.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Drops between two of their calls.
#[derive(Default)]
pub(crate) struct Drops(Mutex<BTreeMap<BucketPlace, Dropping>>);

/// A drop that has not ended.
struct Dropping {
    listing: Option<KeyListing>,
    /// Keys of the present listing have been deleted.
    has_moved_on: bool,
    waiting: VecDeque<Key>,
    deleted: u64,
    /// Keys that could not be deleted.
    failed: u64,
    failure: Option<String>,
    called: Moment,
}

/// The end of a call.
enum Step {
    /// Some keys are left.
    Goes,
    /// All listed keys are deleted, except for failures.
    Ended,
}

/// The fate of one key.
enum Fate {
    Deleted,
    NothingThere,
    /// The node is too busy: the key is tried again.
    Busy,
    Failed(String),
}

/// The verbs on one node.
pub(crate) struct BucketKeys<'a> {
    pub(crate) cluster: &'a ClusterAdmin,
    pub(crate) coordinator: &'a Arc<Coordinator>,
    pub(crate) drops: &'a Drops,
}

impl BucketKeys<'_> {
    /// Counts the keys of a bucket. Blocks.
    pub(crate) fn count(&self, name: &str) -> Replied {
        let place = BucketPlace::named(name)?;
        let keys = self.counted(&place)?;
        let text = format!("{place} has {}", counted(keys, "key"));
        Ok(AdminReply::ok(
            text,
            json!({"bucket": place.to_string(), "keys": keys}),
        ))
    }

    /// The number of keys that a drop would delete. Blocks.
    pub(crate) fn try_drop(&self, name: &str) -> Replied {
        let place = BucketPlace::named(name)?;
        let keys = self.counted(&place)?;
        let text = format!(
            "{} of {place} would be deleted; nothing was changed",
            counted(keys, "key")
        );
        let data = json!({"bucket": place.to_string(), "keys": keys, "done": true});
        Ok(AdminReply::ok(text, data))
    }

    /// Deletes some keys of a bucket; `done` in the answer is false while some are left. Blocks.
    pub(crate) fn drop_some(&self, name: &str) -> Replied {
        let place = BucketPlace::named(name)?;
        let now = self.coordinator.runtime().now();
        let mut dropping = self.drops.take(&place, now);
        let coordinator = self.coordinator.clone();
        let named = place.clone();
        let work = async move {
            let step = dropping.step(&coordinator, &named).await;
            (dropping, step)
        };
        let (dropping, step) = self.cluster.wait_for("drop of a bucket", work)?;
        match step {
            Ok(Step::Ended) => Ok(dropping.end(&place)),
            Ok(Step::Goes) => {
                let reply = dropping.progress(&place);
                self.drops.keep(place, dropping);
                Ok(reply)
            }
            Err(error) => Err(AdminReply::refused(format!(
                "the keys of {place} cannot be listed: {}; {} so far, give the verb again to go on",
                error.in_full(),
                deleted_text(dropping.deleted)
            ))),
        }
    }

    fn counted(&self, place: &BucketPlace) -> Result<u64, AdminReply> {
        let counting = self
            .coordinator
            .count_keys(&place.bucket_type, &place.bucket, COUNT);
        let failed = |error: RequestError| {
            let reason = error.in_full();
            AdminReply::refused(format!("the keys of {place} cannot be counted: {reason}"))
        };
        let mut counting = counting.map_err(failed)?;
        let work = async move {
            let mut keys = 0;
            while let Some(sofar) = counting.next().await {
                keys = sofar?;
            }
            Ok::<u64, RequestError>(keys)
        };
        self.cluster
            .wait_for("count of keys", work)?
            .map_err(failed)
    }
}

impl Drops {
    /// The drop of a bucket that was begun, or a new one. Drops without a call for a long time are
    /// removed, since their listings have ended.
    fn take(&self, place: &BucketPlace, now: Moment) -> Dropping {
        let mut drops = self.0.lock();
        drops.retain(|_, it| now.since(it.called) < LISTING);
        let mut dropping = drops.remove(place).unwrap_or_else(|| Dropping {
            listing: None,
            has_moved_on: true,
            waiting: VecDeque::new(),
            deleted: 0,
            failed: 0,
            failure: None,
            called: now,
        });
        dropping.called = now;
        dropping
    }

    fn keep(&self, place: BucketPlace, dropping: Dropping) {
        self.0.lock().insert(place, dropping);
    }
}

impl Dropping {
    /// Deletes for as long as a call lasts.
    async fn step(
        &mut self,
        coordinator: &Arc<Coordinator>,
        place: &BucketPlace,
    ) -> Result<Step, RequestError> {
        let until = self.called.plus(STEP);
        while coordinator.runtime().now() < until {
            if self.waiting.is_empty() && !self.list(coordinator, place).await? {
                return Ok(Step::Ended);
            }
            self.delete_some(coordinator, place).await;
        }
        Ok(Step::Goes)
    }

    /// Lists the next keys; false when there are no more.
    async fn list(
        &mut self,
        coordinator: &Coordinator,
        place: &BucketPlace,
    ) -> Result<bool, RequestError> {
        loop {
            let mut listing = match self.listing.take() {
                Some(listing) => listing,
                None => coordinator.list_keys(&place.bucket_type, &place.bucket, LISTING)?,
            };
            match listing.next().await {
                None => return Ok(false),
                Some(Ok(keys)) => {
                    self.waiting = keys.into();
                    self.listing = Some(listing);
                    return Ok(true);
                }
                // The listing has timed out, and its keys are deleted. A new listing has the rest.
                Some(Err(RequestError::Timeout)) if self.has_moved_on => {
                    self.has_moved_on = false;
                }
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// Deletes the next keys together.
    async fn delete_some(&mut self, coordinator: &Arc<Coordinator>, place: &BucketPlace) {
        let count = self.waiting.len().min(AT_ONCE);
        let tasks: Vec<_> = self
            .waiting
            .drain(..count)
            .map(|key| {
                let deleted = delete(coordinator.clone(), place.clone(), key.clone());
                let task = coordinator.runtime().spawn("dropped key", deleted);
                (key, task)
            })
            .collect();
        let mut is_busy = false;
        for (key, task) in tasks {
            match task.await {
                Ok(Fate::Busy) => {
                    self.waiting.push_back(key);
                    is_busy = true;
                }
                Ok(Fate::Deleted) => {
                    self.deleted += 1;
                    self.has_moved_on = true;
                }
                Ok(Fate::NothingThere) => {}
                Ok(Fate::Failed(reason)) => self.note_failure(reason),
                Err(error) => self.note_failure(error.to_string()),
            }
        }
        if is_busy {
            coordinator.runtime().sleep(BUSY_PAUSE).await;
        }
    }

    fn note_failure(&mut self, reason: String) {
        self.failed += 1;
        self.failure.get_or_insert(reason);
    }

    fn progress(&self, place: &BucketPlace) -> AdminReply {
        let text = format!("{place}: {} so far", deleted_text(self.deleted));
        AdminReply::ok(text, self.json(place, false))
    }

    fn end(&self, place: &BucketPlace) -> AdminReply {
        let done = format!("{place}: {}", deleted_text(self.deleted));
        let mut data = self.json(place, true);
        let Some(failure) = &self.failure else {
            return AdminReply::ok(done, data);
        };
        let text = format!(
            "{done}, {} could not be deleted, one of them because: {failure}; give the verb again",
            counted(self.failed, "key")
        );
        data["error"] = text.clone().into();
        AdminReply {
            data,
            ..AdminReply::refused(text)
        }
    }

    fn json(&self, place: &BucketPlace, is_done: bool) -> Value {
        json!({
            "bucket": place.to_string(),
            "deleted": self.deleted,
            "failed": self.failed,
            "done": is_done,
        })
    }
}

fn deleted_text(keys: u64) -> String {
    format!("{} deleted", counted(keys, "key"))
}

async fn delete(coordinator: Arc<Coordinator>, place: BucketPlace, key: Key) -> Fate {
    let address = Address {
        bucket_type: place.bucket_type,
        bucket: place.bucket,
        key,
    };
    let options = DeleteOptions::default();
    let now = coordinator.runtime().now();
    match coordinator.delete(&address, None, &options, now).await {
        Ok(Deleted::Written) => Fate::Deleted,
        Ok(Deleted::NothingThere) => Fate::NothingThere,
        Err(RequestError::Overload) => Fate::Busy,
        Err(error) => Fate::Failed(error.in_full()),
    }
}
