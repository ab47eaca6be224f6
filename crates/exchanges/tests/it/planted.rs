//! Planted defects are detected: an exchange reports that it is complete although replicas differ.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::cluster::{Cluster, N_VAL, NODES, key, object, settings};

/// True if some exchange was complete while replicas differ, after a while in which they may be
/// compared.
fn is_wrongly_complete(cluster: &Cluster, name: &str) -> bool {
    cluster.sleep(12);
    let owner = cluster.reports().into_iter().flat_map(|it| it.targets);
    let first = (1..=NODES).map(|it| cluster.partition(it, &key(name)).number());
    let lists: Vec<u16> = first.collect();
    let complete = owner.into_iter().filter(|it| {
        let has_all = lists
            .iter()
            .all(|number| (8 + number - it.target.partition) % 8 < u16::from(N_VAL));
        has_all && it.complete_at.is_some()
    });
    complete.count() > 0 && !cluster.are_same(name)
}

/// One replica has a key that it cannot report, since it is away.
fn with_a_replica_away() -> bool {
    let cluster = Cluster::new(settings());
    cluster.sleep(1);
    cluster.give(3, "k", &object(1, "value", None));
    cluster.set_down(3, true, false);
    is_wrongly_complete(&cluster, "k")
}

/// One replica has a key, and its tree is not built.
fn with_a_tree_that_is_built() -> bool {
    let cluster = Cluster::new(settings());
    cluster.give(3, "k", &object(1, "value", None));
    let vnode = cluster.vnode(3, &key("k"));
    let mut is_wrong = false;
    for _ in 0..40 {
        // The tree is never complete.
        vnode.drop_trees();
        cluster.runtime_sleep_millis(200);
        is_wrong |= cluster.complete_within(1_000, N_VAL) == 8 && !cluster.are_same("k");
    }
    is_wrong
}

/// One replica was overwritten, and its tree does not show it.
fn with_an_overwrite() -> bool {
    let cluster = Cluster::new(settings());
    cluster.give_all("k", &object(1, "value", None));
    cluster.sleep(10);
    cluster.give(3, "k", &object(2, "newer", None));
    is_wrongly_complete(&cluster, "k")
}

#[test]
fn an_exchange_that_is_complete_without_a_replica_is_found() {
    assert!(!with_a_replica_away());
    let _planted = plant(PlantedDefect::ExchangeShortOfReplicaComplete);
    assert!(with_a_replica_away());
}

#[test]
fn an_exchange_that_trusts_a_tree_that_is_being_built_is_found() {
    assert!(!with_a_tree_that_is_built());
    let _planted = plant(PlantedDefect::TreeTrustedWhileBuilt);
    assert!(with_a_tree_that_is_built());
}

#[test]
fn a_tree_that_an_overwrite_does_not_change_is_found() {
    assert!(!with_an_overwrite());
    let _planted = plant(PlantedDefect::TreeUnchangedByOverwrite);
    assert!(with_an_overwrite());
}
