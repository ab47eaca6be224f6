//! Servers that become unreachable, full disks, and resumed imports.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_import::ImportError;

use crate::journal::{Journal, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: u32 = 3000;

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
    assert_eq!((counts.keys, counts.objects), (KEYS.into(), KEYS.into()));
    assert_eq!(counts.equal_copies, 2 * u64::from(KEYS));
    // Completely acknowledged batches are not put again.
    let again = world.server.store.lock().puts - KEYS as usize;
    assert!(again <= 1024, "{again} objects put again");
    // A finished import does nothing more.
    let puts = world.server.store.lock().puts;
    assert_eq!(world.import().unwrap().counts, counts);
    assert_eq!(world.server.store.lock().puts, puts);
}

#[test]
fn a_refused_object_is_named_and_the_others_arrive_over_connections_that_break() {
    let world = World::new();
    world.fill(KEYS);
    world.server.store.lock().close_every = Some(97);
    world.server.store.lock().refused_key = Some("77");
    let summary = world.import().unwrap();
    let counts = summary.counts;
    assert_eq!((counts.refused, counts.objects), (1, u64::from(KEYS) - 1));
    let finding = &summary.first_findings[0];
    assert_eq!(finding.object.as_deref(), Some("default/b/77"));
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
    assert_eq!(summary.counts.records, 3 * u64::from(KEYS));
}

#[test]
fn a_damaged_state_or_index_is_refused_and_a_new_start_helps() {
    let mut world = World::new();
    world.fill(KEYS);
    world.server.store.lock().overload_after = Some(10);
    world.import().unwrap_err();
    let path = Path::new("state/state.json");
    let state = kvorum_disk::read_file(&*world.disk, path, 1 << 20).unwrap();
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
    world.options.restart = true;
    world.import().unwrap();
    assert_complete(&world);
}

#[test]
fn another_source_or_target_is_not_mistaken_for_the_interrupted_import() {
    let mut world = World::new();
    world.fill(10);
    world.import().unwrap();
    let target = world.options.target.clone();
    if let Some(target) = &mut world.options.target {
        target.name = "another server".to_owned();
    }
    assert!(matches!(
        world.import(),
        Err(ImportError::OtherImport { .. })
    ));
    world.options.target = target;
    world.journal(0, "99_x.pnd", &Journal::default().bytes);
    assert!(matches!(
        world.import(),
        Err(ImportError::OtherImport { .. })
    ));
}

#[test]
fn a_device_that_cannot_read_a_file_costs_that_file_alone() {
    for nth in [1, 2, 3] {
        let faulty = Arc::new(FaultyDisk::new(Arc::new(MemoryDisk::new())));
        let world = World::over(faulty.clone());
        for partition in 0..2 {
            let mut journal = Journal::default();
            for number in 0..50 {
                let name = format!("{partition}-{number}");
                let object = object_v1(&[("a", 1)], &[plain(&name)]);
                journal.put(number + 1, &key("b", &name), &object);
            }
            world.journal(partition, "0_x.cdb", &journal.completed());
        }
        let rule = Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Read)
            .path_contains("riak/0/journal/journal_files/0_x.cdb")
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
