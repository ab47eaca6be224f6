//! Index entries are not imported, but compared with the objects.

use crate::level_store::{LevelStore, Packing, index_key, key, sext_integer, sext_text};
use crate::riak_objects::{Sibling, binary, integer, list, object_v1, plain, tuple};
use crate::world::World;

fn indexed(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<_> = entries
        .iter()
        .map(|(field, term)| tuple(&[binary(field), term.clone()]))
        .collect();
    let sibling = Sibling {
        metadata: vec![("index", list(&entries))],
        ..plain("v")
    };
    object_v1(&[("a", 1)], &[sibling])
}

/// An integer of five bytes as an Erlang term.
fn large() -> Vec<u8> {
    vec![110, 5, 0, 0, 0xf2, 5, 0x2a, 1]
}

#[test]
fn entries_that_objects_call_for_are_recognised_in_every_encoding() {
    for is_legacy in [false, true] {
        let world = World::new();
        let mut store = LevelStore::default();
        let minus_one = vec![98, 255, 255, 255, 255];
        let very_small = vec![110, 5, 1, 0, 0xf2, 5, 0x2a, 1];
        let entries = [
            ("age_int", integer(42)),
            ("age_int", minus_one),
            ("big_int", large()),
            ("big_int", very_small),
            ("name_bin", binary("anna")),
        ];
        let writes = vec![
            store.put(&key("b", "k"), &indexed(&entries)),
            store.put(
                &index_key("b", "age_int", &sext_integer(42, is_legacy), "k"),
                b"",
            ),
            store.put(
                &index_key("b", "age_int", &sext_integer(-1, is_legacy), "k"),
                b"",
            ),
            store.put(
                &index_key("b", "big_int", &sext_integer(5_000_000_000, is_legacy), "k"),
                b"",
            ),
            store.put(
                &index_key(
                    "b",
                    "big_int",
                    &sext_integer(-5_000_000_000, is_legacy),
                    "k",
                ),
                b"",
            ),
            store.put(&index_key("b", "name_bin", &sext_text("anna"), "k"), b""),
        ];
        store.table(2, &writes, Packing::Lz4);
        world.store(0, &store);
        let summary = world.import().unwrap();
        assert!(summary.is_whole(), "{summary}");
        let counts = summary.counts;
        assert_eq!(counts.index_entries, 5);
        assert_eq!(
            (counts.index_entries_missing, counts.index_entries_stray),
            (0, 0)
        );
        assert_eq!(
            world.server.object("b", "k").siblings()[0]
                .metadata
                .indexes
                .len(),
            5
        );
    }
}

#[test]
fn entries_that_differ_from_the_objects_of_their_store_are_counted() {
    let world = World::new();
    for partition in 0..2 {
        let mut store = LevelStore::default();
        let object = indexed(&[("f_bin", binary("x")), ("f_bin", binary("y"))]);
        let mut writes = vec![
            store.put(&key("b", "k"), &object),
            store.put(&index_key("b", "f_bin", &sext_text("x"), "k"), b""),
            store.put(&index_key("b", "f_bin", &sext_text("deleted"), "k"), b""),
        ];
        if partition == 1 {
            writes.push(store.put(&index_key("b", "f_bin", &sext_text("y"), "k"), b""));
            writes.push(store.put(&index_key("b", "f_bin", &sext_text("stray"), "gone"), b""));
        }
        store.table(2, &writes, Packing::Snappy);
        let deletion = store.delete(&index_key("b", "f_bin", &sext_text("deleted"), "k"));
        store.log(&[vec![deletion]]);
        world.store(partition, &store);
    }
    let summary = world.import().unwrap();
    // The server makes its own entries, so nothing is lost.
    assert!(summary.is_whole(), "{summary}");
    let counts = summary.counts;
    assert_eq!(counts.index_entries, 4);
    assert_eq!(
        (counts.index_entries_missing, counts.index_entries_stray),
        (1, 1)
    );
}
