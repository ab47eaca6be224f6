//! How a node comes to its identity, and keeps it.

use std::path::Path;
use std::sync::Arc;

use kvorum_cluster::{
    AgreedState, ClusterId, Command, Founding, LocalState, Member as MemberEntry,
};
use kvorum_disk::{Disk, OpenMode};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_member::OpenError;
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{NodeId, RingSize};

use crate::machines::{Machine, name, simulated};

fn props(n_val: u32) -> PropertyOverlay {
    PropertyOverlay {
        n_val: Some(n_val),
        ..PropertyOverlay::default()
    }
}

fn bucket_type(name: &str) -> BucketType {
    BucketType::new(name.as_bytes().to_vec())
}

#[test]
fn a_node_founds_a_cluster_of_one_and_is_the_same_after_each_end() {
    simulated(1, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        let (node, id) = (machine.member().node(), machine.state().id());
        assert_eq!(machine.member().vnodes().all().len(), 16);
        machine.put("key", "one").await;
        machine.lose_power(&world).await;
        machine.start(&world).await;
        assert_eq!(machine.get("key").await, ["one"]);
        machine.put("key", "two").await;
        machine.stop(&world).await;
        machine.start(&world).await;
        assert_eq!(machine.get("key").await, ["two"]);
        assert_eq!((machine.member().node(), machine.state().id()), (node, id));
    });
}

#[test]
fn what_was_agreed_is_there_after_a_power_cut() {
    for seed in 0..10 {
        simulated(seed, |world| async move {
            let machine = Machine::new(1);
            machine.start(&world).await;
            machine
                .agree(Command::CreateType {
                    bucket_type: bucket_type("maps"),
                    properties: props(2),
                })
                .await;
            machine.lose_power(&world).await;
            machine.start(&world).await;
            assert!(
                machine
                    .state()
                    .bucket_types()
                    .contains_key(&bucket_type("maps"))
            );
        });
    }
}

#[test]
fn r21_a_start_may_end_anywhere_and_begin_again() {
    let operations = simulated(3, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        machine.disk.operations()
    });
    // The stores are the longest part and not this test's concern; every operation before is.
    for cut in (0..operations.min(60)).chain([operations - 1]) {
        simulated(3, |world| async move {
            let machine = Machine::new(1);
            machine.disk.cut_after(cut);
            let started = machine.try_start(&world).await;
            let is_whole = || machine.member().vnodes().readiness().is_complete();
            assert!(started.is_err() || !is_whole(), "cut at {cut}");
            let options = kvorum_disk::CrashOptions::drawn(cut);
            let mut after = Machine::new(1);
            after.disk = machine.disk.crash_image(options);
            if started.is_ok() {
                machine.lose_power(&world).await;
            }
            after.start(&world).await;
            after.put("key", "value").await;
            assert_eq!(after.get("key").await, ["value"]);
        });
    }
}

#[test]
fn the_state_of_a_single_node_of_before_is_taken_over_whole() {
    simulated(4, |world| async move {
        let machine = Machine::new(1);
        let disk: Arc<dyn Disk> = Arc::new(machine.disk.clone());
        let (node, cluster) = (NodeId::from_bytes([7; 16]), ClusterId::from_random([8; 16]));
        let founding = Founding {
            cluster_id: cluster,
            cluster_name: "test".into(),
            node,
            member: MemberEntry::new(&name(1)),
            ring_size: RingSize::new(32).unwrap(),
        };
        let before = LocalState::create(disk.clone(), Path::new("ring"), founding).unwrap();
        let bucket = Bucket::new(b"special".to_vec());
        for command in [
            Command::SetDefaultProperties(props(2)),
            Command::CreateType {
                bucket_type: bucket_type("maps"),
                properties: props(5),
            },
            Command::ActivateType {
                bucket_type: bucket_type("maps"),
            },
            Command::SetBucketProperties {
                bucket_type: BucketType::default_type(),
                bucket: bucket.clone(),
                properties: props(4),
            },
        ] {
            before.propose(command).unwrap();
        }
        let before = before.current();
        for _ in 0..2 {
            machine.start(&world).await;
            let state = machine.state();
            assert_eq!(machine.member().node(), node);
            assert_eq!((state.id(), state.name()), (cluster, "test"));
            assert_eq!(state.ring(), before.ring());
            assert_eq!(state.bucket_types(), before.bucket_types());
            let type_of_bucket = BucketType::default_type();
            let overlay = state.bucket_overlay(&type_of_bucket, &bucket);
            assert_eq!(overlay, before.bucket_overlay(&type_of_bucket, &bucket));
            assert_eq!(machine.member().vnodes().all().len(), 32);
            machine.stop(&world).await;
        }
        let still = LocalState::open(disk, Path::new("ring"), &name(1)).unwrap();
        assert_eq!(*still.state.current(), *before);
    });
}

#[test]
fn r21_a_lost_card_never_makes_a_new_node() {
    simulated(5, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        let node = machine.member().node();
        machine.stop(&world).await;
        let damage = |file: &str| {
            let file = machine.disk.open(Path::new(file), OpenMode::ReadWrite);
            file.unwrap().write_at(b"?", 40).unwrap();
        };
        damage("ring/card");
        machine.start(&world).await;
        assert_eq!(machine.member().node(), node);
        machine.stop(&world).await;
        damage("ring/card");
        damage("ring/card.copy");
        let refused = machine.try_start(&world).await;
        assert!(matches!(refused, Err(OpenError::CardDamaged { .. })));
        for file in ["ring/card", "ring/card.copy"] {
            machine.disk.remove_file(Path::new(file)).unwrap();
        }
        let refused = machine.try_start(&world).await;
        assert!(matches!(refused, Err(OpenError::CardMissing { .. })));
    });
}
