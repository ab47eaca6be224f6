//! Tables, logs and records of all kinds.

use crate::level_store::{LevelStore, Packing, key};
use crate::riak_objects::{object_v0, object_v1, plain};
use crate::world::World;

fn object(value: &str) -> Vec<u8> {
    object_v1(&[("a", 1)], &[plain(value)])
}

#[test]
fn blocks_of_every_compression_are_read() {
    for packing in [
        Packing::Plain,
        Packing::Snappy,
        Packing::Lz4,
        Packing::GivenUp,
    ] {
        let world = World::new();
        let mut store = LevelStore::default();
        let writes: Vec<_> = (0..200)
            .map(|number| store.put(&key("b", &number.to_string()), &object(&number.to_string())))
            .collect();
        store.table(2, &writes, packing);
        world.store(0, &store);
        let summary = world.import().unwrap();
        assert!(summary.is_whole(), "{packing:?}: {summary}");
        for number in 0..200 {
            assert_eq!(world.values("b", &number.to_string()), [number.to_string()]);
        }
    }
}

#[test]
fn the_newest_write_of_a_key_wins_over_all_levels_and_a_deletion_removes_it() {
    let world = World::new();
    let mut store = LevelStore::default();
    let names = [
        "overwritten",
        "deleted",
        "back",
        "logged",
        "kept",
        "deleted in the log",
    ];
    let old: Vec<_> = names
        .map(|name| store.put(&key("b", name), &object("old")))
        .into();
    store.table(3, &old, Packing::Lz4);
    let middle = vec![
        store.put(&key("b", "overwritten"), &object("middle")),
        store.delete(&key("b", "back")),
    ];
    store.table(1, &middle, Packing::Snappy);
    let newest = vec![
        store.put(&key("b", "back"), &object("back")),
        store.put(&key("b", "overwritten"), &object("first of two")),
        store.put(&key("b", "overwritten"), &object("newest")),
        store.delete(&key("b", "deleted")),
    ];
    store.table(0, &newest, Packing::Plain);
    let logged = vec![
        vec![store.put(&key("b", "logged"), &object("of the log"))],
        vec![
            store.delete(&key("b", "deleted in the log")),
            store.put(&key("b", "new"), &object("new")),
            store.put(&key("b", "new"), &object("newer")),
        ],
    ];
    store.log(&logged);
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    assert_eq!(world.values("b", "overwritten"), ["newest"]);
    assert_eq!(world.values("b", "back"), ["back"]);
    assert_eq!(world.values("b", "logged"), ["of the log"]);
    assert_eq!(world.values("b", "new"), ["newer"]);
    assert_eq!(world.values("b", "kept"), ["old"]);
    assert!(world.values("b", "deleted").is_empty());
    assert!(world.values("b", "deleted in the log").is_empty());
    let counts = summary.counts;
    assert_eq!((counts.keys, counts.keys_deleted), (5, 2));
}

#[test]
fn records_longer_than_blocks_and_logs_longer_than_their_records_are_read() {
    let world = World::new();
    let mut store = LevelStore::default();
    let long = "long ".repeat(20_000);
    let batches: Vec<_> = (0..40)
        .map(|number| {
            let value = if number == 20 {
                long.clone()
            } else {
                "v".repeat(number * 97)
            };
            vec![store.put(&key("b", &number.to_string()), &object(&value))]
        })
        .collect();
    let name = store.log(&batches);
    let (_, bytes) = store
        .files
        .iter_mut()
        .find(|(known, _)| *known == name)
        .unwrap();
    // Basho's LevelDB allocates logs in advance.
    bytes.resize(1 << 20, 0);
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert!(
        summary.is_whole() && summary.first_findings.is_empty(),
        "{summary}"
    );
    assert_eq!(summary.counts.objects, 40);
    assert_eq!(world.values("b", "20"), [long]);
    assert_eq!(world.values("b", "39"), ["v".repeat(39 * 97)]);
}

#[test]
fn logs_that_are_in_tables_already_are_left_alone() {
    for keeps_last in [false, true] {
        let world = World::new();
        let mut store = LevelStore::default();
        let first = vec![vec![store.put(&key("b", "first"), &object("v"))]];
        store.log(&first);
        let second = vec![vec![store.put(&key("b", "second"), &object("v"))]];
        store.log(&second);
        store.logs_are_done(keeps_last);
        let third = vec![vec![store.put(&key("b", "third"), &object("v"))]];
        store.log(&third);
        world.store(0, &store);
        world.import().unwrap();
        assert!(world.values("b", "first").is_empty());
        assert_eq!(world.values("b", "second").len(), usize::from(keeps_last));
        assert_eq!(world.values("b", "third"), ["v"]);
    }
}

#[test]
fn tables_that_the_manifest_has_given_up_are_left_alone() {
    let mut world = World::new();
    let mut store = LevelStore::default();
    let old = [store.put(&key("b", "merged away"), &object("old"))];
    let name = store.table(1, &old, Packing::Plain);
    let number = name["sst_1/".len()..name.len() - 4].parse().unwrap();
    let kept = [store.put(&key("b", "kept"), &object("v"))];
    store.table(2, &kept, Packing::Plain);
    store.forget(1, number);
    world.store(0, &store);
    world.import().unwrap();
    assert!(world.values("b", "merged away").is_empty());
    assert_eq!(world.values("b", "kept"), ["v"]);
    world.options.ignore_manifests = true;
    world.options.shared.restart = true;
    world.import().unwrap();
    assert_eq!(world.values("b", "merged away"), ["old"]);
}

#[test]
fn values_expire_by_their_own_time_and_by_the_retention_that_was_set() {
    let mut world = World::new();
    let now = world.now_micros() + 1000 * 3600 * 1_000_000;
    let hour = 3600 * 1_000_000;
    let mut store = LevelStore::default();
    let writes = [
        store.put(&key("b", "overwritten"), &object("without a time")),
        store.put_at(&key("b", "old"), &object("v"), now - 2000 * hour),
        store.put_at(&key("b", "young"), &object("v"), now),
        store.put_at(&key("b", "unknown"), &object("v"), 0),
        store.put_until(&key("b", "expired"), &object("v"), 1),
        store.put_until(&key("b", "to expire"), &object("v"), now + hour),
        store.put_until(&key("b", "never"), &object("v"), 0),
        store.put_at(&key("b", "overwritten"), &object("old"), now - 2000 * hour),
    ];
    store.table(2, &writes[..5], Packing::Lz4);
    store.log(&[writes[5..].to_vec()]);
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "old"), ["v"]);
    assert!(world.values("b", "expired").is_empty());
    assert_eq!(summary.counts.keys_expired, 1);
    assert!(summary.is_whole(), "{summary}");
    assert_eq!(summary.counts.objects_to_expire, 1);
    let micros = now + hour;
    let expires_at = |name| {
        let time = world.server.object("b", name).expires_at();
        time.map(kvorum_object::Timestamp::as_micros)
    };
    assert_eq!(expires_at("to expire"), Some(micros));
    assert_eq!((expires_at("young"), expires_at("never")), (None, None));

    world.server.store.lock().objects.clear();
    world.options.shared.restart = true;
    world.options.retention = Some(std::time::Duration::from_secs(500 * 3600));
    let summary = world.import().unwrap();
    assert!(world.values("b", "old").is_empty());
    // An expired value still hides an older one.
    assert!(world.values("b", "overwritten").is_empty());
    assert_eq!(summary.counts.keys_expired, 3);
    for name in ["young", "unknown", "never"] {
        assert_eq!(world.values("b", name), ["v"], "{name}");
    }
}

#[test]
fn objects_of_both_versions_are_read() {
    let world = World::new();
    let mut store = LevelStore::default();
    let writes = [
        store.put(&key("b", "v0"), &object_v0(&[("a", 1)], &[plain("zero")])),
        store.put(&key("b", "v1"), &object("one")),
    ];
    store.table(0, &writes, Packing::Lz4);
    world.store(0, &store);
    assert!(world.import().unwrap().is_whole());
    assert_eq!(world.values("b", "v0"), ["zero"]);
    assert_eq!(world.values("b", "v1"), ["one"]);
    let content_type = &world.server.object("b", "v1").siblings()[0]
        .metadata
        .content_type
        .clone();
    assert_eq!(content_type, "text/plain");
}
