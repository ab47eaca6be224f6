//! Differences are mended without a read, and nothing else changes.

use std::time::Duration;

use kvorum_exchanges::ExchangeSettings;
use kvorum_properties::PropertyOverlay;

use crate::cluster::{Cluster, N_VAL, NODES, indexed_object, object, settings};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("k{number}")).collect()
}

#[test]
fn replicas_without_differences_are_complete_and_nothing_is_repaired() {
    let cluster = Cluster::new(settings());
    for name in names(40) {
        cluster.give_all(&name, &object(1, &name, None));
    }
    cluster.converge();
    assert_eq!(cluster.keys_repaired(), 0);
    for report in cluster.reports() {
        assert!(
            report
                .trees
                .iter()
                .all(|it| it.trees.is_built && it.built_at_micros.is_some())
        );
        let keys: u64 = report.trees.iter().map(|it| it.trees.keys).sum();
        assert_eq!(keys, 40);
        assert_eq!(report.repairs_failed, 0);
    }
    let compared: Vec<_> = cluster
        .nodes
        .iter()
        .map(|it| it.exchanges.compared())
        .collect();
    assert!(compared.iter().any(|it| it.roots > 0), "{compared:?}");
}

#[test]
fn r32_a_wiped_node_has_every_key_again_without_a_read() {
    let cluster = Cluster::new(settings());
    let names = names(200);
    for name in &names {
        cluster.give_all(name, &object(1, name, None));
    }
    cluster.converge();
    cluster.wipe(2);
    assert!(names.iter().all(|name| cluster.stored(2, name).is_none()));
    cluster.converge();
    for name in &names {
        assert!(
            cluster.stored(2, name).is_some() && cluster.are_same(name),
            "{name}"
        );
    }
    assert_eq!(cluster.keys_repaired(), 200);
    for (node, report) in cluster.nodes.iter().zip(cluster.reports()) {
        assert_eq!(node.exchanges.compared().all(), report.exchanges);
    }
    let is_by_keys = cluster
        .nodes
        .iter()
        .any(|it| it.exchanges.compared().keys > 0);
    assert!(is_by_keys, "keys were compared before they were mended");
}

#[test]
fn lost_writes_and_older_copies_are_mended_wherever_they_are() {
    let cluster = Cluster::new(settings());
    let names = names(60);
    for (number, name) in (0..).zip(&names) {
        cluster.give_all(name, &object(1, name, None));
        if number % 10 < NODES {
            cluster.give(number % 10 + 1, name, &object(2, "newer", None));
        }
    }
    cluster.converge();
    for (number, name) in (0..).zip(&names) {
        assert!(cluster.are_same(name), "{name}");
        let stored = cluster.stored(1, name).unwrap();
        let value = &stored.siblings()[0].value;
        assert_eq!(&value[..] == b"newer", number % 10 < NODES, "{name}");
    }
    assert_eq!(cluster.keys_repaired(), 6 * u64::from(NODES));
}

#[test]
fn a_node_that_is_down_is_left_out_and_nothing_is_complete_until_it_is_back() {
    let cluster = Cluster::new(settings());
    cluster.give(1, "k", &object(1, "value", None));
    cluster.set_down(3, true, true);
    cluster.sleep(20);
    assert!(cluster.stored(2, "k").is_some());
    assert!(cluster.stored(3, "k").is_none());
    assert_eq!(cluster.complete_within(20, N_VAL), 0);
    cluster.set_down(3, false, true);
    cluster.converge();
    assert!(cluster.stored(3, "k").is_some());
}

#[test]
fn r15_trees_converge_while_objects_expire_and_nothing_expired_is_repaired() {
    let cluster = Cluster::new(settings());
    let names = names(30);
    let soon = cluster.wall_micros() + 3_000_000;
    for (number, name) in (0..).zip(&names) {
        let expiring = object(1, name, Some(soon));
        match number % 3 {
            0 => cluster.give_all(name, &expiring),
            1 => cluster.give(1, name, &expiring),
            _ => cluster.give_all(name, &object(1, name, None)),
        }
    }
    // Now some replicas have objects that others lack, and all these objects have expired.
    cluster.set_down(1, true, false);
    cluster.sleep(5);
    cluster.set_down(1, false, false);
    cluster.converge();
    assert_eq!(cluster.keys_repaired(), 0);
    for (number, name) in (0..).zip(&names) {
        let is_alive = cluster.stored(2, name).is_some();
        assert_eq!(is_alive, number % 3 == 2, "{name}");
        assert!(cluster.are_same(name), "{name}");
    }
}

/// An entry that a store lost undetected stays in its tree until the tree is built again.
#[test]
fn r31_what_a_store_lost_behind_its_tree_comes_back_when_trees_are_built_again() {
    let cluster = Cluster::new(ExchangeSettings {
        rebuild_wait: Duration::from_secs(60),
        ..settings()
    });
    for name in names(10) {
        cluster.give_all(&name, &object(1, &name, None));
    }
    cluster.converge();
    cluster.lose(2, "k4");
    cluster.converge();
    assert!(cluster.stored(2, "k4").is_none());
    cluster.sleep(120);
    assert!(cluster.are_same("k4") && cluster.stored(2, "k4").is_some());
    assert_eq!(cluster.keys_repaired(), 1);
}

#[test]
fn index_entries_come_back_with_the_objects_that_a_store_has_lost() {
    let cluster = Cluster::new(ExchangeSettings {
        rebuild_wait: Duration::from_secs(60),
        ..settings()
    });
    for name in names(10) {
        cluster.give_all(&name, &indexed_object(1, &name, "red"));
    }
    cluster.converge();
    cluster.lose(2, "k4");
    assert!(!cluster.is_indexed(2, "k4") && cluster.is_indexed(1, "k4"));
    cluster.sleep(120);
    assert!(cluster.are_same("k4") && cluster.stored(2, "k4").is_some());
    assert!((1..=NODES).all(|number| cluster.is_indexed(number, "k4")));
}

/// A wrong tree differs from the others although no key does: its leaf is corrected, and nothing is
/// repaired.
#[test]
fn r31_leaves_that_are_wrong_are_put_right_and_cost_no_repair() {
    let cluster = Cluster::new(settings());
    for name in names(10) {
        cluster.give_all(&name, &object(1, &name, None));
    }
    cluster.converge();
    // All replicas lose a key, and one gets it again: the key is in its tree twice.
    (1..=NODES).for_each(|number| cluster.lose(number, "k4"));
    cluster.give(2, "k4", &object(1, "k4", None));
    cluster.lose(2, "k4");
    cluster.converge();
    assert_eq!(cluster.keys_repaired(), 0);
    let corrected = cluster.reports().into_iter().flat_map(|it| it.trees);
    let corrected: u64 = corrected.map(|it| it.trees.leaves_corrected).sum();
    assert!(corrected > 0);
}

#[test]
fn trees_follow_a_change_of_n_val() {
    let mut cluster = Cluster::new(settings());
    for name in names(20) {
        cluster.give_all(&name, &object(1, &name, None));
    }
    cluster.converge();
    cluster.change_properties(PropertyOverlay {
        n_val: Some(2),
        ..PropertyOverlay::default()
    });
    cluster.sleep(20);
    assert_eq!(cluster.complete_within(10, 2), 8);
    for report in cluster.reports() {
        assert!(report.targets.iter().all(|it| it.target.n == 2));
        assert!(
            report
                .trees
                .iter()
                .all(|it| it.trees.is_built && it.trees.builds == 2)
        );
    }
}

#[test]
fn disabled_exchanges_end_at_once_and_mend_nothing_until_they_are_enabled() {
    let cluster = Cluster::new(settings());
    cluster.converge();
    for node in &cluster.nodes {
        node.exchanges.set_enabled(false);
    }
    cluster.give(1, "k", &object(1, "value", None));
    cluster.sleep(1);
    let ended: Vec<u64> = cluster.reports().iter().map(|it| it.exchanges).collect();
    cluster.sleep(30);
    let later: Vec<u64> = cluster.reports().iter().map(|it| it.exchanges).collect();
    assert_eq!(ended, later);
    assert!(cluster.stored(2, "k").is_none());
    assert!(cluster.reports().iter().all(|it| !it.is_enabled));
    for node in &cluster.nodes {
        node.exchanges.set_enabled(true);
    }
    cluster.converge();
    assert!(cluster.are_same("k") && cluster.stored(2, "k").is_some());
}

#[test]
fn repairs_keep_to_their_pace() {
    let cluster = Cluster::new(ExchangeSettings {
        repairs_per_second: 3,
        ..settings()
    });
    for name in names(200) {
        cluster.give(1, &name, &object(1, &name, None));
    }
    cluster.sleep(10);
    let present = names(200)
        .iter()
        .filter(|it| cluster.stored(3, it).is_some())
        .count();
    // Each of four nodes mends three keys a second, and sixteen at first.
    assert!((20..=4 * (10 * 3 + 16)).contains(&present), "{present}");
}
