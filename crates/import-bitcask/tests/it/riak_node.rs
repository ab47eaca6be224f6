//! A partition that a node of Riak 3.2.3 wrote, and the node's answers for its keys just before it
//! was stopped. The files are generated data: three kinds of buckets, siblings, tombstones,
//! counters of Riak 1.4 and data types.

use crate::world::World;

const DATA: &[u8] = include_bytes!("../fixtures/riak-3.2/1.bitcask.data");
const HINT: &[u8] = include_bytes!("../fixtures/riak-3.2/1.bitcask.hint");
const PARTITION: &str = "riak/bitcask/548063113999088594326381812268606132370974703616";

fn world() -> World {
    let world = World::new();
    world.write(&format!("{PARTITION}/1.bitcask.data"), DATA);
    world.write(&format!("{PARTITION}/1.bitcask.hint"), HINT);
    world.write(&format!("{PARTITION}/version.txt"), b"1.7.0");
    world.server.store.lock().bucket_types = vec![
        "fx_mult",
        "fx_lww",
        "fx_n1",
        "fx_counter",
        "fx_set",
        "fx_gset",
    ];
    world
}

#[test]
fn objects_come_out_as_the_node_answered_them() {
    for ignores_hints in [false, true] {
        let mut world = world();
        world.options.ignore_hints = ignores_hints;
        let summary = world.import().unwrap();
        let counts = summary.counts;
        assert_eq!(counts.hints_used, u64::from(!ignores_hints), "{summary}");
        assert_eq!(counts.unreadable, 0, "{summary}");
        assert_eq!((counts.keys, counts.objects), (83, 83), "{summary}");
        assert_eq!(counts.tombstones, 6);
        assert_eq!(world.values("alpha_many", "k000"), ["overwritten twice 0"]);
        assert_eq!(
            world.values("alpha_plain", "utf8"),
            ["gr\u{fc}\u{df}e \u{20ac}"]
        );
        let typed = |key| world.server.values("fx_mult", "alpha_many", key);
        assert_eq!(
            typed("k000"),
            ["alpha value 0 ", "overwritten 0", "overwritten twice 0"]
        );
        assert_eq!(typed("k010"), ["alpha value 10 "]);
        let odd = world
            .server
            .values("fx_mult", "alpha_plain", "key with/slash\0end");
        assert_eq!(odd, ["odd key"]);
    }
}

#[test]
fn counters_and_data_types_come_over() {
    let world = world();
    let summary = world.import().unwrap();
    let counts = summary.counts;
    assert_eq!((counts.data_types, counts.data_types_left_out), (6, 0));
    assert!(summary.is_whole(), "{summary}");
    let found = world.server.data_types();
    assert_eq!(found.len(), 6, "{found:?}");
    for name in [
        "default/alpha_legacy/lc1",
        "fx_counter/alpha_dt/",
        "fx_set/alpha_dt/",
    ] {
        let is_meant = |(it, _): &(String, String)| it.starts_with(name);
        assert!(found.iter().any(is_meant), "{name}: {found:?}");
    }
}
