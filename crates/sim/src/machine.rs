//! A machine of the simulation: its disk, its clock, and the node while it runs.
//!
//! Nodes are of two kinds: members as the server opens them (`agreeing`), and nodes with a stand-in for
//! their control plane (`stand_in`). Both are put together from the parts that the server is made of.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::bail;
use kvorum_cluster::ClusterState;
use kvorum_coordinator::{Coordinator, HintPageLimits, HintStore as _, LocalVnodes, VnodeHints};
use kvorum_disk::{
    CrashOptions, Disk, FaultyDisk, MemoryDisk, Rule, RuleId, create_directory_durably,
    replace_file,
};
use kvorum_encoding::StorageKey;
use kvorum_exchanges::Exchanges;
use kvorum_liveness::Liveness;
use kvorum_member::{ACCEPT_LOST_STORES, Member};
use kvorum_object::Object;
use kvorum_peer::PeerService;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::{Runtime, SimulatedProcess, World};
use kvorum_test_cluster::{machine, node_id};
use kvorum_vnode::{KEPT_TREES_NAME, remove_kept_trees};
use parking_lot::Mutex;

use crate::disk_copy::copy_directory;
use crate::follower::Follower;
use crate::messages::{Front, Messages};
use crate::plan::{Control, RunPlan};
use crate::stores::{SimulatedStores, Upkeep};

/// Directory of a member's own files.
pub(crate) const DATA_DIRECTORY: &str = "/node/data";
pub(crate) const DIRECTORY: &str = "/node";
/// Directory of a member's state of the cluster and of itself. The rest of its directory is data.
pub(crate) const RING_DIRECTORY: &str = "/node/ring";
/// A machine. It exists also while its node does not run.
pub(crate) struct Machine {
    pub(crate) number: u8,
    pub(crate) plan: RunPlan,
    world: World,
    pub(crate) state: Mutex<MachineState>,
    messages: Arc<Messages>,
    /// Additional time of every sync, in microseconds.
    pub(crate) slowness: Arc<AtomicU64>,
    /// Upkeep of its stores, over all runs of its node.
    pub(crate) upkeep: Arc<Mutex<Upkeep>>,
}

pub(crate) struct MachineState {
    /// Its node's identity, as soon as it has one.
    node: NodeId,
    /// Its node takes part in the cluster, or has.
    has_joined: bool,
    /// Its node has left for good.
    is_retired: bool,
    disk: MemoryDisk,
    faulty: FaultyDisk,
    /// Failures of the disk, by the fault that made them.
    ailments: BTreeMap<usize, Ailment>,
    /// Offset of the clock, in microseconds.
    clock_offset: i64,
    /// The last state of its node.
    pub(crate) learned: Arc<ClusterState>,
    /// Also while the node is only opening.
    process: Option<Arc<SimulatedProcess>>,
    pub(crate) running: Option<Arc<Running>>,
}

/// The effect of one fault on a disk.
struct Ailment {
    rules: Vec<Rule>,
    /// The rules in their present place.
    ids: Vec<RuleId>,
    /// Number of times that they fired in earlier places.
    fired: u64,
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) runtime: Runtime,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) liveness: Liveness,
    pub(crate) stores: Arc<SimulatedStores>,
    pub(crate) exchanges: Option<Exchanges>,
    pub(crate) node: Node,
}

/// The parts in which the kinds of nodes differ.
pub(crate) enum Node {
    Follower(Follower),
    Member(Arc<Member>),
}

impl Machine {
    pub(crate) fn new(
        world: &World,
        number: u8,
        plan: &RunPlan,
        learned: Arc<ClusterState>,
        messages: Arc<Messages>,
    ) -> Self {
        let disk = MemoryDisk::new();
        let state = MachineState {
            node: node_id(number),
            has_joined: plan.control == Control::StandIn,
            is_retired: false,
            faulty: FaultyDisk::over_memory(&disk),
            disk,
            ailments: BTreeMap::new(),
            clock_offset: 0,
            learned,
            process: None,
            running: None,
        };
        Self {
            number,
            plan: plan.clone(),
            world: world.clone(),
            state: Mutex::new(state),
            messages,
            slowness: Arc::default(),
            upkeep: Arc::default(),
        }
    }

    /// The node, while it runs.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.state.lock().running.clone()
    }

    /// The identity of its node.
    pub(crate) fn node(&self) -> NodeId {
        self.state.lock().node
    }

    /// Its node takes part in the cluster from now on.
    pub(crate) fn note_joined(&self) {
        self.state.lock().has_joined = true;
    }

    /// True when clients may ask its node.
    pub(crate) fn takes_part(&self) -> bool {
        let state = self.state.lock();
        state.has_joined && !state.is_retired
    }

    /// Its node is no longer a member, and is switched off for good.
    pub(crate) fn retire(&self) {
        self.state.lock().is_retired = true;
        self.kill_onto(MemoryDisk::clone);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.state.lock().is_retired
    }

    /// The present or last ring of its node.
    pub(crate) fn learned(&self) -> Arc<ClusterState> {
        let mut state = self.state.lock();
        if let Some(member) = state.running.as_ref().and_then(|it| it.member()) {
            state.learned = kvorum_cluster::AgreedState::current(member.state());
        }
        state.learned.clone()
    }

    /// Ends the process where it stands; the machine goes on with this disk.
    fn kill_onto(&self, disk_of: impl FnOnce(&MemoryDisk) -> MemoryDisk) {
        let mut state = self.state.lock();
        state.running = None;
        if let Some(process) = state.process.take() {
            process.kill();
        }
        state.disk = disk_of(&state.disk);
        let faulty = FaultyDisk::over_memory(&state.disk);
        let former = std::mem::replace(&mut state.faulty, faulty.clone());
        for ailment in state.ailments.values_mut() {
            ailment.fired += ailment.fired_on(&former);
            ailment.ids = ailment.added_to(&faulty);
        }
    }

    /// The power fails.
    pub(crate) fn crash(&self, seed: u64) {
        let options = CrashOptions::drawn(seed);
        self.kill_onto(|disk| disk.crash_image(options));
    }

    /// The power fails, and the data are others: none, or those of an older copy. A member's card and
    /// its log are on another disk, as is advised: a node that loses its votes has to come again.
    pub(crate) fn crash_onto(&self, seed: u64, copy: &MemoryDisk) -> anyhow::Result<()> {
        if self.plan.control == Control::StandIn {
            self.kill_onto(|_| copy.clone());
            return Ok(());
        }
        let kept = self
            .state
            .lock()
            .disk
            .crash_image(CrashOptions::drawn(seed));
        let (disk, ring) = (MemoryDisk::new(), Path::new(RING_DIRECTORY));
        copy_directory(copy, &disk, Path::new(DIRECTORY), &|it| it != ring)?;
        copy_directory(&kept, &disk, ring, &|_| true)?;
        // An operator that replaces a disk for good does this: a start without any store is refused
        // otherwise.
        let data = Path::new(DATA_DIRECTORY);
        create_directory_durably(&disk, data)?;
        replace_file(&disk, &data.join(ACCEPT_LOST_STORES), b"")?;
        self.kill_onto(|_| disk);
        Ok(())
    }

    /// Puts an older copy of the disk in place, beside the hash trees of the present one. The node is
    /// stopped.
    pub(crate) fn restore_stores(&self, copy: &MemoryDisk) -> anyhow::Result<()> {
        let data = Path::new(match self.plan.control {
            Control::StandIn => DIRECTORY,
            Control::Members => DATA_DIRECTORY,
        });
        let present = self.state.lock().disk.clone();
        remove_kept_trees(copy, data)?;
        self.crash_onto(0, copy)?;
        let restored = self.state.lock().disk.clone();
        copy_directory(&present, &restored, &data.join(KEPT_TREES_NAME), &|_| true)?;
        Ok(())
    }

    /// A copy of the disk as it is, of a node that runs.
    pub(crate) fn copy_disk(&self) -> Option<MemoryDisk> {
        let state = self.state.lock();
        let options = CrashOptions::everything();
        state
            .running
            .as_ref()
            .map(|_| state.disk.crash_image(options))
    }

    /// Stops the node as an operator does; the process is gone afterwards.
    pub(crate) async fn stop(&self) {
        let running = self.state.lock().running.take();
        let Some(running) = running else { return };
        match running.member() {
            Some(member) => member.stop().await,
            None => running.liveness.leave(),
        }
        // Requests under way have a moment to end.
        running.runtime.sleep(Duration::from_millis(100)).await;
        if running.stores.close().is_ok() {
            match &running.node {
                Node::Follower(follower) => follower.seal(&running.hints),
                Node::Member(member) => drop(member.seal()),
            }
        }
        drop(running);
        self.kill_onto(MemoryDisk::clone);
    }

    /// Starts the node, if its disk lets it.
    pub(crate) async fn start(&self) -> anyhow::Result<()> {
        let (process, disk) = {
            let mut state = self.state.lock();
            if state.process.is_some() {
                return Ok(());
            }
            let process = Arc::new(self.world.start_process(machine(self.number)));
            process.jump_wall_clock(state.clock_offset);
            state.process = Some(process.clone());
            (process, state.faulty.clone())
        };
        let (runtime, disk): (_, Arc<dyn Disk>) = (process.runtime(), Arc::new(disk));
        let running = match self.plan.control {
            Control::StandIn => self.stand_in(&runtime, &disk, &self.learned()),
            Control::Members => self.member(&runtime, disk).await,
        };
        let mut state = self.state.lock();
        let is_same = state
            .process
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, &process));
        match running {
            _ if !is_same => bail!("the power failed while it started"),
            Ok(running) => {
                if let Some(member) = running.member() {
                    state.node = member.node();
                }
                state.running = Some(Arc::new(running));
                Ok(())
            }
            Err(error) => {
                process.kill();
                state.process = None;
                Err(error)
            }
        }
    }

    /// The front of the services of one run of the node.
    pub(crate) fn front(
        &self,
        runtime: &Runtime,
    ) -> impl FnOnce(Arc<dyn PeerService>) -> Arc<dyn PeerService> + Send + use<> {
        let (number, runtime, messages) = (self.number, runtime.clone(), self.messages.clone());
        move |service| Arc::new(Front::new(number, runtime, messages, service))
    }

    /// The stores of one run of the node.
    pub(crate) fn stores(&self, runtime: &Runtime, disk: &Arc<dyn Disk>) -> Arc<SimulatedStores> {
        let device = (self.plan.engine, self.plan.sync_max);
        let (slowness, upkeep) = (self.slowness.clone(), self.upkeep.clone());
        SimulatedStores::new(runtime, disk.clone(), device, slowness, upkeep)
    }

    pub(crate) fn spoil_disk(&self, fault: usize, rules: Vec<Rule>) {
        let mut state = self.state.lock();
        let mut ailment = Ailment {
            rules,
            ids: Vec::new(),
            fired: 0,
        };
        ailment.ids = ailment.added_to(&state.faulty);
        state.ailments.insert(fault, ailment);
    }

    /// Undoes the effect of one fault on the disk; returns the number of operations that it made fail.
    pub(crate) fn mend_disk(&self, fault: usize) -> u64 {
        let mut state = self.state.lock();
        let Some(ailment) = state.ailments.remove(&fault) else {
            return 0;
        };
        let fired = ailment.fired + ailment.fired_on(&state.faulty);
        for id in ailment.ids {
            state.faulty.remove_rule(id);
        }
        fired
    }

    pub(crate) fn jump_clock(&self, micros: i64) {
        let mut state = self.state.lock();
        state.clock_offset += micros;
        if let Some(process) = &state.process {
            process.jump_wall_clock(micros);
        }
    }

    /// Clears the disk's list of requests, which has no reader here.
    pub(crate) fn forget_disk_log(&self) {
        self.state.lock().faulty.clear_log();
    }
}

impl Ailment {
    fn added_to(&self, disk: &FaultyDisk) -> Vec<RuleId> {
        let rules = self.rules.iter().cloned();
        rules.map(|rule| disk.add_rule(rule)).collect()
    }

    fn fired_on(&self, disk: &FaultyDisk) -> u64 {
        self.ids.iter().map(|id| disk.fired(*id)).sum()
    }
}

impl Running {
    /// The member, where the node is one.
    pub(crate) fn member(&self) -> Option<&Arc<Member>> {
        match &self.node {
            Node::Follower(_) => None,
            Node::Member(member) => Some(member),
        }
    }

    /// Number of hints that it keeps.
    pub(crate) fn hint_count(&self) -> usize {
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        let page = self.hints.page(None, &HintPageLimits::default(), now);
        page.map_or(usize::MAX, |page| page.hints.len())
    }

    /// Forgets all hints; returns their number.
    pub(crate) fn lose_hints(&self) -> usize {
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        let page = self.hints.page(None, &HintPageLimits::default(), now);
        let hints = page.map_or_else(|_| Vec::new(), |page| page.hints);
        let lost = hints.into_iter().filter(|hint| {
            let (key, clock) = (&hint.key, hint.object.clock());
            let forgotten = self.hints.forget(hint.partition, key, clock, now);
            forgotten.is_ok_and(|is_gone| is_gone)
        });
        lost.count()
    }

    /// The object of its own replica of a key.
    pub(crate) fn stored(
        &self,
        partition: Partition,
        key: &StorageKey,
    ) -> Result<Option<Arc<Object>>, String> {
        use kvorum_vnode::{Detail, Handled, Operation, ReplicaReply, ReplicaRequest};
        let vnode = self.vnodes.vnode(partition).ok_or("it has no vnode")?;
        let request = ReplicaRequest {
            partition,
            epoch: vnode.status().epoch,
            operation: Operation::Get {
                key: key.clone(),
                detail: Detail::Whole,
            },
        };
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        match vnode.handle(&request, now, kvorum_backend::Reading::MayBlock) {
            Handled::Done(ReplicaReply::Found(object)) => Ok(Some(object)),
            Handled::Done(ReplicaReply::NotFound) => Ok(None),
            other => Err(format!("{other:?}")),
        }
    }
}
