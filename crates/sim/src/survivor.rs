//! The end of some runs: without other faults, all machines but one are lost for good.
//!
//! The survivor has every key, since all replicas were compared before. Its node continues alone,
//! the lost nodes are removed by force, and another node joins. From the commit on, every answered
//! read at the default quorum must be right, all reads must be answered soon, and the join must not
//! wait for the repairs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_cluster::{AgreedState as _, ClusterState, Command, MemberStatus, StagedChange};
use kvorum_coordinator::GetOptions;
use kvorum_ring::NodeId;
use kvorum_runtime::Moment;

use crate::client::{BUCKET, STEADY_BUCKET, STEADY_KEYS, Versions, address, key_name};
use crate::cluster::Cluster;
use crate::machine::Machine;

/// Time until the others count as down for the survivor.
const DETECTED_AFTER: Duration = Duration::from_secs(20);
const RECOVERIES_MAX: usize = 5;
/// Time limit for the answers to all quorum reads, after the lost nodes are removed.
const READABLE_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for a join and the commit of its plan.
const JOINED_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);
/// Time for which reads are tried, even after their failure was reported.
const READ_ATTEMPTS_MAX: Duration = Duration::from_secs(300);

impl Cluster {
    /// Loses all machines but one, which continues alone.
    pub(crate) async fn go_on_alone(self: &Arc<Self>) -> anyhow::Result<()> {
        let machines = self.machines();
        let drawn = usize::try_from(self.plan.seed).unwrap_or(0) % machines.len().max(1);
        let survivor = machines.get(drawn).context("no machine is left")?.clone();
        let lost: Vec<Arc<Machine>> = machines
            .into_iter()
            .filter(|machine| machine.number != survivor.number)
            .collect();
        for machine in &lost {
            self.note(&format!("node {} is lost for good", machine.number));
            machine.retire();
        }
        self.runtime.sleep(DETECTED_AFTER).await;
        self.recover(&survivor).await?;
        for machine in &lost {
            self.force_out(machine.node()).await?;
        }
        let lost: Vec<NodeId> = lost.iter().map(|machine| machine.node()).collect();
        self.commit().await?;
        if let Some(left) = lost.iter().find(|it| self.agreed().member(**it).is_some()) {
            bail!("{left} is still a member");
        }
        let removed_at = self.runtime.now();
        let joining = self.clone();
        let joining = self
            .runtime
            .spawn("join", async move { joining.join_the_survivor().await });
        self.read_until_all_answer(&survivor, removed_at).await;
        joining.await.context("the join ended early")?
    }

    async fn recover(&self, survivor: &Arc<Machine>) -> anyhow::Result<()> {
        let mut last = String::new();
        for _ in 0..RECOVERIES_MAX {
            let running = survivor.running().context("the survivor is down")?;
            let member = running.member().context("no member")?.clone();
            let recovering = async move { member.recover().await };
            match running.runtime.spawn("recover", recovering).await? {
                Ok(_) => {
                    survivor.stop().await;
                    survivor.start().await.context("start after a recovery")?;
                    let running = survivor.running().context("the survivor is down")?;
                    let member = running.member().context("no member")?;
                    self.note_founded(member.state().current());
                    self.note("the survivor goes on alone");
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
            self.runtime.sleep(Duration::from_secs(5)).await;
        }
        bail!("the cluster is not recovered: {last}")
    }

    async fn force_out(self: &Arc<Self>, node: NodeId) -> anyhow::Result<()> {
        let command = |_: &ClusterState| {
            let change = StagedChange::ForceRemove;
            Some(Command::Stage { node, change })
        };
        let is_done = |state: &ClusterState| {
            state.staged().contains_key(&node) || state.member(node).is_none()
        };
        self.agree(&command, &is_done).await
    }

    /// Makes another node join and commits its plan, while partitions are still being repaired.
    async fn join_the_survivor(self: Arc<Self>) -> anyhow::Result<()> {
        let begun = self.runtime.now();
        let node = self.join_another().await?;
        self.commit().await?;
        let took = self.runtime.now().since(begun);
        let status = self.agreed().member(node).map(|it| it.status);
        if status != Some(MemberStatus::Valid) {
            bail!("the node that joins is {status:?}");
        }
        if took > JOINED_WITHIN {
            let (took, most) = (took.as_secs(), JOINED_WITHIN.as_secs());
            self.accuse(&format!("a join took {took} s, and {most} s at most"));
        }
        Ok(())
    }

    /// Reads every key until it is answered, and judges each answer by the clients' history.
    async fn read_until_all_answer(&self, survivor: &Arc<Machine>, removed_at: Moment) {
        let busy = (0..usize::from(self.plan.keys)).map(|number| (BUCKET, number));
        let steady = (0..STEADY_KEYS).map(|number| (STEADY_BUCKET, number));
        let mut unanswered: Vec<(&[u8], usize)> = busy.chain(steady).collect();
        let mut is_late = false;
        loop {
            let (mut left, mut last) = (Vec::new(), String::new());
            for (bucket, number) in unanswered {
                if let Err(error) = self.read_at(survivor, bucket, number).await {
                    last = error;
                    left.push((bucket, number));
                }
            }
            unanswered = left;
            let took = self.runtime.now().since(removed_at);
            if unanswered.is_empty() {
                self.note(&format!("all is readable after {} ms", took.as_millis()));
                return;
            }
            if took > READABLE_WITHIN && !is_late {
                is_late = true;
                let (keys, took) = (unanswered.len(), took.as_millis());
                self.accuse(&format!(
                    "{keys} keys cannot be read {took} ms after the lost nodes are removed: {last}"
                ));
            }
            if took > READ_ATTEMPTS_MAX {
                return;
            }
            self.runtime.sleep(PAUSE).await;
        }
    }

    async fn read_at(
        &self,
        survivor: &Arc<Machine>,
        bucket: &[u8],
        number: usize,
    ) -> Result<(), String> {
        let key = key_name(number);
        let running = survivor.running().ok_or("the survivor is down")?;
        let read = running.get(address(bucket, &key), GetOptions::default());
        let object = read.await.map_err(|error| error.to_string())?;
        if bucket == STEADY_BUCKET {
            if object.is_none_or(|object| object.is_tombstone()) {
                self.accuse(&format!("alone: {key} of the steady ones is gone"));
            }
            return Ok(());
        }
        let judged = self.ledger.lock().histories[number].judge(
            &key,
            object.as_deref(),
            Versions::of(&self.plan),
            |_, _| true,
        );
        for wrong in judged.1 {
            self.accuse(&format!("alone: {wrong}"));
        }
        Ok(())
    }
}
