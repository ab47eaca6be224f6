//! Expiry of entries of bitcasks in the value log: whole segments are dropped, and nothing is
//! copied for that, unless a segment has lasting entries too.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Fields, Lookup, ReadAt, Reading, Tag, Timestamp};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::{Disk, MemoryDisk};

use crate::tenants_node::{SEGMENT_BYTES, STORES, TenantsNode};

const NOW: Timestamp = Timestamp(1_000_000);
const LIFE: Duration = Duration::from_secs(100);
const EXPIRED: Timestamp = Timestamp(NOW.0 + 100_000_000);

fn open(expiry: Option<Duration>) -> TenantsNode {
    open_on(&(Arc::new(MemoryDisk::new()) as Arc<dyn Disk>), expiry)
}

fn open_on(disk: &Arc<dyn Disk>, expiry: Option<Duration>) -> TenantsNode {
    let settings = BitcaskSettings {
        log_segments_behind_max: 2,
        expiry,
        ..BitcaskSettings::default()
    };
    TenantsNode::open(disk, &settings, 20)
}

/// Does upkeep until nothing changes any more.
fn tend(node: &TenantsNode, now: Timestamp) {
    for _ in 0..100 {
        node.upkeep(now);
    }
}

fn check_that_all_goes(node: &TenantsNode, fields: Fields) {
    node.fill(0, 10, NOW, |_| fields);
    let before = node.log.status();
    assert!(before.bytes > 9 * SEGMENT_BYTES, "{before:?}");
    tend(node, Timestamp(EXPIRED.0 - 1));
    assert_eq!(node.log.status().bytes, before.bytes, "too early");
    tend(node, EXPIRED);
    // What remains: the last puts, which are not covered yet, and the active segment.
    let left = node.log.status();
    assert!(left.bytes <= 4 * SEGMENT_BYTES, "{left:?}");
    // Each store has a file made ahead, with its header.
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

const LASTING: Fields = Fields {
    segment: 0,
    last_modified: NOW,
    expiry: None,
    tag: Tag(0),
};
const EXPIRING: Fields = Fields {
    expiry: Some(EXPIRED),
    ..LASTING
};

fn is_there(node: &TenantsNode, number: usize) -> bool {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: EXPIRED,
    };
    let found = node.stores[number % STORES].get(&TenantsNode::key(number), at);
    matches!(found.unwrap(), Lookup::Found(_))
}

#[test]
fn what_lasts_keeps_no_expired_objects_behind_it() {
    let node = open(None);
    (0..STORES).for_each(|number| node.put(number, LASTING));
    node.fill(STORES, 10, NOW, |_| EXPIRING);
    tend(&node, EXPIRED);
    let left = node.log.status();
    assert!(left.bytes <= 4 * SEGMENT_BYTES, "{left:?}");
    assert!(
        node.own_bytes() <= 2 * SEGMENT_BYTES,
        "{}",
        node.own_bytes()
    );
    assert!((0..STORES).all(|number| is_there(&node, number)));
    assert!(!is_there(&node, STORES));
}

#[test]
fn of_a_mixture_the_log_keeps_about_what_lasts() {
    let node = open(None);
    let fields_of = |number: usize| match number / STORES % 4 {
        0 => LASTING,
        _ => EXPIRING,
    };
    let count = node.fill(0, 20, NOW, fields_of);
    tend(&node, EXPIRED);
    let bytes = node.log.status().bytes + node.own_bytes();
    // A quarter of twenty segments lasts, and garbage may take a fifth of the log. The last puts
    // and the active files of stores are not collected.
    assert!(bytes <= 9 * SEGMENT_BYTES, "{bytes}");
    let lasting = (0..count).filter(|number| fields_of(*number) == LASTING);
    assert!(lasting.into_iter().all(|number| is_there(&node, number)));
}

/// Older versions of an object that got an expiry never come back, even if the stores have only their data.
#[test]
fn what_an_expired_object_hid_in_the_log_does_not_come_back() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let node = open_on(&disk, None);
    let before = STORES..3 * STORES;
    (0..STORES).for_each(|number| node.put(number, LASTING));
    before.clone().for_each(|number| node.put(number, LASTING));
    let next = node.fill(3 * STORES, 2, NOW, |_| LASTING);
    before.clone().for_each(|number| node.put(number, EXPIRING));
    node.fill(next, 6, NOW, |_| EXPIRING);
    tend(&node, EXPIRED);
    drop(node);
    for store in 0..STORES {
        let directory = PathBuf::from(format!("stores/{store}"));
        for entry in disk.list(&directory).unwrap() {
            let name = Path::new(&entry.name);
            let is_derived = name.starts_with("checkpoint")
                || name
                    .extension()
                    .is_some_and(|it| it == "hint" || it == "loghint");
            if is_derived {
                disk.remove_file(&directory.join(name)).unwrap();
            }
        }
    }
    let node = open_on(&disk, None);
    assert!(before.into_iter().all(|number| !is_there(&node, number)));
    assert!((0..STORES).all(|number| is_there(&node, number)));
}
