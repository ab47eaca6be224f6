//! Servers that go away, and imports that go on afterwards.

use kvorum_import::ImportError;

use crate::level_store::{LevelStore, Packing, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: usize = 3000;

/// Three replicas of everything: in tables of several levels, and in logs.
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
    // What was acknowledged in whole batches is not put again.
    let again = world.server.store.lock().puts - KEYS;
    assert!(again <= 1024, "{again} objects put again");
    // Done is done.
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
    let target = world.options.target.take();
    let summary = world.import().unwrap();
    assert!(summary.is_dry_run);
    assert_eq!(summary.counts.objects, KEYS as u64);
    assert_eq!(world.server.store.lock().puts, 0);
    // An import is another thing than a dry run, and keeps its state elsewhere or anew.
    world.options.target = target;
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::OtherImport { .. }), "{error}");
    world.options.restart = true;
    assert_eq!(world.import().unwrap().counts, summary.counts);
}

#[test]
fn a_source_that_has_changed_is_no_longer_the_same_import() {
    let world = World::new();
    fill(&world);
    world.import().unwrap();
    world.write("riak/1/sst_0/000099.sst", b"new");
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
    world.options.restart = true;
    assert!(world.import().unwrap().is_whole());
    assert_complete(&world);
}
