//! The machines, what they have agreed on, and how that reaches them.
//!
//! The agreed state is the real one, changed by the real commands; what is simulated is the log that
//! carries it: every machine learns of every change some time later, and a machine that is down when it
//! comes up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::{ClusterId, ClusterState, Command, Member, MemberStatus, StagedChange};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{Claimant, RingSize, claim};
use kvorum_runtime::{Runtime, World};
use parking_lot::Mutex;

use crate::client::Ledger;
use crate::machine::{Machine, address_of, node_id};
use crate::plan::RunPlan;
use crate::trace::Trace;
use crate::weather::Weather;

/// A change of the members that waits for its turn: one plan is committed at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberChange {
    Join,
    Leave(u8),
    Replace(u8),
}

/// See the module's description.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) runtime: Runtime,
    pub(crate) plan: RunPlan,
    pub(crate) trace: Trace,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) weather: Mutex<Weather>,
    pub(crate) changes: Mutex<VecDeque<MemberChange>>,
    machines: Mutex<BTreeMap<u8, Arc<Machine>>>,
    agreed: Mutex<Arc<ClusterState>>,
}

impl Cluster {
    /// The machines of a plan, their nodes started.
    pub(crate) fn start(world: World, plan: RunPlan, trace: Trace) -> anyhow::Result<Arc<Self>> {
        let agreed = Arc::new(first_state(&plan)?);
        let cluster = Arc::new(Self {
            runtime: world.runtime(),
            world,
            ledger: Mutex::new(Ledger::new(plan.keys)),
            weather: Mutex::default(),
            changes: Mutex::default(),
            machines: Mutex::default(),
            agreed: Mutex::new(agreed),
            plan,
            trace,
        });
        for number in 1..=cluster.plan.nodes {
            cluster.add_machine(number)?;
        }
        Ok(cluster)
    }

    /// A new machine with a node that knows what is agreed now.
    fn add_machine(self: &Arc<Self>, number: u8) -> anyhow::Result<()> {
        let machine = Machine::new(&self.world, number, &self.plan, self.agreed());
        let machine = Arc::new(machine);
        machine.start()?;
        self.machines.lock().insert(number, machine.clone());
        self.set_links();
        let cluster = self.clone();
        self.runtime
            .spawn("news", async move { cluster.bring_news(machine).await });
        Ok(())
    }

    /// Tells a machine what is agreed, again and again, each time a little late and at times very.
    async fn bring_news(&self, machine: Arc<Machine>) {
        loop {
            let drawn = self.runtime.random_u64();
            let late = if drawn.is_multiple_of(12) { 1_500 } else { 60 };
            let pause = Duration::from_millis(5 + (drawn >> 8) % late);
            self.runtime.sleep(pause).await;
            // What a sick disk does not let it do is tried again.
            let _learned_or_later = machine.learn(&self.agreed());
            machine.forget_disk_log();
        }
    }

    pub(crate) fn agreed(&self) -> Arc<ClusterState> {
        self.agreed.lock().clone()
    }

    /// Has a command agreed on.
    pub(crate) fn propose(&self, command: Command) -> anyhow::Result<()> {
        let mut agreed = self.agreed.lock();
        let next = kvorum_cluster::apply(&agreed, command)?;
        self.note(&format!("agreed version {}", next.version()));
        *agreed = Arc::new(next);
        Ok(())
    }

    pub(crate) fn machines(&self) -> Vec<Arc<Machine>> {
        self.machines.lock().values().cloned().collect()
    }

    pub(crate) fn machine(&self, number: u8) -> Option<Arc<Machine>> {
        self.machines.lock().get(&number).cloned()
    }

    pub(crate) fn note(&self, event: &str) {
        self.trace.note(self.runtime.now().elapsed(), event);
    }

    /// Something that must not happen.
    pub(crate) fn accuse(&self, what: &str) {
        self.note(what);
        let at = self.runtime.now().elapsed();
        self.ledger
            .lock()
            .violations
            .push(format!("at {} ms: {what}", at.as_millis()));
    }

    /// Makes every link what the weather says.
    pub(crate) fn set_links(&self) {
        let numbers: Vec<u8> = self.machines.lock().keys().copied().collect();
        let weather = self.weather.lock();
        for from in &numbers {
            for to in numbers.iter().filter(|to| *to != from) {
                let link = weather.link(*from, *to);
                self.world
                    .set_link(address_of(*from), address_of(*to), link);
            }
        }
    }

    /// Begins the next change of members, if none is under way.
    pub(crate) fn begin_change(self: &Arc<Self>) -> anyhow::Result<()> {
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
            MemberChange::Join => drop(self.add_member()?),
            MemberChange::Leave(number) => self.propose(Command::Stage {
                node: node_id(number),
                change: StagedChange::Leave,
            })?,
            MemberChange::Replace(number) => {
                let by = node_id(self.add_member()?);
                self.propose(Command::Stage {
                    node: node_id(number),
                    change: StagedChange::Replace { by },
                })?;
            }
        }
        let id = self.agreed().plan()?.id;
        self.propose(Command::CommitPlan { id })
    }

    fn add_member(self: &Arc<Self>) -> anyhow::Result<u8> {
        let last = self.machines.lock().keys().next_back().copied();
        let number = last.unwrap_or(0) + 1;
        let member = Member {
            status: MemberStatus::Joining,
            ..Member::new(&format!("node{number}"))
        };
        let node = node_id(number);
        self.propose(Command::AddMember { node, member })?;
        self.add_machine(number)?;
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
    let properties = PropertyOverlay {
        allow_mult: Some(true),
        n_val: Some(plan.n_val),
        ..PropertyOverlay::default()
    };
    let command = Command::SetDefaultProperties(properties);
    kvorum_cluster::apply(&state, command).context("set the properties")
}
