//! Servers that become unreachable, failing disks, crashes, and resumed imports.

use std::sync::Arc;

use kvorum_disk::{CrashOptions, ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_import::{ImportError, Summary};

use crate::level_store::{LevelStore, Packing, index_key, key, sext_integer};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: usize = 3000;

/// Writes three replicas of everything, in tables of several levels and in logs.
fn fill(world: &World) {
    for partition in 0..3 {
        let mut store = LevelStore::default();
        let mut writes: Vec<_> = (0..KEYS)
            .map(|number| {
                let object = object_v1(&[("a", 1)], &[plain(&number.to_string())]);
                store.put(&key("b", &number.to_string()), &object)
            })
            .collect();
        let logged = writes.split_off(KEYS * 3 / 4);
        let young = writes.split_off(KEYS / 2);
        store.table(1, &young, Packing::Lz4);
        for part in writes.chunks(KEYS / 6) {
            store.table(2, part, Packing::Lz4);
        }
        let batches: Vec<_> = logged.chunks(10).map(<[_]>::to_vec).collect();
        store.log(&batches);
        world.store(partition, &store);
    }
}

fn assert_complete(world: &World) {
    for number in 0..KEYS {
        assert_eq!(world.values("b", &number.to_string()), [number.to_string()]);
    }
}

#[test]
fn an_import_goes_on_where_the_server_left_it() {
    let world = World::new();
    fill(&world);
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
    fill(&world);
    world.server.store.lock().close_every = Some(97);
    assert!(world.import().unwrap().is_whole());
    assert_complete(&world);
}

#[test]
fn a_refused_object_is_named_and_the_others_arrive() {
    let world = World::new();
    fill(&world);
    world.server.store.lock().refused_key = Some("77");
    let summary = world.import().unwrap();
    let counts = summary.counts;
    assert_eq!((counts.refused, counts.objects), (1, KEYS as u64 - 1));
    let finding = &summary.first_findings[0];
    assert_eq!(finding.object.as_deref(), Some("default/b/77"));
}

#[test]
fn a_dry_run_counts_everything_and_puts_nothing() {
    let mut world = World::new();
    fill(&world);
    let target = world.options.shared.target.take();
    let summary = world.import().unwrap();
    assert!(summary.is_dry_run);
    assert_eq!(summary.counts.objects, KEYS as u64);
    assert_eq!(world.server.store.lock().puts, 0);
    world.options.shared.target = target;
    assert_eq!(world.import().unwrap().counts, summary.counts);
}

#[test]
fn a_source_that_has_changed_is_no_longer_the_same_import() {
    let world = World::new();
    fill(&world);
    world.import().unwrap();
    let directory = crate::partitions::partition(1);
    world.write(&format!("riak/{directory}/sst_0/000099.sst"), b"new");
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::OtherImport { .. }), "{error}");
}

#[test]
fn a_damaged_state_is_noticed_and_begun_anew_on_request() {
    let mut world = World::new();
    fill(&world);
    world.server.store.lock().overload_after = Some(100);
    world.import().unwrap_err();
    world.server.store.lock().overload_after = None;
    for name in ["state/runs/0001-0000.run", "state/state.json"] {
        world.write(name, b"not what it was");
        let error = world.import().unwrap_err();
        assert!(matches!(error, ImportError::StateDamaged { .. }), "{error}");
    }
    world.options.shared.restart = true;
    assert!(world.import().unwrap().is_whole());
    assert_complete(&world);
}

/// Writes a partition with keys of its own in two tables and a log.
fn partition(world: &World, number: usize, keys: usize) -> Vec<String> {
    let mut store = LevelStore::default();
    let names: Vec<String> = (0..keys).map(|key| format!("{number}-{key:04}")).collect();
    let mut writes: Vec<_> = names
        .iter()
        .map(|name| store.put(&key("b", name), &object_v1(&[("a", 1)], &[plain(name)])))
        .collect();
    // An index entry without an object: files keep the counts of these too.
    let term = sext_integer(7, false);
    writes.push(store.put(&index_key("b", "age_int", &term, "none"), b""));
    let logged = writes.split_off(keys * 2 / 3);
    let old = writes.split_off(keys / 3);
    store.table(1, &writes, Packing::Plain);
    store.table(2, &old, Packing::Lz4);
    store.log(&logged.chunks(5).map(<[_]>::to_vec).collect::<Vec<_>>());
    world.store(u32::try_from(number).unwrap(), &store);
    names
}

fn arrived(world: &World, names: &[String]) -> usize {
    let is_there = |name: &&String| {
        let values = world.values("b", name);
        assert!(values.is_empty() || values == [name.as_str()], "{values:?}");
        !values.is_empty()
    };
    names.iter().filter(is_there).count()
}

/// Imports two partitions from a disk with this fault in the first partition's files.
fn import_with(rule: Rule) -> (u64, usize, Summary) {
    const OWN: usize = 90;
    let faulty = FaultyDisk::over_memory(&MemoryDisk::new());
    let world = World::over(Arc::new(faulty.clone()));
    let (first, second) = (partition(&world, 0, OWN), partition(&world, 1, OWN));
    let id = faulty.add_rule(rule.on(Operation::Read));
    let summary = world.import().unwrap();
    assert_eq!(arrived(&world, &second), OWN);
    let lost = OWN - arrived(&world, &first);
    assert_eq!(lost > 0, !summary.is_whole(), "{lost} keys lost: {summary}");
    (faulty.fired(id), lost, summary)
}

#[test]
fn a_device_that_cannot_read_costs_a_block_or_a_file_and_is_reported() {
    let device = |file: &str| {
        let path = format!("riak/0/{file}");
        Rule::new(Fault::Error(ErrorKind::Device)).path_contains(&path)
    };
    // Each file has thirty keys.
    for file in ["sst_1/000005.sst", "sst_2/000006.sst", "000007.log"] {
        for nth in 1..5 {
            let (fired, lost, summary) = import_with(device(file).from_nth(nth));
            assert!(lost <= 30 && (lost > 0) == (fired > 0), "{lost}, {summary}");
            let mut findings = summary.first_findings.iter();
            assert!(findings.all(|it| it.file.ends_with(file)), "{summary}");
        }
    }
    for at in (0..3_600).step_by(120) {
        let sector = device("sst_1/000005.sst").over(at..at + 30);
        let (_, lost, summary) = import_with(sector);
        assert!(lost > 0 && lost <= 8, "{lost} for byte {at}: {summary}");
    }
}

/// The course of an import after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The import was complete before the cut.
    WasDone,
    WentOn,
    /// The import could not be resumed, and had to start again.
    BeganAnew,
}

/// Cuts off an import after this many of its changes, and resumes it.
fn cut_off(after: u64, crash: CrashOptions) -> Outcome {
    let disk = MemoryDisk::new();
    let mut world = World::over(Arc::new(disk.clone()));
    let names: Vec<_> = (0..3).flat_map(|it| partition(&world, it, 60)).collect();
    // The source is durable.
    disk.crash(CrashOptions::everything());
    disk.cut_after(disk.operations() + after);
    let mut outcome = match world.import() {
        Ok(_) => Outcome::WasDone,
        Err(_) => Outcome::WentOn,
    };
    disk.crash(crash);
    let summary = match world.import() {
        Err(ImportError::StateDamaged { .. }) => {
            outcome = Outcome::BeganAnew;
            world.options.shared.restart = true;
            world.import().unwrap()
        }
        imported => imported.unwrap(),
    };
    assert_eq!(arrived(&world, &names), names.len(), "{after}");
    assert!(summary.is_whole(), "{after}: {summary}");
    let counts = summary.counts;
    assert_eq!(counts.objects, names.len() as u64, "{after}");
    assert_eq!(counts.index_entries_stray, 3, "{after}");
    outcome
}

fn cut_off_anywhere(crash: fn() -> CrashOptions) -> Vec<Outcome> {
    let outcomes = (0..).map(|after| cut_off(after, crash()));
    outcomes.take_while(|it| *it != Outcome::WasDone).collect()
}

#[test]
fn an_import_that_was_killed_anywhere_goes_on() {
    let outcomes = cut_off_anywhere(CrashOptions::everything);
    assert!(outcomes.len() > 30, "{outcomes:?}");
    assert!(outcomes.iter().all(|it| *it == Outcome::WentOn));
}

/// Sorted logs are durable before the state names them, but index entries are not. Nothing else may
/// force an import to start again.
#[test]
fn an_import_goes_on_after_a_power_cut_or_says_that_it_has_to_begin_anew() {
    let outcomes = cut_off_anywhere(CrashOptions::nothing_unsynced);
    assert!(outcomes.len() > 30, "{outcomes:?}");
    let anew = outcomes.iter().filter(|it| **it == Outcome::BeganAnew);
    assert!(anew.count() < outcomes.len() / 4, "{outcomes:?}");
}
