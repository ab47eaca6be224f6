//! The operator of a cluster of members: founds it, makes nodes join and leave, and switches off
//! nodes that are no longer members.
//!
//! Changes are staged, reviewed and committed through a node, like admin commands. A failed command
//! is tried again through another node, as an operator would do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_cluster::{
    AgreedState as _, ClusterState, Command, MemberStatus, Plan, PlanError, StagedChange,
};
use kvorum_member::Member;
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;
use kvorum_test_cluster::peer_address;

use crate::cluster::{Cluster, MemberChange};
use crate::draw::Draw;
use crate::machine::Machine;

const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(300);
/// The time within which a change is agreed, under any faults; longer than any fault.
const CHANGE_WAIT_MAX: Duration = Duration::from_secs(120);
/// The longest time between an operator's look at a plan and the commit, if there is a second
/// operator.
const THOUGHT_MILLIS_MAX: u64 = 1_500;
/// The time within which a plan is carried out without faults.
const FOUNDING_MAX: Duration = Duration::from_secs(240);

impl Cluster {
    /// The first node founds the cluster, the others of the plan join, and the plan is committed.
    /// When this returns, the plan is carried out, unless clients have to be there meanwhile.
    pub(crate) async fn found(self: &Arc<Self>) -> anyhow::Result<()> {
        let founder = self.add_machine(1);
        founder.start().await.context("start the founder")?;
        let running = founder.running().context("the founder runs")?;
        let member = running.member().context("the founder is a member")?;
        self.note_founded(member.state().current());
        founder.note_joined();
        for number in 2..=self.plan.nodes {
            let machine = self.add_machine(number);
            self.join(&machine).await?;
        }
        self.commit().await?;
        if self.plan.is_early {
            return Ok(());
        }
        let begun = self.runtime.now();
        while let Some(unrest) = self.unrest() {
            if self.runtime.now().since(begun) > FOUNDING_MAX {
                bail!(
                    "a cluster that is founded where nothing is wrong does not get ready: {unrest}"
                );
            }
            self.runtime.sleep(LOOK_PERIOD).await;
        }
        Ok(())
    }

    /// Works for as long as it is polled.
    pub(crate) async fn operate(self: Arc<Self>) {
        loop {
            self.runtime.sleep(LOOK_PERIOD).await;
            self.switch_off_leavers();
            for machine in self.all_machines() {
                machine.forget_disk_log();
            }
            let agreed = self.agreed();
            let is_moving = agreed.transition().is_some() || !agreed.ring().moves().is_empty();
            if is_moving || agreed.ring().growth().is_some() {
                continue;
            }
            // The change counts as waiting until it is agreed.
            let Some(change) = self.changes.lock().front().copied() else {
                if self.plan.has_second_operator
                    && agreed.plan().is_ok()
                    && let Err(error) = self.commit().await
                {
                    self.accuse(&format!("what is staged: {error:#}"));
                }
                continue;
            };
            self.note(&format!("{change:?}"));
            if let Err(error) = self.carry_out(change).await {
                self.accuse(&format!("{change:?}: {error:#}"));
            }
            self.changes.lock().pop_front();
        }
    }

    fn switch_off_leavers(&self) {
        let agreed = self.agreed();
        for machine in self.machines() {
            if agreed.member(machine.node()).is_none() {
                self.note(&format!("node {} has left", machine.number));
                machine.retire();
            }
        }
    }

    /// Carries out a change, unless it no longer fits.
    async fn carry_out(self: &Arc<Self>, change: MemberChange) -> anyhow::Result<()> {
        match change {
            MemberChange::Join => drop(self.join_another().await?),
            MemberChange::Leave(number) => {
                let Some(node) = self.may_go(number, true) else {
                    return Ok(());
                };
                self.stage(node, StagedChange::Leave).await?;
            }
            MemberChange::Replace(number) => {
                let Some(node) = self.may_go(number, false) else {
                    return Ok(());
                };
                let by = self.join_another().await?;
                self.stage(node, StagedChange::Replace { by }).await?;
            }
        }
        self.commit().await?;
        self.count(change.kind());
        Ok(())
    }

    /// Stages a change of a member, unless it is leaving already.
    async fn stage(self: &Arc<Self>, node: NodeId, change: StagedChange) -> anyhow::Result<()> {
        let command = |_: &ClusterState| {
            let change = change.clone();
            Some(Command::Stage { node, change })
        };
        let is_done = |state: &ClusterState| {
            let member = state.member(node);
            let is_valid = member.is_some_and(|it| it.status == MemberStatus::Valid);
            !is_valid || state.staged().get(&node) == Some(&change)
        };
        self.agree(&command, &is_done).await
    }

    /// The node of a machine if it is a full member, and, if it `leaves` without a replacement, not
    /// needed for the number of replicas.
    fn may_go(&self, number: u8, leaves: bool) -> Option<NodeId> {
        let (agreed, node) = (self.agreed(), self.machine(number)?.node());
        let is_valid = |status| status == MemberStatus::Valid;
        let valid = agreed.members().values();
        let valid = valid.filter(|it| is_valid(it.status)).count();
        let is_needed = leaves && valid <= usize::try_from(self.plan.n_val).unwrap_or(3);
        let is_member = agreed.member(node).is_some_and(|it| is_valid(it.status));
        (is_member && !is_needed).then_some(node)
    }

    pub(crate) async fn join_another(self: &Arc<Self>) -> anyhow::Result<NodeId> {
        let machine = self.add_machine(self.next_number());
        self.join(&machine).await?;
        Ok(machine.node())
    }

    /// Makes a machine's node join, through any faults meanwhile.
    async fn join(self: &Arc<Self>, machine: &Arc<Machine>) -> anyhow::Result<()> {
        let (begun, mut attempts) = (self.runtime.now(), 0);
        let mut last = String::new();
        while self.runtime.now().since(begun) < CHANGE_WAIT_MAX {
            attempts += 1;
            if machine.running().is_none() {
                self.revive(machine).await;
            }
            let doors = self.machines();
            let door = doors.get(attempts % doors.len().max(1));
            if let (Some(running), Some(door)) = (machine.running(), door)
                && let Some(member) = running.member().cloned()
            {
                let (door, node) = (peer_address(door.number), member.node());
                let joining = async move { member.join(door, None).await };
                match running.runtime.spawn("join", joining).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => last = error.to_string(),
                    Err(error) => last = error.to_string(),
                }
                // Asks the present process: a process that ended during its join may have to join
                // again.
                let follows = process_of(machine)
                    .is_some_and(|(_, it)| it.state().current().id() == self.agreed().id());
                if follows && self.agreed().member(node).is_some() {
                    self.note(&format!("node {} has joined", machine.number));
                    machine.note_joined();
                    return Ok(());
                }
            }
            self.note(&format!("node {} does not join: {last}", machine.number));
            self.runtime.sleep(PAUSE).await;
        }
        bail!("node {} does not join: {last}", machine.number)
    }

    /// Reviews the plan of the staged changes and commits it, repeatedly until it is committed.
    pub(crate) async fn commit(self: &Arc<Self>) -> anyhow::Result<()> {
        let (begun, mut attempts) = (self.runtime.now(), 0);
        let mut last = String::new();
        while self.runtime.now().since(begun) < CHANGE_WAIT_MAX {
            attempts += 1;
            if self.agreed().plan() == Err(PlanError::NothingPlanned) {
                return Ok(());
            }
            let machines = self.machines();
            let machine = machines.get(attempts % machines.len().max(1));
            if let Some(machine) = machine
                && let Some((_, member)) = process_of(machine)
                && let Ok(plan) = member.state().current().plan()
            {
                if self.plan.has_second_operator {
                    let thought = self.runtime.random_u64() % THOUGHT_MILLIS_MAX;
                    self.runtime.sleep(Duration::from_millis(thought)).await;
                }
                match self.ask(machine, Command::CommitPlan { id: plan.id }).await {
                    Ok(state) => self.check_committed(&plan, &state),
                    Err(error) => last = error,
                }
            }
            self.runtime.sleep(PAUSE).await;
        }
        bail!("not agreed within {} s: {last}", CHANGE_WAIT_MAX.as_secs())
    }

    /// Checks that the committed plan is the one that the operator had reviewed.
    fn check_committed(&self, plan: &Plan, state: &ClusterState) {
        for (node, planned) in &plan.members {
            let Some(member) = state.member(*node) else {
                continue;
            };
            let (got, expected) = (member.weight, planned.weight);
            if got != expected {
                self.accuse(&format!(
                    "the plan gave {} weight {expected}, and its commit gives it {got}",
                    planned.name
                ));
            }
        }
    }

    /// Proposes a command through one node after the other, until it is agreed.
    pub(crate) async fn agree(
        self: &Arc<Self>,
        command: &(dyn Fn(&ClusterState) -> Option<Command> + Send + Sync),
        is_done: &(dyn Fn(&ClusterState) -> bool + Send + Sync),
    ) -> anyhow::Result<()> {
        let (begun, mut attempts) = (self.runtime.now(), 0);
        let mut last = String::new();
        while self.runtime.now().since(begun) < CHANGE_WAIT_MAX {
            attempts += 1;
            if is_done(&self.agreed()) {
                return Ok(());
            }
            let machines = self.machines();
            let machine = machines.get(attempts % machines.len().max(1));
            if let Some(machine) = machine
                && let Some((_, member)) = process_of(machine)
                && let Some(command) = command(&member.state().current())
                && let Err(error) = self.ask(machine, command).await
            {
                last = error;
            }
            self.runtime.sleep(PAUSE).await;
        }
        bail!("not agreed within {} s: {last}", CHANGE_WAIT_MAX.as_secs())
    }

    /// Proposes a command through one node; returns that node's state afterwards.
    async fn ask(
        &self,
        machine: &Arc<Machine>,
        command: Command,
    ) -> Result<Arc<ClusterState>, String> {
        let number = machine.number;
        let Some((runtime, member)) = process_of(machine) else {
            return Err(format!("node {number} is down"));
        };
        self.note(&format!("node {number} is asked for {command:?}"));
        let agreeing = async move { member.state().agree(command).await };
        let agreed = match runtime.spawn("admin", agreeing).await {
            Ok(agreed) => agreed.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let outcome = agreed
            .as_ref()
            .map_or_else(String::as_str, |_| "it is agreed");
        self.note(outcome);
        agreed
    }

    /// The second operator, independent of the first: stages other weights for as long as there are
    /// clients.
    pub(crate) async fn stage_unasked(self: Arc<Self>) {
        let mut draw = Draw::new(self.plan.seed ^ 0x7365_636f_6e64);
        let end = self.runtime.now().plus(self.plan.length);
        while self.runtime.now() < end {
            let pause = Duration::from_millis(draw.between(300, 2_500));
            self.runtime.sleep(pause).await;
            let agreed = self.agreed();
            let members: Vec<NodeId> = agreed.members().keys().copied().collect();
            let change = StagedChange::Weight(u32::try_from(draw.between(1, 3)).unwrap_or(1));
            let (machines, node) = (self.machines(), draw.one_of(&members).copied());
            if let Some(machine) = draw.one_of(&machines)
                && let Some(node) = node.filter(|node| !agreed.staged().contains_key(node))
            {
                // A failure is ignored.
                let _agreed_or_not = self.ask(machine, Command::Stage { node, change }).await;
            }
        }
    }
}

fn process_of(machine: &Arc<Machine>) -> Option<(Runtime, Arc<Member>)> {
    let running = machine.running()?;
    let member = running.member()?.clone();
    Some((running.runtime.clone(), member))
}
