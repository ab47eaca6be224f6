//! Files, keys and deletion marks of all versions.

use crate::basho::{CaskFile, WRITTEN_AT, key, old_key, typed_key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;
use kvorum_import_bitcask::ImportError;

fn object(value: &str) -> Vec<u8> {
    object_v1(&[("a", 1)], &[plain(value)])
}

/// An object that supersedes the objects of [`object`].
fn newer(value: &str) -> Vec<u8> {
    object_v1(&[("a", 2)], &[plain(value)])
}

#[test]
fn the_newest_record_of_a_key_wins_over_all_files_and_a_deletion_removes_it() {
    for has_hints in [false, true] {
        let world = World::new();
        let mut first = CaskFile::default();
        let mut second = CaskFile::default();
        first.put(&key("b", "overwritten"), &newer("old"));
        first.put(&key("b", "kept"), &object("kept"));
        first.put_at(&key("b", "later"), &object("old"), WRITTEN_AT + 500);
        for version in 0..3 {
            first.put(&key("b", &format!("deleted{version}")), &object("gone"));
            second.delete(&key("b", &format!("deleted{version}")), version);
            first.put(&key("b", &format!("back{version}")), &object("old"));
            second.delete(&key("b", &format!("back{version}")), version);
            second.put(&key("b", &format!("back{version}")), &object("back"));
        }
        second.put(&key("b", "overwritten"), &object("new"));
        second.put(&key("b", "later"), &object("new"));
        let write = if has_hints {
            World::closed
        } else {
            World::data
        };
        // Ids are compared as numbers: 10 comes after 9.
        write(&world, 0, 10, &second);
        write(&world, 0, 9, &first);
        let summary = world.import().unwrap();
        assert_eq!(world.values("b", "overwritten"), ["new"]);
        assert_eq!(world.values("b", "kept"), ["kept"]);
        assert_eq!(world.values("b", "later"), ["new"]);
        for version in 0..3 {
            assert!(world.values("b", &format!("deleted{version}")).is_empty());
            assert_eq!(world.values("b", &format!("back{version}")), ["back"]);
        }
        let counts = summary.counts;
        assert_eq!((counts.records, counts.deletion_marks), (20, 6));
        assert_eq!((counts.keys, counts.keys_deleted), (6, 3));
        assert_eq!(counts.hints_used, if has_hints { 2 } else { 0 });
        assert!(summary.is_whole());
    }
}

/// Merges copy marks, which may name any file, into files older than later puts.
#[test]
fn a_mark_that_a_merge_left_in_an_older_file_hides_no_newer_value_whichever_file_it_names() {
    for has_hints in [false, true] {
        let world = World::new();
        let mut files: [CaskFile; 3] = Default::default();
        for version in 1..3 {
            for named in 1..5 {
                let key = |what: &str| key("b", &format!("{what} {version} {named}"));
                files[0].put(&key("newer"), &object("gone"));
                files[1].delete_in(&key("newer"), version, named);
                files[2].put(&key("newer"), &newer("put since"));
                files[0].put(&key("deleted"), &object("gone"));
                files[2].delete_in(&key("deleted"), version, named);
                // A merge has removed all that the mark hid.
                files[1].delete_in(&key("alone"), version, named);
            }
        }
        let write = if has_hints {
            World::closed
        } else {
            World::data
        };
        for (number, file) in (1..).zip(&files) {
            write(&world, 0, number, file);
        }
        let summary = world.import().unwrap();
        for version in 1..3 {
            for named in 1..5 {
                let values = |what: &str| world.values("b", &format!("{what} {version} {named}"));
                assert_eq!(values("newer"), ["put since"], "{version} {named}");
                assert!(values("deleted").is_empty(), "{version} {named}");
                assert!(values("alone").is_empty(), "{version} {named}");
            }
        }
        let counts = summary.counts;
        assert_eq!((counts.keys, counts.deletion_marks), (8, 24));
        assert!(summary.is_whole());
    }
}

#[test]
fn keys_of_all_forms_name_their_objects() {
    let world = World::new();
    world.server.store.lock().bucket_types = vec!["carts"];
    let mut old = CaskFile::default();
    old.put(&old_key("b", "upgraded"), &newer("old"));
    old.put(&old_key("b", "old"), &object("old"));
    let mut new = CaskFile::default();
    new.put(&key("b", "upgraded"), &object("new"));
    new.put(&typed_key("carts", "b", "upgraded"), &object("typed"));
    world.data(0, 1, &old);
    world.data(0, 2, &new);
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "upgraded"), ["new"]);
    assert_eq!(world.values("b", "old"), ["old"]);
    assert_eq!(world.server.values("carts", "b", "upgraded"), ["typed"]);
    assert_eq!(summary.counts.keys, 3);
    assert_eq!(summary.bucket_types, ["carts"]);
}

#[test]
fn missing_bucket_types_stop_the_import_before_it_writes() {
    let world = World::new();
    let mut file = CaskFile::default();
    file.put(&key("b", "k"), &object("v"));
    file.put(&typed_key("carts", "b", "k"), &object("v"));
    world.data(0, 1, &file);
    let error = world.import().unwrap_err();
    assert!(matches!(&error, ImportError::MissingTypes { names } if names == &["carts"]));
    assert_eq!(world.server.store.lock().puts, 0);
    world.server.store.lock().bucket_types = vec!["carts"];
    assert_eq!(world.import().unwrap().counts.objects, 2);
}

#[test]
fn what_has_expired_is_left_out_and_uncovers_nothing() {
    let mut world = World::new();
    let now = u32::try_from(world.wall_seconds()).unwrap();
    world.options.expiry = Some(std::time::Duration::from_secs(1000));
    let mut file = CaskFile::default();
    file.put_at(&key("b", "expired"), &object("fresh"), now);
    file.put_at(&key("b", "expired"), &object("expired"), now - 1001);
    file.put_at(&key("b", "fresh"), &object("fresh"), now - 900);
    world.data(0, 1, &file);
    let summary = world.import().unwrap();
    assert!(world.values("b", "expired").is_empty());
    assert_eq!(world.values("b", "fresh"), ["fresh"]);
    assert_eq!((summary.counts.keys, summary.counts.keys_expired), (1, 1));
}

#[test]
fn hints_from_before_deletion_bits_do_not_bring_keys_back() {
    let world = World::new();
    let mut file = CaskFile::default();
    file.put(&key("b", "k"), &object("gone"));
    file.delete(&key("b", "k"), 0);
    world.data(0, 1, &file);
    // Clears the deletion bit of the second entry, as in an old release, and updates the checksum.
    let mut hint = file.hint();
    let entry = 18 + key("b", "k").len();
    hint[entry + 10] &= 0x7f;
    let body = hint.len() - 18;
    let sum = crate::basho::crc32(&hint[..body]).to_be_bytes();
    hint[body + 6..body + 10].copy_from_slice(&sum);
    world.write("riak/0/1.bitcask.hint", &hint);
    let summary = world.import().unwrap();
    assert_eq!(summary.counts.hints_used, 1);
    assert!(world.values("b", "k").is_empty());
    assert_eq!(summary.counts.objects, 0);
}

#[test]
fn records_behind_what_the_hint_file_covers_are_found() {
    let world = World::new();
    let mut file = CaskFile::default();
    file.put(&key("b", "covered"), &object("v"));
    let hint = file.hint();
    file.put(&key("b", "behind"), &object("v"));
    world.data(0, 1, &file);
    world.write("riak/0/1.bitcask.hint", &hint);
    assert_eq!(world.import().unwrap().counts.hints_used, 1);
    assert_eq!(world.values("b", "covered"), ["v"]);
    assert_eq!(world.values("b", "behind"), ["v"]);
}

#[test]
fn a_directory_in_use_or_marked_for_deletion_or_empty_is_refused() {
    let mut world = World::new();
    world
        .disk
        .create_directory(std::path::Path::new("riak/0"))
        .unwrap();
    assert!(matches!(
        world.import(),
        Err(ImportError::NothingFound { .. })
    ));
    let mut file = CaskFile::default();
    file.put(&key("b", "k"), &object("v"));
    world.data(0, 1, &file);
    world.write(
        "riak/0/bitcask.write.lock",
        b"4711 ./riak/0/1.bitcask.data\n",
    );
    world.is_running = |process| process == 4711;
    assert!(matches!(
        world.import(),
        Err(ImportError::InUse { process: 4711, .. })
    ));
    world.is_running = |_| false;
    world.file_mode = |_| Some(0o755);
    let refused = world.import();
    assert!(matches!(
        refused,
        Err(ImportError::AllMarkedForDeletion { .. })
    ));
    world.data(0, 2, &file);
    world.file_mode = |path| {
        Some(if path.ends_with("1.bitcask.data") {
            0o601
        } else {
            0o600
        })
    };
    let summary = world.import().unwrap();
    assert_eq!(summary.marked_for_deletion.len(), 1);
    assert_eq!(summary.files, 1);
}

#[test]
fn a_dry_run_counts_and_puts_nothing() {
    let mut world = World::new();
    world.options.shared.target = None;
    let mut file = CaskFile::default();
    file.put(&key("b", "k"), &object("12345"));
    file.put(&key("b", "l"), b"no object");
    world.closed(0, 1, &file);
    let summary = world.import().unwrap();
    assert!(summary.is_dry_run);
    assert_eq!((summary.counts.objects, summary.counts.value_bytes), (1, 5));
    assert_eq!(summary.counts.unreadable, 1);
    assert_eq!(world.server.store.lock().puts, 0);
    assert!(
        summary.to_string().contains("to import 1 objects"),
        "{summary}"
    );
}

/// Records longer than one read, so that checksums cover several pieces.
#[test]
fn the_longest_keys_and_values_of_megabytes_arrive_whole() {
    let long_key = "k".repeat(65_535 - 4);
    for has_hints in [false, true] {
        let world = World::new();
        let mut file = CaskFile::default();
        for (number, len) in [(1 << 20) - 200, 1 << 20, 3_500_000]
            .into_iter()
            .enumerate()
        {
            let value = format!("{number}").repeat(len);
            file.put(&key("b", &number.to_string()), &object(&value));
        }
        file.put(&key("b", &long_key), &object("of a long key"));
        let write = if has_hints {
            World::closed
        } else {
            World::data
        };
        write(&world, 0, 1, &file);
        assert!(world.import().unwrap().is_whole());
        assert_eq!(world.values("b", "2")[0].len(), 3_500_000);
        assert_eq!(world.values("b", "0")[0].len(), (1 << 20) - 200);
        assert_eq!(world.values("b", &long_key), ["of a long key"]);
    }
}

#[test]
fn a_flipped_byte_in_a_value_of_megabytes_costs_that_value() {
    let world = World::new();
    let mut file = CaskFile::default();
    file.put(&key("b", "before"), &object("before"));
    let from = file.put(&key("b", "large"), &object(&"v".repeat(2_500_000)));
    file.put(&key("b", "after"), &object("after"));
    file.data[usize::try_from(from).unwrap() + 2_000_000] ^= 1;
    world.data(0, 1, &file);
    let summary = world.import().unwrap();
    assert_eq!(summary.counts.unreadable, 1);
    assert_eq!(world.values("b", "before"), ["before"]);
    assert_eq!(world.values("b", "after"), ["after"]);
    assert!(world.values("b", "large").is_empty());
}
