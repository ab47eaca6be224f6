//! Expiry of what bitcasks have in the value log: its segments go whole, and nothing is copied for it.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Fields, Timestamp};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::{Disk, MemoryDisk};

use crate::adopted_node::{AdoptedNode, SEGMENT_BYTES, STORES};

const NOW: Timestamp = Timestamp(1_000_000);
const LIFE: Duration = Duration::from_secs(100);
const EXPIRED: Timestamp = Timestamp(NOW.0 + 100_000_000);

fn open(expiry: Option<Duration>) -> AdoptedNode {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let settings = BitcaskSettings {
        log_segments_behind_max: 2,
        expiry,
        ..BitcaskSettings::default()
    };
    AdoptedNode::open(&disk, &settings, 20)
}

/// Upkeep until nothing changes any more.
fn tend(node: &AdoptedNode, now: Timestamp) {
    for _ in 0..100 {
        node.upkeep(now);
    }
}

fn check_that_all_goes(node: &AdoptedNode, fields: Fields) {
    node.fill(0, 10, NOW, |_| fields);
    let before = node.log.status();
    assert!(before.bytes > 9 * SEGMENT_BYTES, "{before:?}");
    tend(node, Timestamp(EXPIRED.0 - 1));
    assert_eq!(node.log.status().bytes, before.bytes, "too early");
    tend(node, EXPIRED);
    // What was put last and is not covered yet, and the one that is being written.
    let left = node.log.status();
    assert!(left.bytes <= 4 * SEGMENT_BYTES, "{left:?}");
    // A header of a file made ahead each.
    assert!(node.own_bytes() <= STORES as u64 * 32);
}

#[test]
fn segments_of_the_log_go_whole_when_all_in_them_has_expired() {
    let modified = Fields {
        last_modified: NOW,
        ..Fields::default()
    };
    check_that_all_goes(&open(Some(LIFE)), modified);
    let expiring = Fields {
        expiry: Some(EXPIRED),
        ..modified
    };
    check_that_all_goes(&open(None), expiring);
}
