//! The node's figures: reported by requests, shown by `/stats`, `/metrics` and to the operator.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Status;
use kvorum_backend_bitcask::ReadCache;
use kvorum_backend_innostore::PageCache;
use kvorum_backend_leveldb::Shared;
use kvorum_bench::process::ProcessUsage;
use kvorum_cluster::AgreedState as _;
use kvorum_coordinator::InProgress;
use kvorum_maintenance::{Maintenance, Unwritable, machine};
use kvorum_member::{Exchanges, ExchangesReport, Member, VnodeTable};
use kvorum_ring::NodeId;
use kvorum_runtime::{Moment, Runtime, WallTime};
use kvorum_server_http::{Health, NodeFacts};
use kvorum_server_pb::ConnectionMeter;
use kvorum_stats::{MetricKind, MetricsText, Stats};
use kvorum_value_log::ValueLog;
use serde_json::{Map, Value};

use crate::exchange_figures::ExchangeFigures;
use crate::machine_figures::MachineFigures;
use crate::maintained_value_log::MaintainedValueLog;
use crate::request_rates::RequestRates;
use crate::tombstone_metrics;
use crate::tracked_buckets::TrackedBuckets;
use crate::vnode_figures::VnodeFigures;

/// Counts of vnodes are carried over this often.
const FED_EVERY: Duration = Duration::from_secs(1);

/// The version that is reported to clients, which enable features by it.
pub(crate) const RIAK_VERSION: &str = "3.2.0";

/// The engine whose damaged reads have a name of Riak's.
const LEVELDB: &str = "leveldb";

/// The recorded figures, and the parts of the node with the rest.
pub(crate) struct Figures {
    pub(crate) stats: Arc<Stats>,
    pub(crate) runtime: Runtime,
    pub(crate) node_name: String,
    pub(crate) engine: &'static str,
    /// Riak's name of the backend.
    pub(crate) riak_module: String,
    /// Several backends, as text.
    pub(crate) several_backends: Option<String>,
    pub(crate) member: Arc<Member>,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) value_log: Option<MaintainedValueLog>,
    pub(crate) read_cache: Option<Arc<ReadCache>>,
    pub(crate) page_cache: Option<Arc<PageCache>>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) vnode_figures: VnodeFigures,
    pub(crate) exchange_figures: ExchangeFigures,
    pub(crate) request_rates: RequestRates,
    pub(crate) tracked_buckets: Arc<TrackedBuckets>,
    pub(crate) data_directory: PathBuf,
    /// The shared memory of an engine over merge trees.
    pub(crate) trees: Option<Shared>,
}

impl ConnectionMeter for Figures {
    fn connected(&self, now: Moment) {
        count_connection(&self.stats, now);
    }

    fn disconnected(&self) {
        self.stats.pbc_active.add(-1);
    }
}

fn trees_building(report: &ExchangesReport) -> u64 {
    let building = report.trees.iter().filter(|it| !it.trees.is_built);
    building.count() as u64
}

fn tree_memory_bytes(report: &ExchangesReport) -> u64 {
    report.trees.iter().map(|it| it.trees.memory_bytes).sum()
}

impl NodeFacts for Figures {
    fn stats(&self) -> Vec<(Cow<'static, str>, Value)> {
        self.riak_values()
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect()
    }

    fn metrics(&self) -> String {
        self.metrics_text()
    }

    fn several_backends(&self) -> Option<String> {
        self.several_backends.clone()
    }

    fn health(&self) -> Health {
        kvorum_admin::for_clients(&self.member.health())
    }
}

impl Figures {
    /// Brings the statistics up to date with the work of vnodes and exchanges, and the requests under way.
    pub(crate) fn feed(&self) {
        let (stats, now) = (&self.stats, self.runtime.now().elapsed());
        self.vnode_figures.feed(&self.vnodes, stats, now);
        if let Some(exchanges) = self.member.exchanges() {
            self.exchange_figures.feed(exchanges.compared(), stats, now);
        }
        let in_progress = self.member.coordinator().in_progress();
        self.request_rates.look(stats, in_progress, now);
        self.tracked_buckets.look(&self.member.state().current());
        set_gauges(stats, in_progress, self.vnodes.readiness().open);
    }

    /// Everything under Riak's names, in a fixed order.
    pub(crate) fn riak_values(&self) -> Map<String, Value> {
        self.feed();
        let mut values = Map::new();
        let now = self.runtime.now().elapsed();
        for (name, value) in self.stats.riak_values(now) {
            values.insert(name.to_owned(), value.into());
        }
        let in_progress = self.member.coordinator().in_progress();
        for (name, value) in self.request_rates.values(&self.stats, in_progress, now) {
            values.insert(name.to_owned(), value.into());
        }
        let mut put = |name: &str, value: Value| {
            values.insert(name.to_owned(), value);
        };
        put("nodename", self.node_name.clone().into());
        let state = self.member.state().current();
        let names = |nodes: &mut dyn Iterator<Item = NodeId>| -> Vec<Value> {
            let name = |node| state.member(node).map(|member| member.name.clone());
            nodes.filter_map(name).map(Value::from).collect()
        };
        let up = self.member.liveness().up();
        let own = self.member.node();
        let mut others = up.iter().copied().filter(|node| *node != own);
        put("connected_nodes", names(&mut others).into());
        put(
            "ring_members",
            names(&mut state.members().keys().copied()).into(),
        );
        let ring = state.ring();
        put("ring_num_partitions", ring.size().get().into());
        put("ring_creation_size", ring.size().get().into());
        let share = |(node, member): (&NodeId, &kvorum_cluster::Member)| {
            format!("{{'{}',{}}}", member.name, ring.owned_by(*node).count())
        };
        let shares: Vec<String> = state.members().iter().map(share).collect();
        put("ring_ownership", format!("[{}]", shares.join(",")).into());
        let readiness = self.vnodes.readiness();
        put("vnodes_open", readiness.open.into());
        put("vnodes_opening", readiness.opening.into());
        put("vnodes_failed", readiness.failed.into());
        let failures = self.maintenance.failures();
        let health = self.member.health();
        put("vnodes_unwritable", health.unwritable.into());
        if let Some(Unwritable { since, .. }) = failures.first() {
            put("unwritable_since", seconds(*since).into());
        }
        if let Some(refusal) = health.refusal {
            put("unwritable_reason", refusal.text().into());
        }
        if let Some(report) = self.member.exchanges().map(Exchanges::report) {
            put(
                "tictacaae_exchange_complete_total",
                report.exchanges_complete.into(),
            );
            put("tictacaae_keys_repaired_total", report.keys_repaired.into());
            put(
                "tictacaae_repairs_failed_total",
                report.repairs_failed.into(),
            );
            put("tictacaae_trees_building", trees_building(&report).into());
            put("tictacaae_tree_memory", tree_memory_bytes(&report).into());
        }
        let transfers = self.member.transfers().counts();
        put("rejected_handoffs", transfers.rejected.into());
        put("handoff_timeouts", transfers.timed_out.into());
        let (sizes, siblings) = self.limit_warnings();
        put("object_size_warnings", sizes.into());
        put("object_siblings_warnings", siblings.into());
        put("storage_backend", self.riak_module.clone().into());
        if self.engine == LEVELDB {
            put("leveldb_read_block_error", self.corrupt_reads().into());
        }
        if let Some(several) = &self.several_backends {
            put("storage_backends", several.clone().into());
        }
        put("riak_kv_version", RIAK_VERSION.into());
        put("riak_core_version", RIAK_VERSION.into());
        put("riak_api_version", RIAK_VERSION.into());
        put("riak_pb_version", RIAK_VERSION.into());
        put("kvorum_version", env!("CARGO_PKG_VERSION").into());
        put_process(&mut put);
        put("memory_total", resident_bytes().into());
        MachineFigures::read(&self.data_directory).put_into(&mut values);
        values
    }

    /// OpenMetrics text.
    fn metrics_text(&self) -> String {
        self.feed();
        let mut text = MetricsText::new();
        let version = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("backend", self.engine),
        ];
        let help = "The running version";
        text.family(MetricKind::Info, "build", help, [(&version[..], 1)]);
        text.stats(&self.stats);
        self.tracked_buckets.metrics(&mut text);
        process_metrics(&mut text);
        MachineFigures::read(&self.data_directory).metrics_into(&mut text);
        self.vnode_metrics(&mut text);
        self.store_metrics(&mut text);
        self.transfer_metrics(&mut text);
        self.exchange_metrics(&mut text);
        if let Some(log) = &self.value_log {
            value_log_metrics(&log.values, &mut text);
        }
        self.trees_metrics(&mut text);
        self.read_cache_metrics(&mut text);
        self.page_cache_metrics(&mut text);
        self.maintenance.metrics(&mut text);
        text.finish()
    }

    fn vnode_metrics(&self, text: &mut MetricsText) {
        let readiness = self.vnodes.readiness();
        text.gauge("vnodes_open", "Vnodes that serve", readiness.open);
        let help = "Vnodes whose stores are being opened";
        text.gauge("vnodes_opening", help, readiness.opening);
        let help = "Vnodes whose stores could not be opened";
        text.gauge("vnodes_failed", help, readiness.failed);
        let help = "Vnodes that take no writes: the disk is full, or the log or their store failed";
        text.gauge("vnodes_unwritable", help, self.member.health().unwritable);
    }

    fn transfer_metrics(&self, text: &mut MetricsText) {
        let counts = self.member.transfers().counts();
        let help = "Requests of other nodes' transfers for which there was no room";
        text.counter("rejected_handoffs", help, counts.rejected);
        let help = "Requests of this node's transfers without an answer in time";
        text.counter("handoff_timeouts", help, counts.timed_out);
    }

    fn exchange_metrics(&self, text: &mut MetricsText) {
        let Some(report) = self.member.exchanges().map(Exchanges::report) else {
            return;
        };
        let help = "Comparisons of the replicas of a preference list that have ended";
        text.counter("exchanges", help, report.exchanges);
        let help = "Comparisons after which all replicas had all data of all of them";
        text.counter("exchanges_complete", help, report.exchanges_complete);
        let help = "Keys that differed and were mended by comparisons";
        text.counter("exchange_keys_repaired", help, report.keys_repaired);
        let help = "The part of these keys whose repair did not reach every replica";
        text.counter("exchange_repairs_failed", help, report.repairs_failed);
        let help = "Vnodes whose trees are being built";
        text.gauge("trees_building", help, trees_building(&report));
        let help = "Memory of the trees that are compared";
        text.gauge("tree_memory_bytes", help, tree_memory_bytes(&report));
        tombstone_metrics::add(&report.rounds, text);
    }

    /// Reads of stores that found damaged entries, since the start.
    fn corrupt_reads(&self) -> u64 {
        let vnodes = self.vnodes.all();
        let of_vnodes = vnodes.iter().map(|vnode| vnode.store_status());
        of_vnodes.map(|status| status.corrupt_reads).sum()
    }

    /// Writes above the warning thresholds for objects, of all vnodes since the start.
    fn limit_warnings(&self) -> (u64, u64) {
        let (mut sizes, mut siblings) = (0, 0);
        for status in self.vnodes.all().iter().map(|vnode| vnode.status()) {
            sizes += status.size_warnings;
            siblings += status.sibling_warnings;
        }
        (sizes, siblings)
    }

    fn store_metrics(&self, text: &mut MetricsText) {
        let (sizes, siblings) = self.limit_warnings();
        let help = "Writes of objects above object.size.warning_threshold";
        text.counter("object_size_warnings", help, sizes);
        let help = "Writes of objects above object.siblings.warning_threshold";
        text.counter("object_siblings_warnings", help, siblings);
        let mut lost_ranges = 0;
        let total = self
            .vnodes
            .all()
            .iter()
            .map(|vnode| vnode.store_status())
            .fold(Status::default(), |mut total, one| {
                total.keys += one.keys;
                total.live_bytes += one.live_bytes;
                total.garbage_bytes += one.garbage_bytes;
                total.disk_bytes += one.disk_bytes;
                total.memory_bytes += one.memory_bytes;
                total.backlog_bytes += one.backlog_bytes;
                total.put_bytes += one.put_bytes;
                total.written_bytes += one.written_bytes;
                total.corrupt_reads += one.corrupt_reads;
                lost_ranges += one.lost.len() as u64;
                total
            });
        text.gauge("store_keys", "Keys in all stores", total.keys);
        let help = "Disk space of live entries";
        text.gauge("store_live_bytes", help, total.live_bytes);
        let help = "Disk space of garbage: overwritten, removed and expired entries";
        text.gauge("store_dead_bytes", help, total.garbage_bytes);
        let help = "Disk space of all stores";
        text.gauge("store_disk_bytes", help, total.disk_bytes);
        let help = "Memory of all stores";
        text.gauge("store_memory_bytes", help, total.memory_bytes);
        let help = "Maintenance that is due";
        text.gauge("store_debt_bytes", help, total.backlog_bytes);
        let help = "Ranges of files that were found damaged or missing";
        text.gauge("store_lost_ranges", help, lost_ranges);
        let help = "Payload bytes put since the start";
        text.counter("store_put_bytes", help, total.put_bytes);
        let help = "Bytes that stores wrote since the start";
        text.counter("store_written_bytes", help, total.written_bytes);
        let help = "Reads that met damaged entries";
        text.counter("store_corrupt_reads", help, total.corrupt_reads);
    }

    fn trees_metrics(&self, text: &mut MetricsText) {
        let Some(Shared { cache, memory, .. }) = &self.trees else {
            return;
        };
        let mut gauge =
            |name, help, bytes| text.gauge(&format!("{}_{name}", self.engine), help, bytes);
        gauge("cache_bytes", "Bytes in the block cache", cache.bytes());
        let help = "Bound of the block cache";
        gauge("cache_bytes_max", help, cache.bytes_max());
        gauge("memtable_bytes", "Bytes in write buffers", memory.used());
        let help = "Bound of all write buffers";
        gauge("memtable_bytes_max", help, memory.bytes_max());
    }

    fn page_cache_metrics(&self, text: &mut MetricsText) {
        let Some(cache) = &self.page_cache else {
            return;
        };
        let help = "Memory of innostore's cache of pages";
        text.gauge("innostore_cache_bytes", help, cache.bytes());
        let help = "The bound of innostore_cache_bytes";
        text.gauge("innostore_cache_bytes_max", help, cache.bytes_max());
    }

    fn read_cache_metrics(&self, text: &mut MetricsText) {
        let Some(cache) = &self.read_cache else {
            return;
        };
        let help = "Memory of the cache of read objects";
        text.gauge("read_cache_bytes", help, cache.bytes());
        let help = "The bound of read_cache_bytes";
        text.gauge("read_cache_bytes_max", help, cache.bytes_max());
        let help = "Objects that were read from files because they were not in the cache";
        text.counter("read_cache_misses", help, cache.misses());
    }
}

fn count_connection(stats: &Stats, now: Moment) {
    stats.pbc_connects.count(now.elapsed());
    stats.pbc_active.add(1);
}

fn set_gauges(stats: &Stats, in_progress: InProgress, vnodes_running: usize) {
    for (gauge, amount) in [
        (&stats.node_get_fsm_active, in_progress.gets),
        (&stats.node_put_fsm_active, in_progress.puts),
        (&stats.list_fsm_active, in_progress.listings),
        (&stats.index_fsm_active, in_progress.index_queries),
        (&stats.clusteraae_fsm_active, in_progress.key_folds),
        (&stats.riak_kv_vnodes_running, vnodes_running),
    ] {
        gauge.set(i64::try_from(amount).unwrap_or(i64::MAX));
    }
}

/// The system's figures of this process, as far as it has them. The bytes are those of the process as a
/// whole, the log's included.
fn process_metrics(text: &mut MetricsText) {
    let help = "Resident memory of the process";
    text.gauge("process_resident_bytes", help, resident_bytes());
    let Some(usage) = ProcessUsage::of(std::process::id()) else {
        return;
    };
    let help = "Processor time of the process";
    text.counter("process_cpu_seconds", help, usage.cpu.as_secs_f64());
    if let Some(bytes) = usage.read_bytes {
        let help = "Bytes that the process had read from disks";
        text.counter("process_read_bytes", help, bytes);
    }
    if let Some(bytes) = usage.written_bytes {
        let help = "Bytes that the process had written to disks";
        text.counter("process_written_bytes", help, bytes);
    }
}

fn value_log_metrics(log: &ValueLog, text: &mut MetricsText) {
    let status = log.status();
    text.gauge("value_log_bytes", "Length of the value log", status.bytes);
    let help = "Segments of the value log";
    text.gauge("value_log_segments", help, status.segments);
    let help = "Bytes of its closed segments that no store needs";
    text.gauge("value_log_dead_bytes", help, status.garbage_bytes);
    let help = "Bytes of segments kept for stores that are not open";
    text.gauge("value_log_waiting_bytes", help, status.waiting_bytes);
    let help = "Groups committed, each with one write and, if a sync was promised, one sync";
    text.counter("value_log_groups", help, status.groups);
    text.counter("value_log_batches", "Batches committed", status.batches);
}

/// Facts about the process, in place of Riak's about the Erlang machine.
fn put_process(put: &mut impl FnMut(&str, Value)) {
    let (version, bits) = (env!("CARGO_PKG_VERSION"), usize::BITS);
    let processors = processors();
    put("sys_logical_processors", processors.into());
    put("sys_wordsize", (bits / 8).into());
    let (architecture, system) = (std::env::consts::ARCH, std::env::consts::OS);
    put(
        "sys_system_architecture",
        format!("{architecture}-{system}").into(),
    );
    let described = format!("Kvorum {version} [{bits}-bit] [smp:{processors}]");
    put("sys_system_version", described.into());
    if let Some(open) = machine::open_files() {
        put("sys_port_count", open.into());
    }
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Seconds since 1970.
pub(crate) fn seconds(time: WallTime) -> u64 {
    time.micros() / 1_000_000
}

/// The process's resident memory in bytes, or 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Carries the vnodes' counts over for as long as it is polled.
pub(crate) async fn feed_always(figures: Arc<Figures>) {
    loop {
        figures.runtime.sleep(FED_EVERY).await;
        figures.feed();
    }
}

#[cfg(test)]
mod tests {
    use kvorum_member::ComparedCounts;

    use super::*;
    use crate::request_meter::{RequestMeter, tests as reports};
    use crate::vnode_figures;

    /// Regression: 61 of 139 names were zero on every node, since the program recorded nothing to
    /// them. Here every reported event happens once, and every name must move.
    #[test]
    fn every_name_is_recorded_to_by_something() {
        let stats = Arc::new(Stats::default());
        let meter = RequestMeter {
            stats: stats.clone(),
            tracked: Arc::default(),
        };
        let now = reports::now();
        for case in reports::cases() {
            (case.report)(&meter);
        }
        count_connection(&stats, now);
        let now = now.elapsed();
        vnode_figures::count_one_of_each(&stats, now);
        let compared = ComparedCounts {
            roots: 1,
            branches: 1,
            keys: 1,
            nothing: 1,
        };
        ExchangeFigures::default().feed(compared, &stats, now);
        let in_progress = InProgress {
            gets: 1,
            puts: 1,
            listings: 1,
            index_queries: 1,
            key_folds: 1,
        };
        set_gauges(&stats, in_progress, 1);
        let values = stats.riak_values(now).into_iter();
        let still: Vec<_> = values.filter(|(_, value)| *value == 0).collect();
        assert!(still.is_empty(), "never moved: {still:?}");
    }

    /// Connections, work of vnodes and requests under way: the names that are not reported to the meter.
    #[test]
    fn each_of_the_other_names_moves_with_its_own_count() {
        let moved = |count: fn(&Stats)| -> Vec<&'static str> {
            let stats = Stats::default();
            count(&stats);
            let values = stats.riak_values(reports::now().elapsed()).into_iter();
            let moved = values.filter(|(_, value)| *value != 0);
            moved.map(|(name, _)| name).collect()
        };
        let none = InProgress::default();
        assert_eq!(
            moved(|stats| count_connection(stats, reports::now())),
            ["pbc_connects", "pbc_connects_total", "pbc_active"]
        );
        assert_eq!(
            moved(|stats| set_gauges(stats, InProgress::default(), 7)),
            ["riak_kv_vnodes_running"]
        );
        for (in_progress, name) in [
            (InProgress { gets: 1, ..none }, "node_get_fsm_active"),
            (InProgress { puts: 1, ..none }, "node_put_fsm_active"),
            (
                InProgress {
                    listings: 1,
                    ..none
                },
                "list_fsm_active",
            ),
            (
                InProgress {
                    index_queries: 1,
                    ..none
                },
                "index_fsm_active",
            ),
            (
                InProgress {
                    key_folds: 1,
                    ..none
                },
                "clusteraae_fsm_active",
            ),
        ] {
            let stats = Stats::default();
            set_gauges(&stats, in_progress, 0);
            let values = stats.riak_values(Duration::ZERO).into_iter();
            let moved: Vec<_> = values.filter(|(_, value)| *value != 0).collect();
            assert_eq!(moved, [(name, 1)]);
        }
    }

    #[test]
    fn facts_about_the_process_are_facts() {
        let mut values = Map::new();
        put_process(&mut |name: &str, value: Value| {
            values.insert(name.to_owned(), value);
        });
        assert_eq!(values["sys_wordsize"], size_of::<usize>());
        assert_eq!(values["sys_logical_processors"], processors());
        let version = values["sys_system_version"].as_str().unwrap();
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
        assert!(values["sys_port_count"].as_u64() > Some(0));
    }
}
