//! The forms of objects in journals.

use crate::journal::{Journal, key, ledger_key, typed_key};
use crate::packing::{PACKINGS, pack};
use crate::riak_objects::{binary, dotted, object_v0, object_v1, plain};
use crate::world::World;

#[test]
fn objects_of_every_compression_are_read() {
    let world = World::new();
    let long = "a value that is worth to be compressed, ".repeat(400);
    for (partition, packing) in (0..).zip(PACKINGS) {
        let mut journal = Journal::default();
        let mut put = |sequence, name: &str, value: &str| {
            let object = object_v1(&[("a", 1)], &[plain(value)]);
            let (packed, flags) = pack(&object, packing);
            journal.put_packed(sequence, &key("b", name), &packed, flags);
        };
        let name = format!("{packing:?}");
        put(1, &name, &format!("{long}{name}"));
        put(2, "everywhere", &long);
        world.journal(partition, "0_x.cdb", &journal.completed());
    }
    let summary = world.import().unwrap();
    for packing in PACKINGS {
        let name = format!("{packing:?}");
        assert_eq!(world.values("b", &name), [format!("{long}{name}")]);
    }
    // Copies with different packings count as equal.
    assert_eq!(world.values("b", "everywhere"), [long]);
    assert_eq!(summary.counts.equal_copies, 3);
    assert_eq!(summary.counts.merged_objects, 0);
    assert!(summary.is_whole(), "{summary}");
}

#[test]
fn objects_that_are_terms_are_read_compressed_or_not() {
    let world = World::new();
    let object = object_v0(&[("a", 1)], &[plain("of old")]);
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &object[1..]).unwrap();
    let len = u32::try_from(object.len() - 1).unwrap().to_be_bytes();
    let compressed = [&[131, 80], &len[..], &encoder.finish().unwrap()].concat();
    let mut journal = Journal::default();
    journal.put_packed(1, &key("b", "term"), &object, 0);
    journal.put_packed(2, &key("b", "compressed term"), &compressed, 0);
    world.journal(0, "0_x.pnd", &journal.bytes);
    assert!(world.import().unwrap().is_whole());
    assert_eq!(world.values("b", "term"), ["of old"]);
    assert_eq!(world.values("b", "compressed term"), ["of old"]);
}

#[test]
fn types_buckets_siblings_and_strange_names_are_kept() {
    let world = World::new();
    world.server.store.lock().bucket_types = vec!["carts"];
    let siblings = [dotted("x", "a", 1), dotted("y", "b", 1)];
    let mut journal = Journal::default();
    let object = object_v1(&[("a", 1), ("b", 1)], &siblings);
    journal.put(1, &typed_key("carts", "b", "key/with\0all"), &object);
    journal.put(2, &key("b", "k"), &object_v1(&[("a", 1)], &[plain("")]));
    world.journal(0, "0_x.pnd", &journal.bytes);
    let summary = world.import().unwrap();
    assert_eq!(summary.bucket_types, ["carts"]);
    let found = world.server.values("carts", "b", "key/with\0all");
    assert_eq!(found, ["x", "y"]);
    assert_eq!(world.values("b", "k"), [""]);
}

#[test]
fn what_is_none_of_riaks_is_counted_and_named() {
    let world = World::new();
    let mut journal = Journal::default();
    let other = ledger_key("o", &binary("b"), "k");
    let head = ledger_key("h", &binary("b"), "k");
    journal.put(1, &other, b"something");
    journal.put(2, &other, b"something newer");
    journal.put(3, &head, b"a head");
    journal.put(4, &ledger_key("o", &binary("b"), "gone"), b"gone");
    journal.delete(5, &ledger_key("o", &binary("b"), "gone"));
    journal.batch(6, 17);
    journal.index_changes(7, &other);
    journal.put(8, &key("b", "k"), &object_v1(&[("a", 1)], &[plain("v")]));
    world.journal(0, "0_x.cdb", &journal.completed());
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "k"), ["v"]);
    assert_eq!(summary.counts.objects, 1);
    assert_eq!(summary.counts.other_keys, 1 + 1 + 17);
    assert!(!summary.is_whole());
    let reasons = summary
        .first_findings
        .iter()
        .map(|finding| &finding.reason[..]);
    let mut reasons: Vec<_> = reasons.collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            "none of Riak's objects, a batch of 17 head-only entries",
            "none of Riak's objects, an object of tag h",
            "none of Riak's objects, an object of tag o",
        ]
    );
}

#[test]
fn objects_and_keys_that_nobody_writes_are_named() {
    let world = World::new();
    let mut journal = Journal::default();
    let object = object_v1(&[("a", 1)], &[plain("v")]);
    journal.put(1, &key("b", "no object"), b"no object");
    journal.record(2, "what", &key("b", "no kind"), b"value");
    journal.put(3, &key("", "no bucket"), &object);
    journal.record(4, "stnd", &key("b", "no value"), b"v");
    journal.record(5, "stnd", &key("b", "no packing"), b"packed\0\0\0\0\x0b");
    journal.put(6, &key("b", "good"), &object);
    world.journal(0, "0_x.pnd", &journal.bytes);
    let summary = world.import().unwrap();
    assert_eq!(summary.counts.unreadable, 5, "{summary}");
    assert_eq!(summary.counts.objects, 1);
    assert_eq!(world.values("b", "good"), ["v"]);
}
