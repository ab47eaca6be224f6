//! The time of a request by part, and the log lines of requests that failed or were slow.

use std::fmt;
use std::time::Duration;

use kvorum_data_types::Kind;
use kvorum_encoding::Address;
use kvorum_object::Object;
use kvorum_runtime::Moment;
use kvorum_vnode::{ValueFacts, VnodeWork};

use crate::error::RequestError;

/// The waiting parts of a request's time; the rest of it went into reading and writing the stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    /// From its arrival until its work began, and waiting for the blocking pool.
    pub queue: Duration,
    /// Held back because background work is behind.
    pub slowed: Duration,
    /// Waiting for the group's sync.
    pub sync_wait: Duration,
}

/// The kind of a request, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RequestKind {
    Get,
    /// A get of the value of a data type.
    Fetch(Kind),
    Put,
    /// A put to a bucket whose type is write-once.
    WriteOncePut,
    /// An operation on a data type.
    Update(Kind),
    Delete,
    ListKeys,
    ListBuckets,
    IndexQuery,
    /// A fold over keys, with an action on the keys that it finds.
    KeyFold,
}

impl RequestKind {
    /// The word for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get | Self::Fetch(_) => "get",
            Self::Put | Self::WriteOncePut | Self::Update(_) => "put",
            Self::Delete => "delete",
            Self::ListKeys => "list_keys",
            Self::ListBuckets => "list_buckets",
            Self::IndexQuery => "index_query",
            Self::KeyFold => "key_fold",
        }
    }
}

/// Receives the figures of finished requests. Called once for each request, on the request's thread.
pub trait Meter: Send + Sync {
    /// A request has ended. `object` is the object read or written, if any.
    fn finished(
        &self,
        kind: RequestKind,
        error: Option<&RequestError>,
        took: Duration,
        object: Option<&Object>,
        now: Moment,
    );

    /// True if some bucket may have figures of its own.
    fn tracks_buckets(&self) -> bool {
        false
    }

    /// A request for an object of a bucket with figures of its own has ended. Called beside [`Meter::finished`], only if
    /// [`Meter::tracks_buckets`].
    fn finished_in(
        &self,
        _address: &Address,
        _kind: RequestKind,
        _took: Duration,
        _object: Option<&Object>,
        _now: Moment,
    ) {
    }

    /// An outdated replica was sent the object that it lacked.
    fn read_repaired(&self, now: Moment);

    /// Details of the replica that was behind. Called beside [`Meter::read_repaired`].
    fn replica_repaired(&self, _repaired: Repaired, _now: Moment) {}

    /// A repair was skipped: too many were in progress.
    fn repair_skipped(&self, _now: Moment) {}

    /// A write was handed to another node, since none of its replicas is here.
    fn redirected(&self) {}

    /// A write was given to a vnode of this node to coordinate.
    fn coordinated_here(&self) {}

    /// An index query has returned all of its results, this many.
    fn index_query_complete(&self, _results: u64, _now: Moment) {}

    /// A part of a listing or an index query, or an answer about a tree, was read on the blocking pool.
    fn part_read(&self, _reading: PartReading, _now: Moment) {}

    /// A MapReduce job has begun.
    fn job_begun(&self, _now: Moment) {}

    /// A MapReduce job has ended, with or without success.
    fn job_ended(&self) {}

    /// A MapReduce job was refused before it began.
    fn job_refused(&self, _now: Moment) {}

    /// A vnode of this node worked this long, for a client of any node. Only some operations are reported.
    fn vnode_worked(&self, _work: VnodeWork, _took: Duration, _now: Moment) {}

    /// A vnode of this node changed the value of a data type in this time, for a client of any node.
    fn value_changed(&self, _value: ValueFacts, _took: Duration, _now: Moment) {}
}

/// The time of one reading on the blocking pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartReading {
    /// The wait for a thread.
    pub queued: Duration,
    /// The time of the thread.
    pub worked: Duration,
}

/// A replica that a read found behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// It is a stand-in for another replica.
    pub is_fallback: bool,
    /// It had nothing; otherwise, an older or damaged object.
    pub had_nothing: bool,
    /// The data type of the object that it lacked; `None` for a plain one.
    pub kind: Option<Kind>,
}

/// Facts about background work that requests need: the steps that ran and their times, so that a
/// slow request can name the step that delayed it, and the backlog, so that writers slow down early
/// enough. Background work receives the times of puts in return.
pub trait MaintenanceWitness: Send + Sync {
    /// The present delay of a put. Called for every put: must be a load of one word.
    fn put_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// True if puts are now refused with `overload`: memory or open files are used up. Called for
    /// every put: must be a load of one word. Deletions are accepted, for they make room.
    fn refuses_puts(&self) -> bool {
        false
    }

    /// A put or a deletion, not refused for want of room, has ended: its time without the put
    /// delay. Called once for each, on its own thread.
    fn put_finished(&self, _took: Duration, _now: Moment) {}

    /// A description of the longest step that overlapped the time from `from` to `to`; `None` if none did.
    fn step_between(&self, from: Moment, to: Moment) -> Option<String>;
}

/// The fields of a log line about a request.
pub(crate) struct Finished<'a> {
    pub(crate) kind: RequestKind,
    pub(crate) place: &'a dyn fmt::Display,
    pub(crate) error: Option<&'a RequestError>,
    pub(crate) took: Duration,
    pub(crate) trace: Trace,
    pub(crate) maintenance_step: Option<String>,
    /// Lines of this kind that were omitted before this one.
    pub(crate) left_out: u64,
}

impl Finished<'_> {
    /// Logs a slow request, and a failed one as an error of the client or of the server.
    pub(crate) fn log(&self) {
        let waited = self.trace.queue + self.trace.slowed + self.trace.sync_wait;
        let store_us = micros(self.took.saturating_sub(waited));
        let step = self.maintenance_step.as_deref().unwrap_or("none");
        match self.error {
            Some(error) => tracing::warn!(
                event = "request_failed",
                request = self.kind.name(),
                address = %self.place,
                error = %error.in_full(),
                took_us = micros(self.took),
                queue_us = micros(self.trace.queue),
                slowed_us = micros(self.trace.slowed),
                store_us,
                sync_wait_us = micros(self.trace.sync_wait),
                maintenance_step = step,
                left_out = self.left_out,
            ),
            None => tracing::warn!(
                event = "request_slow",
                request = self.kind.name(),
                address = %self.place,
                took_us = micros(self.took),
                queue_us = micros(self.trace.queue),
                slowed_us = micros(self.trace.slowed),
                store_us,
                sync_wait_us = micros(self.trace.sync_wait),
                maintenance_step = step,
                left_out = self.left_out,
            ),
        }
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
