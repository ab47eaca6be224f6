//! Reads of the value log when bitcasks are opened over it: after a clean stop none, after a kill
//! the part that their checkpoints do not cover.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use kvorum_backend::{Fields, Timestamp};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::{Disk, FaultyDisk, MemoryDisk, Operation};

use crate::tenants_node::{LOG_DIRECTORY, SEGMENT_BYTES, TenantsNode};

const SEGMENTS_BEHIND_MAX: u32 = 4;
/// Header, seal, and the place of the seal: the bytes read of a segment that is not scanned.
const LOOKED_AT_BYTES: usize = 128;

fn open(disk: &Arc<dyn Disk>) -> TenantsNode {
    let settings = BitcaskSettings {
        log_segments_behind_max: SEGMENTS_BEHIND_MAX,
        ..BitcaskSettings::default()
    };
    TenantsNode::open(disk, &settings, 100)
}

fn fill(node: &TenantsNode, segments: u32) {
    node.fill(0, segments, Timestamp(1_000_000), |_| Fields::default());
}

/// Opens everything again, and returns the number of bytes read of each segment of the log that was
/// read beyond its header and its seal.
fn opened_again(memory: &MemoryDisk) -> (TenantsNode, BTreeMap<u32, usize>) {
    let counting = FaultyDisk::over_memory(memory);
    let disk: Arc<dyn Disk> = Arc::new(counting.clone());
    let node = open(&disk);
    let mut read = BTreeMap::new();
    for done in counting.log() {
        let path = done.path;
        let is_segment = path.extension().is_some_and(|it| it == "segment");
        if done.operation == Operation::Read && is_segment && path.starts_with(LOG_DIRECTORY) {
            let number = path.file_stem().unwrap().to_str().unwrap().parse();
            *read.entry(number.unwrap()).or_default() += done.bytes;
        }
    }
    read.retain(|_, bytes| *bytes > LOOKED_AT_BYTES);
    (node, read)
}

/// The last segment with records, and its spare successor.
fn at_the_end(newest: u32) -> RangeInclusive<u32> {
    newest..=newest + 1
}

#[test]
fn after_a_stop_no_closed_segment_of_the_log_is_read() {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let node = open(&disk);
    fill(&node, 20);
    let (keys, newest) = (node.keys(), node.log.newest_segment());
    node.stores.iter().for_each(|it| it.close().unwrap());
    drop(node);
    let (node, read) = opened_again(&memory);
    assert_eq!(node.keys(), keys);
    let at_the_end = at_the_end(newest);
    assert!(read.keys().all(|it| at_the_end.contains(it)), "{read:?}");
}

/// The bytes that are read after a crash must not grow with the contents of stores.
#[test]
fn after_a_kill_no_more_of_the_log_is_read_than_lies_behind_the_checkpoints() {
    for segments in [20, 60] {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let node = open(&disk);
        fill(&node, segments);
        let (keys, newest) = (node.keys(), node.log.newest_segment());
        drop(node);
        let (node, read) = opened_again(&memory);
        assert_eq!(node.keys(), keys);
        let oldest = newest - SEGMENTS_BEHIND_MAX;
        assert!(read.keys().all(|it| *it >= oldest), "{read:?}");
        // Each segment is read once for the stores; the end of the log was found before.
        let closed = read.iter().filter(|(it, _)| **it < newest);
        let segment_bytes = usize::try_from(SEGMENT_BYTES).unwrap();
        assert!(
            closed.clone().all(|(_, bytes)| *bytes <= segment_bytes),
            "{read:?}"
        );
    }
}
