//! Tombstones go from all replicas of a cluster, and nothing that they deleted comes back.

use std::path::Path;
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_coordinator::DeleteOptions;
use kvorum_disk::Disk as _;
use kvorum_encoding::StorageKey;
use kvorum_exchanges::{KeyPlaces, ListTombstones, RoundsReport, Stay};
use kvorum_reaping::ListName;
use kvorum_runtime::World;
use kvorum_vnode::TreePlacing as _;

use crate::lost_stores::{copy_tree, until_repaired};
use crate::machines::{Machine, address, cluster_of, cut, simulated, until};

const KEYS: usize = 60;

fn key(number: usize) -> String {
    format!("key{number}")
}

fn stored_key(key: &str) -> StorageKey {
    StorageKey::from_address(&address(key))
}

async fn reaping_cluster(world: &World) -> Vec<Machine> {
    let machine = |number| {
        let mut machine = Machine::new(number);
        machine.is_reaping = true;
        machine
    };
    cluster_of(world, (1..=3).map(machine).collect()).await
}

/// Deletes a key through a machine.
async fn delete(machine: &Machine, key: &str) {
    let member = machine.member();
    let coordinator = member.coordinator();
    let now = coordinator.runtime().now();
    let options = DeleteOptions::default();
    let address = address(key);
    let deleted = coordinator.delete(&address, None, &options, now);
    deleted.await.unwrap();
}

/// Copies of a key in the vnodes of a machine: how many are tombstones, and how many are not.
fn copies(machine: &Machine, key: &str) -> (usize, usize) {
    let mut counts = (0, 0);
    for vnode in machine.member().vnodes().all() {
        let stored = vnode.stored_object(&stored_key(key), Timestamp(0));
        let Some(object) = stored.unwrap().map(|it| it.decode().unwrap()) else {
            continue;
        };
        match object.is_tombstone() {
            true => counts.0 += 1,
            false => counts.1 += 1,
        }
    }
    counts
}

/// Copies of a key over all machines.
fn all_copies(machines: &[Machine], key: &str) -> (usize, usize) {
    let all = machines.iter().map(|it| copies(it, key));
    all.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

/// Keys whose lists may have rounds.
fn with_rounds(machines: &[Machine]) -> Vec<String> {
    let state = machines[0].state();
    let places = KeyPlaces::new(std::sync::Arc::new(machines[0].member().state().clone()));
    let may = |key: &String| {
        let tree = places.tree_of(&stored_key(key)).unwrap();
        let list = ListName {
            partition: tree.owner.number(),
            n_val: tree.n_val,
        };
        state.may_announce(list).is_ok()
    };
    (0..KEYS).map(key).filter(may).collect()
}

fn rounds(machine: &Machine) -> RoundsReport {
    machine.member().exchanges().unwrap().report().rounds
}

async fn until_gone(world: &World, machines: &[Machine], keys: &[String]) {
    let gone = || keys.iter().all(|it| all_copies(machines, it) == (0, 0));
    until(world, "the tombstones are gone from all replicas", gone).await;
}

async fn sleep(world: &World, seconds: u64) {
    world.runtime().sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn tombstones_go_from_all_three_replicas_and_what_lives_stays() {
    simulated(301, |world| async move {
        let machines = reaping_cluster(&world).await;
        let keys = with_rounds(&machines);
        assert!(
            keys.len() > KEYS / 2,
            "few lists have rounds: {}",
            keys.len()
        );
        for key in &keys {
            machines[0].put(key, "value").await;
        }
        let (deleted, kept) = keys.split_at(keys.len() / 2);
        for (number, key) in deleted.iter().enumerate() {
            delete(&machines[number % 3], key).await;
        }
        until_gone(&world, &machines, deleted).await;
        for key in kept {
            assert_eq!(all_copies(&machines, key), (0, 3), "{key}");
            assert_eq!(machines[1].get(key).await, ["value"]);
        }
        // A key that was deleted may be written again, and deleted again.
        for key in deleted {
            machines[1].put(key, "again").await;
            assert_eq!(machines[2].get(key).await, ["again"], "{key}");
        }
        sleep(&world, 20).await;
        for key in deleted {
            assert_eq!(all_copies(&machines, key), (0, 3), "{key}");
            delete(&machines[0], key).await;
        }
        until_gone(&world, &machines, deleted).await;
    });
}

#[test]
fn tombstones_stay_while_a_member_is_away_and_go_when_it_is_back() {
    simulated(302, |world| async move {
        let machines = reaping_cluster(&world).await;
        let keys = with_rounds(&machines);
        for key in &keys {
            machines[0].put(key, "value").await;
        }
        cut(&world, &[3], &[1, 2], true);
        sleep(&world, 20).await;
        for key in &keys {
            delete(&machines[0], key).await;
        }
        sleep(&world, 40).await;
        for key in &keys {
            let there = all_copies(&machines[..2], key);
            assert_eq!(there, (2, 0), "{key} has lost tombstones");
            assert_eq!(copies(&machines[2], key), (0, 1), "{key}");
        }
        let away = Stay::MembersDown(vec![machines[2].member().node()]);
        for machine in &machines[..2] {
            let lists = rounds(machine).lists;
            let names_it = |it: &ListTombstones| it.stay.as_ref() == Some(&away);
            assert!(lists.iter().any(names_it), "{lists:?}");
            // Lists of which no round may be announced have that reason.
            let is_kept = |it: &ListTombstones| matches!(it.stay, Some(Stay::Kept { .. }));
            assert!(!lists.iter().any(is_kept), "{lists:?}");
        }
        cut(&world, &[3], &[1, 2], false);
        until_gone(&world, &machines, &keys).await;
        sleep(&world, 20).await;
        for key in &keys {
            assert_eq!(all_copies(&machines, key), (0, 0), "{key} is back");
        }
        let reaped: u64 = machines.iter().map(|it| rounds(it).reaped).sum();
        assert!(reaped >= keys.len() as u64, "{reaped} were counted");
        let names_any = |it: &Machine| {
            let lists = rounds(it).lists;
            let is_away = |it: &ListTombstones| it.stay.as_ref() == Some(&away);
            lists.iter().any(is_away)
        };
        assert!(!machines.iter().any(names_any), "it is up again");
    });
}

#[test]
fn stores_that_were_put_back_to_a_time_before_the_round_bring_nothing_back() {
    simulated(303, |world| async move {
        let machines = reaping_cluster(&world).await;
        let keys = with_rounds(&machines);
        for key in &keys {
            machines[0].put(key, "value").await;
        }
        sleep(&world, 10).await;
        let (stores, older) = (Path::new("stores"), Path::new("older"));
        machines[2].stop(&world).await;
        copy_tree(&machines[2], stores, &machines[2], older);
        machines[2].start(&world).await;
        let (deleted, kept) = keys.split_at(keys.len() / 2);
        for key in deleted {
            delete(&machines[0], key).await;
        }
        until_gone(&world, &machines, deleted).await;
        machines[2].stop(&world).await;
        machines[2].disk.remove_directory(stores).unwrap();
        machines[2].disk.rename(older, stores).unwrap();
        machines[2].start(&world).await;
        until_repaired(&world, &machines[2]).await;
        sleep(&world, 40).await;
        for key in deleted {
            assert_eq!(all_copies(&machines, key).1, 0, "{key} is back");
            assert!(machines[2].get(key).await.is_empty(), "{key}");
        }
        for key in kept {
            assert_eq!(all_copies(&machines, key), (0, 3), "{key}");
        }
    });
}

#[test]
fn a_node_that_starts_alone_serves_once_a_majority_is_up() {
    simulated(304, |world| async move {
        let machines = reaping_cluster(&world).await;
        machines[0].put("key0", "value").await;
        for machine in &machines {
            machine.lose_power(&world).await;
        }
        machines[0].begin(&world).await.unwrap();
        sleep(&world, 30).await;
        // It could have been put back to a time before a watermark that the others know.
        assert!(open_vnodes(&machines[0]) == 0 && machines[0].member().hints().is_closed());
        machines[1].begin(&world).await.unwrap();
        let serves = || open_vnodes(&machines[0]) > 0 && !machines[0].member().hints().is_closed();
        until(&world, "the first node serves", serves).await;
        let read = || open_vnodes(&machines[1]) > 0;
        until(&world, "the second node serves", read).await;
        assert_eq!(machines[0].get("key0").await, ["value"]);
    });
}

#[test]
fn a_node_that_starts_alone_for_good_serves_after_a_recovery() {
    simulated(306, |world| async move {
        let machines = reaping_cluster(&world).await;
        machines[0].put("key0", "value").await;
        for machine in &machines {
            machine.lose_power(&world).await;
        }
        machines[0].begin(&world).await.unwrap();
        sleep(&world, 20).await;
        assert_eq!(open_vnodes(&machines[0]), 0);
        machines[0].member().recover().await.unwrap();
        machines[0].stop(&world).await;
        machines[0].start(&world).await;
        assert!(open_vnodes(&machines[0]) > 0);
    });
}

#[test]
fn a_node_without_rounds_serves_alone() {
    simulated(305, |world| async move {
        let machines = cluster_of(&world, (1..=3).map(Machine::new).collect()).await;
        for machine in &machines {
            machine.lose_power(&world).await;
        }
        machines[0].start(&world).await;
        let serves = || open_vnodes(&machines[0]) > 0;
        until(&world, "it serves", serves).await;
        assert!(!machines[0].member().hints().is_closed());
    });
}

fn open_vnodes(machine: &Machine) -> usize {
    machine.member().vnodes().readiness().open
}
