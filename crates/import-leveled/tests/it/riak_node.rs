//! Partitions that nodes of Riak 3.2.3 wrote, and the nodes' answers for their keys just before
//! they were stopped. The files are generated data: several kinds of buckets, siblings, tombstones,
//! counters of Riak 1.4 and data types; 40 objects in each file.
//!
//! `contents.json` has for each key its type, its bucket, the key in hexadecimal, and its values in
//! hexadecimal.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk as _, EntryKind, RealDisk};
use serde_json::Value;

use crate::world::World;

const BYTES_MAX: u64 = 1 << 20;
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/riak-3.2");
/// The partition of the two fixtures with one partition.
const PARTITION: &str = "730750818665451459101842416358141509827966271488";

fn fixture(name: &str) -> PathBuf {
    Path::new(FIXTURES).join(name)
}

/// All files below a directory, with their relative paths.
pub(crate) fn files_below(directory: &Path, prefix: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in RealDisk.list(directory).unwrap() {
        let (path, name) = (directory.join(&entry.name), prefix.join(&entry.name));
        match entry.kind {
            EntryKind::Directory => files.extend(files_below(&path, &name)),
            _ => {
                let bytes = kvorum_disk::read_file(&RealDisk, &path, BYTES_MAX).unwrap();
                files.push((name, bytes));
            }
        }
    }
    files
}

/// A data root of Riak with the files of the fixture.
fn world(name: &str) -> World {
    let world = World::new();
    for (path, bytes) in files_below(&fixture(name), Path::new("riak/leveled")) {
        world.write(path.to_str().unwrap(), &bytes);
    }
    let types = [
        "fx_mult",
        "fx_lww",
        "fx_n1",
        "fx_counter",
        "fx_set",
        "fx_gset",
        "fx_map",
        "fx_hll",
    ];
    world.server.store.lock().bucket_types = types.to_vec();
    world
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
    pairs.collect::<Result<_, _>>().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An object, and its node's answer.
struct Answer {
    bucket_type: String,
    bucket: String,
    key: String,
    /// The values, sorted; `None` for a data type.
    values: Option<Vec<String>>,
}

fn answers(name: &str) -> Vec<Answer> {
    let path = fixture(name).join("contents.json");
    let contents = kvorum_disk::read_file(&RealDisk, &path, BYTES_MAX).unwrap();
    let contents: Vec<Value> = serde_json::from_slice(&contents).unwrap();
    let answers = contents.iter().map(|object| {
        let part = |number: usize| object[number].as_str().unwrap().to_owned();
        let value = |value: &Value| match value.as_str().unwrap() {
            "(deleted)" => "(deleted)".to_owned(),
            hex => text(&bytes_of(hex)),
        };
        let values = object[3].as_array().map(|values| {
            let mut values: Vec<String> = values.iter().map(value).collect();
            values.sort();
            // Siblings that only differ in their time are one version here.
            values.dedup();
            values
        });
        Answer {
            bucket_type: part(0),
            bucket: part(1),
            key: text(&bytes_of(&part(2))),
            values,
        }
    });
    answers.collect()
}

/// Keys whose values on the server differ from the node's answers.
fn differences(world: &World, name: &str) -> Vec<String> {
    let differing = answers(name).into_iter().filter(|answer| {
        let (bucket_type, bucket) = (&answer.bucket_type, &answer.bucket);
        let found = world.server.values(bucket_type, bucket, &answer.key);
        match &answer.values {
            Some(values) => found != *values,
            None => found.len() != 1,
        }
    });
    differing.map(|answer| answer.key).collect()
}

#[test]
fn objects_come_out_as_the_node_answered_them() {
    for name in ["lz4", "native"] {
        let world = world(name);
        let summary = world.import().unwrap();
        assert_eq!(differences(&world, name), [""; 0]);
        let counts = summary.counts;
        assert_eq!(counts.unreadable + counts.other_keys, 0, "{summary}");
        assert_eq!((counts.records, counts.keys), (297, 109), "{summary}");
        assert_eq!((counts.objects, counts.data_types), (109, 6));
        assert!(summary.is_whole(), "{summary}");
        assert_eq!(world.server.data_types().len(), 6);
        assert_eq!(
            (summary.partitions, summary.files),
            (1, journals(name).len())
        );
    }
}

/// The files of a fixture's only partition.
fn journals(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let below = Path::new("riak/leveled").join(PARTITION);
    files_below(&fixture(name).join(PARTITION), &below)
}

#[test]
fn objects_and_their_metadata_are_those_that_clients_wrote() {
    let world = world("lz4");
    world.import().unwrap();
    let object = world.server.object("alpha_idx", "i00");
    let metadata = &object.siblings()[0].metadata;
    assert_eq!(metadata.content_type, "text/plain");
    let entries = metadata.indexes.iter();
    let entries: Vec<_> = entries
        .map(|entry| (&entry.field[..], &entry.value[..]))
        .collect();
    assert_eq!(
        entries,
        [(&b"age_int"[..], &b"99"[..]), (b"neg_int", b"-5")]
    );
    assert_eq!(metadata.last_modified.as_micros(), 1_795_654_084_940_630);
}

#[test]
fn partitions_without_objects_are_no_loss() {
    let world = world("mostly_empty");
    let summary = world.import().unwrap();
    assert_eq!(differences(&world, "mostly_empty"), [""; 0]);
    assert!(summary.is_whole(), "{summary}");
    assert_eq!((summary.partitions, summary.counts.records), (2, 2));
    assert!(summary.first_findings.is_empty());
}

#[test]
fn a_journal_is_whole_without_the_hash_tables_that_riak_reads_it_by() {
    for front in [[0; 2048], [0xa5; 2048]] {
        let world = world("native");
        for (path, mut bytes) in journals("native") {
            if path.extension().is_some_and(|suffix| suffix == "cdb") {
                bytes[..2048].copy_from_slice(&front);
                world.write(path.to_str().unwrap(), &bytes);
            }
        }
        let summary = world.import().unwrap();
        assert_eq!(differences(&world, "native"), [""; 0]);
        assert_eq!(summary.counts.unreadable, 0, "{summary}");
        assert_eq!(summary.counts.torn_tails, 0, "{summary}");
    }
}

#[test]
fn damage_to_any_of_the_files_costs_one_version_and_is_reported_with_its_place() {
    for name in ["lz4", "native"] {
        for (path, bytes) in journals(name) {
            let at = 2048 + (bytes.len() - 2048) / 3;
            let world = world(name);
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            world.write(path.to_str().unwrap(), &damaged);
            let summary = world.import().unwrap();
            let lost = differences(&world, name);
            assert!(lost.len() <= 1, "{path:?}: {lost:?}");
            assert_eq!(summary.counts.unreadable, 1, "{path:?}: {summary}");
            let mut findings = summary.first_findings.iter();
            let finding = findings.find(|finding| finding.object.is_none()).unwrap();
            let end = finding.offset + finding.len.unwrap();
            assert_eq!(finding.file, path);
            assert!((finding.offset..end).contains(&(at as u64)), "{finding:?}");
        }
    }
}

#[test]
fn files_that_are_cut_off_keep_what_is_before_the_cut() {
    for (path, bytes) in journals("lz4") {
        let world = world("lz4");
        let is_active = path.extension().is_some_and(|suffix| suffix == "pnd");
        world.write(path.to_str().unwrap(), &bytes[..bytes.len() / 2]);
        let summary = world.import().unwrap();
        let counts = summary.counts;
        assert_eq!(counts.unreadable, u64::from(!is_active), "{summary}");
        assert_eq!(counts.torn_tails, u64::from(is_active), "{summary}");
        assert!((257..297).contains(&counts.records), "{summary}");
        assert!(differences(&world, "lz4").len() < 40);
    }
}
