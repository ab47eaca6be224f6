//! The origin of a node's identity, and its persistence.

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
    // This test covers every operation before the stores are opened; the stores take longest.
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
                bucket,
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
            assert!(state.bucket_overlays().eq(before.bucket_overlays()));
            assert_eq!(before.bucket_overlays().count(), 1);
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

/// Regression: a new cluster was founded over the stores of the old one. Types and properties were gone, and
/// keys of types were answered with "no such type".
#[test]
fn r21_no_cluster_is_founded_where_something_is_left_of_a_node() {
    simulated(6, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        machine.stop(&world).await;
        let disk = &machine.disk;
        let card = ["ring/card", "ring/card.copy"];
        // Everything but the log, then the log, then any remaining file.
        for gone in ["", "ring/log-1", "ring", "data/agreed_log-1.end"] {
            for file in card.iter().filter(|it| {
                let there = disk.info(Path::new(it)).unwrap();
                there.is_some()
            }) {
                disk.remove_file(Path::new(file)).unwrap();
            }
            let path = Path::new(gone);
            if !gone.is_empty() && gone.starts_with("ring") {
                disk.remove_directory(path).unwrap();
            } else if !gone.is_empty() {
                disk.remove_file(path).unwrap();
            }
            let refused = machine.try_start(&world).await.unwrap_err();
            let text = refused.to_string();
            let is_refused = matches!(
                refused,
                OpenError::CardMissing { .. } | OpenError::RingGone { .. }
            );
            assert!(is_refused, "without {gone}: {text}");
            assert!(text.contains("from a backup"), "{text}");
            assert!(
                !disk
                    .list(Path::new("ring"))
                    .unwrap()
                    .iter()
                    .any(|it| it.name == "card")
            );
        }
        // A store alone is enough evidence.
        disk.remove_file(Path::new("data/dot_leases")).unwrap();
        let process = world.start_process(kvorum_test_cluster::machine(1));
        let mut parts = machine.parts(process.runtime(), Vec::new());
        parts.remnant = Some("stores/0".into());
        let refused = kvorum_member::Member::open(parts).await.err().unwrap();
        assert!(refused.to_string().contains("stores/0"), "{refused}");
        process.kill();
        // Without any remnant, the node is a new one.
        machine.start(&world).await;
    });
}

/// Regression: the copy with the higher sequence counted, and the node took another one's identity.
#[test]
fn r21_one_copy_of_another_nodes_card_or_record_changes_nothing() {
    simulated(7, |world| async move {
        let (machine, other) = (Machine::new(1), Machine::new(2));
        machine.start(&world).await;
        machine.put("key", "value").await;
        let node = machine.member().node();
        machine.stop(&world).await;
        for _ in 0..3 {
            other.start(&world).await;
            other.stop(&world).await;
        }
        let bytes = |disk: &kvorum_disk::MemoryDisk, file: &str| {
            kvorum_disk::read_file(disk, Path::new(file), 1 << 20).unwrap()
        };
        for name in ["card", "stores", "generation"] {
            let foreign = bytes(&other.disk, &format!("ring/{name}"));
            for file in [format!("ring/{name}"), format!("ring/{name}.copy")] {
                kvorum_disk::replace_file(&machine.disk, Path::new(&file), &foreign).unwrap();
                let found = kvorum_member::check::check_ring(
                    &machine.disk,
                    Path::new("ring"),
                    Path::new("data"),
                    false,
                );
                assert!(!found.is_empty(), "{file}");
                machine.start(&world).await;
                assert_eq!(machine.member().node(), node, "{file}");
                assert_eq!(machine.get("key").await, ["value"], "{file}");
                machine.stop(&world).await;
            }
        }
        let found = kvorum_member::check::check_ring(
            &machine.disk,
            Path::new("ring"),
            Path::new("data"),
            false,
        );
        assert_eq!(found, []);
        let foreign = bytes(&other.disk, "ring/card");
        for file in ["ring/card", "ring/card.copy"] {
            kvorum_disk::replace_file(&machine.disk, Path::new(file), &foreign).unwrap();
        }
        assert!(machine.try_start(&world).await.is_err());
    });
}

/// Regression: agreed state from before a clean stop was silently lost.
#[test]
fn r21_what_was_agreed_is_never_silently_gone_with_the_end_of_the_log_or_an_older_copy() {
    simulated(8, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        let disk = machine.disk.clone();
        let log = Path::new("ring/log-1/log");
        let read = |path: &Path| kvorum_disk::read_file(&disk, path, 1 << 20).unwrap();
        let older = read(log);
        machine
            .agree(Command::CreateType {
                bucket_type: bucket_type("maps"),
                properties: props(2),
            })
            .await;
        machine.stop(&world).await;
        let whole = read(log);
        let cuts = (1..8).map(|part| whole[..whole.len() * part / 8].to_vec());
        let last = [whole[..whole.len() - 1].to_vec(), older];
        for bytes in cuts.chain(last) {
            kvorum_disk::replace_file(&disk, log, &bytes).unwrap();
            let found = kvorum_member::check::check_ring(
                &disk,
                Path::new("ring"),
                Path::new("data"),
                false,
            );
            assert!(found.iter().any(|(file, _)| file == log), "{found:?}");
            let refused = machine.try_start(&world).await.unwrap_err().to_string();
            assert!(refused.contains("ring/log-1/log"), "{refused}");
        }
        kvorum_disk::replace_file(&disk, log, &whole).unwrap();
        // The whole directory is an older copy: the second mark shows it.
        let directory = Path::new("ring/log-1");
        let copy: Vec<_> = disk
            .list(directory)
            .unwrap()
            .into_iter()
            .map(|it| {
                let path = directory.join(it.name);
                let bytes = read(&path);
                (path, bytes)
            })
            .collect();
        machine.start(&world).await;
        machine
            .agree(Command::ActivateType {
                bucket_type: bucket_type("maps"),
            })
            .await;
        machine.lose_power(&world).await;
        for (path, bytes) in &copy {
            kvorum_disk::replace_file(&disk, path, bytes).unwrap();
        }
        let refused = machine.try_start(&world).await.unwrap_err().to_string();
        assert!(refused.contains("data/agreed_log-1.end"), "{refused}");
        for mark in ["ring/log-1/end", "data/agreed_log-1.end"] {
            disk.remove_file(Path::new(mark)).unwrap();
        }
        machine.start(&world).await;
        assert!(
            machine
                .state()
                .bucket_types()
                .contains_key(&bucket_type("maps"))
        );
    });
}
