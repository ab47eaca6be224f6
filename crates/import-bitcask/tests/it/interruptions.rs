//! Servers that become unreachable, full disks, and resumed imports.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_import_bitcask::ImportError;

use crate::basho::{CaskFile, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: usize = 3000;

fn assert_complete(world: &World) {
    for number in 0..KEYS {
        assert_eq!(world.values("b", &number.to_string()), [number.to_string()]);
    }
}

#[test]
fn an_import_goes_on_where_the_server_left_it() {
    let world = World::new();
    world.fill(KEYS);
    world.server.store.lock().overload_after = Some(2000);
    let error = world.import().unwrap_err();
    assert!(matches!(&error, ImportError::Unavailable { reason } if reason == "overload"));
    world.server.store.lock().overload_after = None;
    let summary = world.import().unwrap();
    assert_complete(&world);
    let counts = summary.counts;
    assert_eq!((counts.keys, counts.objects), (KEYS as u64, KEYS as u64));
    assert_eq!(counts.equal_copies, 2 * KEYS as u64);
    // Completely acknowledged batches are not put again.
    let again = world.server.store.lock().puts - KEYS;
    assert!(again <= 1024, "{again} objects put again");
    // A finished import does nothing more.
    let puts = world.server.store.lock().puts;
    assert_eq!(world.import().unwrap().counts, counts);
    assert_eq!(world.server.store.lock().puts, puts);
}

#[test]
fn connections_that_break_are_made_anew() {
    let world = World::new();
    world.fill(KEYS);
    world.server.store.lock().close_every = Some(97);
    assert!(world.import().unwrap().is_whole());
    assert_complete(&world);
}

#[test]
fn a_refused_object_is_named_and_the_others_arrive() {
    let world = World::new();
    world.fill(KEYS);
    world.server.store.lock().refused_key = Some("77");
    let summary = world.import().unwrap();
    assert_eq!(
        (summary.counts.refused, summary.counts.objects),
        (1, KEYS as u64 - 1)
    );
    let finding = &summary.first_findings[0];
    assert_eq!(finding.object.as_deref(), Some("default/b/77"));
    assert!(finding.reason.contains("too_large"), "{finding:?}");
}

#[test]
fn a_disk_that_fills_up_during_the_survey_is_no_end() {
    let faulty = Arc::new(FaultyDisk::new(Arc::new(MemoryDisk::new())));
    let world = World::over(faulty.clone());
    world.fill(KEYS);
    for file in ["index", "state.json.tmp"] {
        for after in [0, 1, 2] {
            let rule = Rule::new(Fault::Error(ErrorKind::NoSpace))
                .on(Operation::Write)
                .path_contains(file)
                .from_nth(after + 1);
            let id = faulty.add_rule(rule);
            let imported = world.import();
            faulty.remove_rule(id);
            if let Err(error) = imported {
                assert!(matches!(error, ImportError::Disk(_)), "{error}");
            }
        }
    }
    let summary = world.import().unwrap();
    assert_complete(&world);
    assert_eq!(summary.counts.records, 3 * KEYS as u64);
}

#[test]
fn a_damaged_state_or_index_is_refused_and_a_new_start_helps() {
    let mut world = World::new();
    world.fill(KEYS);
    world.server.store.lock().overload_after = Some(10);
    world.import().unwrap_err();
    let state =
        kvorum_disk::read_file(&*world.disk, Path::new("state/state.json"), 1 << 20).unwrap();
    let mut flipped = state.clone();
    flipped[40] ^= 1;
    world.write("state/state.json", &flipped);
    assert!(matches!(
        world.import(),
        Err(ImportError::StateDamaged { what: "state", .. })
    ));
    world.write("state/state.json", &state);
    world.write("state/index/0000.index", b"short");
    assert!(matches!(
        world.import(),
        Err(ImportError::StateDamaged { what: "index", .. })
    ));
    world.server.store.lock().overload_after = None;
    world.options.shared.restart = true;
    world.import().unwrap();
    assert_complete(&world);
}

#[test]
fn another_source_or_target_is_not_mistaken_for_the_interrupted_import() {
    let mut world = World::new();
    world.fill(KEYS);
    world.import().unwrap();
    let target = world.options.shared.target.clone();
    if let Some(target) = &mut world.options.shared.target {
        target.name = "another server".to_owned();
    }
    assert!(matches!(
        world.import(),
        Err(ImportError::OtherImport { .. })
    ));
    world.options.shared.target = target;
    let mut more = CaskFile::default();
    more.put(&key("b", "more"), &object_v1(&[("a", 1)], &[plain("more")]));
    world.data(0, 2, &more);
    assert!(matches!(
        world.import(),
        Err(ImportError::OtherImport { .. })
    ));
}

#[test]
fn a_device_that_cannot_read_a_file_costs_that_file_alone() {
    for (has_hints, nth) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let faulty = Arc::new(FaultyDisk::new(Arc::new(MemoryDisk::new())));
        let world = World::over(faulty.clone());
        for partition in 0..2 {
            let mut file = CaskFile::default();
            for number in 0..50 {
                let name = format!("{partition}-{number}");
                let object = object_v1(&[("a", 1)], &[plain(&name)]);
                file.put(&key("b", &name), &object);
            }
            let write = if has_hints {
                World::closed
            } else {
                World::data
            };
            write(&world, partition, 1, &file);
        }
        let rule = Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Read)
            .path_contains("riak/0/1.bitcask.data")
            .from_nth(nth);
        faulty.add_rule(rule);
        let summary = world.import().unwrap();
        assert!(summary.counts.unreadable > 0);
        assert!(!summary.is_whole());
        for number in 0..50 {
            let name = format!("1-{number}");
            assert_eq!(world.values("b", &name), [name]);
        }
    }
}
