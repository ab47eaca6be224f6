//! The beginning and the end of every request: its time limit, and its reports to the meter, background
//! work and the log.

use std::fmt;
use std::time::Duration;

use kvorum_encoding::Address;
use kvorum_object::Object;
use kvorum_runtime::Moment;

use crate::error::RequestError;
use crate::failure_log::FailureLog;
use crate::parts::{CoordinatorSettings, Parts};
use crate::trace::{Finished, RequestKind, Trace};

/// State of a request while it runs.
pub(crate) struct Progress {
    pub(crate) arrived: Moment,
    pub(crate) deadline: Moment,
    pub(crate) trace: Trace,
}

/// See the module's description.
pub(crate) struct Accounts {
    parts: Parts,
    settings: CoordinatorSettings,
    /// Bounds the lines about requests that failed or were slow.
    log: FailureLog,
}

impl Accounts {
    pub(crate) fn new(parts: Parts, settings: CoordinatorSettings) -> Self {
        Self {
            parts,
            settings,
            log: FailureLog::default(),
        }
    }

    /// Begins a request that has waited from its arrival until now.
    pub(crate) fn begin(&self, arrived: Moment, timeout: Option<Duration>) -> Progress {
        let mut progress = self.begin_at_once(arrived, timeout);
        progress.trace.queue = self.parts.runtime.now().since(arrived);
        progress
    }

    /// Begins a request that did not wait after its arrival.
    pub(crate) fn begin_at_once(&self, arrived: Moment, timeout: Option<Duration>) -> Progress {
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        Progress {
            arrived,
            deadline: arrived.plus(timeout),
            trace: Trace::default(),
        }
    }

    /// Reports a request for an object that has ended, to the figures of its bucket too.
    pub(crate) fn finish_object(
        &self,
        kind: RequestKind,
        address: &Address,
        error: Option<&RequestError>,
        object: Option<&Object>,
        progress: &Progress,
    ) {
        let (took, now) = self.finish(kind, address, error, object, progress);
        let Parts { meter, cluster, .. } = &self.parts;
        if !meter.tracks_buckets() {
            return;
        }
        let state = cluster.look();
        let properties = state.properties(&address.bucket_type, &address.bucket);
        if properties.is_ok_and(|it| it.is_stat_tracked()) {
            meter.finished_in(address, kind, took, object, now);
        }
    }

    /// Reports an ended request to the meter, and to the log if it failed or was slow. Returns its
    /// duration and its end.
    pub(crate) fn finish(
        &self,
        kind: RequestKind,
        place: &dyn fmt::Display,
        error: Option<&RequestError>,
        object: Option<&Object>,
        progress: &Progress,
    ) -> (Duration, Moment) {
        let Parts {
            runtime,
            meter,
            maintenance,
            ..
        } = &self.parts;
        let now = runtime.now();
        let took = now.since(progress.arrived);
        meter.finished(kind, error, took, object, now);
        let is_put = matches!(
            kind,
            RequestKind::Put
                | RequestKind::WriteOncePut
                | RequestKind::Update(_)
                | RequestKind::Delete
        );
        if is_put && error != Some(&RequestError::Overload) {
            let undelayed = took.saturating_sub(progress.trace.slowed);
            maintenance.put_finished(undelayed, now);
        }
        let is_slow = took >= self.settings.slow_request_threshold;
        if !is_slow && !error.is_some_and(RequestError::is_logged) {
            return (took, now);
        }
        if let Some(left_out) = self.log.take(error, now.elapsed()) {
            Finished {
                kind,
                place,
                error,
                took,
                trace: progress.trace,
                maintenance_step: maintenance.step_between(progress.arrived, now),
                left_out,
            }
            .log();
        }
        (took, now)
    }
}
