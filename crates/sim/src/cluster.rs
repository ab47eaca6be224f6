//! The machines, their agreed state, and its distribution.
//!
//! Members agree through their own log, from which the agreed state is read. With a stand-in for
//! the control plane, the state and its commands are the real ones; only the log is simulated.
//! Every change reaches every machine some time later; a machine that is down receives it when it
//! comes up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::{ClusterId, ClusterState, Command, Member, MemberStatus, StagedChange};
use kvorum_ring::{Claimant, NodeId, RingSize, claim};
use kvorum_runtime::{Runtime, World};
use kvorum_test_cluster::{machine, node_id};
use parking_lot::Mutex;

use crate::fault::FaultKind;
use crate::ledger::Ledger;
use crate::machine::{Machine, Running};
use crate::messages::Messages;
use crate::plan::{Control, RunPlan};
use crate::stores::Upkeep;
use crate::trace::Trace;
use crate::weather::Weather;
use crate::witness::Witness;

/// A change of the members that waits for its turn: one plan is committed at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberChange {
    Join,
    Leave(u8),
    Replace(u8),
}

impl MemberChange {
    /// The fault that causes it.
    pub(crate) fn kind(self) -> FaultKind {
        match self {
            Self::Join => FaultKind::Join,
            Self::Leave(_) => FaultKind::Leave,
            Self::Replace(_) => FaultKind::Replace,
        }
    }
}

/// See the module's description.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) runtime: Runtime,
    pub(crate) plan: RunPlan,
    pub(crate) trace: Arc<Trace>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) weather: Mutex<Weather>,
    pub(crate) messages: Arc<Messages>,
    pub(crate) changes: Mutex<VecDeque<MemberChange>>,
    machines: Mutex<BTreeMap<u8, Arc<Machine>>>,
    agreed: Mutex<Arc<ClusterState>>,
    witness: Mutex<Witness>,
}

impl Cluster {
    /// The cluster of a plan, without its machines.
    pub(crate) fn start(
        world: World,
        plan: RunPlan,
        trace: Arc<Trace>,
    ) -> anyhow::Result<Arc<Self>> {
        let agreed = Arc::new(first_state(&plan)?);
        let runtime = world.runtime();
        let messages = Messages::new(runtime.clone(), trace.clone());
        Ok(Arc::new(Self {
            runtime,
            world,
            ledger: Mutex::new(Ledger::new(plan.keys, plan.has_reaping)),
            weather: Mutex::default(),
            messages: Arc::new(messages),
            changes: Mutex::default(),
            machines: Mutex::default(),
            agreed: Mutex::new(agreed),
            witness: Mutex::default(),
            plan,
            trace,
        }))
    }

    /// Starts the plan's nodes, and the task that carries out changes.
    pub(crate) async fn begin(self: &Arc<Self>) -> anyhow::Result<()> {
        if self.plan.control == Control::Members {
            self.found().await?;
            self.runtime.spawn("operator", self.clone().operate());
            if self.plan.has_second_operator {
                let second = self.clone().stage_unasked();
                self.runtime.spawn("second operator", second);
            }
            return Ok(());
        }
        for number in 1..=self.plan.nodes {
            self.add_follower(number).await?;
        }
        self.runtime
            .spawn("mover", self.clone().carry_out_changes());
        Ok(())
    }

    /// A new, empty machine.
    pub(crate) fn add_machine(&self, number: u8) -> Arc<Machine> {
        let (agreed, messages) = (self.agreed(), self.messages.clone());
        let machine = Machine::new(&self.world, number, &self.plan, agreed, messages);
        let machine = Arc::new(machine);
        self.machines.lock().insert(number, machine.clone());
        self.set_links();
        machine
    }

    /// A new machine with a node that has the present agreed state.
    async fn add_follower(self: &Arc<Self>, number: u8) -> anyhow::Result<()> {
        let machine = self.add_machine(number);
        machine.start().await?;
        let cluster = self.clone();
        self.runtime
            .spawn("news", async move { cluster.bring_news(machine).await });
        Ok(())
    }

    pub(crate) fn next_number(&self) -> u8 {
        let last = self.machines.lock().keys().next_back().copied();
        last.unwrap_or(0) + 1
    }

    /// Sends a machine the agreed state repeatedly, each time a little late and sometimes very
    /// late.
    async fn bring_news(&self, machine: Arc<Machine>) {
        loop {
            let drawn = self.runtime.random_u64();
            let late = if drawn.is_multiple_of(12) { 1_500 } else { 60 };
            let pause = Duration::from_millis(5 + (drawn >> 8) % late);
            self.runtime.sleep(pause).await;
            if !self.weather.lock().is_deaf(machine.number) {
                // A step that a failing disk prevents is tried again.
                let _learned_or_later = machine.learn(&self.agreed());
            }
            machine.forget_disk_log();
        }
    }

    /// The agreed state; with members, the newest state of a member.
    pub(crate) fn agreed(&self) -> Arc<ClusterState> {
        if self.plan.control == Control::Members {
            let states = self.witnessed();
            let mut agreed = self.agreed.lock();
            for state in states {
                if state.id() == agreed.id() && state.version() > agreed.version() {
                    self.note(&format!("agreed version {}", state.version()));
                    *agreed = state;
                }
            }
            return agreed.clone();
        }
        self.agreed.lock().clone()
    }

    /// The present or last state of each member. The state of a member that does not run may come
    /// from the harness.
    fn witnessed(&self) -> Vec<Arc<ClusterState>> {
        let mut states = Vec::new();
        for machine in self.machines() {
            let (running, state) = (machine.running(), machine.learned());
            // A node that has joined but not received the state yet has a placeholder.
            let knows = |it: &Arc<Running>| it.member().is_some_and(|it| it.is_state_known());
            let sees = || self.witness.lock().sees(machine.number, &state);
            if let Some(wrong) = running.is_some_and(|it| knows(&it)).then(sees).flatten() {
                self.accuse(&wrong);
            }
            states.push(state);
        }
        states
    }

    /// The first state of a cluster that a member has founded.
    pub(crate) fn note_founded(&self, state: Arc<ClusterState>) {
        *self.agreed.lock() = state;
    }

    /// Proposes a command, and returns once it is agreed.
    pub(crate) fn propose(&self, command: Command) -> anyhow::Result<()> {
        let mut agreed = self.agreed.lock();
        let next = kvorum_cluster::apply(&agreed, command)?;
        self.note(&format!("agreed version {}", next.version()));
        *agreed = Arc::new(next);
        Ok(())
    }

    /// Machines whose nodes take part in the cluster.
    pub(crate) fn machines(&self) -> Vec<Arc<Machine>> {
        let mut machines = self.all_machines();
        machines.retain(|machine| machine.takes_part());
        machines
    }

    /// Machines including those whose nodes are about to join.
    pub(crate) fn all_machines(&self) -> Vec<Arc<Machine>> {
        let machines = self.machines.lock();
        let there = machines.values().filter(|it| !it.is_retired());
        there.cloned().collect()
    }

    /// The upkeep of the stores of all machines, retired ones too.
    pub(crate) fn upkeep(&self) -> Upkeep {
        let mut sum = Upkeep::default();
        for machine in self.machines.lock().values() {
            sum += *machine.upkeep.lock();
            let running = machine.running();
            let exchanges = running.as_ref().and_then(|it| it.exchanges.as_ref());
            sum.tombstones_reaped += exchanges.map_or(0, |it| it.report().rounds.reaped);
        }
        sum
    }

    /// The machine of a node.
    pub(crate) fn machine_of(&self, node: NodeId) -> Option<Arc<Machine>> {
        let mut machines = self.all_machines().into_iter();
        machines.find(|machine| machine.node() == node)
    }

    pub(crate) fn machine(&self, number: u8) -> Option<Arc<Machine>> {
        self.machines.lock().get(&number).cloned()
    }

    pub(crate) fn note(&self, event: &str) {
        let at = self.runtime.now().elapsed();
        tracing::debug!(at_ms = at.as_millis(), "{event}");
        self.trace.note(at, event);
    }

    /// Records a violation.
    pub(crate) fn accuse(&self, what: &str) {
        self.note(what);
        let at = self.runtime.now().elapsed();
        self.ledger
            .lock()
            .violations
            .push(format!("at {} ms: {what}", at.as_millis()));
    }

    /// Sets every link according to the weather.
    pub(crate) fn set_links(&self) {
        let numbers: Vec<u8> = self.machines.lock().keys().copied().collect();
        let weather = self.weather.lock();
        for from in &numbers {
            for to in numbers.iter().filter(|to| *to != from) {
                let link = weather.link(*from, *to);
                self.world.set_link(machine(*from), machine(*to), link);
            }
        }
    }

    /// Begins the next change of members, if none is under way.
    pub(crate) async fn begin_change(self: &Arc<Self>) -> anyhow::Result<()> {
        let agreed = self.agreed();
        let is_moving = agreed.transition().is_some() || !agreed.ring().moves().is_empty();
        if is_moving || agreed.ring().growth().is_some() {
            return Ok(());
        }
        let Some(change) = self.changes.lock().pop_front() else {
            return Ok(());
        };
        self.note(&format!("{change:?}"));
        if let MemberChange::Leave(number) | MemberChange::Replace(number) = change {
            let member = agreed.member(node_id(number));
            let valid = agreed
                .members()
                .values()
                .filter(|it| it.status == MemberStatus::Valid);
            let is_needed = valid.count() <= usize::try_from(self.plan.n_val)?
                && matches!(change, MemberChange::Leave(_));
            if is_needed || member.is_none_or(|member| member.status != MemberStatus::Valid) {
                return Ok(());
            }
        }
        match change {
            MemberChange::Join => drop(self.add_member().await?),
            MemberChange::Leave(number) => self.propose(Command::Stage {
                node: node_id(number),
                change: StagedChange::Leave,
            })?,
            MemberChange::Replace(number) => {
                let by = node_id(self.add_member().await?);
                self.propose(Command::Stage {
                    node: node_id(number),
                    change: StagedChange::Replace { by },
                })?;
            }
        }
        let id = self.agreed().plan()?.id;
        self.propose(Command::CommitPlan { id })?;
        self.count(change.kind());
        Ok(())
    }

    async fn add_member(self: &Arc<Self>) -> anyhow::Result<u8> {
        let number = self.next_number();
        let member = Member {
            status: MemberStatus::Joining,
            ..Member::new(&format!("node{number}"))
        };
        let node = node_id(number);
        self.propose(Command::AddMember { node, member })?;
        self.add_follower(number).await?;
        Ok(number)
    }
}

fn first_state(plan: &RunPlan) -> anyhow::Result<ClusterState> {
    let size = RingSize::new(plan.ring_size)?;
    let claimants: Vec<Claimant> = (1..=plan.nodes).map(node_id).map(Claimant::new).collect();
    let apart = u16::try_from(plan.n_val)?;
    let ring = claim(size, &claimants, apart, None)?;
    let id = ClusterId::from_random([9; 16]);
    let mut state = ClusterState::found(id, "simulated", node_id(1), Member::new("node1"), ring);
    for number in 2..=plan.nodes {
        let (node, member) = (node_id(number), Member::new(&format!("node{number}")));
        state = kvorum_cluster::apply(&state, Command::AddMember { node, member })?;
    }
    let command = Command::SetDefaultProperties(plan.default_properties());
    kvorum_cluster::apply(&state, command).context("set the properties")
}
