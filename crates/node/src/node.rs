//! A node: everything that a running server consists of, opened in order and stopped in reverse.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_backend::Backend;
use kvorum_cluster::{AgreedState, ClusterId, Command, Founding, LocalState, Member, OpenError};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed};
use kvorum_coordinator::{Coordinator, CoordinatorSettings, Parts, TombstoneKeeping};
use kvorum_disk::{Disk, RealDisk};
use kvorum_object::Limits;
use kvorum_properties::{PropertyOverlay, Quorum};
use kvorum_ring::{NodeId, Partition, RingSize};
use kvorum_runtime::{Runtime, ThreadHandle};
use kvorum_settings::{BucketDefaults, DeleteMode, QuorumValue, Settings};
use kvorum_stats::Stats;
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};

use crate::data_directory::DataDirectory;
use crate::engines::Engines;
use crate::figures::{Figures, RequestMeter};
use crate::maintenance::{self, Maintenance, StepLog};
use crate::vnode_table::VnodeTable;

/// An open node.
pub(crate) struct Node {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) maintenance: Arc<Maintenance>,
    leases: Arc<LeaseTable>,
    commit_log: Option<CommitLog>,
    committer: Option<ThreadHandle<()>>,
    maintainer: ThreadHandle<()>,
    _data: DataDirectory,
}

impl Node {
    /// Opens everything. Blocks.
    pub(crate) fn open(settings: &Settings, runtime: &Runtime) -> anyhow::Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let data = DataDirectory::open(&disk, &settings.node.data_dir)?;
        let cluster = open_cluster(&disk, settings, runtime)?;
        let this_node = cluster.this_node();
        let state = cluster.current();
        let ring_size = state.ring().size();

        let engines = Engines::new(
            disk.clone(),
            settings.clone(),
            ring_size,
            runtime.randomness(),
        );
        let stores = open_stores(&engines, ring_size)?;
        let commit_log = recover(&disk, settings, &engines, &data, &stores, runtime)?;

        let leases = Arc::new(open_leases(&disk, &data, runtime)?);
        let vnodes = stores
            .into_iter()
            .map(|(partition, engine)| {
                let backend: Arc<dyn Backend> = match &commit_log {
                    Some(log) => {
                        let default = engines.default_durability();
                        Arc::new(Committed::new(engine, log.clone(), default))
                    }
                    None => engine,
                };
                let epoch = state.ring().epoch(partition);
                Vnode::new(
                    partition,
                    epoch,
                    backend,
                    leases.clone(),
                    vnode_settings(settings),
                )
            })
            .collect();
        let vnodes = Arc::new(VnodeTable::new(usize::from(ring_size.get()), vnodes));
        leases.renew().context("renew the vnodes' dot leases")?;

        let stats = Arc::new(Stats::default());
        let steps = Arc::new(StepLog::default());
        let parts = Parts {
            node: this_node,
            runtime: runtime.clone(),
            cluster: Arc::new(cluster),
            vnodes: vnodes.clone(),
            meter: Arc::new(RequestMeter {
                stats: stats.clone(),
            }),
            maintenance: steps.clone(),
        };
        let coordinator = Arc::new(Coordinator::new(parts, coordinator_settings(settings)));
        let maintenance = Arc::new(Maintenance::new(
            maintenance::Parts {
                runtime: runtime.clone(),
                vnodes: vnodes.clone(),
                commit_log: commit_log.clone(),
                coordinator: coordinator.clone(),
                stats: stats.clone(),
                log: steps,
            },
            maintenance::budgets(settings),
        ));
        let figures = Arc::new(Figures {
            stats,
            runtime: runtime.clone(),
            node_name: settings.node.nodename.clone(),
            engine: engines.name(),
            ring_partitions: u64::from(ring_size.get()),
            vnodes: vnodes.clone(),
            commit_log: commit_log.clone(),
            maintenance: maintenance.clone(),
            leveldb: engines.leveldb_shared().cloned(),
        });

        let committer = match commit_log.clone() {
            Some(log) => Some(runtime.thread("commit log", move || log.drive())?),
            None => None,
        };
        let worker = maintenance.clone();
        let maintainer = runtime.thread("maintenance", move || worker.run())?;
        Ok(Self {
            coordinator,
            figures,
            vnodes,
            maintenance,
            leases,
            commit_log,
            committer,
            maintainer,
            _data: data,
        })
    }

    /// Stops background work, syncs and closes every store. Blocks.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        self.maintenance.stop();
        let _ended = self.maintainer.join();
        if let Some(log) = &self.commit_log {
            log.stop();
        }
        if let Some(committer) = self.committer {
            let _ended = committer.join();
        }
        let mut first_failure = None;
        for vnode in self.vnodes.iter() {
            if let Err(error) = vnode.backend().close() {
                tracing::error!(
                    event = "store_close_failed",
                    partition = vnode.partition().number(),
                    error = %error,
                );
                first_failure.get_or_insert(error);
            }
        }
        if let Some(error) = first_failure {
            return Err(error).context("close the stores");
        }
        if let Some(log) = self.commit_log {
            // Every store is synced: there is nothing to replay.
            log.remove().context("remove the commit log")?;
        }
        let vnodes = self.vnodes.iter().map(|vnode| &**vnode);
        self.leases
            .seal(vnodes)
            .context("seal the vnodes' dot leases")
    }
}

fn open_cluster(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    runtime: &Runtime,
) -> anyhow::Result<LocalState> {
    let directory = &settings.node.ring_state_dir;
    let name = &settings.node.nodename;
    let state = match LocalState::open(disk.clone(), directory, name) {
        Ok(opened) => {
            if let Some(note) = opened.note {
                tracing::warn!(
                    event = "cluster_state_restored",
                    file = %note.file.display(),
                    reason = %note.reason,
                    older_version = ?note.older_version,
                );
            }
            opened.state
        }
        Err(OpenError::Missing { .. }) => found_cluster(disk, directory, settings, runtime)?,
        Err(error) => return Err(error.into()),
    };
    let found = u64::from(state.current().ring().size().get());
    if found != settings.node.ring_size {
        tracing::warn!(
            event = "ring_size_kept",
            kept = found,
            configured = settings.node.ring_size,
            "the ring size of a cluster is fixed when it is founded",
        );
    }
    let defaults = default_overlay(&settings.buckets);
    if *state.current().default_properties() != defaults {
        state.propose(Command::SetDefaultProperties(defaults))?;
    }
    Ok(state)
}

fn found_cluster(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    settings: &Settings,
    runtime: &Runtime,
) -> anyhow::Result<LocalState> {
    let random = || {
        let mut bytes = [0; 16];
        runtime.randomness().fill(&mut bytes);
        bytes
    };
    let name = &settings.node.nodename;
    let founding = Founding {
        cluster_id: ClusterId::from_random(random()),
        cluster_name: "kvorum".into(),
        node: NodeId::from_random(random()),
        member: Member::new(name),
        ring_size: RingSize::new(settings.node.ring_size)?,
    };
    tracing::info!(event = "cluster_founded", node = %name, ring_size = settings.node.ring_size);
    Ok(LocalState::create(disk.clone(), directory, founding)?)
}

/// Opens the stores of all partitions, several at a time.
fn open_stores(
    engines: &Engines,
    ring_size: RingSize,
) -> anyhow::Result<Vec<(Partition, Arc<dyn Backend>)>> {
    let partitions: Vec<Partition> = ring_size.partitions().collect();
    let workers = std::thread::available_parallelism().map_or(2, |count| 4 * count.get());
    let per_worker = partitions.len().div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = partitions
            .chunks(per_worker)
            .map(|chunk| {
                scope.spawn(move || {
                    let open = |partition: &Partition| {
                        let store = engines.open(*partition).with_context(|| {
                            format!("open the store of partition {}", partition.number())
                        })?;
                        Ok((*partition, store))
                    };
                    chunk.iter().map(open).collect::<anyhow::Result<Vec<_>>>()
                })
            })
            .collect();
        let mut stores = Vec::with_capacity(partitions.len());
        for handle in handles {
            match handle.join() {
                Ok(opened) => stores.extend(opened?),
                Err(_) => anyhow::bail!("a thread that opens stores panicked; report this bug"),
            }
        }
        Ok(stores)
    })
}

/// Replays what an earlier run logged, and starts this run's commit log if there is to be one.
fn recover(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    engines: &Engines,
    data: &DataDirectory,
    stores: &[(Partition, Arc<dyn Backend>)],
    runtime: &Runtime,
) -> anyhow::Result<Option<CommitLog>> {
    let directory = data.commit_log();
    let open: Vec<Arc<dyn Backend>> = stores.iter().map(|(_, store)| store.clone()).collect();
    let found =
        kvorum_commit::recover(&**disk, &directory, &open).context("replay the commit log")?;
    if found.batches_read > 0 {
        tracing::info!(
            event = "commit_log_replayed",
            batches_read = found.batches_read,
            batches_replayed = found.batches_replayed,
            torn_bytes = found.torn_bytes,
        );
    }
    if found.batches_of_unknown_stores > 0 {
        let batches = found.batches_of_unknown_stores;
        tracing::warn!(event = "commit_log_unknown_stores", batches);
    }
    for damage in &found.damage {
        tracing::error!(event = "commit_log_damaged", damage = %damage);
    }
    if !engines.use_commit_log() {
        return Ok(None);
    }
    let log_settings = CommitLogSettings {
        segment_bytes: settings.commit_log.segment_bytes,
        bytes_max: settings.commit_log.bytes_max,
    };
    let log = CommitLog::create(disk.clone(), &directory, runtime.random_u64(), log_settings)
        .context("start the commit log")?;
    Ok(Some(log))
}

fn open_leases(
    disk: &Arc<dyn Disk>,
    data: &DataDirectory,
    runtime: &Runtime,
) -> anyhow::Result<LeaseTable> {
    let (leases, unreadable) = LeaseTable::open(disk.clone(), data.path(), runtime.randomness())?;
    if let Some(unreadable) = unreadable {
        tracing::warn!(
            event = "dot_leases_unreadable",
            kept_as = %unreadable.kept_as.display(),
            reason = %unreadable.reason,
            "every vnode gets a fresh actor",
        );
    }
    Ok(leases)
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
        request_timeout: Duration::from_secs(60),
        slow_request_threshold: requests.slow_threshold.unwrap_or(Duration::MAX),
        requests_max: requests
            .concurrent_max
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(usize::MAX),
        tombstones: match requests.delete_mode {
            DeleteMode::Keep => TombstoneKeeping::Keep,
            DeleteMode::Immediate => TombstoneKeeping::Immediate,
            DeleteMode::After(delay) => TombstoneKeeping::For(delay),
        },
    }
}

/// `buckets.default.*` as a layer of properties; what equals the built-in default is left out.
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
        ..PropertyOverlay::default()
    }
}
