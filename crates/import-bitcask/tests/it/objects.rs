//! Preserved properties of objects.

use crate::basho::{CaskFile, key};
use crate::riak_objects::{
    Sibling, atom, binary, dotted, integer, list, object_v0, object_v1, plain, string, tuple,
};
use crate::world::World;

fn rich() -> Sibling {
    let link = |bucket, key, tag| tuple(&[tuple(&[binary(bucket), binary(key)]), binary(tag)]);
    Sibling {
        metadata: vec![
            ("content-type", string("text/html")),
            ("charset", string("utf-8")),
            ("content-encoding", string("gzip")),
            ("Links", list(&[link("people", "anna", "friend")])),
            (
                "X-Riak-Meta",
                list(&[
                    tuple(&[string("X-Riak-Meta-Color"), string("red")]),
                    tuple(&[binary("size"), binary("7")]),
                ]),
            ),
            (
                "index",
                list(&[
                    tuple(&[binary("age_int"), integer(42)]),
                    tuple(&[binary("name_bin"), binary("anna")]),
                ]),
            ),
        ],
        ..dotted("<p>", "a", 1)
    }
}

#[test]
fn metadata_of_both_object_versions_is_kept() {
    let world = World::new();
    let mut file = CaskFile::default();
    file.put(&key("b", "v0"), &object_v0(&[("a", 1)], &[rich()]));
    file.put(&key("b", "v1"), &object_v1(&[("a", 1)], &[rich()]));
    world.closed(0, 1, &file);
    assert!(world.import().unwrap().is_whole());
    for version in ["v0", "v1"] {
        let object = world.server.object("b", version);
        let [sibling] = object.siblings() else {
            panic!("{object:?}");
        };
        let metadata = &sibling.metadata;
        assert_eq!(sibling.value, "<p>");
        assert_eq!(metadata.content_type, "text/html");
        assert_eq!(metadata.charset, "utf-8");
        assert_eq!(metadata.content_encoding, "gzip");
        assert_eq!(metadata.last_modified.as_micros(), 1_700_123_456_000_042);
        assert_eq!(metadata.links[0].bucket, "people");
        assert_eq!(metadata.links[0].key, "anna");
        assert_eq!(metadata.links[0].tag, "friend");
        let pairs = metadata.user_metadata.iter();
        let pairs: Vec<_> = pairs
            .map(|pair| (&pair.name[..], &pair.value.as_ref().unwrap()[..]))
            .collect();
        assert_eq!(
            pairs,
            [(&b"X-Riak-Meta-Color"[..], &b"red"[..]), (b"size", b"7")]
        );
        let entries = metadata.indexes.iter();
        let entries: Vec<_> = entries
            .map(|entry| (&entry.field[..], &entry.value[..]))
            .collect();
        assert_eq!(
            entries,
            [(&b"age_int"[..], &b"42"[..]), (b"name_bin", b"anna")]
        );
    }
}

#[test]
fn siblings_are_all_kept_and_an_import_done_twice_changes_nothing() {
    let mut world = World::new();
    let siblings = [dotted("x", "a", 1), dotted("y", "b", 1), plain("z")];
    let mut file = CaskFile::default();
    file.put(
        &key("b", "v0"),
        &object_v0(&[("a", 1), ("b", 1)], &siblings),
    );
    file.put(
        &key("b", "v1"),
        &object_v1(&[("a", 1), ("b", 1)], &siblings),
    );
    world.data(0, 1, &file);
    let summary = world.import().unwrap();
    assert_eq!((summary.counts.objects, summary.counts.siblings), (2, 6));
    assert_eq!(world.values("b", "v0"), ["x", "y", "z"]);
    assert_eq!(world.values("b", "v1"), ["x", "y", "z"]);
    let before = world.server.object("b", "v1");
    world.options.shared.restart = true;
    world.import().unwrap();
    assert_eq!(world.server.object("b", "v1"), before);
}

#[test]
fn a_bucket_that_keeps_the_newest_alone_says_so_in_the_report() {
    let world = World::new();
    world.server.store.lock().keeps_siblings = false;
    let newest = Sibling {
        modified: (1800, 0, 0),
        ..dotted("newest", "b", 1)
    };
    let siblings = [newest, dotted("x", "a", 1)];
    let mut file = CaskFile::default();
    file.put(&key("b", "k"), &object_v1(&[("a", 1), ("b", 1)], &siblings));
    world.data(0, 1, &file);
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "k"), ["newest"]);
    assert_eq!(summary.counts.objects_reduced, 1);
}

#[test]
fn tombstones_are_kept_unless_they_are_to_be_left_out() {
    let mut world = World::new();
    let deleted = Sibling {
        deleted: true,
        ..dotted("", "a", 2)
    };
    let mut file = CaskFile::default();
    file.put(
        &key("b", "gone"),
        &object_v1(&[("a", 2)], std::slice::from_ref(&deleted)),
    );
    file.put(
        &key("b", "half"),
        &object_v0(&[("a", 2), ("b", 1)], &[deleted, dotted("y", "b", 1)]),
    );
    world.data(0, 1, &file);
    assert_eq!(world.import().unwrap().counts.tombstones, 1);
    assert_eq!(world.values("b", "gone"), ["(deleted)"]);
    assert_eq!(world.values("b", "half"), ["(deleted)", "y"]);
    world.options.shared.leave_out_tombstones = true;
    world.options.shared.restart = true;
    world.server.store.lock().objects.clear();
    assert_eq!(world.import().unwrap().counts.tombstones_left_out, 1);
    assert!(world.values("b", "gone").is_empty());
    assert_eq!(world.values("b", "half"), ["(deleted)", "y"]);
}

#[test]
fn what_cannot_be_carried_is_counted_and_named() {
    let world = World::new();
    let strange = Sibling {
        metadata: vec![("X-Strange", atom("yes"))],
        ..plain("v")
    };
    let counter = Sibling {
        metadata: vec![("content-type", string("application/riak_counter"))],
        ..plain("E\u{1}...")
    };
    let lookalike = plain("E\u{1}...");
    let mut file = CaskFile::default();
    file.put(&key("b", "strange"), &object_v1(&[("a", 1)], &[strange]));
    file.put(&key("b", "counter"), &object_v1(&[("a", 1)], &[counter]));
    file.put(
        &key("b", "lookalike"),
        &object_v1(&[("a", 1)], &[lookalike]),
    );
    let looks_deleted = b"bitcask_tombstones are fun";
    file.put(&key("b", "not an object"), looks_deleted);
    world.data(0, 1, &file);
    let summary = world.import().unwrap();
    assert!(!summary.is_whole());
    assert_eq!(world.values("b", "strange"), ["v"]);
    assert!(world.values("b", "counter").is_empty());
    assert_eq!(world.values("b", "lookalike"), ["E\u{1}..."]);
    let counts = summary.counts;
    assert_eq!(
        (counts.metadata_left_out, counts.data_types_left_out),
        (1, 1)
    );
    assert_eq!((counts.look_deleted, counts.unreadable), (1, 1));
    let named = |name: &str| {
        let findings = summary.first_findings.iter();
        findings
            .filter(|finding| finding.object.as_deref() == Some(name))
            .count()
    };
    assert_eq!(named("default/b/strange"), 1);
    assert_eq!(named("default/b/counter"), 1);
    assert_eq!(named("default/b/not an object"), 1);
}
