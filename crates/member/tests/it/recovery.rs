//! A cluster whose log has lost its majority for good.

use std::path::Path;
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_cluster::{Command, MemberStatus, StagedChange};
use kvorum_disk::{Disk as _, OpenMode, read_file};
use kvorum_encoding::StorageKey;
use kvorum_member::{JoinError, OpenError, RecoverError};

use crate::machines::{Machine, address, at, carry_out, cluster, name, simulated, until};

const KEYS: usize = 30;

fn key(number: usize) -> String {
    format!("key{number}")
}

/// True when a store of this machine has the key.
fn holds(machine: &Machine, key: &str) -> bool {
    let key = StorageKey::from_address(&address(key));
    let vnodes = machine.member().vnodes().all();
    let has = |vnode: &std::sync::Arc<kvorum_vnode::Vnode>| {
        vnode.stored_object(&key, Timestamp(0)).unwrap().is_some()
    };
    vnodes.iter().any(has)
}

#[test]
fn who_is_left_goes_on_and_the_others_that_are_left_follow() {
    simulated(81, |world| async move {
        let machines = cluster(&world, 5).await;
        let all_vote = || {
            machines[0]
                .member()
                .state()
                .agreement()
                .status()
                .voters
                .len()
                == 5
        };
        until(&world, "all vote", all_vote).await;
        for number in 0..KEYS {
            machines[0].put(&key(number), "value").await;
        }
        // The third replica of the last keys may not be written yet.
        world.runtime().sleep(Duration::from_secs(1)).await;
        let on_survivors = |number| {
            machines[..2]
                .iter()
                .any(|machine| holds(machine, &key(number)))
        };
        let held: Vec<bool> = (0..KEYS).map(on_survivors).collect();
        assert!(held.iter().filter(|it| **it).count() > KEYS / 2);
        let refused = machines[0].member().recover().await;
        assert!(
            matches!(refused, Err(RecoverError::HasMajority)),
            "{refused:?}"
        );
        let before = machines[0].state().id();
        for lost in &machines[2..] {
            lost.lose_power(&world).await;
        }
        world.runtime().sleep(Duration::from_secs(20)).await;
        let outlook = machines[0].member().recovery_outlook().await.unwrap();
        assert_eq!(outlook.reachable, [name(2)]);
        assert_eq!(outlook.lost, [name(3), name(4), name(5)]);
        assert_eq!(machines[0].state().id(), before);

        machines[0].member().recover().await.unwrap();
        machines[0].stop(&world).await;
        machines[0].start(&world).await;
        assert_ne!(machines[0].state().id(), before);
        assert_eq!(machines[0].state().members().len(), 5);
        let follows = machines[1]
            .member()
            .follow_recovered(at(1), Some(&name(1)))
            .await;
        assert_eq!(follows.unwrap().by, name(1));
        // Its stores outlive a start without a known ring.
        machines[1].lose_power(&world).await;
        machines[1].start(&world).await;
        let node = machines[1].member().node();
        let is_back = || {
            let state = machines[0].state();
            let status = state.member(node).unwrap().status;
            status == MemberStatus::Valid && *machines[1].state() == *state
        };
        until(&world, "the other one that is left is back", is_back).await;
        assert!(
            machines[1]
                .member()
                .vnodes()
                .all()
                .iter()
                .all(|it| it.is_complete())
        );

        // The lost members are refused, and receive that answer.
        machines[2].start(&world).await;
        world.runtime().sleep(Duration::from_secs(20)).await;
        let lost = machines[2].member().node();
        assert!(!machines[0].member().liveness().is_up(lost));
        assert_eq!(machines[2].state().id(), before);
        let refused = machines[0].member().follow_recovered(at(2), None).await;
        assert!(
            matches!(refused, Err(JoinError::Refused { .. })),
            "{refused:?}"
        );
        machines[2].lose_power(&world).await;

        for lost in 3..=5 {
            let state = machines[0].state();
            let (node, _) = state.member_named(&name(lost)).unwrap();
            let change = StagedChange::ForceRemove;
            machines[0].agree(Command::Stage { node, change }).await;
        }
        machines[0].commit_plan().await;
        carry_out(&world, &machines[..2]).await;
        for machine in &machines[..2] {
            let complete = || {
                let vnodes = machine.member().vnodes().all();
                vnodes.iter().all(|vnode| vnode.is_complete())
            };
            until(&world, "all is repaired", complete).await;
        }
        for (number, is_held) in held.into_iter().enumerate() {
            let found = machines[0].get(&key(number)).await;
            // A few keys had all three replicas on the three nodes that are lost.
            let wanted: &[&str] = if is_held { &["value"] } else { &[] };
            assert_eq!(found, wanted, "{}", key(number));
        }
        machines[1].put("new", "of today").await;
        assert_eq!(machines[0].get("new").await, ["of today"]);
    });
}

#[test]
fn a_recovery_whose_state_is_damaged_begins_no_new_cluster() {
    simulated(82, |world| async move {
        let machines = cluster(&world, 3).await;
        let (left, lost) = machines.split_first().unwrap();
        let (node, before) = (left.member().node(), left.state());
        for lost in lost {
            lost.lose_power(&world).await;
        }
        world.runtime().sleep(Duration::from_secs(20)).await;
        left.member().recover().await.unwrap();
        left.stop(&world).await;

        let files = ["ring/recovered", "ring/recovered.copy"].map(Path::new);
        let write = |path: &Path, bytes: &[u8]| {
            let file = left.disk.open(path, OpenMode::ReadWrite);
            file.unwrap().write_at(bytes, 40).unwrap();
        };
        let intact = files.map(|path| read_file(&left.disk, path, 1 << 20).unwrap());
        for path in files {
            write(path, b"?");
        }
        let refused = left.try_start(&world).await;
        assert!(matches!(refused, Err(OpenError::RecoveredDamaged { .. })));
        for (path, bytes) in files.into_iter().zip(intact) {
            write(path, &bytes[40..]);
        }
        left.start(&world).await;
        assert_eq!(left.member().node(), node);
        assert_ne!(left.state().id(), before.id());
        assert_eq!(left.state().members().len(), 3);
    });
}
