//! A partition that is pinned to one of its node's backends keeps its pin when it moves to another
//! node.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{Backend as _, Belonging, PinnedTo, StepBudget, StoreId, Timestamp};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_backend_multi::{Child, DrawNumber, FixedRoutes, MultiBackend, RouteTable};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_ring::Partition;
use kvorum_test_cluster::node_id;

use crate::cluster::{Cluster, Setup, address, simulated};

const KEYS: u64 = 400;

/// A store of several memory backends with these names; its routes put everything in the first.
fn several(names: &[&str], number: u64) -> Arc<MultiBackend> {
    let drawn = AtomicU64::new((number << 32) + 1);
    let draw: DrawNumber = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
    let child = |name: &&str| {
        let draw = draw.clone();
        Child {
            name: (*name).to_owned(),
            store: Arc::new(MemoryBackend::new(Settings::default(), move || draw())),
            erased: StoreId(0),
        }
    };
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let routes = Arc::new(FixedRoutes::new(RouteTable::to(0)));
    let opened = MultiBackend::open(
        disk,
        Path::new("several"),
        &Belonging::default(),
        names.iter().map(child).collect(),
        routes,
        draw.clone(),
        Some(Box::new(kvorum_vnode::index_entries)),
    );
    Arc::new(opened.unwrap())
}

fn pin(store: &MultiBackend, target: Option<&str>) {
    store.moves().unwrap().pin(target).unwrap();
}

fn pinned(store: &MultiBackend) -> Option<PinnedTo> {
    store.moves().unwrap().pinned()
}

fn keys_in(store: &MultiBackend, child: usize) -> u64 {
    store.children()[child].store.status().keys
}

/// Takes up to `steps` steps of upkeep.
fn upkeep(store: &MultiBackend, steps: usize) {
    let budget = StepBudget { bytes: 2_000 };
    for _ in 0..steps {
        let Some(task) = store.maintenance_due(Timestamp(1)).into_iter().next() else {
            return;
        };
        store.maintenance_step(&task, budget, Timestamp(1)).unwrap();
    }
}

/// Begins to move a partition from node 1 to node 2, each with a store of several backends.
/// `before` runs on node 1's store before the move begins.
async fn begin(
    cluster: &Arc<Cluster>,
    from: &Arc<MultiBackend>,
    to: &Arc<MultiBackend>,
    before: impl FnOnce(),
) -> Partition {
    cluster.commit();
    let (partition, _) = cluster.agreed().next_moves(1)[0];
    cluster.node(1).vnodes().replace(partition, from.clone());
    let first = cluster.node(1).running();
    for key in 0..KEYS {
        let address = address("bucket", &format!("key{key}"));
        first.put_blindly(&address, "value").await;
    }
    before();
    cluster.begin_move(partition);
    // Nothing was fetched yet when the vnode gets the other store.
    let state = cluster.agreed();
    cluster.node(2).known().learn(&state);
    cluster.node(2).vnodes().replace(partition, to.clone());
    let _spreading = cluster
        .runtime
        .spawn("spread", cluster.clone().spread_state());
    partition
}

async fn until_settled(cluster: &Cluster, partition: Partition) {
    let settles = || cluster.agreed().ring().owner(partition) == node_id(2);
    cluster.until("it settles", settles).await;
}

fn two_nodes() -> Setup {
    Setup {
        nodes: 2,
        ..Setup::default()
    }
}

fn there(name: &str) -> Option<PinnedTo> {
    Some(PinnedTo {
        name: name.to_owned(),
        is_there: true,
    })
}

#[test]
fn a_partition_in_the_middle_of_a_migration_is_in_its_backend_at_the_new_owner() {
    // The move begins before the first step, after some, and when everything has moved.
    for steps in [0, 8, usize::MAX] {
        simulated(two_nodes(), async |cluster| {
            let [from, to] = [1, 2].map(|number| several(&["bc", "ldb"], number));
            let keys = Cell::new(0);
            let migrate = || {
                keys.set(keys_in(&from, 0));
                pin(&from, Some("ldb"));
                upkeep(&from, steps);
            };
            let partition = begin(&cluster, &from, &to, migrate).await;
            until_settled(&cluster, partition).await;
            assert_eq!(pinned(&to), there("ldb"));
            // Writes from before the pin are in the backend of their route until upkeep is done.
            upkeep(&to, usize::MAX);
            assert!(keys.get() > 10, "{keys:?}");
            assert_eq!((keys_in(&to, 0), keys_in(&to, 1)), (0, keys.get()));
        });
    }
}

#[test]
fn a_node_without_the_backend_keeps_the_pin_and_goes_by_the_properties() {
    simulated(two_nodes(), async |cluster| {
        let (from, to) = (several(&["bc", "ldb"], 1), several(&["bc"], 2));
        let partition = begin(&cluster, &from, &to, || pin(&from, Some("ldb"))).await;
        until_settled(&cluster, partition).await;
        let missing = PinnedTo {
            is_there: false,
            ..there("ldb").unwrap()
        };
        assert_eq!(pinned(&to), Some(missing));
        assert!(keys_in(&to, 0) > 10);
    });
}

/// The source accepts an order until it has applied the move.
#[test]
fn an_order_during_the_transfer_counts_at_the_new_owner() {
    for (first, second) in [(Some("ldb"), None), (None, Some("ldb"))] {
        simulated(two_nodes(), async |cluster| {
            let [from, to] = [1, 2].map(|number| several(&["bc", "ldb"], number));
            let partition = begin(&cluster, &from, &to, || pin(&from, first)).await;
            let fetches = || to.status().keys > 3;
            cluster.until("it is fetched", fetches).await;
            assert_eq!(pinned(&to), first.and_then(there));
            pin(&from, second);
            until_settled(&cluster, partition).await;
            assert_eq!(pinned(&to), second.and_then(there));
            upkeep(&to, usize::MAX);
            let expected = usize::from(second.is_some());
            assert!(keys_in(&to, expected) > 10);
            assert_eq!(keys_in(&to, 1 - expected), 0);
        });
    }
}
