//! Counters and sets under faults: an acknowledged operation counts once, and an operation with an
//! unknown outcome counts at most once.
//!
//! Each increment of a counter is a distinct power of two, so that the sum shows which increments
//! it has. Each member of a set is added once, and removed at most once, by a client that has read
//! it. Later members are long, so that sets are stored in pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_cluster::{ClusterState, Command};
use kvorum_coordinator::{GetOptions, PutOptions};
use kvorum_data_types::{Clock, DataType, Kind, Operation, SetChange, Value};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_properties::{Datatype, PropertyOverlay, Quorum};
use parking_lot::Mutex;

use crate::client::NoAnswer;
use crate::cluster::Cluster;
use crate::draw::Draw;
use crate::machine::Running;
use crate::plan::Control;

/// The tested kinds, and their bucket types.
const KINDS: [(&str, Datatype, Kind); 2] = [
    ("counters", Datatype::Counter, Kind::Counter),
    ("sets", Datatype::Set, Kind::Set),
];
const BUCKET: &str = "told";
/// Keys of each kind.
const KEYS: u64 = 4;
/// The number of clients that operate at the same time.
const CLIENTS: u64 = 3;
/// The operations on a key; a counter has a binary digit for each.
const OPERATIONS_MAX: u32 = 120;
/// The number of a set's first members, which are short.
const SHORT_MEMBERS: u32 = 10;
/// The length of the other members: a set with more than twenty of them is stored in pages.
const MEMBER_BYTES: usize = 200;
const PAUSE_MAX_MILLIS: u64 = 120;
const ATTEMPTS_MAX: usize = 30;
/// The time within which a read repairs replicas.
const REPAIR_WAIT: Duration = Duration::from_secs(6);

/// The outcome of an operation for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InDoubt,
    Acknowledged,
    /// It may have been undone.
    UndoneInDoubt,
    Undone,
}

/// The outcomes of one key's operations, by their numbers.
type Outcomes = BTreeMap<u32, Fate>;

/// The clients of a run that operate on counters and sets, and the outcomes of their operations.
pub(crate) struct Counting {
    cluster: Arc<Cluster>,
    outcomes: Mutex<BTreeMap<(Kind, u64), Outcomes>>,
}

/// The address of a key.
#[derive(Clone, Copy)]
struct Place {
    kind: Kind,
    bucket_type: &'static str,
    number: u64,
}

impl Place {
    fn address(self) -> Address {
        Address {
            bucket_type: BucketType::from(self.bucket_type),
            bucket: Bucket::from(BUCKET),
            key: Key::new(self.number.to_string().into_bytes()),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        KINDS.into_iter().flat_map(|(bucket_type, _, kind)| {
            (0..KEYS).map(move |number| Self {
                kind,
                bucket_type,
                number,
            })
        })
    }
}

fn member(number: u32) -> Bytes {
    match number < SHORT_MEMBERS {
        true => number.to_string().into(),
        false => format!("{number:0MEMBER_BYTES$}").into(),
    }
}

/// True if the value has an operation's effect.
fn has(value: &Value, number: u32) -> bool {
    match value {
        Value::Counter(sum) => sum >> number & 1 == 1,
        Value::Set(members) => members.contains(&member(number)),
        Value::GrowSet(_) | Value::Map(_) | Value::HyperLogLog(_) => false,
    }
}

/// True if a value has an effect without an operation, or an effect twice.
fn is_made_up(value: &Value, outcomes: &Outcomes) -> bool {
    match value {
        Value::Counter(sum) => {
            (0..=OPERATIONS_MAX).any(|it| sum >> it & 1 == 1 && !outcomes.contains_key(&it))
        }
        Value::Set(members) => members
            .iter()
            .any(|it| !outcomes.keys().any(|number| member(*number) == it)),
        Value::GrowSet(_) | Value::Map(_) | Value::HyperLogLog(_) => true,
    }
}

/// The violation in a value; `before` has the outcomes from before the read.
fn wrong_with(value: &Value, before: &Outcomes, outcomes: &Outcomes) -> Option<String> {
    let lacking = |(number, fate): &(&u32, &Fate)| {
        **fate == Fate::Acknowledged
            && outcomes.get(*number) == Some(*fate)
            && !has(value, **number)
    };
    if let Some((number, _)) = before.iter().find(lacking) {
        return Some(format!("lacks operation {number}, which was acknowledged"));
    }
    let undone = |(number, fate): &(&u32, &Fate)| **fate == Fate::Undone && has(value, **number);
    if let Some((number, _)) = before.iter().find(undone) {
        return Some(format!("shows member {number}, which was removed"));
    }
    is_made_up(value, outcomes)
        .then(|| "shows an operation that no client sent, or one twice".to_owned())
}

impl Running {
    async fn update_value(
        &self,
        place: Place,
        operation: Operation,
        context: Option<Clock>,
    ) -> Result<DataType, NoAnswer> {
        let options = PutOptions {
            w: Some(Quorum::Quorum),
            pw: Some(Quorum::Quorum),
            sloppy_quorum: Some(false),
            ..PutOptions::default()
        };
        let (coordinator, now) = (self.coordinator.clone(), self.runtime.now());
        let address = place.address();
        self.ask(async move {
            coordinator
                .update_data_type(&address, operation, context, &options, now)
                .await
        })
        .await
    }

    async fn fetch_value(
        &self,
        place: Place,
        quorum: Quorum,
    ) -> Result<Option<DataType>, NoAnswer> {
        let options = GetOptions {
            r: Some(quorum),
            pr: Some(quorum),
            sloppy_quorum: Some(false),
            ..GetOptions::default()
        };
        let (coordinator, now) = (self.coordinator.clone(), self.runtime.now());
        let address = place.address();
        self.ask(async move {
            coordinator
                .fetch_data_type(&address, place.kind, &options, now)
                .await
        })
        .await
    }
}

impl Cluster {
    /// Creates the bucket types that are operated on.
    pub(crate) async fn create_data_types(self: &Arc<Self>) -> anyhow::Result<()> {
        for (name, datatype, _) in KINDS {
            let bucket_type = BucketType::from(name);
            let create = Command::CreateType {
                bucket_type: bucket_type.clone(),
                properties: PropertyOverlay {
                    datatype: Some(datatype),
                    n_val: Some(self.plan.n_val),
                    ..PropertyOverlay::default()
                },
            };
            let activate = Command::ActivateType {
                bucket_type: bucket_type.clone(),
            };
            let bucket = Bucket::from(BUCKET);
            let is_active = |state: &ClusterState| state.properties(&bucket_type, &bucket).is_ok();
            let is_there = |state: &ClusterState| state.bucket_types().contains_key(&bucket_type);
            let next = |state: &ClusterState| {
                let next = if is_there(state) { &activate } else { &create };
                Some(next.clone())
            };
            match self.plan.control {
                Control::Members => self.agree(&next, &is_active).await?,
                Control::StandIn => [create, activate]
                    .into_iter()
                    .try_for_each(|command| self.propose(command))?,
            }
        }
        Ok(())
    }
}

impl Counting {
    pub(crate) fn new(cluster: &Arc<Cluster>) -> Arc<Self> {
        Arc::new(Self {
            cluster: cluster.clone(),
            outcomes: Mutex::default(),
        })
    }

    /// Runs all its clients, until the clients of objects end.
    pub(crate) async fn live(self: Arc<Self>) {
        let runtime = self.cluster.runtime.clone();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| runtime.spawn("data type client", self.clone().operate(number)))
            .collect();
        for client in clients {
            let _ended = client.await;
        }
    }

    async fn operate(self: Arc<Self>, number: u64) {
        let mut draw = Draw::new(self.cluster.plan.seed ^ (number << 44) ^ 0x7e11);
        let places: Vec<Place> = Place::all().collect();
        let runtime = self.cluster.runtime.clone();
        let end = runtime.now().plus(self.cluster.plan.length);
        while runtime.now() < end {
            let pause = Duration::from_millis(draw.between(1, PAUSE_MAX_MILLIS));
            runtime.sleep(pause).await;
            let machines = self.cluster.machines();
            let node = draw.one_of(&machines).and_then(|it| it.running());
            let (Some(node), Some(place)) = (node, draw.one_of(&places).copied()) else {
                continue;
            };
            match draw.below(100) {
                0..60 => self.add(&node, place).await,
                60..80 if place.kind == Kind::Set => self.remove(&node, place, &mut draw).await,
                _ => drop(self.read(&node, place).await),
            }
        }
    }

    fn outcomes(&self, place: Place) -> Outcomes {
        let outcomes = self.outcomes.lock();
        outcomes
            .get(&(place.kind, place.number))
            .cloned()
            .unwrap_or_default()
    }

    fn note(&self, place: Place, number: u32, fate: Fate) {
        let Place {
            kind, number: key, ..
        } = place;
        self.cluster
            .note(&format!("{kind} {key} operation {number}: {fate:?}"));
        if matches!(fate, Fate::Acknowledged | Fate::Undone) {
            self.cluster.ledger.lock().operations.updates += 1;
        }
        let mut outcomes = self.outcomes.lock();
        outcomes
            .entry((kind, key))
            .or_default()
            .insert(number, fate);
    }

    async fn add(&self, node: &Running, place: Place) {
        let number = u32::try_from(self.outcomes(place).len()).unwrap_or(OPERATIONS_MAX);
        if number >= OPERATIONS_MAX {
            return;
        }
        let operation = match place.kind {
            Kind::Counter => Operation::Counter(1 << number),
            _ => Operation::Set(vec![SetChange::Add(member(number))]),
        };
        self.note(place, number, Fate::InDoubt);
        if node.update_value(place, operation, None).await.is_ok() {
            self.note(place, number, Fate::Acknowledged);
        }
    }

    /// Removes a member that a read has shown.
    async fn remove(&self, node: &Running, place: Place, draw: &mut Draw) {
        let Some(found) = self.read(node, place).await else {
            return;
        };
        let outcomes = self.outcomes(place);
        let shown = found.value();
        let there =
            |(number, fate): &(&u32, &Fate)| **fate == Fate::Acknowledged && has(&shown, **number);
        let there: Vec<u32> = outcomes
            .iter()
            .filter(there)
            .map(|(number, _)| *number)
            .collect();
        let Some(number) = draw.one_of(&there).copied() else {
            return;
        };
        self.note(place, number, Fate::UndoneInDoubt);
        let operation = Operation::Set(vec![SetChange::Remove(member(number))]);
        let removed = node.update_value(place, operation, found.context()).await;
        if removed.is_ok() {
            self.note(place, number, Fate::Undone);
        }
    }

    async fn read(&self, node: &Running, place: Place) -> Option<DataType> {
        let before = self.outcomes(place);
        let found = node.fetch_value(place, Quorum::Quorum).await.ok()?;
        let is_amnesiac = self.cluster.ledger.lock().is_amnesiac;
        let found = found.unwrap_or_else(|| DataType::new(place.kind, 14));
        if !is_amnesiac {
            self.judge(place, &found, &before, "a read");
        }
        Some(found)
    }

    fn judge(&self, place: Place, found: &DataType, before: &Outcomes, when: &str) {
        let value = found.value();
        if let Some(wrong) = wrong_with(&value, before, &self.outcomes(place)) {
            let Place { kind, number, .. } = place;
            self.cluster
                .accuse(&format!("{when}: {kind} {number} {wrong}: {value:?}"));
        }
    }

    /// Checks that in the end all nodes show the same value of each key, with all acknowledged
    /// operations.
    pub(crate) async fn check(&self) {
        for place in Place::all() {
            if let Some(found) = self.read_from_all(place).await {
                self.judge(place, &found, &self.outcomes(place), "in the end");
            }
        }
        self.cluster.runtime.sleep(REPAIR_WAIT).await;
        for place in Place::all() {
            let mut shown: Vec<Option<Value>> = Vec::new();
            for machine in self.cluster.machines() {
                let Some(node) = machine.running() else {
                    continue;
                };
                if let Ok(found) = node.fetch_value(place, Quorum::One).await {
                    shown.push(found.map(|it| it.value()));
                }
            }
            shown.dedup();
            if shown.len() > 1 {
                let Place { kind, number, .. } = place;
                let what = format!("in the end: nodes differ about {kind} {number}: {shown:?}");
                self.cluster.accuse(&what);
            }
        }
    }

    async fn read_from_all(&self, place: Place) -> Option<DataType> {
        let mut last = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            let machines = self.cluster.machines();
            let machine = &machines[attempt % machines.len()];
            if let Some(node) = machine.running() {
                match node.fetch_value(place, Quorum::All).await {
                    Ok(found) => {
                        return Some(found.unwrap_or_else(|| DataType::new(place.kind, 14)));
                    }
                    Err(error) => last = error.to_string(),
                }
            }
            self.cluster.runtime.sleep(Duration::from_secs(1)).await;
        }
        let Place { kind, number, .. } = place;
        self.cluster.accuse(&format!(
            "{kind} {number} cannot be read though nothing is wrong: {last}"
        ));
        None
    }
}

#[cfg(test)]
#[path = "counting_test.rs"]
mod tests;
