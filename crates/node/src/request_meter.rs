//! Finished requests, and the work of vnodes for them, recorded under Riak's names.
//!
//! A fetch of a data type or an operation on it counts only under the names of its type, as in
//! Riak.

use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::{Meter, PartReading, Repaired, RequestError, RequestKind};
use kvorum_data_types::Kind;
use kvorum_encoding::Address;
use kvorum_object::Object;
use kvorum_runtime::Moment;
use kvorum_stats::{Counter, Histogram, Recording, Stats, TypeStats};
use kvorum_vnode::{ValueFacts, VnodeWork};

use crate::tracked_buckets::TrackedBuckets;

/// Records to the statistics of a node.
pub(crate) struct RequestMeter {
    pub(crate) stats: Arc<Stats>,
    /// Buckets with figures of their own.
    pub(crate) tracked: Arc<TrackedBuckets>,
}

/// The figures of one kind of reads.
struct ReadFigures<'a> {
    gets: &'a Counter,
    time: &'a Histogram,
    objsize: &'a Histogram,
    siblings: &'a Histogram,
}

/// The figures of a data type. Sets that only grow have no names of their own, and count as sets.
fn of_type(stats: &Stats, kind: Kind) -> &TypeStats {
    match kind {
        Kind::Counter => &stats.counter,
        Kind::Set | Kind::GrowSet => &stats.set,
        Kind::Map => &stats.map,
        Kind::HyperLogLog => &stats.hll,
    }
}

impl RequestMeter {
    fn read(
        &self,
        figures: &ReadFigures<'_>,
        error: Option<&RequestError>,
        took: Duration,
        object: Option<&Object>,
        now: Duration,
    ) {
        let at = Recording::new(now);
        figures.gets.count_at(&at);
        figures.time.record_time_at(&at, took);
        if let Some(error) = error {
            self.stats.node_get_fsm_errors.count_at(&at);
            if *error == RequestError::Overload {
                self.stats.node_get_fsm_rejected.count_at(&at);
            }
        }
        if let Some(object) = object {
            let size = object.size();
            figures.objsize.record_at(&at, size.bytes);
            figures.siblings.record_at(&at, size.siblings as u64);
        }
    }

    fn wrote(
        &self,
        (puts, time): (&Counter, &Histogram),
        error: Option<&RequestError>,
        took: Duration,
        now: Duration,
    ) {
        puts.count(now);
        time.record_time(now, took);
        if error == Some(&RequestError::Overload) {
            self.stats.node_put_fsm_rejected.count(now);
        }
    }

    fn wrote_once(&self, took: Duration, object: Option<&Object>, now: Duration) {
        let stats = &self.stats;
        stats.write_once_puts.count(now);
        stats.write_once_put_time.record_time(now, took);
        if let Some(object) = object {
            let bytes = object.size().bytes;
            stats.write_once_put_objsize.record(now, bytes);
        }
    }

    fn queried(&self, error: Option<&RequestError>, took: Duration, now: Duration) {
        let stats = &self.stats;
        stats.index_fsm_create.count(now);
        match error {
            Some(_) => stats.index_fsm_create_error.count(now),
            None => {
                stats.index_fsm_complete.count(now);
                stats.index_fsm_time.record_time(now, took);
            }
        }
    }

    fn listed(&self, error: Option<&RequestError>, now: Duration) {
        self.stats.list_fsm_create.count(now);
        if error.is_some() {
            self.stats.list_fsm_create_error.count(now);
        }
    }

    fn folded(&self, error: Option<&RequestError>, now: Duration) {
        self.stats.clusteraae_fsm_create.count(now);
        if error.is_some() {
            self.stats.clusteraae_fsm_create_error.count(now);
        }
    }
}

impl Meter for RequestMeter {
    fn finished(
        &self,
        kind: RequestKind,
        error: Option<&RequestError>,
        took: Duration,
        object: Option<&Object>,
        now: Moment,
    ) {
        let (stats, now) = (&*self.stats, now.elapsed());
        if matches!(error, Some(RequestError::Rejected(_))) {
            stats.precommit_fail.count();
        }
        match kind {
            RequestKind::Get => {
                let gets = ReadFigures {
                    gets: &stats.node_gets,
                    time: &stats.node_get_fsm_time,
                    objsize: &stats.node_get_fsm_objsize,
                    siblings: &stats.node_get_fsm_siblings,
                };
                self.read(&gets, error, took, object, now);
            }
            RequestKind::Fetch(kind) => {
                let of_type = of_type(stats, kind);
                let fetches = ReadFigures {
                    gets: &of_type.gets,
                    time: &of_type.get_time,
                    objsize: &of_type.get_objsize,
                    siblings: &of_type.get_siblings,
                };
                self.read(&fetches, error, took, object, now);
            }
            RequestKind::Put | RequestKind::Delete => {
                let puts = (&stats.node_puts, &stats.node_put_fsm_time);
                self.wrote(puts, error, took, now);
            }
            RequestKind::Update(kind) => {
                let of_type = of_type(stats, kind);
                self.wrote((&of_type.puts, &of_type.put_time), error, took, now);
            }
            RequestKind::WriteOncePut => self.wrote_once(took, object, now),
            RequestKind::IndexQuery => self.queried(error, took, now),
            RequestKind::ListKeys | RequestKind::ListBuckets => self.listed(error, now),
            RequestKind::KeyFold => self.folded(error, now),
        }
    }

    fn tracks_buckets(&self) -> bool {
        self.tracked.is_any()
    }

    fn finished_in(
        &self,
        address: &Address,
        kind: RequestKind,
        took: Duration,
        object: Option<&Object>,
        now: Moment,
    ) {
        let now = now.elapsed();
        self.tracked.record(address, kind, took, object, now);
    }

    fn read_repaired(&self, now: Moment) {
        self.stats.read_repairs.count(now.elapsed());
    }

    fn replica_repaired(&self, repaired: Repaired, now: Moment) {
        let stats = &self.stats;
        let counter = match (repaired.is_fallback, repaired.had_nothing) {
            (false, false) => &stats.read_repairs_primary_outofdate,
            (false, true) => &stats.read_repairs_primary_notfound,
            // A stand-in that has nothing needs no repair.
            (true, _) => &stats.read_repairs_fallback_outofdate,
        };
        counter.count(now.elapsed());
        if let Some(kind) = repaired.kind {
            of_type(stats, kind).read_repairs.count(now.elapsed());
        }
    }

    fn repair_skipped(&self, now: Moment) {
        self.stats.skipped_read_repairs.count(now.elapsed());
    }

    fn redirected(&self) {
        self.stats.coord_redirs.count();
    }

    fn coordinated_here(&self) {
        self.stats.coord_local_unloaded.count();
    }

    fn index_query_complete(&self, results: u64, now: Moment) {
        self.stats.index_fsm_results.record(now.elapsed(), results);
    }

    fn part_read(&self, reading: PartReading, now: Moment) {
        let (stats, at) = (&self.stats, Recording::new(now.elapsed()));
        stats.worker_vnode_pool.count();
        let (queued, worked) = (reading.queued, reading.worked);
        stats
            .worker_vnode_pool_queuetime
            .record_time_at(&at, queued);
        stats.worker_vnode_pool_worktime.record_time_at(&at, worked);
    }

    fn job_begun(&self, now: Moment) {
        self.stats.pipeline_create.count(now.elapsed());
        self.stats.pipeline_active.add(1);
    }

    fn job_ended(&self) {
        self.stats.pipeline_active.add(-1);
    }

    fn job_refused(&self, now: Moment) {
        self.stats.pipeline_create_error.count(now.elapsed());
    }

    fn vnode_worked(&self, work: VnodeWork, took: Duration, now: Moment) {
        let (stats, now) = (&self.stats, now.elapsed());
        let times = match work {
            VnodeWork::Get => &stats.vnode_get_fsm_time,
            VnodeWork::Head => &stats.vnode_head_fsm_time,
            VnodeWork::Put => &stats.vnode_put_fsm_time,
            VnodeWork::Merge => &stats.object_merge_time,
            VnodeWork::MergeOfType(kind) => {
                let of_type = of_type(stats, kind);
                of_type.merges.count(now);
                &of_type.merge_time
            }
        };
        times.record_time(now, took);
    }

    fn value_changed(&self, value: ValueFacts, took: Duration, now: Moment) {
        let (stats, now) = (&self.stats, now.elapsed());
        let (of_type, at) = (of_type(stats, value.kind), Recording::new(now));
        of_type.updates.count_at(&at);
        of_type.update_time.record_time_at(&at, took);
        let (actors, bytes) = (value.actors as u64, value.bytes as u64);
        match value.kind {
            Kind::Counter => stats.counter_actor_counts.record_at(&at, actors),
            Kind::Set => stats.set_actor_counts.record_at(&at, actors),
            Kind::Map => stats.map_actor_counts.record_at(&at, actors),
            Kind::HyperLogLog => {
                stats.hll_bytes_written.add(now, bytes);
                stats.hll_bytes.record_at(&at, bytes);
            }
            // It has no actors, since nothing is removed from it.
            Kind::GrowSet => {}
        }
    }
}

#[cfg(test)]
#[path = "request_meter_test.rs"]
pub(crate) mod tests;
