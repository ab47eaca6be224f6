//! Stores that are missing when a node starts: a key that they lack does not pass for a key that
//! was never written.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kvorum_cluster::{Command, StagedChange};
use kvorum_coordinator::{GetOptions, RequestError};
use kvorum_disk::{Disk, EntryKind, copy_file, create_directory_durably, read_file, replace_file};
use kvorum_encoding::Address;
use kvorum_handoff::Direction;
use kvorum_member::{ACCEPT_LOST_STORES, OpenError, Unopened};
use kvorum_properties::Quorum;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::World;

use crate::machines::{
    Machine, address, at, carry_out, cluster, has_store, name, simulated, until, values,
};
use crate::stores::DiskStores;

const KEYS: usize = 40;

fn key(number: usize) -> String {
    format!("key{number}")
}

/// Removes all stores of partitions of a machine that is off, and accepts their loss.
fn wipe(machine: &Machine) {
    let directory = Path::new("stores");
    if machine.disk.info(directory).unwrap().is_some() {
        machine.disk.remove_directory(directory).unwrap();
    }
    accept_loss(machine);
}

fn accept_loss(machine: &Machine) {
    let data = Path::new("data");
    create_directory_durably(&machine.disk, data).unwrap();
    replace_file(&machine.disk, &data.join(ACCEPT_LOST_STORES), b"").unwrap();
}

/// A refused start names the place of the stores.
async fn is_refused(world: &World, machine: &Machine) {
    let refused = machine.try_start(world).await.unwrap_err();
    assert!(matches!(refused, OpenError::StoresGone { .. }), "{refused}");
    let said = refused.to_string();
    for word in [
        "is in stores",
        "put that directory back",
        ACCEPT_LOST_STORES,
    ] {
        assert!(said.contains(word), "{said}");
    }
}

/// Regression: every node created empty stores, repaired them from the empty stores of the others,
/// and answered that no key had ever been written.
#[test]
fn a_cluster_whose_stores_are_not_mounted_does_not_begin_with_empty_ones() {
    simulated(103, |world| async move {
        let machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        let (mounted, away) = (Path::new("stores"), Path::new("away"));
        for machine in &machines {
            machine.stop(&world).await;
            machine.disk.rename(mounted, away).unwrap();
        }
        for machine in &machines {
            is_refused(&world, machine).await;
            assert!(machine.disk.info(mounted).unwrap().is_none());
        }
        // The stores of another node do not count as this node's.
        copy_tree(&machines[1], away, &machines[0], mounted);
        is_refused(&world, &machines[0]).await;
        machines[0].disk.remove_directory(mounted).unwrap();
        for machine in &machines {
            machine.disk.rename(away, mounted).unwrap();
            machine.start(&world).await;
        }
        for machine in &machines {
            assert!(are_complete(machine));
            assert_eq!(check_none_absent(machine).await, 0);
        }
        // A node that really lost its stores is repaired, and a later loss is refused again.
        machines[2].stop(&world).await;
        wipe(&machines[2]);
        machines[2].start(&world).await;
        until_repaired(&world, &machines[2]).await;
        world.runtime().sleep(Duration::from_secs(10)).await;
        machines[2].stop(&world).await;
        machines[2].disk.rename(mounted, away).unwrap();
        is_refused(&world, &machines[2]).await;
    });
}

/// Regression: each node repaired its empty stores from the empty stores of the others, and
/// answered every key as never written.
#[test]
fn stores_that_are_all_lost_are_not_repaired_from_one_another_until_an_operator_gives_them_up() {
    simulated(107, |world| async move {
        let machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        for machine in &machines {
            machine.stop(&world).await;
            wipe(machine);
        }
        for machine in &machines {
            machine.start(&world).await;
        }
        world.runtime().sleep(Duration::from_secs(60)).await;
        for machine in &machines {
            let vnodes = machine.member().vnodes().all();
            assert!(vnodes.iter().all(|vnode| !vnode.is_complete()));
            assert_eq!(check_none_absent(machine).await, KEYS);
        }
        // When one node lacks nothing, even if only by its operator's acceptance, the others are
        // repaired.
        let member = machines[1].member();
        let mut given_up = 0;
        for vnode in member.vnodes().all() {
            member
                .accept_loss(vnode.partition().number())
                .await
                .unwrap();
            given_up += 1;
        }
        assert!(given_up > 0 && are_complete(&machines[1]));
        for machine in &machines {
            until_repaired(&world, machine).await;
        }
        assert_eq!(machines[0].get(&key(0)).await, Vec::<String>::new());
        world.runtime().sleep(Duration::from_secs(10)).await;
        for machine in &machines {
            machine.stop(&world).await;
            machine.start(&world).await;
            assert!(are_complete(machine));
        }
    });
}

/// Copies a directory of one machine, with all its contents, to another.
pub(crate) fn copy_tree(from: &Machine, source: &Path, to: &Machine, target: &Path) {
    create_directory_durably(&to.disk, target).unwrap();
    for entry in from.disk.list(source).unwrap() {
        let (source, target) = (source.join(&entry.name), target.join(&entry.name));
        match entry.kind {
            EntryKind::Directory => copy_tree(from, &source, to, &target),
            _ => {
                let bytes = read_file(&from.disk, &source, 1 << 30).unwrap();
                replace_file(&to.disk, &target, &bytes).unwrap();
            }
        }
    }
}

fn are_complete(machine: &Machine) -> bool {
    let vnodes = machine.member().vnodes().all();
    vnodes.iter().all(|vnode| vnode.is_complete())
}

pub(crate) async fn until_repaired(world: &World, machine: &Machine) {
    let repaired = || are_complete(machine);
    until(world, "its stores are repaired", repaired).await;
}

#[test]
fn a_node_without_its_stores_answers_no_reads_until_they_are_repaired() {
    simulated(71, |world| async move {
        let mut machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        machines[2].stop(&world).await;
        wipe(&machines[2]);
        machines[2].handoff_inbound = false;
        machines[2].start(&world).await;
        let vnodes = machines[2].member().vnodes().all();
        assert!(!vnodes.is_empty() && vnodes.iter().all(|vnode| !vnode.is_complete()));
        for number in 0..KEYS {
            for machine in &machines {
                assert_eq!(machine.get(&key(number)).await, ["value"]);
            }
        }
        // Writes before the transfer are merged with the transferred entries.
        machines[2]
            .try_put("late", "while it lacks the rest")
            .await
            .unwrap();

        machines[2]
            .member()
            .transfers()
            .enable(Direction::Inbound, true);
        assert_eq!(machines[2].gate.forgotten(), []);
        until_repaired(&world, &machines[2]).await;
        for machine in &machines {
            for number in 0..KEYS {
                assert_eq!(machine.get(&key(number)).await, ["value"]);
            }
            assert_eq!(machine.get("late").await, ["while it lacks the rest"]);
        }
        // The record is updated meanwhile, so that the next start accepts every store.
        world.runtime().sleep(Duration::from_secs(10)).await;
        // The log keeps no records of the replaced stores.
        let vnodes = machines[2].member().vnodes().all();
        let present = vnodes.iter().map(|vnode| vnode.store_id());
        let forgotten = machines[2].gate.forgotten();
        assert_eq!(forgotten, [present.collect::<BTreeSet<_>>()]);
        machines[2].stop(&world).await;
        machines[2].start(&world).await;
        assert!(are_complete(&machines[2]));
    });
}

/// All keys, as a node lists them.
async fn listed(machine: &Machine) -> Result<usize, RequestError> {
    let Address {
        bucket_type,
        bucket,
        ..
    } = address("any");
    let coordinator = machine.member().coordinator().clone();
    let mut listing = coordinator.list_keys(&bucket_type, &bucket, Duration::from_secs(5))?;
    let mut count = 0;
    while let Some(keys) = listing.next().await {
        count += keys?.len();
    }
    Ok(count)
}

/// Regression: coordinators left an incomplete node out of listings for ten seconds, even if it was
/// repaired long before. When three nodes were incomplete within that time, some keys had no
/// replica left, and listings were refused.
#[test]
fn listings_go_on_while_nodes_lose_their_stores_one_after_the_other() {
    simulated(83, |world| async move {
        let machines = cluster(&world, 5).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        for machine in &machines[1..] {
            machine.stop(&world).await;
            assert_eq!(listed(&machines[0]).await, Ok(KEYS));
            wipe(machine);
            machine.start(&world).await;
            while !are_complete(machine) {
                assert_eq!(listed(&machines[0]).await, Ok(KEYS));
                world.runtime().sleep(Duration::from_millis(20)).await;
            }
            world.runtime().sleep(Duration::from_secs(1)).await;
        }
    });
}

/// No client reads meanwhile, so no read repairs anything.
#[test]
fn r32_a_node_without_its_stores_has_every_key_again_within_a_minute_though_nobody_reads() {
    simulated(77, |world| async move {
        let machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        machines[2].stop(&world).await;
        wipe(&machines[2]);
        machines[2].start(&world).await;
        let begun = world.runtime().now();
        until_repaired(&world, &machines[2]).await;
        let took = world.runtime().now().since(begun);
        assert!(took < Duration::from_secs(60), "{took:?}");
        // Only this node answers: the others are off.
        machines[0].stop(&world).await;
        machines[1].stop(&world).await;
        let one = GetOptions {
            r: Some(Quorum::One),
            ..GetOptions::default()
        };
        let member = machines[2].member();
        let coordinator = member.coordinator();
        for number in 0..KEYS {
            let now = coordinator.runtime().now();
            let found = coordinator.get(&address(&key(number)), &one, now).await;
            assert_eq!(values(found.unwrap().as_deref()), ["value"], "{number}");
        }
    });
}

/// Exchanges the directories of two partitions of a stopped machine.
fn exchange(machine: &Machine, one: Partition, other: Partition) {
    let size = RingSize::new(machine.ring_size).unwrap();
    let [one, other] = [one, other].map(|it| DiskStores::directory(size, it));
    let between = Path::new("stores").join("between");
    for (from, to) in [(&one, &between), (&other, &one), (&between, &other)] {
        machine.disk.rename(from, to).unwrap();
    }
    machine.disk.sync_directory(Path::new("stores")).unwrap();
}

fn failed(machine: &Machine) -> Vec<(Partition, String)> {
    let unopened = machine.member().vnodes().unopened().into_iter();
    let failed = unopened.filter_map(|(partition, it)| match it {
        Unopened::Failed { error, .. } => Some((partition, error)),
        Unopened::Opening { .. } => None,
    });
    failed.collect()
}

/// Every key has its acknowledged value, or an error.
async fn check_none_absent(machine: &Machine) -> usize {
    let mut refused = 0;
    for number in 0..KEYS {
        match machine.try_get(&key(number)).await {
            Ok(found) => assert_eq!(values(found.as_deref()), ["value"], "{number}"),
            Err(_) => refused += 1,
        }
    }
    refused
}

async fn alone_with_keys(world: &World) -> Machine {
    let machine = Machine::new(1);
    machine.start(world).await;
    for number in 0..KEYS {
        machine.put(&key(number), "value").await;
    }
    machine.stop(world).await;
    machine
}

/// Regression: keys of exchanged and missing directories were answered as never written, with one
/// warning, and writes went to the wrong store.
#[test]
fn a_node_that_is_alone_refuses_exchanged_stores_until_they_are_back() {
    simulated(73, |world| async move {
        let machine = alone_with_keys(&world).await;
        let size = RingSize::new(machine.ring_size).unwrap();
        let [one, other] = [3, 9].map(|number| size.partition(number).unwrap());
        exchange(&machine, one, other);
        machine.start(&world).await;
        let refused = failed(&machine);
        let partitions: Vec<Partition> = refused.iter().map(|it| it.0).collect();
        assert_eq!(partitions, [one, other]);
        for (partition, why) in &refused {
            let directory = DiskStores::directory(size, *partition);
            assert!(why.contains(&*directory.to_string_lossy()), "{why}");
            assert!(why.contains("put back the directory"), "{why}");
            let accepted = format!("accept-loss {}", partition.number());
            assert!(why.contains(&accepted), "{why}");
        }
        assert!(check_none_absent(&machine).await > 0);
        // Directories that are put back while the node runs are opened without a restart.
        exchange(&machine, one, other);
        until(&world, "all stores are open", || {
            machine.member().vnodes().readiness().is_complete()
        })
        .await;
        assert_eq!(check_none_absent(&machine).await, 0);
        machine.put("key", "again").await;
        machine.lose_power(&world).await;
        machine.start(&world).await;
        assert_eq!(machine.get("key").await, ["again"]);
        assert_eq!(check_none_absent(&machine).await, 0);
    });
}

#[test]
fn a_node_that_is_alone_goes_on_without_its_stores_when_their_loss_is_accepted() {
    simulated(89, |world| async move {
        let machine = alone_with_keys(&world).await;
        wipe(&machine);
        machine.start(&world).await;
        let refused = failed(&machine);
        assert_eq!(refused.len(), 16);
        assert!(refused[0].1.contains("is missing"), "{}", refused[0].1);
        assert_eq!(check_none_absent(&machine).await, KEYS);
        let member = machine.member();
        for (partition, _) in refused {
            let number = partition.number();
            assert_eq!(member.accept_loss(number).await.unwrap().len(), 0);
            // No loss is left to accept.
            member.accept_loss(number).await.unwrap_err();
        }
        assert!(are_complete(&machine));
        let known = machine.gate.forgotten().pop().unwrap();
        assert_eq!(known.len(), 16, "what was given up is forgotten");
        assert_eq!(machine.get(&key(0)).await, Vec::<String>::new());
        machine.put("key", "again").await;
        machine.lose_power(&world).await;
        machine.start(&world).await;
        assert_eq!(failed(&machine), []);
        assert_eq!(machine.get("key").await, ["again"]);
    });
}

/// Regression: a copy of another partition's directory was erased as a left-over, and the log dropped the
/// entries of the partition that it was copied from.
#[test]
fn exchanged_and_copied_stores_of_a_cluster_are_set_aside_and_repaired() {
    simulated(97, |world| async move {
        let machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        let size = RingSize::new(machines[2].ring_size).unwrap();
        let held = size.partitions().filter(|it| has_store(&machines[2], *it));
        let held: Vec<Partition> = held.collect();
        machines[2].stop(&world).await;
        exchange(&machines[2], held[0], held[1]);
        let [from, to] = [held[2], held[3]].map(|it| DiskStores::directory(size, it));
        machines[2].disk.remove_directory(&to).unwrap();
        copy_directory(&machines[2], &from, &to);
        machines[2].start(&world).await;
        assert_eq!(failed(&machines[2]), []);
        let is_complete = |partition: Partition| {
            let vnode = machines[2].member().vnodes().numbered(partition.number());
            vnode.unwrap().is_complete()
        };
        assert!(is_complete(held[2]), "the one that was copied is untouched");
        until_repaired(&world, &machines[2]).await;
        let kept = machines[2].disk.list(Path::new("lost")).unwrap();
        assert_eq!(kept.len(), 3);
        for machine in &machines {
            assert_eq!(check_none_absent(machine).await, 0);
        }
        machines[2].lose_power(&world).await;
        machines[2].start(&world).await;
        until_repaired(&world, &machines[2]).await;
        assert_eq!(check_none_absent(&machines[2]).await, 0);
    });
}

/// Regression: an older copy was served as it was, since its identity is right and no check found
/// its losses.
#[test]
fn an_older_copy_of_a_store_is_repaired_from_the_replicas() {
    simulated(103, |world| async move {
        let machines = cluster(&world, 3).await;
        let size = RingSize::new(machines[2].ring_size).unwrap();
        let held: Vec<Partition> = {
            let held = size.partitions();
            held.filter(|it| has_store(&machines[2], *it)).collect()
        };
        machines[2].stop(&world).await;
        let older = |partition: Partition| Path::new("older").join(partition.index_decimal(size));
        for partition in &held {
            let from = DiskStores::directory(size, *partition);
            copy_directory(&machines[2], &from, &older(*partition));
        }
        machines[2].start(&world).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        machines[2].stop(&world).await;
        // The log of the stopped run is not needed any more.
        for partition in &held {
            let directory = DiskStores::directory(size, *partition);
            machines[2].disk.remove_directory(&directory).unwrap();
            copy_directory(&machines[2], &older(*partition), &directory);
        }
        if machines[2]
            .disk
            .info(Path::new("value_log"))
            .unwrap()
            .is_some()
        {
            let log = Path::new("value_log");
            machines[2].disk.remove_directory(log).unwrap();
        }
        machines[2].start(&world).await;
        until_repaired(&world, &machines[2]).await;
        machines[0].stop(&world).await;
        machines[1].stop(&world).await;
        let one = GetOptions {
            r: Some(Quorum::One),
            ..GetOptions::default()
        };
        let member = machines[2].member();
        for number in 0..KEYS {
            let now = member.coordinator().runtime().now();
            let address = address(&key(number));
            let found = member.coordinator().get(&address, &one, now);
            assert_eq!(
                values(found.await.unwrap().as_deref()),
                ["value"],
                "{number}"
            );
        }
    });
}

fn copy_directory(machine: &Machine, from: &Path, to: &Path) {
    create_directory_durably(&machine.disk, to).unwrap();
    for entry in machine.disk.list(from).unwrap() {
        if entry.kind == EntryKind::File && entry.name != "lock" {
            copy_file(
                &machine.disk,
                &from.join(&entry.name),
                &to.join(&entry.name),
            )
            .unwrap();
        }
    }
    machine.disk.sync_directory(to).unwrap();
}

/// Regression: a copy of another node's record was accepted because it was newer, and the stores that
/// it does not name were removed.
#[test]
fn a_copy_of_another_nodes_small_files_counts_as_damaged() {
    simulated(101, |world| async move {
        let machines = cluster(&world, 3).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        machines[1].stop(&world).await;
        machines[2].stop(&world).await;
        let node = |machine: &Machine| read_file(&machine.disk, Path::new("ring/card"), 1 << 20);
        let before = node(&machines[2]).unwrap();
        for name in ["card", "stores"] {
            let theirs = Path::new("ring").join(name);
            let theirs = read_file(&machines[1].disk, &theirs, 1 << 20).unwrap();
            let copy = Path::new("ring").join(format!("{name}.copy"));
            replace_file(&machines[2].disk, &copy, &theirs).unwrap();
        }
        machines[1].start(&world).await;
        machines[2].start(&world).await;
        assert_eq!(node(&machines[2]).unwrap(), before);
        assert!(are_complete(&machines[2]));
        for machine in &machines {
            assert_eq!(check_none_absent(machine).await, 0);
        }
    });
}

/// The source is removed for good while the receiver is off. The receiver then starts with a ring
/// in which it owns the partition, and with a partly filled store.
#[test]
fn a_partition_that_was_half_here_when_its_source_was_lost_is_repaired_first() {
    simulated(79, |world| async move {
        let mut machines = cluster(&world, 4).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        let mut fifth = Machine::new(5);
        fifth.handoff_inbound = false;
        fifth.start(&world).await;
        fifth.member().join(at(1), Some(&name(1))).await.unwrap();
        machines.push(fifth);
        machines[0].commit_plan().await;
        let receiver = machines[4].member().node();
        let filling = || -> Vec<Partition> {
            let state = machines[0].state();
            let moves = state.ring().moves().iter();
            let here = moves.filter(|(_, moving)| moving.to == receiver);
            here.map(|(partition, _)| *partition).collect()
        };
        until(&world, "stores are there to be filled", || {
            let filling = filling();
            !filling.is_empty() && filling.iter().all(|it| has_store(&machines[4], *it))
        })
        .await;
        let filling = filling();
        machines[4].lose_power(&world).await;
        let lost = machines[0].state().ring().owner(filling[0]);
        let is_lost = |machine: &&Machine| machine.member().node() == lost;
        let place = machines[..4].iter().position(|it| is_lost(&it)).unwrap();
        machines[place].lose_power(&world).await;
        let left: Vec<&Machine> = machines[..4]
            .iter()
            .filter(|it| it.number != machines[place].number)
            .collect();
        until(&world, "a node leads", || {
            let leader = left[0].member().state().agreement().status().leader;
            leader.is_some_and(|leader| leader != lost && leader != receiver)
        })
        .await;
        let (node, change) = (lost, StagedChange::ForceRemove);
        left[0].agree(Command::Stage { node, change }).await;
        left[0].commit_plan().await;
        let seized = filling[0];
        assert_eq!(left[0].state().ring().owner(seized), receiver);

        machines[4].start(&world).await;
        let knows = || machines[4].state().ring().owner(seized) == receiver;
        until(&world, "it knows what it owns", knows).await;
        // The findings of that run ended with the process.
        world.runtime().sleep(Duration::from_secs(1)).await;
        machines[4].lose_power(&world).await;
        machines[4].start(&world).await;
        until(&world, "it knows what it owns", knows).await;
        let vnode = machines[4].member().vnodes().numbered(seized.number());
        assert!(!vnode.unwrap().is_complete());
        machines[4]
            .member()
            .transfers()
            .enable(Direction::Inbound, true);
        let others: Vec<Machine> = machines
            .into_iter()
            .enumerate()
            .filter(|(at, _)| *at != place)
            .map(|(_, machine)| machine)
            .collect();
        carry_out(&world, &others).await;
        for machine in &others {
            until_repaired(&world, machine).await;
            for number in 0..KEYS {
                assert_eq!(machine.get(&key(number)).await, ["value"]);
            }
        }
    });
}
