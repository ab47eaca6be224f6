//! Clients: they read, write, delete and list through any node that is up, and check the database's
//! answers against its earlier ones.
//!
//! Half of the requests are *strict*: their quorums count only primaries, so that r + w > n has a
//! meaning. A strict read must show every strict write that was acknowledged before it began. Other
//! requests also count stand-ins; their answers are checked when all faults are over.

use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::{
    Condition, DeleteOptions, GetOptions, PutKind, PutOptions, PutRequest, ReplicaPlace,
    RequestError,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Clock, Content, Object};
use kvorum_properties::Quorum;

pub(crate) use crate::buckets::{BUCKET, PASSING_BUCKET, STEADY_BUCKET};
use crate::cluster::Cluster;
use crate::draw::Draw;
use crate::history::{Change, History, Seen, value_of};
use crate::machine::Running;
use crate::plan::RunPlan;

pub(crate) const STEADY_KEYS: usize = 30;

pub(crate) fn key_name(number: usize) -> String {
    format!("key{number}")
}

pub(crate) fn address(bucket: &[u8], key: &str) -> Address {
    Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(bucket.to_vec()),
        key: Key::new(key.as_bytes().to_vec()),
    }
}

/// The reason why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum NoAnswer {
    Refused(RequestError),
    /// The node died.
    Gone,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{error}"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl Running {
    /// Runs a request in the node's own process, with which it ends.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, RequestError>> + Send + 'static,
    ) -> Result<T, NoAnswer> {
        match self.runtime.spawn("request", request).await {
            Ok(answer) => answer.map_err(NoAnswer::Refused),
            Err(_) => Err(NoAnswer::Gone),
        }
    }

    pub(crate) async fn get(
        &self,
        address: Address,
        options: GetOptions,
    ) -> Result<Option<Arc<Object>>, NoAnswer> {
        let (coordinator, now) = (self.coordinator.clone(), self.runtime.now());
        self.ask(async move { coordinator.get(&address, &options, now).await })
            .await
    }

    pub(crate) async fn put(
        &self,
        address: Address,
        (context, value): (Clock, Vec<u8>),
        options: PutOptions,
    ) -> Result<Arc<Object>, NoAnswer> {
        let content = Content {
            value: value.into(),
            ..Content::default()
        };
        self.put_content(address, (context, content), options).await
    }

    pub(crate) async fn put_content(
        &self,
        address: Address,
        (context, content): (Clock, Content),
        options: PutOptions,
    ) -> Result<Arc<Object>, NoAnswer> {
        let (coordinator, now) = (self.coordinator.clone(), self.runtime.now());
        let request = PutRequest {
            context,
            condition: Condition::Always,
            content,
            kind: PutKind::Versioned,
        };
        self.ask(async move { coordinator.put(&address, request, &options, now).await })
            .await
    }

    /// True if the node itself has a replica of the key.
    fn is_replica_of(&self, address: &Address) -> bool {
        let places = self.coordinator.preference_list(address);
        let own = |place: &ReplicaPlace| place.is_primary && place.node == self.coordinator.node();
        places.is_ok_and(|places| places.iter().any(own))
    }

    async fn delete(
        &self,
        address: Address,
        context: Clock,
        options: DeleteOptions,
    ) -> Result<(), NoAnswer> {
        let (coordinator, now) = (self.coordinator.clone(), self.runtime.now());
        let request = async move {
            let deleted = coordinator
                .delete(&address, Some(context), &options, now)
                .await;
            deleted.map(drop)
        };
        self.ask(request).await
    }

    /// The keys of a bucket, repeated if they were listed repeatedly.
    pub(crate) async fn list(&self, bucket: &[u8]) -> Result<Vec<String>, NoAnswer> {
        let (coordinator, bucket) = (self.coordinator.clone(), Bucket::new(bucket.to_vec()));
        self.ask(async move {
            let bucket_type = BucketType::default_type();
            let timeout = Duration::from_secs(20);
            let mut listing = coordinator.list_keys(&bucket_type, &bucket, timeout)?;
            let mut keys = Vec::new();
            while let Some(chunk) = listing.next().await {
                let chunk = chunk?;
                let name = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
                keys.extend(chunk.iter().map(name));
            }
            Ok(keys)
        })
        .await
    }
}

/// One client.
pub(crate) struct Client {
    cluster: Arc<Cluster>,
    number: u8,
    draw: Draw,
}

impl Client {
    pub(crate) fn new(cluster: &Arc<Cluster>, number: u8) -> Self {
        Self {
            draw: Draw::new(cluster.plan.seed ^ (u64::from(number) << 40) ^ 0xc11e),
            cluster: cluster.clone(),
            number,
        }
    }

    /// Operates until clients end.
    pub(crate) async fn live(mut self) {
        let runtime = self.cluster.runtime.clone();
        let end = runtime.now().plus(self.cluster.plan.length);
        let pause_max = u64::try_from(self.cluster.plan.pause_max.as_millis()).unwrap_or(20);
        while runtime.now() < end {
            let pause = Duration::from_millis(self.draw.between(1, pause_max));
            runtime.sleep(pause).await;
            let machines = self.cluster.machines();
            let Some(machine) = self.draw.one_of(&machines) else {
                return;
            };
            let Some(node) = machine.running() else {
                continue;
            };
            let key = usize::try_from(self.draw.below(u64::from(self.cluster.plan.keys)));
            let plan = &self.cluster.plan;
            let (key, is_strict) = (key.unwrap_or(0), self.draw.chance(plan.strict_percent));
            let deletes = plan.delete_percent;
            match self.draw.below(100) {
                0..55 if plan.has_one_writer_a_key() => self.write_own(&node, key).await,
                kind if kind < deletes => self.write(&node, key, is_strict, Change::Delete).await,
                0..55 => self.write(&node, key, is_strict, Change::Put).await,
                55..95 => drop(self.read(&node, key, is_strict).await),
                95..98 => self.read_steady(&node).await,
                _ => self.list(&node).await,
            }
        }
    }

    fn note(&self, key: usize, what: &str, answer: &str) {
        let number = self.number;
        self.cluster
            .note(&format!("client {number} key {key} {what}: {answer}"));
    }

    /// Reads a key; returns the result, if there is an answer.
    async fn read(&mut self, node: &Running, key: usize, is_strict: bool) -> Option<Seen> {
        let quorum = is_strict.then_some(Quorum::Quorum);
        let options = GetOptions {
            r: Some(Quorum::Quorum),
            pr: quorum,
            sloppy_quorum: Some(!is_strict),
            ..GetOptions::default()
        };
        let (name, begun) = (key_name(key), self.cluster.runtime.now().elapsed());
        let read = node.get(address(BUCKET, &name), options).await;
        let object = match read {
            Ok(object) => object,
            Err(error) => {
                self.note(key, "read", &error.to_string());
                self.cluster.ledger.lock().operations.failed += 1;
                return None;
            }
        };
        let clock = object.as_ref().map(|it| it.clock().fingerprint());
        self.note(key, "read", &format!("{clock:x?}"));
        let versions = Versions::of(&self.cluster.plan);
        let (seen, wrong) = {
            let mut ledger = self.cluster.ledger.lock();
            ledger.operations.reads += 1;
            let is_checked = is_strict && !ledger.is_amnesiac;
            ledger.operations.checked_reads += u64::from(is_checked);
            let must_show =
                |at: Duration, by_primaries: bool| is_checked && by_primaries && at < begun;
            ledger.histories[key].judge(&name, object.as_deref(), versions, must_show)
        };
        for wrong in wrong {
            let (number, at) = (self.number, begun.as_millis());
            let read = format!("client {number} read at {at} ms (strict: {is_strict})");
            self.cluster.accuse(&format!("{read}: {wrong}"));
        }
        Some(seen)
    }

    /// Writes the nearest key of this client, which no other client writes, always over its last
    /// read.
    async fn write_own(&mut self, node: &Running, key: usize) {
        let clients = usize::from(self.cluster.plan.clients.max(1));
        let (keys, number) = (
            usize::from(self.cluster.plan.keys),
            usize::from(self.number),
        );
        let own = key - key % clients + number;
        let own = if own < keys { own } else { number };
        self.write(node, own, true, Change::Put).await;
    }

    async fn write(&mut self, node: &Running, key: usize, is_strict: bool, change: Change) {
        // Some writes are blind; a delete always follows a read.
        let plan = &self.cluster.plan;
        let is_blind = !plan.has_one_writer_a_key() && self.draw.chance(plan.blind_percent);
        let seen = match change == Change::Delete || !is_blind {
            true => {
                let Some(seen) = self.read(node, key, is_strict).await else {
                    return;
                };
                seen
            }
            false => Seen::default(),
        };
        if change == Change::Delete && seen.clock.is_empty() {
            return;
        }
        let write = self.cluster.ledger.lock().histories[key].begin(change, is_strict, &seen);
        let is_replica = node.is_replica_of(&address(BUCKET, &key_name(key)));
        let (name, quorum) = (key_name(key), Some(Quorum::Quorum));
        let by_primaries = is_strict.then_some(Quorum::Quorum);
        let answer = match change {
            Change::Put => {
                let bytes = self.draw.below(self.cluster.plan.value_bytes_max);
                let bytes = usize::try_from(bytes).unwrap_or(0);
                let value = value_of(&name, write, bytes);
                // If stand-ins count too, pw has to be set.
                let sloppy_quorum = !is_strict || self.draw.chance(50);
                // All receivers have to sync: a stand-in's sync could replace a primary's, and the
                // primary could lose the unsynced write.
                let dw = (is_strict && sloppy_quorum).then_some(Quorum::All);
                let options = PutOptions {
                    w: quorum,
                    pw: by_primaries,
                    dw,
                    sloppy_quorum: Some(sloppy_quorum),
                    ..PutOptions::default()
                };
                let put = node.put(address(BUCKET, &name), (seen.clock, value), options);
                put.await.map(Some)
            }
            Change::Delete => {
                let options = DeleteOptions {
                    w: quorum,
                    pw: by_primaries,
                    sloppy_quorum: Some(!is_strict),
                    ..DeleteOptions::default()
                };
                let delete = node.delete(address(BUCKET, &name), seen.clock, options);
                delete.await.map(|()| None)
            }
        };
        let what = format!("{change:?} {write} strict {is_strict}");
        let outcome = match &answer {
            Ok(object) => {
                let clock = object.as_ref().map(|it| it.clock().fingerprint());
                format!("{clock:x?}")
            }
            Err(error) => error.to_string(),
        };
        self.note(key, &what, &outcome);
        let is_all_down = matches!(&answer, Err(NoAnswer::Refused(RequestError::AllNodesDown)));
        if is_all_down && is_replica && node.is_replica_of(&address(BUCKET, &name)) {
            self.cluster.accuse(&format!(
                "{what} of {name}: a node that has a replica itself says that all nodes are down"
            ));
        }
        let now = self.cluster.runtime.now().elapsed();
        let wrong = {
            let mut ledger = self.cluster.ledger.lock();
            let Ok(object) = answer else {
                ledger.operations.failed += 1;
                return;
            };
            match change {
                Change::Put => ledger.operations.writes += 1,
                Change::Delete => ledger.operations.deletes += 1,
            }
            ledger.histories[key].acknowledge(write, now);
            object.and_then(|it| ledger.histories[key].see(&name, &it).err())
        };
        if let Some(wrong) = wrong {
            self.cluster.accuse(&wrong);
        }
    }

    /// Reads a key that every replica has: stand-ins must not hide it.
    async fn read_steady(&mut self, node: &Running) {
        let number = self.draw.below(STEADY_KEYS as u64);
        let key = key_name(usize::try_from(number).unwrap_or(0));
        let read = node
            .get(address(STEADY_BUCKET, &key), GetOptions::default())
            .await;
        let is_amnesiac = {
            let mut ledger = self.cluster.ledger.lock();
            match &read {
                Ok(_) => ledger.operations.reads += 1,
                Err(_) => ledger.operations.failed += 1,
            }
            ledger.is_amnesiac
        };
        let found = match read {
            Ok(object) => object.map(|object| object.siblings().len()),
            Err(error) => {
                self.cluster
                    .note(&format!("client {} {key}: {error}", self.number));
                return;
            }
        };
        self.cluster
            .note(&format!("client {} {key}: {found:?}", self.number));
        if found != Some(1) && !is_amnesiac {
            self.cluster.accuse(&format!(
                "a read of {key}, which all replicas have, shows {found:?} values"
            ));
        }
    }

    async fn list(&mut self, node: &Running) {
        let listed = node.list(STEADY_BUCKET).await;
        let mut keys = match listed {
            Ok(keys) => keys,
            Err(error) => {
                self.cluster
                    .note(&format!("client {} list: {error}", self.number));
                self.cluster.ledger.lock().operations.failed += 1;
                return;
            }
        };
        self.cluster
            .note(&format!("client {} list: {}", self.number, keys.len()));
        let is_amnesiac = {
            let mut ledger = self.cluster.ledger.lock();
            ledger.operations.listings += 1;
            ledger.is_amnesiac
        };
        keys.sort();
        let mut expected: Vec<String> = (0..STEADY_KEYS).map(key_name).collect();
        expected.sort();
        if keys != expected && !is_amnesiac {
            let missing: Vec<&String> = expected.iter().filter(|it| !keys.contains(it)).collect();
            let count = keys.len();
            self.cluster.accuse(&format!(
                "a listing shows {count} keys of {STEADY_KEYS}; missing: {missing:?}"
            ));
        }
    }
}

/// The versions of a key that a read has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// All versions that are not replaced.
    All,
    /// One version: the last of its only writer.
    LastOfOneWriter,
    /// One version: the newest of concurrent versions.
    Newest,
}

impl Versions {
    /// The versions for a plan.
    pub(crate) fn of(plan: &RunPlan) -> Self {
        match (plan.allow_mult, plan.has_rivals) {
            (true, _) => Self::All,
            (false, false) => Self::LastOfOneWriter,
            (false, true) => Self::Newest,
        }
    }
}

impl History {
    /// Judges the result of a read, an object or none; returns the view and the violations.
    pub(crate) fn judge(
        &mut self,
        key: &str,
        object: Option<&Object>,
        versions: Versions,
        must_show: impl Fn(Duration, bool) -> bool,
    ) -> (Seen, Vec<String>) {
        let mut wrong = Vec::new();
        let seen = match object {
            Some(object) => match self.see(key, object) {
                Ok(seen) => seen,
                Err(what) => return (Seen::default(), vec![what]),
            },
            None => self.nothing(),
        };
        match versions {
            Versions::LastOfOneWriter => {
                let wrong = self.not_the_last(key, object, &must_show);
                return (seen, wrong.into_iter().collect());
            }
            Versions::All => {
                let lost = self.lost(&seen, &must_show);
                wrong.extend(lost.map(|lost| format!("{key} lacks {}", self.describe(lost))));
            }
            Versions::Newest => wrong.extend(self.not_the_newest(key, object, &seen, &must_show)),
        }
        // Also true if one version is chosen: a value that a client had read comes before the value
        // that it wrote then.
        let back = object.and_then(|object| self.back_again(key, object, &must_show));
        if let Some((value, write)) = back {
            let (value, write) = (self.describe(value), self.describe(write));
            wrong.push(format!("{key} shows {value} again, which {write} replaced"));
        }
        (seen, wrong)
    }
}
