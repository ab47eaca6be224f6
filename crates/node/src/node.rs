//! A node: everything that a running server consists of, opened in order and stopped in reverse.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_arbiter::Arbiter;
use kvorum_backup::Backups;
use kvorum_coordinator::{BackendNames, Coordinator, CoordinatorSettings, TombstoneKeeping};
use kvorum_disk::{Disk, RealDisk};
use kvorum_maintenance::{GivingWay, MaintainedLog, Maintenance, StepLog, TransferBudget};
use kvorum_member::{
    ExchangeLimits, ExchangeSettings, Member, MemberSettings, PEER_SERVICE, ScheduleSettings,
    TransferSettings, VnodeTable,
};
use kvorum_object::Limits;
use kvorum_properties::{KeyFunction, PropertyOverlay, Quorum, SyncOnWrite};
use kvorum_ring::RingSize;
use kvorum_runtime::{Executor, Listener, Room, Runtime, ThreadHandle};
use kvorum_settings::{
    BucketDefaults, DeleteMode, KeyFunction as ConfiguredFunction, QuorumValue, Settings,
    StorageBackend, SyncOnWrite as ConfiguredSync,
};
use kvorum_stats::Stats;
use kvorum_vnode::VnodeSettings;
use parking_lot::Mutex;

use crate::allocator;
use crate::data_directory::{DataDirectory, EngineFile, EngineLeft, FORMAT_NAME};
use crate::engine_names;
use crate::engines_described;
use crate::engines_left;
use crate::exchange_figures::ExchangeFigures;
use crate::figures::Figures;
use crate::maintained_value_log::MaintainedValueLog;
use crate::node_stores::NodeStores;
use crate::request_meter::RequestMeter;
use crate::request_rates::RequestRates;
use crate::store_roots::{self, StoreRoots};
use crate::taking_over;
use crate::tls_upkeep::TlsUpkeep;
use crate::tracked_buckets::TrackedBuckets;
use crate::value_log_check;
use crate::vnode_figures::VnodeFigures;

/// Hints are checked at least this often.
const HINT_PERIOD: Duration = Duration::from_secs(30);

/// A difference between replicas is checked again after this time, which is longer than most writes
/// take.
const EXCHANGE_PAUSE: Duration = Duration::from_secs(4);
/// Time limit for an answer to an exchange: the keys of leaves may take a fold over all keys.
const EXCHANGE_ANSWER_WAIT_MAX: Duration = Duration::from_secs(600);
/// Entries that a step takes into trees: some milliseconds of work.
const TREE_STEP_ENTRIES_MAX: usize = 5_000;

/// The time-out of a request whose client gives none.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An open node.
pub(crate) struct Node {
    pub(crate) member: Arc<Member>,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) backups: Arc<Backups>,
    /// Room for the memory of requests.
    pub(crate) room: Room,
    /// The addresses that other nodes connect to.
    pub(crate) peer_addresses: Vec<SocketAddr>,
    log: Option<MaintainedValueLog>,
    committer: Option<ThreadHandle<()>>,
    maintainer: ThreadHandle<()>,
    /// The data directory, locked while this is held.
    pub(crate) data: Arc<DataDirectory>,
    /// The directories of the node.
    parts: Vec<PathBuf>,
}

impl Node {
    /// Opens everything but the stores of vnodes, which are opened while the node serves; other nodes
    /// connect to `peer_listeners`. Blocks.
    pub(crate) fn open(
        settings: &Settings,
        executor: &Executor,
        peer_listeners: Vec<Listener>,
    ) -> anyhow::Result<Self> {
        Self::open_on(Arc::new(RealDisk), settings, executor, peer_listeners)
    }

    /// The same on a disk that may fail.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        settings: &Settings,
        executor: &Executor,
        peer_listeners: Vec<Listener>,
    ) -> anyhow::Result<Self> {
        let runtime = executor.runtime();
        let data = DataDirectory::open(&disk, &settings.node.data_dir)?;
        kvorum_backup::settle_restored(&*disk, data.path(), &settings.node.ring_state_dir)?;
        let born_at = &kvorum_backup::born_at;
        kvorum_backup::settle_copied(&*disk, data.path(), &settings.node.ring_state_dir, born_at)?;
        taking_over::settle(&*disk, &data, settings)?;
        let before = engine_before(&*disk, &data, settings)?;
        store_roots::settle(&*disk, data.path(), settings)?;
        let remnant = engines_left::any_store(&*disk, &data, settings)?;
        value_log_check::settle(&*disk, &data, settings)?;
        let stores = NodeStores::new(disk.clone(), &runtime, settings, &data, before)?;
        let stores = Arc::new(stores);
        let stats = Arc::new(Stats::default());
        let tracked_buckets = Arc::new(TrackedBuckets::default());
        let steps = Arc::new(StepLog::default());
        let budgets = kvorum_maintenance::budgets(settings);
        let room = kvorum_maintenance::room_for_requests(&budgets);
        let arbiter = Arc::new(Mutex::new(Arbiter::new(budgets)));
        let budget = TransferBudget {
            runtime: runtime.clone(),
            arbiter: arbiter.clone(),
        };
        let peer_addresses = peer_listeners.iter().map(Listener::local_address).collect();
        let tls = TlsUpkeep::begin(settings, &runtime)?;
        let parts = kvorum_member::Parts {
            encryption: tls.encryption.clone(),
            runtime: runtime.clone(),
            disk: disk.clone(),
            directory: settings.node.ring_state_dir.clone(),
            data_directory: data.path().to_owned(),
            remnant,
            stores: stores.clone(),
            meter: Arc::new(RequestMeter {
                stats: stats.clone(),
                tracked: tracked_buckets.clone(),
            }),
            maintenance: steps.clone(),
            budget: Arc::new(budget),
            settings: member_settings(settings, &peer_listeners, room.clone())?,
            listeners: peer_listeners,
        };
        let member = executor.block_on(Member::open(parts))?;
        runtime.spawn("tls upkeep", tls.keep());
        let parts = data.parts(&*disk, settings)?;
        data.note_engine(&*disk, stores.engine_name(), None, &parts)?;
        let (coordinator, vnodes) = (member.coordinator().clone(), member.vnodes().clone());
        coordinator.log_properties_not_kept();
        let log = stores.log();
        let maintenance = Arc::new(Maintenance::new(kvorum_maintenance::Parts {
            runtime: runtime.clone(),
            vnodes: vnodes.clone(),
            hints: member.hints().clone(),
            value_log: log
                .clone()
                .map(|log| Arc::new(log) as Arc<dyn MaintainedLog>),
            coordinator: coordinator.clone(),
            stats: stats.clone(),
            log: steps,
            arbiter,
            scrub_period: settings.maintenance.scrub_period,
            giving_way: GivingWay::new(
                stores.read_cache(),
                stores.trees_shared(),
                stores.page_cache(),
            ),
            room: room.clone(),
            reserve: stores.reserve(),
            give_memory_back: allocator::give_back,
        }));
        let figures = Arc::new(Figures {
            stats,
            runtime: runtime.clone(),
            node_name: settings.node.nodename.clone(),
            engine: stores.engine_name(),
            riak_module: engines_described::riak_module(settings),
            several_backends: engines_described::several(&engines_described::engines(settings)),
            member: member.clone(),
            vnodes: vnodes.clone(),
            value_log: log.clone(),
            read_cache: stores.read_cache(),
            page_cache: stores.page_cache(),
            maintenance: maintenance.clone(),
            vnode_figures: VnodeFigures::default(),
            exchange_figures: ExchangeFigures::default(),
            request_rates: RequestRates::default(),
            tracked_buckets,
            data_directory: data.path().to_owned(),
            trees: stores.trees_shared(),
        });
        let roots = StoreRoots::of(settings);
        let roots = roots.iter().flat_map(StoreRoots::all);
        let backups = Arc::new(Backups::new(kvorum_backup::Parts {
            runtime: runtime.clone(),
            disk,
            member: member.clone(),
            log: log.as_ref().map(|log| log.values.clone()),
            engine: stores.engine_name(),
            data_directory: data.path().to_owned(),
            ring_directory: settings.node.ring_state_dir.clone(),
            format_name: FORMAT_NAME,
            store_roots: roots.map(Path::to_owned).collect(),
        }));
        let (committer, maintainer) = start_threads(&runtime, &log, &maintenance)?;
        Ok(Self {
            member,
            coordinator,
            figures,
            vnodes,
            maintenance,
            backups,
            room,
            peer_addresses,
            log,
            committer,
            maintainer,
            data: Arc::new(data),
            parts,
        })
    }

    /// Number of other nodes in the cluster, or the number in the last run if that is larger.
    pub(crate) fn others(&self) -> u64 {
        let noted = kvorum_backup::others_noted(&RealDisk, self.data.path()).unwrap_or(0);
        let known = self.coordinator.state().members().len().saturating_sub(1);
        noted.max(known as u64)
    }

    /// Stops background work, syncs and closes every store. Blocks.
    pub(crate) fn close(self, executor: &Executor) -> anyhow::Result<()> {
        executor.block_on(self.member.stop());
        let hints = self.member.hints().vnode().store_status().keys;
        self.maintenance.stop();
        let _ended = self.maintainer.join();
        if let Some(log) = &self.log {
            log.stop();
        }
        if let Some(committer) = self.committer {
            let _ended = committer.join();
        }
        self.member.close_stores().context("close the stores")?;
        self.member.seal().context("seal the vnodes' dot leases")?;
        self.data
            .note_engine(&RealDisk, self.figures.engine, Some(hints), &self.parts)?;
        value_log_check::note_present(&RealDisk, &self.data)
    }
}

/// The engine whose stores are in the data directory, when the configuration names another one. A
/// change is refused while these may have objects for other nodes, which would never be handed
/// over.
fn engine_before(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
) -> anyhow::Result<Option<String>> {
    let configured = engine_names::name_of(settings.node.storage_backend);
    let left = match data.engine_left(disk)? {
        EngineFile::Whole(left) => left,
        // Without a valid file, the stores themselves show their engine.
        EngineFile::Missing => return engines_left::settle_unknown(disk, data, settings, false),
        EngineFile::Damaged => return engines_left::settle_unknown(disk, data, settings, true),
    };
    engines_left::check_parts(disk, data, &left, settings)?;
    let left = Some(left).filter(|it| it.engine != configured && it.engine != engine_names::MEMORY);
    let Some(EngineLeft { engine, hints, .. }) = left else {
        return Ok(None);
    };
    let waiting = match hints {
        Some(0) => return Ok(Some(engine)),
        Some(1) => "1 object waits there for another node".to_owned(),
        Some(hints) => format!("{hints} objects wait there for other nodes"),
        None => "it was not stopped gracefully, so objects may wait there for other nodes".into(),
    };
    anyhow::bail!(
        "the data directory {} holds stores of {engine}, and {waiting}; start with storage_backend = \
         {engine}, wait until `kvorum admin handoff summary` shows no hinted objects of this node, and \
         stop it before the change to {configured} (if that cannot be done, remove the file `engine` \
         there, and with it those objects)",
        data.path().display()
    )
}

fn start_threads(
    runtime: &Runtime,
    log: &Option<MaintainedValueLog>,
    maintenance: &Arc<Maintenance>,
) -> anyhow::Result<(Option<ThreadHandle<()>>, ThreadHandle<()>)> {
    let committer = match log.clone() {
        Some(log) => {
            runtime.spawn("log caller", log.clone().call_driver(runtime.clone()));
            Some(runtime.thread(MaintainedValueLog::NAME, move || log.drive())?)
        }
        None => None,
    };
    let worker = maintenance.clone();
    let maintainer = runtime.thread("maintenance", move || worker.run())?;
    Ok((committer, maintainer))
}

fn member_settings(
    settings: &Settings,
    peers: &[Listener],
    room: Room,
) -> anyhow::Result<MemberSettings> {
    let mut addresses = BTreeMap::new();
    if let Some(listener) = peers.first() {
        let address = match settings.listeners.peer_advertised {
            Some(address) => address,
            None => announced_address(listener.local_address(), &settings.node.nodename)?,
        };
        addresses.insert(PEER_SERVICE.to_owned(), address.to_string());
    }
    Ok(MemberSettings {
        name: settings.node.nodename.clone(),
        cluster_name: settings.node.cluster_name.clone(),
        addresses,
        ring_size: RingSize::new(settings.node.ring_size)?,
        default_properties: default_overlay(&settings.buckets),
        vnode: vnode_settings(settings),
        coordinator: coordinator_settings(settings),
        heads_first: true,
        peer: kvorum_member::PeerSettings {
            room,
            ..kvorum_member::PeerSettings::default()
        },
        agreement: kvorum_member::AgreementSettings::default(),
        liveness: kvorum_member::LivenessSettings::default(),
        claimant: kvorum_member::ClaimantSettings::default(),
        transfers: TransferSettings {
            transfers_max: usize::try_from(settings.maintenance.transfer_limit)
                .unwrap_or(usize::MAX),
            is_inbound_enabled: settings.maintenance.handoff_inbound,
            is_outbound_enabled: settings.maintenance.handoff_outbound,
            colocated_replicas: settings.node.colocated_replicas,
            are_stores_kept: settings.node.storage_backend != StorageBackend::Memory,
            ..TransferSettings::default()
        },
        reaping: leads_rounds(settings),
        exchanges: settings
            .anti_entropy
            .is_active
            .then(|| exchange_settings(settings)),
        hint_period: HINT_PERIOD,
    })
}

/// True if this node leads rounds: it compares replicas, and tombstones do not stay. A node with
/// `delete_mode = keep` refuses rounds of others too.
fn leads_rounds(settings: &Settings) -> bool {
    settings.anti_entropy.is_active && settings.requests.delete_mode != DeleteMode::Keep
}

fn exchange_settings(settings: &Settings) -> ExchangeSettings {
    let own = &settings.anti_entropy;
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    ExchangeSettings {
        schedule: ScheduleSettings {
            at_once: count(own.exchanges_max),
            interval_micros: u64::try_from(own.interval.as_micros()).unwrap_or(u64::MAX),
            loops_max: number(own.loops_max),
        },
        limits: ExchangeLimits {
            leaves_max: count(own.leaves_max),
            ..ExchangeLimits::default()
        },
        repairs_per_second: own.repairs_per_second_max.map_or(0, number),
        pause: EXCHANGE_PAUSE,
        answer_wait_max: EXCHANGE_ANSWER_WAIT_MAX,
        step_entries_max: TREE_STEP_ENTRIES_MAX,
        rebuild_wait: own.rebuild_wait,
        rebuild_delay_max: own.rebuild_delay,
        colocated_replicas: settings.node.colocated_replicas,
    }
}

/// The address that is announced to other nodes: the listener's, or, for a listener on all
/// addresses of the machine, this host's with the same port.
fn announced_address(listened_on: SocketAddr, nodename: &str) -> anyhow::Result<SocketAddr> {
    if !listened_on.ip().is_unspecified() {
        return Ok(listened_on);
    }
    let host = nodename.split_once('@').map_or(nodename, |(_, host)| host);
    Ok(SocketAddr::new(
        kvorum_admin::ip_of(host)?,
        listened_on.port(),
    ))
}

fn vnode_settings(settings: &Settings) -> VnodeSettings {
    let objects = &settings.objects;
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    VnodeSettings {
        limits: Limits {
            size_warning_bytes: objects.size_warning_bytes,
            size_max_bytes: objects.size_max_bytes,
            siblings_warning: count(objects.siblings_warning),
            siblings_max: count(objects.siblings_max),
        },
    }
}

fn coordinator_settings(settings: &Settings) -> CoordinatorSettings {
    let requests = &settings.requests;
    CoordinatorSettings {
        colocated_replicas: settings.node.colocated_replicas,
        request_timeout: REQUEST_TIMEOUT,
        slow_request_threshold: requests.slow_threshold.unwrap_or(Duration::MAX),
        requests_max: requests
            .concurrent_max
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(usize::MAX),
        compares_all_on_get: requests.compares_all_on_get,
        tombstones: match requests.delete_mode {
            DeleteMode::Keep => TombstoneKeeping::Keep,
            DeleteMode::Immediate => TombstoneKeeping::Immediate,
            DeleteMode::After(delay) => TombstoneKeeping::For(delay),
        },
        backend_names: backend_names(settings),
    }
}

/// The names that a bucket may name as its backend.
fn backend_names(settings: &Settings) -> BackendNames {
    if settings.node.storage_backend != StorageBackend::Multi {
        return BackendNames::One(engine_names::name_of(settings.node.storage_backend));
    }
    let names = settings.multi.backends.iter();
    // A node is opened once in the life of a process.
    let names = names.map(|it| &*String::leak(it.name.clone()));
    BackendNames::Several(Vec::leak(names.collect()))
}

/// `buckets.default.*` as a layer of properties. Two properties that earlier versions lacked are
/// left out while they have the built-in default, since this layer is compared with the agreed one
/// of a node with data.
fn default_overlay(buckets: &BucketDefaults) -> PropertyOverlay {
    let quorum = |value: QuorumValue| {
        Some(match value {
            QuorumValue::One => Quorum::One,
            QuorumValue::Quorum => Quorum::Quorum,
            QuorumValue::All => Quorum::All,
            QuorumValue::Count(count) => Quorum::Number(count),
        })
    };
    PropertyOverlay {
        n_val: Some(buckets.n_val),
        r: quorum(buckets.r),
        w: quorum(buckets.w),
        dw: quorum(buckets.dw),
        rw: quorum(buckets.rw),
        pr: quorum(buckets.pr),
        pw: quorum(buckets.pw),
        node_confirms: Some(Quorum::Number(buckets.node_confirms)),
        notfound_ok: Some(buckets.notfound_ok),
        basic_quorum: Some(buckets.basic_quorum),
        allow_mult: Some(buckets.allow_mult),
        last_write_wins: Some(buckets.last_write_wins),
        dvv_enabled: Some(buckets.dvv_enabled),
        sync_on_write: match buckets.sync_on_write {
            ConfiguredSync::Backend => None,
            ConfiguredSync::One => Some(SyncOnWrite::One),
            ConfiguredSync::All => Some(SyncOnWrite::All),
        },
        chash_keyfun: match buckets.chash_keyfun {
            ConfiguredFunction::Standard => None,
            ConfiguredFunction::BucketOnly => Some(KeyFunction::BucketOnly),
        },
        ..PropertyOverlay::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_led_where_replicas_are_compared_and_tombstones_may_go() {
        let mut settings = Settings::default();
        let modes = [
            (DeleteMode::Immediate, true),
            (DeleteMode::After(Duration::from_secs(3)), true),
            (DeleteMode::Keep, false),
        ];
        for (mode, may_go) in modes {
            settings.requests.delete_mode = mode;
            settings.anti_entropy.is_active = false;
            assert!(!leads_rounds(&settings), "{mode:?}");
            settings.anti_entropy.is_active = true;
            assert_eq!(leads_rounds(&settings), may_go, "{mode:?}");
        }
    }
}
