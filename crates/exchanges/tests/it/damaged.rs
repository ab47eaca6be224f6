//! Damage that a scrub finds is mended without a read by a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_backend::{Backend as _, StepBudget, TaskKind, Timestamp};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, MemoryDisk, OpenMode, Reading, read_file};

use crate::cluster::{Cluster, key, object, settings};

const STORE: &str = "store";

fn names() -> impl Iterator<Item = String> {
    (0..40).map(|number| format!("k{number}"))
}

fn value_of(name: &str) -> String {
    format!("the value of {name}, and a few bytes more")
}

fn open_store(disk: &MemoryDisk) -> Bitcask {
    let settings = BitcaskSettings {
        file_bytes_max: 1_500,
        scrub_period: Some(Duration::from_secs(1)),
        ..BitcaskSettings::default()
    };
    let draws = AtomicU64::new(7);
    let draw = move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let disk = Arc::new(disk.clone());
    Bitcask::open(disk, Path::new(STORE), settings, Arc::new(draw), None).unwrap()
}

/// Flips a byte of a text in the store's segments; returns the segment.
fn flip(disk: &MemoryDisk, text: &str) -> PathBuf {
    for entry in disk.list(Path::new(STORE)).unwrap() {
        let path = Path::new(STORE).join(&entry.name);
        if path.extension().is_none_or(|it| it != "segment") {
            continue;
        }
        let bytes = read_file(disk, &path, 1 << 20).unwrap();
        let mut windows = bytes.windows(text.len());
        let Some(offset) = windows.position(|it| it == text.as_bytes()) else {
            continue;
        };
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, offset as u64, Reading::MayBlock)
            .unwrap();
        file.write_at(&[byte[0] ^ 0x40], offset as u64).unwrap();
        return path;
    }
    panic!("no segment has {text:?}");
}

const BEGAN: Timestamp = Timestamp(1_000_000_000_000_000);

/// Carries out all due scrubs, or all other due work.
fn tend(store: &Bitcask, now: Timestamp, does_scrub: bool) {
    for _ in 0..1_000 {
        let due = store.maintenance_due(now).into_iter();
        let is_wanted = |kind: TaskKind| (kind == TaskKind::Scrub) == does_scrub;
        let Some(task) = due.into_iter().find(|it| is_wanted(it.kind)) else {
            return;
        };
        let budget = StepBudget { bytes: 1 << 20 };
        store.maintenance_step(&task, budget, now).unwrap();
    }
    panic!("it never ends");
}

/// The head of the damaged entry is unchanged, so trees agree throughout.
#[test]
fn r31_a_damaged_body_that_a_scrub_finds_is_mended_though_nobody_reads() {
    let cluster = Cluster::new(settings());
    let disk = MemoryDisk::new();
    let store = Arc::new(open_store(&disk));
    cluster.open_over(2, &key("k0"), store.clone());
    for name in names() {
        cluster.give_all(&name, &object(1, &value_of(&name), None));
        tend(&store, BEGAN, false);
    }
    cluster.converge();
    store.sync().unwrap();
    let flipped = flip(&disk, &value_of("k0"));
    assert_eq!(store.status().lost.len(), 0);
    tend(&store, Timestamp(BEGAN.0 + 10_000_000), true);
    let lost = store.status().lost;
    assert_eq!(lost.len(), 1, "{flipped:?} {lost:?}");
    cluster.sleep(20);
    assert!(cluster.stored(2, "k0").is_some());
    for name in names() {
        assert!(cluster.are_same(&name), "{name}");
    }
}
