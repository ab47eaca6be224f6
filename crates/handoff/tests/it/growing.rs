//! A cluster grows from one node to three and shrinks again while clients write, read and list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_cluster::{Command, StagedChange};
use kvorum_coordinator::{GetOptions, RequestError};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Clock, Content, Object};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_ring::{KeyHash, position};
use kvorum_test_cluster::node_id;
use parking_lot::Mutex;

use crate::cluster::{Cluster, Node, Running, Setup, address, content, simulated, size};

const KEYS: u64 = 30;

/// The clients' results, and the violations among them.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeMap<String, Vec<Arc<Object>>>,
    writes: usize,
    failures: Vec<String>,
    violations: Vec<String>,
    listings: usize,
    trace: Vec<String>,
}

impl Ledger {
    fn acknowledge(&mut self, key: &str, object: Arc<Object>) {
        self.writes += 1;
        self.trace.push(format!("{key} {:?}", object.clock()));
        let known = self.acknowledged.entry(key.to_owned()).or_default();
        known.retain(|old| !object.clock().descends(old.clock()));
        known.push(object);
    }

    /// Checks that a read has seen all writes that were acknowledged before it.
    fn judge(&mut self, key: &str, acknowledged: &[Arc<Object>], found: Option<&Object>, by: &str) {
        for written in acknowledged {
            if !found.is_some_and(|it| it.clock().descends(written.clock())) {
                let (written, found) = (written.clock(), found.map(Object::clock));
                let violation =
                    format!("{by}: {key}: {written:?} was acknowledged, found {found:?}");
                self.violations.push(violation);
            }
        }
    }
}

struct Race {
    cluster: Arc<Cluster>,
    ledger: Mutex<Ledger>,
    is_over: AtomicBool,
    is_stormy: bool,
}

impl Race {
    fn draw(&self, below: u64) -> u64 {
        self.cluster.runtime.random_u64() % below
    }

    /// A running node; at least two run.
    fn a_node(&self) -> Arc<Running> {
        let number = u8::try_from(self.draw(3)).unwrap();
        let mut around = (0..3).map(|step| self.cluster.node((number + step) % 3 + 1));
        around.find_map(Node::try_running).unwrap()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    async fn client(self: Arc<Self>, client: u64) {
        let mut turn = 0;
        while !self.is_over() {
            turn += 1;
            self.cluster.sleep_ms(self.draw(6)).await;
            let key = format!("key{}", self.draw(KEYS));
            let acknowledged = self.ledger.lock().acknowledged.get(&key).cloned();
            let seen = self.read(&key, &acknowledged.unwrap_or_default()).await;
            // Some turns write blindly, others over the object that was read, and some of these
            // delete.
            let context = if turn % 3 == 0 { Clock::new() } else { seen };
            let is_delete = turn % 7 == 1 && !context.is_empty();
            let what = match is_delete {
                true => Content::tombstone(),
                false => content(&format!("{client}.{turn}")),
            };
            self.write(&key, what, &context).await;
        }
    }

    async fn read(&self, key: &str, acknowledged: &[Arc<Object>]) -> Clock {
        let node = self.a_node();
        let read = node
            .get(&address("bucket", key), &GetOptions::default())
            .await;
        let mut ledger = self.ledger.lock();
        match read {
            Ok(found) => {
                ledger.judge(key, acknowledged, found.as_deref(), "a client");
                found.map_or_else(Clock::new, |it| it.clock().clone())
            }
            Err(error) => {
                ledger.failures.push(format!("read {key}: {error}"));
                Clock::new()
            }
        }
    }

    async fn write(&self, key: &str, what: Content, context: &Clock) {
        let node = self.a_node();
        let written = node.put(&address("bucket", key), what, context).await;
        let mut ledger = self.ledger.lock();
        match written {
            Ok(object) => ledger.acknowledge(key, object),
            Err(error) => ledger.failures.push(format!("write {key}: {error}")),
        }
    }

    /// Lists a bucket that no client writes to any more.
    async fn lister(self: Arc<Self>) {
        let names: BTreeSet<String> = (0..KEYS).map(|key| format!("key{key}")).collect();
        while !self.is_over() {
            self.cluster.sleep_ms(self.draw(20)).await;
            let listed = list(&self.a_node()).await;
            let mut ledger = self.ledger.lock();
            match listed {
                Ok(mut listed) => {
                    listed.sort();
                    ledger.listings += 1;
                    if !listed.iter().eq(names.iter()) {
                        ledger.violations.push(format!("listed {listed:?}"));
                    }
                }
                Err(error) => ledger.failures.push(format!("list: {error}")),
            }
        }
    }

    /// Cuts nodes off for moments too short to be detected, breaks connections, and kills
    /// processes, whose stores stay.
    async fn storm(self: Arc<Self>) {
        while self.is_stormy && !self.is_over() {
            let node = u8::try_from(self.draw(3)).unwrap() + 1;
            let other = u8::try_from(self.draw(3)).unwrap() + 1;
            self.cluster.set_links(node, true);
            self.cluster.sleep_ms(self.draw(20)).await;
            if node != other {
                self.cluster.break_connections(node, other);
            }
            self.cluster.set_links(node, false);
            self.cluster.sleep_ms(self.draw(15)).await;
            if self.draw(6) == 0 {
                self.cluster.kill(node).await;
                self.cluster.sleep_ms(self.draw(60)).await;
                self.cluster.start(node);
            }
        }
    }

    /// Runs clients while `change` is carried out, then asks each replica alone.
    async fn through(self: &Arc<Self>, what: &str, change: Option<Command>) {
        self.is_over.store(false, Ordering::Relaxed);
        let runtime = &self.cluster.runtime;
        let mut running = vec![
            runtime.spawn("lister", self.clone().lister()),
            runtime.spawn("storm", self.clone().storm()),
        ];
        running.extend((0..3).map(|it| runtime.spawn("client", self.clone().client(it))));
        self.cluster.sleep_ms(50).await;
        if let Some(change) = change {
            self.cluster.agree(change);
        }
        self.cluster.commit();
        let carried_out = || self.cluster.is_carried_out();
        self.cluster.until(what, carried_out).await;
        self.cluster.sleep_ms(50).await;
        self.is_over.store(true, Ordering::Relaxed);
        for task in running {
            task.await.unwrap();
        }
        self.cluster.learn_all();
        self.cluster.sleep_ms(2_000).await;
        self.ask_each_alone(what).await;
    }

    async fn ask_each_alone(&self, what: &str) {
        let cluster = &self.cluster;
        // A replica may lack a write because its ring was newer than the coordinator's, or because
        // a connection broke: the others have it.
        for node in &cluster.nodes {
            node.running().transfers.repair_node();
        }
        let idle = || {
            let mut nodes = cluster.nodes.iter();
            nodes.all(|node| node.running().transfers.status().inbound.is_empty())
        };
        cluster.until("all is repaired", idle).await;
        let state = cluster.agreed();
        let mut ledger = self.ledger.lock();
        for (key, acknowledged) in ledger.acknowledged.clone() {
            let address = address("bucket", &key);
            let place = position(
                &address.bucket_type,
                &address.bucket,
                &address.key,
                KeyHash::Standard,
            );
            for replica in state.ring().primaries(place, 3, false) {
                let node = cluster.node(replica.node.as_bytes()[0]);
                let found = node.stored(replica.partition, &address);
                let by = format!("{what}, {} alone", node.number);
                ledger.judge(&key, &acknowledged, found.as_deref(), &by);
            }
        }
    }
}

async fn list(node: &Running) -> Result<Vec<String>, RequestError> {
    let (bucket_type, bucket) = (BucketType::default_type(), Bucket::new(b"listed".to_vec()));
    let timeout = Duration::from_secs(5);
    let coordinator = &node.coordinator;
    let mut listing = coordinator.list_keys(&bucket_type, &bucket, timeout)?;
    let mut keys = Vec::new();
    while let Some(chunk) = listing.next().await {
        let chunk = chunk?;
        let names = chunk.iter();
        keys.extend(names.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()));
    }
    Ok(keys)
}

/// One to three nodes and back to one.
fn race(seed: u64, is_stormy: bool) -> Ledger {
    let setup = Setup {
        seed,
        ..Setup::default()
    };
    simulated(setup, async |cluster| {
        let race = Arc::new(Race {
            cluster: cluster.clone(),
            ledger: Mutex::default(),
            is_over: AtomicBool::new(false),
            is_stormy,
        });
        let first = cluster.node(1).running();
        for key in 0..KEYS {
            let key = format!("key{key}");
            for bucket in ["bucket", "listed"] {
                let object = first.put_blindly(&address(bucket, &key), "first").await;
                if bucket == "bucket" {
                    race.ledger.lock().acknowledge(&key, object);
                }
            }
        }
        let lead = cluster.runtime.spawn("lead", cluster.clone().lead());
        let lead = lead.abort_on_drop();
        race.through("it grows to three nodes", None).await;
        let grown = cluster.agreed().ring().replicas_max();
        for number in [3, 2] {
            let node = node_id(number);
            let change = StagedChange::Leave;
            let leave = Command::Stage { node, change };
            race.through("a node leaves", Some(leave)).await;
        }
        let ring = cluster.agreed().ring().clone();
        assert_eq!((grown, ring.replicas_max()), (3, 1));
        assert_eq!(ring.owned_by(node_id(1)).count(), usize::from(size().get()));
        drop(lead);
        std::mem::take(&mut *race.ledger.lock())
    })
}

#[test]
fn nothing_is_lost_and_no_read_is_stale_while_a_cluster_grows_and_shrinks() {
    for seed in 1..=2 {
        let ledger = race(seed, false);
        assert_eq!(ledger.violations, [""; 0], "seed {seed}");
        // All nodes are up: requests planned by an old ring are planned again, except that a
        // listing may report the failure.
        let failures = ledger.failures.iter().filter(|it| !it.starts_with("list"));
        assert_eq!(failures.collect::<Vec<_>>(), [""; 0], "seed {seed}");
        assert!(ledger.writes > 200 && ledger.listings > 20);
    }
}

#[test]
fn nor_when_connections_break_and_nodes_restart_meanwhile_and_the_same_seed_runs_the_same_way() {
    let ledgers = [11, 12, 11].map(|seed| race(seed, true));
    for ledger in &ledgers {
        assert_eq!(ledger.violations, [""; 0]);
        let (writes, listings) = (ledger.writes, ledger.listings);
        assert!(writes > 50 && listings > 0, "{writes} {listings}");
    }
    assert_eq!(ledgers[0].trace, ledgers[2].trace);
    assert_ne!(ledgers[0].trace, ledgers[1].trace);
}

#[test]
fn a_receiver_that_is_read_while_it_fills_is_found_out() {
    let _planted = plant(PlantedDefect::MoveClosedEarly);
    let found = (1..=3).find(|seed| !race(*seed, false).violations.is_empty());
    assert!(found.is_some());
}
