//! One run: clients and faults together, then no faults, then everything must be as it should.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic;
use std::sync::{Arc, Once};
use std::thread::ThreadId;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_coordinator::{GetOptions, PutOptions};
use kvorum_object::{Clock, Content, Metadata, Object, Timestamp};
use kvorum_properties::Quorum;
use kvorum_runtime::World;
use parking_lot::Mutex;

use crate::client::{
    BUCKET, Client, PASSING_BUCKET, STEADY_BUCKET, STEADY_KEYS, Versions, address, key_name,
};
use crate::cluster::Cluster;
use crate::counting::Counting;
use crate::fault::FaultKind;
use crate::ledger::Operations;
use crate::machine::Machine;
use crate::plan::{Control, RunPlan};
use crate::stores::Upkeep;
use crate::trace::Trace;

/// Nodes find one another before clients begin.
const WARM_UP: Duration = Duration::from_secs(8);
/// Once nothing is wrong any more, moves end and hints come home within this.
const CALM_WAIT_MAX: Duration = Duration::from_secs(180);
/// A read repairs the replicas behind it within this.
const REPAIR_WAIT: Duration = Duration::from_secs(6);
const ATTEMPTS_MAX: usize = 30;
/// Keys that expire, the first of them after so many seconds and the others at intervals.
const PASSING_KEYS: usize = 12;
const PASSING_SECONDS_MIN: u64 = 5;
const PASSING_SECONDS_BETWEEN: u64 = 3;
/// All of a run ends within this, under any faults.
const RUN_MAX: Duration = Duration::from_secs(900);
/// Number of unreadable keys that are reported: a cluster that is broken would take hours to refuse
/// them all.
const UNREADABLE_KEYS_MAX: usize = 3;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Violations; empty when all is well.
    pub violations: Vec<String>,
    /// Requests.
    pub operations: Operations,
    /// Faults that hit something.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Upkeep of stores and logs meanwhile.
    pub upkeep: Upkeep,
    /// One number for all that happened.
    pub trace_hash: u64,
    /// Number of these events.
    pub events: u64,
    /// Virtual time.
    pub took: Duration,
    /// The events in words, if they were asked for.
    pub trace: Vec<String>,
}

impl Outcome {
    /// The outcome of a run that was not waited for.
    pub fn unfinished(what: String, trace: &Trace) -> Self {
        Self {
            violations: vec![what],
            operations: Operations::default(),
            faults: BTreeMap::new(),
            upkeep: Upkeep::default(),
            trace_hash: trace.hash(),
            events: trace.events(),
            took: trace.part().1,
            trace: trace.take_kept(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        write!(
            f,
            "{} acknowledged, {} failed, {faults} faults, {} merges, {} collections, {} tombstones gone, {} s, trace {:016x}",
            self.operations.acknowledged(),
            self.operations.failed,
            self.upkeep.merges,
            self.upkeep.collections,
            self.upkeep.tombstones_reaped,
            self.took.as_secs(),
            self.trace_hash
        )
    }
}

/// Panics in tasks, which would swallow them, by the thread of the run.
static PANICS: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());

/// From here on panics are collected instead of printed.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|panicked| {
            PANICS
                .lock()
                .push((std::thread::current().id(), panicked.to_string()));
        }));
    });
}

/// Takes those of this thread.
fn panics_here() -> Vec<String> {
    let here = std::thread::current().id();
    let mut panics = PANICS.lock();
    let (of_this, others) = panics.drain(..).partition(|(thread, _)| *thread == here);
    *panics = others;
    let of_this: Vec<(ThreadId, String)> = of_this;
    of_this.into_iter().map(|(_, panicked)| panicked).collect()
}

/// Carries out a plan.
///
/// # Errors
/// When it cannot begin; later failures are in the outcome.
pub fn run(plan: &RunPlan, keep_trace: bool) -> anyhow::Result<Outcome> {
    run_traced(plan, &Arc::new(Trace::new(keep_trace)))
}

/// Carries out a plan while another thread watches its progress in the trace.
///
/// # Errors
/// When it cannot begin; later failures are in the outcome.
pub fn run_traced(plan: &RunPlan, trace: &Arc<Trace>) -> anyhow::Result<Outcome> {
    collect_panics();
    let _of_before = panics_here();
    let (executor, world) = World::new(plan.seed).context("make a world")?;
    let cluster = Cluster::start(world, plan.clone(), trace.clone())?;
    executor.block_on(async {
        let ended = cluster.runtime.timeout(RUN_MAX, live(&cluster)).await;
        if ended.is_err() {
            let (part, since) = cluster.trace.part();
            let (most, since) = (RUN_MAX.as_secs(), since.as_millis());
            cluster.accuse(&format!(
                "no end within {most} s: {part}, which began at {since} ms, does not end"
            ));
        }
    });
    for panicked in panics_here() {
        cluster.accuse(&format!("something panicked: {panicked}"));
    }
    let ledger = cluster.ledger.lock();
    let outcome = Outcome {
        violations: ledger.violations.clone(),
        operations: ledger.operations,
        faults: ledger.faults.clone(),
        upkeep: cluster.upkeep(),
        trace_hash: cluster.trace.hash(),
        events: cluster.trace.events(),
        took: cluster.runtime.now().elapsed(),
        trace: cluster.trace.take_kept(),
    };
    Ok(outcome)
}

async fn live(cluster: &Arc<Cluster>) {
    let runtime = &cluster.runtime;
    let begin = |part| cluster.trace.begin_part(runtime.now().elapsed(), part);
    begin("founding");
    if let Err(error) = cluster.begin().await {
        cluster.accuse(&format!("the cluster does not begin: {error:#}"));
        return;
    }
    begin("warming up");
    if cluster.plan.control == Control::StandIn {
        runtime.sleep(WARM_UP).await;
    }
    cluster.write_steady_keys().await;
    if cluster.plan.has_expiry {
        cluster.write_passing_keys().await;
    }
    let counting = cluster.plan.has_data_types.then(|| Counting::new(cluster));
    if counting.is_some()
        && let Err(error) = cluster.create_data_types().await
    {
        cluster.accuse(&format!("bucket types are not created: {error:#}"));
        return;
    }
    begin("clients under faults");
    let counting_clients = counting
        .clone()
        .map(|it| runtime.spawn("data type clients", it.live()));
    let clients: Vec<_> = (0..cluster.plan.clients)
        .map(|number| runtime.spawn("client", Client::new(cluster, number).live()))
        .collect();
    let faults: Vec<_> = (0..cluster.plan.faults.len())
        .map(|id| runtime.spawn("fault", cluster.clone().bring_about(id)))
        .collect();
    for client in clients {
        let _ended = client.await;
    }
    if let Some(counting_clients) = counting_clients {
        let _ended = counting_clients.await;
    }
    begin("faults that outlast clients");
    for fault in faults {
        let _ended = fault.await;
    }
    begin("calming down");
    let is_calm = cluster.calm_down().await;
    for machine in cluster.machines() {
        cluster.check_losses(&machine);
    }
    if is_calm {
        if cluster.plan.has_exchanges {
            begin("repair by exchanges");
            cluster.repair_by_exchanges().await;
        } else {
            begin("repair by reading");
            cluster.repair_by_reading().await;
        }
        begin("checks of the replicas");
        cluster.check_replicas();
        if cluster.plan.has_exchanges && !cluster.plan.has_rare_exchanges {
            begin("exchanges at rest");
            cluster.check_rest().await;
        }
        begin("checks of the listings");
        cluster.check_listings().await;
        if let Some(counting) = &counting {
            begin("checks of counters and sets");
            counting.check().await;
        }
    }
    if is_calm && cluster.plan.loses_majority {
        begin("a lone survivor");
        if let Err(error) = cluster.go_on_alone().await {
            cluster.accuse(&format!("a lone survivor does not go on: {error:#}"));
            return;
        }
        begin("calming down after the loss");
        if cluster.calm_down().await {
            begin("checks of the replicas after the loss");
            cluster.check_replicas();
            cluster.check_listings().await;
        }
    }
}

impl Cluster {
    /// The keys that are there from the beginning to the end, on every replica.
    async fn write_steady_keys(&self) {
        for key in (0..STEADY_KEYS).map(key_name) {
            self.write_everywhere(STEADY_BUCKET, &key, None).await;
        }
    }

    /// Keys that are on every replica, and expire one after the other.
    async fn write_passing_keys(&self) {
        let now = self.runtime.wall_time().micros();
        for (number, key) in (0..PASSING_KEYS).map(|number| (number, key_name(number))) {
            let seconds = PASSING_SECONDS_MIN + PASSING_SECONDS_BETWEEN * number as u64;
            let expires_at = Timestamp::from_micros(now + seconds * 1_000_000);
            self.write_everywhere(PASSING_BUCKET, &key, Some(expires_at))
                .await;
        }
    }

    async fn write_everywhere(&self, bucket: &[u8], key: &str, expires_at: Option<Timestamp>) {
        let all = PutOptions {
            w: Some(Quorum::All),
            dw: Some(Quorum::All),
            pw: Some(Quorum::All),
            ..PutOptions::default()
        };
        for _ in 0..ATTEMPTS_MAX {
            let Some(node) = self.machine(1).and_then(|machine| machine.running()) else {
                break;
            };
            let metadata = Metadata {
                expires_at,
                ..Metadata::default()
            };
            let content = Content {
                metadata,
                value: key.as_bytes().to_vec().into(),
            };
            let (address, content) = (address(bucket, key), (Clock::new(), content));
            if node
                .put_content(address, content, all.clone())
                .await
                .is_ok()
            {
                return;
            }
            self.runtime.sleep(Duration::from_millis(500)).await;
        }
        self.accuse(&format!(
            "{key} could not be written while nothing was wrong"
        ));
    }

    /// Waits until nothing moves any more and no hints are left; false when that does not come.
    async fn calm_down(&self) -> bool {
        let begun = self.runtime.now();
        loop {
            self.runtime.sleep(Duration::from_secs(1)).await;
            let Some(unrest) = self.unrest() else {
                self.note("all is calm");
                return true;
            };
            if self.runtime.now().since(begun) > CALM_WAIT_MAX {
                let waited = CALM_WAIT_MAX.as_secs();
                self.accuse(&format!("{waited} s after the last fault: {unrest}"));
                return false;
            }
        }
    }

    fn log_statuses(&self) -> String {
        let machines = self.machines();
        let logs: Vec<String> = machines.iter().filter_map(|it| it.log_status()).collect();
        logs.join("; ")
    }

    pub(crate) fn unrest(&self) -> Option<String> {
        let state = self.agreed();
        let (ring, changes) = (state.ring(), self.changes.lock().len());
        if changes > 0 || state.transition().is_some() || !ring.moves().is_empty() {
            return Some(format!(
                "{changes} changes wait, one goes on: {}, partitions move: {:?}; {}",
                state.transition().is_some(),
                ring.moves(),
                self.log_statuses()
            ));
        }
        if let Some(growth) = ring.growth() {
            return Some(format!("the number of replicas changes: {growth:?}"));
        }
        if self.plan.control == Control::Members {
            if let Some(next) = state.next_growth() {
                return Some(format!("the number of replicas is to become {next}"));
            }
            if self.plan.has_second_operator && !state.staged().is_empty() {
                return Some(format!("{:?} is staged", state.staged()));
            }
            if let Some(left) = state.exited().next() {
                return Some(format!("{left} has left and is still a member"));
            }
        }
        for machine in self.machines() {
            let number = machine.number;
            let Some(node) = machine.running() else {
                return Some(format!("node {number} is down"));
            };
            if let Some(shortcoming) = node.shortcoming() {
                return Some(format!("node {number} {shortcoming}"));
            }
            if machine.learned().version() < state.version() {
                return Some(format!(
                    "node {number} has not learned of the last state; {}",
                    self.log_statuses()
                ));
            }
            if let Some(down) = ring.members().iter().find(|it| !node.liveness.is_up(**it)) {
                let down = self.machine_of(*down).map_or(0, |it| it.number);
                return Some(format!("node {number} takes {down} to be down"));
            }
            let hints = node.hint_count();
            if hints > 0 {
                return Some(format!("node {number} keeps {hints} hints"));
            }
        }
        None
    }

    /// Reads everything once from all replicas: this repairs writes that a replica missed without a
    /// hint or that a machine forgot.
    async fn repair_by_reading(&self) {
        let busy = (0..usize::from(self.plan.keys)).map(|key| (BUCKET, key_name(key)));
        let steady = (0..STEADY_KEYS).map(|key| (STEADY_BUCKET, key_name(key)));
        let mut unreadable = 0;
        for (bucket, key) in busy.chain(steady) {
            let all = GetOptions {
                r: Some(Quorum::All),
                pr: Some(Quorum::All),
                sloppy_quorum: Some(false),
                ..GetOptions::default()
            };
            let mut last = String::new();
            let mut is_read = false;
            for attempt in 0..ATTEMPTS_MAX {
                let machines = self.machines();
                let machine = &machines[attempt % machines.len()];
                if let Some(node) = machine.running() {
                    match node.get(address(bucket, &key), all.clone()).await {
                        Ok(_) => {
                            is_read = true;
                            break;
                        }
                        Err(error) => last = error.to_string(),
                    }
                }
                self.runtime.sleep(Duration::from_secs(1)).await;
            }
            if !is_read {
                self.accuse(&format!(
                    "{key} cannot be read though nothing is wrong: {last}"
                ));
                unreadable += 1;
                if unreadable == UNREADABLE_KEYS_MAX {
                    return;
                }
            }
        }
        self.runtime.sleep(REPAIR_WAIT).await;
    }

    /// No disk of a run changes its contents: the remains of a power cut are not damage.
    pub(crate) fn check_losses(&self, machine: &Machine) {
        let losses = machine.running().map(|node| node.stores.losses());
        if let Some(first) = losses.unwrap_or_default().first() {
            let number = machine.number;
            self.accuse(&format!(
                "node {number} takes something to be lost: {first}"
            ));
        }
    }

    /// Asks each replica alone: all hold the same, and all that was acknowledged.
    fn check_replicas(&self) {
        for number in 0..usize::from(self.plan.keys) {
            let key = key_name(number);
            let Some(object) = self.same_everywhere(BUCKET, &key) else {
                continue;
            };
            let everything = |_, _| true;
            let judged = self.ledger.lock().histories[number].judge(
                &key,
                object.as_deref(),
                Versions::of(&self.plan),
                everything,
            );
            for wrong in judged.1 {
                self.accuse(&format!("in the end: {wrong}"));
            }
        }
        for key in (0..STEADY_KEYS).map(key_name) {
            if let Some(None) = self.same_everywhere(STEADY_BUCKET, &key) {
                self.accuse(&format!("in the end: {key} of the steady ones is gone"));
            }
        }
    }

    /// The object that all replicas of a key hold; `None` when they differ, which is reported.
    fn same_everywhere(&self, bucket: &[u8], key: &str) -> Option<Option<Arc<Object>>> {
        let mut held = match self.replica_objects(bucket, key) {
            Ok(held) => held,
            Err(error) => {
                self.accuse(&format!("in the end: {error}"));
                return None;
            }
        };
        // A tombstone that is gone at one replica and not at another counts as the same.
        let shown = |object: &Option<Arc<Object>>| object.clone().filter(|it| !it.is_tombstone());
        let first = held.first().map(|(_, object)| shown(object));
        if held.iter().any(|(_, object)| Some(shown(object)) != first) {
            let clocks: Vec<String> = held
                .iter()
                .map(|(number, object)| match object {
                    Some(object) => format!(
                        "{number}: {} siblings {:?}",
                        object.siblings().len(),
                        object.clock()
                    ),
                    None => format!("{number}: nothing"),
                })
                .collect();
            self.accuse(&format!(
                "in the end: replicas of {key} differ: {}",
                clocks.join("; ")
            ));
            return None;
        }
        held.pop().map(|(_, object)| object)
    }

    /// Every node lists all keys, each once.
    async fn check_listings(&self) {
        let is_there = |number: &usize| {
            let key = key_name(*number);
            let object = self.same_everywhere(BUCKET, &key).flatten();
            object.is_some_and(|object| !object.is_tombstone())
        };
        let keys = (0..usize::from(self.plan.keys)).filter(is_there);
        let busy: BTreeSet<String> = keys.map(key_name).collect();
        let steady: BTreeSet<String> = (0..STEADY_KEYS).map(key_name).collect();
        for machine in self.machines() {
            let Some(node) = machine.running() else {
                continue;
            };
            for (bucket, expected) in [(BUCKET, &busy), (STEADY_BUCKET, &steady)] {
                match node.list(bucket).await {
                    Ok(mut keys) => {
                        keys.sort();
                        if !keys.iter().eq(expected) {
                            let number = machine.number;
                            self.accuse(&format!(
                                "in the end: node {number} lists {keys:?} instead of {expected:?}"
                            ));
                        }
                    }
                    Err(error) => self.accuse(&format!("in the end: no listing: {error}")),
                }
            }
        }
    }
}
