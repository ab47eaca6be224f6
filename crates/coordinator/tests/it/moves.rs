//! Partitions that move, and replicas that grow, while clients write, read and list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_cluster::ClusterState;
use kvorum_coordinator::{GetOptions, IndexValues, PutOptions, RequestError};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Clock, Dot, Object};
use kvorum_properties::Quorum;
use kvorum_ring::{Partition, Ring};
use kvorum_runtime::Runtime;
use kvorum_test_cluster::node_id;
use parking_lot::Mutex;

use crate::cluster::{Cluster, ClusterNode, RING_SIZE, Setup, ring, transfer};
use crate::index_queries::{content, paged, put_of};
use crate::several_nodes::{get, put};
use crate::world::{address, values};

/// The clients' results, and the guarantees of the database that follow.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeMap<String, Vec<Arc<Object>>>,
    dots: BTreeMap<(String, String), Dot>,
    writes: usize,
    failures: usize,
    trace: Vec<String>,
}

impl Ledger {
    /// Every value has one dot, at every node and time.
    fn see(&mut self, key: &str, object: &Object) {
        for sibling in object.siblings() {
            let value = String::from_utf8_lossy(&sibling.value).into_owned();
            let first = self
                .dots
                .entry((key.to_owned(), value))
                .or_insert(sibling.dot);
            assert_eq!(*first, sibling.dot, "one put, two dots: {key} {object:?}");
        }
    }
}

struct Clients {
    runtime: Runtime,
    nodes: Vec<Arc<ClusterNode>>,
    ledger: Arc<Mutex<Ledger>>,
    keys: Vec<String>,
}

impl Clients {
    fn draw(&self, below: usize) -> usize {
        usize::try_from(self.runtime.random_u64() % below as u64).unwrap()
    }

    /// The requests of one client: reads and writes at random nodes.
    async fn live(self, client: usize, turns: usize) {
        for turn in 0..turns {
            let pause = Duration::from_micros(self.runtime.random_u64() % 5_000);
            self.runtime.sleep(pause).await;
            let node = &self.nodes[self.draw(self.nodes.len())];
            let key = &self.keys[self.draw(self.keys.len())];
            let acknowledged = self.ledger.lock().acknowledged.get(key).cloned();
            let read = get(node, key, &GetOptions::default()).await;
            let seen = self.note_read(key, &read, acknowledged.as_deref().unwrap_or_default());
            // Some writes are blind, others are over the object that was read.
            let context = if turn % 3 == 0 { Clock::new() } else { seen };
            let value = format!("{client}.{turn}");
            let written = put(node, key, &value, &context, &PutOptions::default()).await;
            self.note_write(key, &value, written);
        }
    }

    /// Notes the clock of an object read, which must have seen all writes acknowledged before.
    fn note_read(
        &self,
        key: &str,
        read: &Outcome<Option<Arc<Object>>>,
        acknowledged: &[Arc<Object>],
    ) -> Clock {
        let mut ledger = self.ledger.lock();
        let found = match read {
            Ok(found) => found,
            Err(error) => {
                ledger.failures += 1;
                ledger.trace.push(format!("read {key}: {error}"));
                return Clock::new();
            }
        };
        for written in acknowledged {
            let is_there = found
                .as_ref()
                .is_some_and(|it| it.clock().descends(written.clock()));
            assert!(
                is_there,
                "{key}: {written:?} was acknowledged, read {found:?}"
            );
        }
        match found {
            Some(found) => {
                ledger.see(key, found);
                found.clock().clone()
            }
            None => Clock::new(),
        }
    }

    fn note_write(&self, key: &str, value: &str, written: Outcome<Arc<Object>>) {
        let mut ledger = self.ledger.lock();
        match written {
            Ok(object) => {
                ledger.see(key, &object);
                ledger.writes += 1;
                ledger.trace.push(format!("{value} {:?}", object.clock()));
                let known = ledger.acknowledged.entry(key.to_owned()).or_default();
                known.retain(|old| !object.clock().descends(old.clock()));
                known.push(object);
            }
            Err(error) => {
                ledger.failures += 1;
                ledger.trace.push(format!("{value}: {error}"));
            }
        }
    }
}

type Outcome<T> = Result<T, RequestError>;

/// Gives each node the state at some later time, the nodes in `first` at once.
async fn spread(cluster: &Cluster, state: &Arc<ClusterState>, first: &[u8]) {
    let runtime = &cluster.runtime;
    for node in &cluster.nodes {
        if first.contains(&node.number) {
            node.learn(state);
            continue;
        }
        let (node, state, clock) = (node.clone(), state.clone(), runtime.clone());
        let late = Duration::from_micros(runtime.random_u64() % 60_000);
        runtime.spawn("learns late", async move {
            clock.sleep(late).await;
            // A state that is older than the node's own is ignored.
            let known = kvorum_cluster::AgreedState::current(&*node.known);
            let is_news = |ring: &Ring, known: &Ring| {
                ring.partitions()
                    .any(|(p, _, epoch)| epoch > known.epoch(p))
            };
            if is_news(state.ring(), known.ring()) {
                node.learn(&state);
            }
        });
    }
}

/// Moves a partition by the three steps and their gates, amid other work.
async fn move_partition(cluster: &Cluster, ring: &mut Ring, partition: Partition, to: u8) {
    let from = ring.owner(partition).as_bytes()[0];
    let pause = || Duration::from_micros(cluster.runtime.random_u64() % 20_000);
    ring.begin_move(partition, node_id(to)).unwrap();
    let state = cluster.state(ring.clone());
    // Filling begins once the source refuses older epochs.
    spread(cluster, &state, &[from]).await;
    cluster.runtime.sleep(pause()).await;
    cluster.node(to).learn(&state);
    let source = cluster.node(from).vnode(partition);
    transfer(&source, &cluster.node(to).vnode(partition));
    ring.close_move(partition).unwrap();
    spread(cluster, &cluster.state(ring.clone()), &[]).await;
    cluster.runtime.sleep(pause()).await;
    // Settled once the source has learned that it closes.
    let state = cluster.state(ring.clone());
    cluster.node(from).learn(&state);
    ring.settle_move(partition).unwrap();
    spread(cluster, &cluster.state(ring.clone()), &[]).await;
    cluster.runtime.sleep(pause()).await;
}

/// Cuts one node off after the other, for moments that no node notices, and breaks connections.
/// Then only as few replicas as required have a write.
async fn storm(cluster: Arc<Cluster>, is_over: Arc<AtomicBool>) {
    let runtime = cluster.runtime.clone();
    while !is_over.load(Ordering::Relaxed) {
        let drawn = runtime.random_u64();
        let [node, other, is_broken, ..] = drawn.to_le_bytes();
        let (node, other) = (node % 5 + 1, other % 5 + 1);
        cluster.set_links(node, true);
        runtime
            .sleep(Duration::from_micros((drawn >> 32) % 20_000))
            .await;
        if is_broken % 2 == 0 && node != other {
            cluster.break_connections(node, other);
        }
        cluster.set_links(node, false);
        runtime
            .sleep(Duration::from_micros((drawn >> 40) % 5_000))
            .await;
    }
}

/// Clients race with the moves of some partitions to a node that joins.
fn race(seed: u64, is_stormy: bool) -> (usize, usize, Vec<String>) {
    let cluster = Arc::new(Cluster::new(&Setup {
        seed,
        nodes: 5,
        owners: 4,
        ..Setup::default()
    }));
    let is_over = Arc::new(AtomicBool::new(!is_stormy));
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let keys: Vec<String> = (0..6).map(|number| format!("key{number}")).collect();
    cluster.run(async {
        let mut clients = Vec::new();
        for client in 0..6 {
            let one = Clients {
                runtime: cluster.runtime.clone(),
                nodes: cluster.nodes.clone(),
                ledger: ledger.clone(),
                keys: keys.clone(),
            };
            clients.push(cluster.runtime.spawn("client", one.live(client, 40)));
        }
        let weather = storm(cluster.clone(), is_over.clone());
        let weather = cluster.runtime.spawn("storm", weather);
        let mut present = ring(4);
        for number in [1, 5, 9, 13] {
            let partition = present.size().partition(number).unwrap();
            move_partition(&cluster, &mut present, partition, 5).await;
        }
        for client in clients {
            client.await.unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        weather.await.unwrap();
        cluster.learn(&cluster.state(present));
    });
    cluster.settle();
    let ledger = std::mem::take(&mut *ledger.lock());
    for (key, known) in &ledger.acknowledged {
        let all = GetOptions {
            r: Some(Quorum::Quorum),
            ..GetOptions::default()
        };
        let read = cluster.run(get(cluster.node(5), key, &all));
        let read = read.unwrap().unwrap();
        for written in known {
            assert!(read.clock().descends(written.clock()), "{key} lost");
        }
    }
    (ledger.writes, ledger.failures, ledger.trace)
}

#[test]
fn no_acknowledged_write_is_lost_and_no_read_is_stale_while_partitions_move() {
    let (mut writes, mut failures) = (0, 0);
    for seed in 1..=12 {
        let (written, failed, _) = race(seed, false);
        writes += written;
        failures += failed;
    }
    // All nodes are up: requests with an old ring are planned again, not refused.
    assert_eq!((writes, failures), (12 * 6 * 40, 0));
}

#[test]
fn nor_when_connections_break_meanwhile() {
    let written: usize = (1..=12).map(|seed| race(seed, true).0).sum();
    // Most requests succeed; the others may or may not have been written.
    assert!(written > 12 * 6 * 40 / 2, "{written}");
}

#[test]
fn the_same_seed_runs_the_same_way_twice() {
    assert_eq!(race(99, true), race(99, true));
    assert_ne!(race(99, true).2, race(98, true).2);
}

#[test]
fn a_coordinator_with_an_old_ring_hears_of_the_new_one_and_tries_again() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let partition = cluster.partitions("key")[0];
    let mut moving = ring(4);
    moving.begin_move(partition, node_id(5)).unwrap();
    let state = cluster.state(moving);
    let late = cluster.stranger("key");
    for node in cluster.nodes.iter().filter(|node| node.number != late) {
        node.learn(&state);
    }
    let all = PutOptions {
        w: Some(Quorum::All),
        ..PutOptions::default()
    };
    let (node, clock) = (cluster.node(late).clone(), cluster.runtime.clone());
    let (learner, state) = (node.clone(), state.clone());
    cluster.runtime.spawn("learns late", async move {
        clock.sleep(Duration::from_millis(700)).await;
        learner.learn(&state);
    });
    let context = Clock::new();
    let written = cluster.run(put(&node, "key", "value", &context, &all));
    assert_eq!(values(&written.unwrap()), ["value"]);
    assert!(cluster.node(5).stored(partition, "key").is_some());
}

#[test]
fn a_write_waits_for_the_store_that_its_own_node_is_about_to_open() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let partition = cluster.partitions("key")[0];
    let mut moving = ring(4);
    moving.begin_move(partition, node_id(5)).unwrap();
    let state = cluster.state(moving);
    for node in &cluster.nodes[..4] {
        node.learn(&state);
    }
    let node = cluster.node(5).clone();
    node.hear_of(&state);
    let (learner, clock) = (node.clone(), cluster.runtime.clone());
    cluster.runtime.spawn("opens late", async move {
        clock.sleep(Duration::from_millis(700)).await;
        learner.learn(&state);
    });
    let all = PutOptions {
        w: Some(Quorum::All),
        ..PutOptions::default()
    };
    let context = Clock::new();
    let written = cluster.run(put(&node, "key", "value", &context, &all));
    assert_eq!(values(&written.unwrap()), ["value"]);
    assert!(node.stored(partition, "key").is_some());
}

#[test]
fn a_write_that_was_half_done_goes_on_with_the_same_dot_in_the_new_list() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    // The last replica moves: the coordinating one has not learned of the move, and does not refuse.
    let (owners, partition) = (cluster.owners("key"), cluster.partitions("key")[2]);
    let mut moving = ring(4);
    moving.begin_move(partition, node_id(5)).unwrap();
    let state = cluster.state(moving);
    cluster.node(owners[2]).learn(&state);
    cluster.node(5).learn(&state);
    let all = PutOptions {
        w: Some(Quorum::All),
        ..PutOptions::default()
    };
    let (learner, clock) = (cluster.node(owners[0]).clone(), cluster.runtime.clone());
    cluster.runtime.spawn("learns late", async move {
        clock.sleep(Duration::from_millis(300)).await;
        learner.learn(&state);
    });
    let context = Clock::new();
    let written = cluster.run(put(cluster.node(owners[0]), "key", "value", &context, &all));
    let written = written.unwrap();
    let received = cluster.node(5).stored(partition, "key").unwrap();
    assert_eq!(received.siblings()[0].dot, written.siblings()[0].dot);
    assert_eq!(received.clock(), written.clock());
    assert_eq!(written.clock().entries().len(), 1);
}

#[test]
fn a_filling_replica_alone_does_not_make_a_quorum() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let (owners, partition) = (cluster.owners("key"), cluster.partitions("key")[0]);
    let mut moving = ring(4);
    moving.begin_move(partition, node_id(5)).unwrap();
    cluster.learn(&cluster.state(moving));
    // One replica of the old list is left, and two of the new one: the receiver and that one.
    cluster.cut_off(owners[0], true);
    cluster.cut_off(owners[1], true);
    let strict = PutOptions {
        sloppy_quorum: Some(false),
        ..PutOptions::default()
    };
    let context = Clock::new();
    let node = cluster.node(owners[2]).clone();
    let written = cluster.run(put(&node, "key", "value", &context, &strict));
    assert!(written.is_err(), "{written:?}");
}

#[test]
fn a_quorum_of_the_old_list_alone_does_not_suffice() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let (owners, partition) = (cluster.owners("key"), cluster.partitions("key")[0]);
    let mut moving = ring(4);
    moving.begin_move(partition, node_id(5)).unwrap();
    cluster.learn(&cluster.state(moving));
    // Two replicas of the old list are left, and only their common one of the new list.
    cluster.cut_off(5, true);
    cluster.cut_off(owners[1], true);
    let strict = PutOptions {
        sloppy_quorum: Some(false),
        ..PutOptions::default()
    };
    let context = Clock::new();
    let node = cluster.node(owners[2]).clone();
    let written = cluster.run(put(&node, "key", "value", &context, &strict));
    assert!(written.is_err(), "{written:?}");
}

/// Puts an object with this number in `n_int`.
async fn put_indexed(
    node: &ClusterNode,
    key: &str,
    number: usize,
    context: &Clock,
    options: &PutOptions,
) {
    let number = i64::try_from(number).unwrap();
    let content = content(&BTreeSet::from([number]), &BTreeSet::new());
    let request = put_of(content, context);
    let now = node.coordinator.runtime().now();
    let address = address(key);
    let written = node.coordinator.put(&address, request, options, now);
    written.await.unwrap();
}

async fn list(node: &ClusterNode) -> Vec<String> {
    let (bucket_type, bucket) = (BucketType::default_type(), Bucket::new(b"bucket".to_vec()));
    let timeout = Duration::from_secs(30);
    let mut listing = node
        .coordinator
        .list_keys(&bucket_type, &bucket, timeout)
        .unwrap();
    let mut keys = Vec::new();
    while let Some(chunk) = listing.next().await {
        let chunk = chunk.unwrap();
        keys.extend(
            chunk
                .iter()
                .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()),
        );
    }
    keys
}

#[test]
fn listings_over_nodes_name_each_key_once_while_partitions_move() {
    let cluster = Cluster::new(&Setup {
        seed: 5,
        nodes: 5,
        owners: 4,
        ..Setup::default()
    });
    let names: BTreeSet<String> = (0..300).map(|number| format!("key{number}")).collect();
    cluster.run(async {
        let (all, context) = (
            PutOptions {
                w: Some(Quorum::All),
                ..PutOptions::default()
            },
            Clock::new(),
        );
        let mut numbered = Vec::new();
        for (number, name) in names.iter().enumerate() {
            put_indexed(cluster.node(1), name, number, &context, &all).await;
            numbered.push((number.to_string(), name.clone()));
        }
        let lister = {
            let (nodes, names) = (cluster.nodes.clone(), names.clone());
            cluster.runtime.spawn("lister", async move {
                for turn in 0..25 {
                    let mut listed = list(&nodes[turn % nodes.len()]).await;
                    listed.sort();
                    assert!(listed.iter().eq(names.iter()), "turn {turn}: {listed:?}");
                    let coordinator = &nodes[turn % nodes.len()].coordinator;
                    let all = IndexValues::Equal("_".into());
                    let found = paged(coordinator, "$bucket", &all, 70).await;
                    let found = found.iter().map(|it| &it.1);
                    assert!(found.eq(names.iter()), "turn {turn}");
                    let some = IndexValues::Range("50".into(), "249".into());
                    let found = paged(coordinator, "n_int", &some, 70).await;
                    assert!(found == numbered[50..250], "turn {turn}: {found:?}");
                }
            })
        };
        let mut present = ring(4);
        for number in [0, 4, 8, 12] {
            let partition = present.size().partition(number % RING_SIZE).unwrap();
            move_partition(&cluster, &mut present, partition, 5).await;
        }
        lister.await.unwrap();
    });
}

#[test]
fn a_listing_beneath_which_the_ring_moves_on_does_not_wait_for_each_vnode() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let (all, context) = (
        PutOptions {
            w: Some(Quorum::All),
            ..PutOptions::default()
        },
        Clock::new(),
    );
    for number in 0..100 {
        let key = format!("key{number}");
        let written = put(cluster.node(1), &key, "value", &context, &all);
        cluster.run(written).unwrap();
    }
    let (bucket_type, bucket) = (BucketType::default_type(), Bucket::new(b"bucket".to_vec()));
    let lister = &cluster.node(1).coordinator;
    let timeout = Duration::from_secs(30);
    let mut listing = lister.list_keys(&bucket_type, &bucket, timeout).unwrap();
    let mut listed = cluster.run(listing.next()).unwrap().unwrap().len();
    let mut moving = ring(4);
    for number in 0..RING_SIZE {
        let partition = moving.size().partition(number).unwrap();
        moving.begin_move(partition, node_id(5)).unwrap();
    }
    cluster.learn(&cluster.state(moving));
    let begun = cluster.runtime.now();
    while let Some(chunk) = cluster.run(listing.next()) {
        listed += chunk.unwrap().len();
    }
    assert_eq!(listed, 100);
    let waited = cluster.runtime.now().since(begun);
    assert!(waited < Duration::from_millis(100), "{waited:?}");
}

#[test]
fn a_listing_with_a_node_down_asks_the_others() {
    let cluster = Cluster::new(&Setup::default());
    cluster.run(async {
        let (all, context) = (
            PutOptions {
                w: Some(Quorum::All),
                ..PutOptions::default()
            },
            Clock::new(),
        );
        for name in ["a", "b", "c", "d", "e"] {
            put(cluster.node(1), name, "value", &context, &all)
                .await
                .unwrap();
        }
    });
    cluster.cut_off(3, true);
    let mut listed = cluster.run(list(cluster.node(1)));
    listed.sort();
    assert_eq!(listed, ["a", "b", "c", "d", "e"]);
}

#[test]
fn listings_pass_by_a_store_that_their_own_node_has_not_open() {
    let cluster = Cluster::new(&Setup::default());
    let names = ["a", "b", "c", "d", "e"];
    let (all, context) = (
        PutOptions {
            w: Some(Quorum::All),
            ..PutOptions::default()
        },
        Clock::new(),
    );
    let mut numbered = Vec::new();
    for (number, name) in names.into_iter().enumerate() {
        cluster.run(put_indexed(cluster.node(1), name, number, &context, &all));
        numbered.push((number.to_string(), name.to_owned()));
    }
    let node = cluster.node(1).clone();
    let places: Vec<Partition> = ring(4).partitions().map(|it| it.0).collect();
    for partition in places {
        node.vnodes.remove(partition);
    }
    // Replicas elsewhere have the same data; the asked replicas are drawn anew every time.
    for turn in 0..20 {
        let mut listed = cluster.run(list(&node));
        listed.sort();
        assert_eq!(listed, names, "turn {turn}");
        let found = IndexValues::Equal("_".into());
        let found = cluster.run(paged(&node.coordinator, "$bucket", &found, 2));
        assert!(found.iter().map(|it| &it.1).eq(names.iter()), "turn {turn}");
        let some = IndexValues::Range("1".into(), "3".into());
        let found = cluster.run(paged(&node.coordinator, "n_int", &some, 2));
        assert_eq!(found, numbered[1..4], "turn {turn}");
    }
}

/// A receiver that has all data, and reaches no other node. It is in the new list only.
#[test]
fn a_node_that_is_in_one_list_alone_does_not_say_that_all_nodes_are_down() {
    let cluster = Cluster::new(&Setup {
        nodes: 5,
        ..Setup::default()
    });
    let mut moving = ring(4);
    let partition = cluster.partitions("key")[0];
    moving.begin_move(partition, node_id(5)).unwrap();
    moving.close_move(partition).unwrap();
    cluster.learn(&cluster.state(moving));
    (1..=4).for_each(|other| cluster.cut_off(other, true));
    let written = |pw| {
        let options = PutOptions {
            pw,
            sloppy_quorum: Some(false),
            ..PutOptions::default()
        };
        let blind = Clock::new();
        let put = put(cluster.node(5), "key", "value", &blind, &options);
        cluster.run(put).map(drop)
    };
    let (wanted, got) = (2, 0);
    let refused = Err(RequestError::InsufficientVnodes { wanted, got });
    assert_eq!(written(None), refused);
    let refused = Err(RequestError::PrimaryWritesUnsatisfied { wanted, got });
    assert_eq!(written(Some(Quorum::Quorum)), refused);
}
