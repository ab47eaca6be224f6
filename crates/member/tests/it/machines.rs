//! Machines with a disk each, on which members run.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_anti_entropy::{ExchangeLimits, ScheduleSettings};
use kvorum_cluster::{AgreedState, ClusterState, Command};
use kvorum_coordinator::{
    Condition, CoordinatorSettings, GetOptions, PutKind, PutOptions, PutRequest, RequestError,
    TombstoneKeeping,
};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_exchanges::ExchangeSettings;
use kvorum_member::{Member, MemberSettings, OpenError, PEER_SERVICE, Parts};
use kvorum_object::{Clock, Content, Limits, Object};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::RingSize;
use kvorum_runtime::{Link, ListenOptions, Listener, Runtime, SimulatedProcess, World};
use kvorum_test_cluster::{Unmeasured, coordinator_settings, link_all, machine};
use kvorum_vnode::VnodeSettings;
use parking_lot::Mutex;

pub(crate) use kvorum_test_cluster::peer_address as at;

use crate::stores::{DiskStores, Gate};

pub(crate) fn name(number: u8) -> String {
    format!("kvorum@10.0.0.{number}")
}

/// A machine, and the member that runs there if one does.
pub(crate) struct Machine {
    pub(crate) number: u8,
    pub(crate) disk: MemoryDisk,
    pub(crate) ring_size: u64,
    pub(crate) cluster_name: String,
    pub(crate) n_val: u32,
    pub(crate) handoff_inbound: bool,
    pub(crate) gate: Arc<Gate>,
    /// Replicas are compared, and tombstones go.
    pub(crate) is_reaping: bool,
    running: Mutex<Option<(SimulatedProcess, Arc<Member>)>>,
}

impl Machine {
    pub(crate) fn new(number: u8) -> Self {
        Self {
            number,
            disk: MemoryDisk::new(),
            ring_size: 16,
            cluster_name: "test".to_owned(),
            n_val: 3,
            handoff_inbound: true,
            gate: Arc::default(),
            is_reaping: false,
            running: Mutex::new(None),
        }
    }

    pub(crate) fn settings(&self) -> MemberSettings {
        MemberSettings {
            name: name(self.number),
            cluster_name: self.cluster_name.clone(),
            addresses: BTreeMap::from([(PEER_SERVICE.to_owned(), at(self.number).to_string())]),
            ring_size: RingSize::new(self.ring_size).unwrap(),
            default_properties: PropertyOverlay {
                allow_mult: Some(true),
                n_val: Some(self.n_val),
                ..PropertyOverlay::default()
            },
            vnode: VnodeSettings {
                limits: Limits::default(),
            },
            coordinator: CoordinatorSettings {
                request_timeout: Duration::from_secs(5),
                tombstones: match self.is_reaping {
                    true => TombstoneKeeping::Immediate,
                    false => coordinator_settings().tombstones,
                },
                ..coordinator_settings()
            },
            heads_first: true,
            peer: kvorum_peer::PeerSettings::default(),
            agreement: kvorum_agreement::AgreementSettings::default(),
            liveness: kvorum_liveness::LivenessSettings::default(),
            claimant: kvorum_claimant::ClaimantSettings::default(),
            transfers: kvorum_member::TransferSettings {
                is_inbound_enabled: self.handoff_inbound,
                ..kvorum_member::TransferSettings::default()
            },
            exchanges: self.is_reaping.then(exchange_settings),
            reaping: self.is_reaping,
            hint_period: match self.is_reaping {
                true => Duration::from_secs(1),
                false => Duration::from_secs(3_600),
            },
        }
    }

    pub(crate) async fn try_start(&self, world: &World) -> Result<(), OpenError> {
        self.begin(world).await?;
        self.member().vnodes().until_opened().await;
        Ok(())
    }

    /// Starts without a wait for its vnodes.
    pub(crate) async fn begin(&self, world: &World) -> Result<(), OpenError> {
        let process = world.start_process(machine(self.number));
        let runtime = process.runtime();
        let options = ListenOptions::default();
        let listener = runtime.listen(at(self.number), options).unwrap();
        let member = Member::open(self.parts(runtime, vec![listener])).await?;
        *self.running.lock() = Some((process, member));
        Ok(())
    }

    /// The parts of a member on this machine.
    pub(crate) fn parts(&self, runtime: Runtime, listeners: Vec<Listener>) -> Parts {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let unmeasured = Arc::new(Unmeasured);
        let stores = DiskStores::new(disk.clone(), runtime.clone(), self.gate.clone());
        Parts {
            disk,
            directory: PathBuf::from("ring"),
            data_directory: PathBuf::from("data"),
            remnant: None,
            stores: Arc::new(stores),
            listeners,
            encryption: kvorum_member::Encryption::Off,
            meter: unmeasured.clone(),
            maintenance: unmeasured,
            budget: Arc::new(kvorum_member::Unbounded),
            settings: self.settings(),
            runtime,
        }
    }

    pub(crate) async fn start(&self, world: &World) {
        self.try_start(world).await.unwrap();
    }

    pub(crate) fn member(&self) -> Arc<Member> {
        self.running.lock().as_ref().unwrap().1.clone()
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.member().state().current()
    }

    pub(crate) async fn lose_power(&self, world: &World) {
        let (process, member) = self.running.lock().take().unwrap();
        process.kill();
        world.runtime().sleep(Duration::from_millis(1)).await;
        drop((process, member));
        self.disk
            .crash(CrashOptions::drawn(world.runtime().random_u64()));
    }

    /// Stops as an operator would have it.
    pub(crate) async fn stop(&self, world: &World) {
        let (process, member) = self.running.lock().take().unwrap();
        member.stop().await;
        member.close_stores().unwrap();
        member.seal().unwrap();
        process.kill();
        world.runtime().sleep(Duration::from_millis(1)).await;
    }

    pub(crate) async fn agree(&self, command: Command) {
        self.member().state().agree(command).await.unwrap();
    }

    pub(crate) async fn commit_plan(&self) {
        let id = self.state().plan().unwrap().id;
        self.agree(Command::CommitPlan { id }).await;
    }

    pub(crate) async fn try_put(
        &self,
        key: &str,
        value: &str,
    ) -> Result<Arc<Object>, RequestError> {
        let context = match self.try_get(key).await {
            Ok(Some(object)) => object.clock().clone(),
            _ => Clock::new(),
        };
        put_at(&self.member(), key, value, context, &PutOptions::default()).await
    }

    pub(crate) async fn put(&self, key: &str, value: &str) {
        self.try_put(key, value).await.unwrap();
    }

    pub(crate) async fn try_get(&self, key: &str) -> Result<Option<Arc<Object>>, RequestError> {
        get_at(&self.member(), key).await
    }

    /// The values of a key, as this node's clients see them.
    pub(crate) async fn get(&self, key: &str) -> Vec<String> {
        values(self.try_get(key).await.unwrap().as_deref())
    }
}

/// Replicas are compared every few seconds.
fn exchange_settings() -> ExchangeSettings {
    ExchangeSettings {
        schedule: ScheduleSettings {
            at_once: 2,
            interval_micros: 2_000_000,
            loops_max: 4,
        },
        limits: ExchangeLimits::default(),
        repairs_per_second: 0,
        pause: Duration::from_millis(200),
        answer_wait_max: Duration::from_secs(2),
        step_entries_max: 1_000,
        rebuild_wait: Duration::from_secs(3_600),
        rebuild_delay_max: Duration::from_secs(60),
        colocated_replicas: false,
    }
}

/// The values of an object.
pub(crate) fn values(object: Option<&Object>) -> Vec<String> {
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    let siblings = object.into_iter().flat_map(Object::siblings);
    siblings.map(|sibling| text(&sibling.value)).collect()
}

pub(crate) async fn get_at(
    member: &Member,
    key: &str,
) -> Result<Option<Arc<Object>>, RequestError> {
    let coordinator = member.coordinator();
    let now = coordinator.runtime().now();
    let options = GetOptions::default();
    coordinator.get(&address(key), &options, now).await
}

pub(crate) async fn put_at(
    member: &Member,
    key: &str,
    value: &str,
    context: Clock,
    options: &PutOptions,
) -> Result<Arc<Object>, RequestError> {
    let request = PutRequest {
        context,
        condition: Condition::Always,
        content: Content {
            value: Bytes::copy_from_slice(value.as_bytes()),
            ..Content::default()
        },
        kind: PutKind::Versioned,
    };
    let coordinator = member.coordinator();
    let now = coordinator.runtime().now();
    coordinator.put(&address(key), request, options, now).await
}

pub(crate) fn address(key: &str) -> Address {
    Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(b"bucket".to_vec()),
        key: Key::new(key.as_bytes().to_vec()),
    }
}

pub(crate) fn simulated<F: Future>(seed: u64, test: impl FnOnce(World) -> F) -> F::Output {
    let (executor, world) = World::new(seed).unwrap();
    executor.block_on(test(world))
}

pub(crate) async fn until(world: &World, what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_200 {
        if holds() {
            return;
        }
        world.runtime().sleep(Duration::from_millis(50)).await;
    }
    panic!("it never comes to hold that {what}");
}

/// Machines 1 to `count`, all running; the second and later have joined the first, and no plan is
/// committed.
pub(crate) async fn joined(world: &World, count: u8) -> Vec<Machine> {
    let machines: Vec<Machine> = (1..=count).map(Machine::new).collect();
    join_all(world, machines).await
}

async fn join_all(world: &World, machines: Vec<Machine>) -> Vec<Machine> {
    link_all(world, u8::try_from(machines.len()).unwrap());
    for machine in &machines {
        machine.start(world).await;
    }
    for machine in &machines[1..] {
        let member = machine.member();
        member.join(at(1), Some(&name(1))).await.unwrap();
    }
    machines
}

/// A cluster whose plan is carried out, all stores empty.
pub(crate) async fn cluster(world: &World, count: u8) -> Vec<Machine> {
    cluster_of(world, (1..=count).map(Machine::new).collect()).await
}

/// The same of these machines.
pub(crate) async fn cluster_of(world: &World, machines: Vec<Machine>) -> Vec<Machine> {
    let count = machines.len();
    let machines = join_all(world, machines).await;
    machines[0].commit_plan().await;
    carry_out(world, &machines).await;
    until(world, "all have the same state and see one another", || {
        machines.iter().all(|machine| {
            let up = machine.member().liveness().up().len();
            *machine.state() == *machines[0].state() && up == count
        })
    })
    .await;
    machines
}

/// Waits until everything has moved that is to move.
pub(crate) async fn carry_out(world: &World, machines: &[Machine]) {
    for _ in 0..3_000 {
        let state = machines[0].state();
        let ring = state.ring();
        let is_done = state.transition().is_none() && state.next_growth().is_none();
        if is_done && ring.moves().is_empty() && ring.growth().is_none() {
            return;
        }
        world.runtime().sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "the plan is never carried out: {:?}",
        machines[0].state().ring()
    );
}

/// Cuts the links between two groups of machines, or heals them.
pub(crate) fn cut(world: &World, some: &[u8], others: &[u8], is_cut: bool) {
    for (one, other) in some
        .iter()
        .flat_map(|it| others.iter().map(move |to| (*it, *to)))
    {
        for (from, to) in [(one, other), (other, one)] {
            let link = world.link(machine(from), machine(to));
            world.set_link(machine(from), machine(to), Link { is_cut, ..link });
        }
        if !is_cut {
            world.break_connections(machine(one), machine(other));
        }
    }
}

pub(crate) fn has_store(machine: &Machine, partition: kvorum_ring::Partition) -> bool {
    let directory = DiskStores::directory(machine.state().ring().size(), partition);
    machine.disk.info(Path::new(&directory)).unwrap().is_some()
}
