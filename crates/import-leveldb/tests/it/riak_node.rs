//! A partition that the LevelDB of a node of Riak 3.2.3 wrote, and the node's answers for its keys
//! just before it was stopped. The files are generated data: siblings, tombstones, indexes that
//! were changed and removed, counters of Riak 1.4 and data types.

use crate::world::World;

const PARTITION: &str = "riak/leveldb/548063113999088594326381812268606132370974703616";

fn world() -> World {
    let world = World::new();
    for (name, bytes) in [
        (
            "000003.log",
            &include_bytes!("../fixtures/riak-3.2/000003.log")[..],
        ),
        ("CURRENT", include_bytes!("../fixtures/riak-3.2/CURRENT")),
        (
            "MANIFEST-000002",
            include_bytes!("../fixtures/riak-3.2/MANIFEST-000002"),
        ),
        ("LOG", include_bytes!("../fixtures/riak-3.2/LOG")),
        ("LOCK", b""),
    ] {
        world.write(&format!("{PARTITION}/{name}"), bytes);
    }
    for level in 0..7 {
        let directory = format!("{PARTITION}/sst_{level}");
        world
            .disk
            .create_directory(std::path::Path::new(&directory))
            .unwrap();
    }
    world.server.store.lock().bucket_types = vec!["fx_leveldb_mult", "fx_counter"];
    world
}

#[test]
fn objects_come_out_as_the_node_answered_them() {
    let world = world();
    let summary = world.import().unwrap();
    let counts = summary.counts;
    assert_eq!((counts.unreadable, counts.other_keys), (0, 0), "{summary}");
    assert_eq!((counts.keys, counts.objects), (63, 63), "{summary}");
    assert_eq!(counts.tombstones, 6);
    assert_eq!((counts.data_types, counts.data_types_left_out), (4, 0));
    assert_eq!(world.server.data_types().len(), 4);
    let missing = (counts.index_entries_missing, counts.index_entries_stray);
    assert_eq!(missing, (0, 0), "{summary}");
    assert_eq!(world.values("alpha_idx", "i00"), ["indexes changed"]);
    let typed = world.server.values("fx_leveldb_mult", "alpha_idx", "i01");
    assert_eq!(typed, ["indexed 1", "indexes gone"]);
    let object = world.server.object("alpha_idx", "i00");
    assert_eq!(object.siblings()[0].metadata.indexes.len(), 2);
}
