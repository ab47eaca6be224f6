//! Every `innostore.*` key of riak.conf has its effect, seen in a store or in the node's sizes.

use std::collections::BTreeSet;

use kvorum_backend::{StepBudget, Timestamp};
use kvorum_disk::{CrashOptions, MemoryDisk};
use kvorum_settings::{Family, Fate, honoured_keys, riak_families};

use super::*;
use crate::engines::running::{NOW, Running, loaded, text};

const GIGABYTE: u64 = 1 << 30;

fn pool(lines: &[&str], machine: Option<u64>) -> Pool {
    Pool::of(&loaded(lines).innostore, machine, 64)
}

fn store(lines: &[&str]) -> InnostoreSettings {
    settings_of(&loaded(lines), &pool(lines, Some(GIGABYTE)), 0)
}

fn run_node(disk: &MemoryDisk, lines: &[&str]) -> Running {
    Running::open(disk, &[&["storage_backend = innostore"], lines].concat())
}

/// A key and a test of its effect.
type Effect = (&'static str, fn());

/// All honoured keys.
const EFFECTS: [Effect; 7] = [
    ("innostore.data_home_dir", stores_are_where_it_says),
    (
        "innostore.flush_log_at_trx_commit",
        a_write_is_synced_as_configured,
    ),
    (
        "innostore.buffer_pool_size.percent",
        the_percentage_bounds_the_pool,
    ),
    ("innostore.buffer_pool_size", the_amount_bounds_the_pool),
    (
        "innostore.max_dirty_pages_pct",
        what_is_in_no_page_has_its_part,
    ),
    ("innostore.page_size", pages_are_as_large_as_configured),
    ("innostore.expiry_secs", objects_expire_after_their_time),
];

#[test]
fn every_key_has_its_effect() {
    for (_, effect) in EFFECTS {
        effect();
    }
}

#[test]
fn a_key_is_tested_here_or_listed_with_its_reason() {
    let tested: BTreeSet<&str> = EFFECTS.iter().map(|(name, _)| *name).collect();
    let is_ours = |name: &&str| name.starts_with("innostore.");
    let honoured: BTreeSet<&str> = honoured_keys()
        .map(|key| key.name)
        .filter(is_ours)
        .collect();
    assert_eq!(tested, honoured);
    let others = riak_families().iter().flat_map(Family::keys);
    let others: Vec<_> = others.filter(|key| is_ours(&key.name)).collect();
    assert_eq!(others.len(), 22);
    for key in others {
        assert!(matches!(key.fate, Fate::Ignored(_)), "{}", key.name);
    }
}

fn stores_are_where_it_says() {
    let settings = loaded(&[
        "storage_backend = innostore",
        "innostore.data_home_dir = /i",
    ]);
    let roots = crate::store_roots::StoreRoots::of(&settings).unwrap();
    assert_eq!(roots.own, Path::new("/i"));
}

/// True when a write that was acknowledged is there after a crash.
fn outlives(line: &str, crash: CrashOptions) -> bool {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, &[line]);
    running.put(3, text(3, 100));
    running.put(4, text(4, 9_000));
    let left = disk.crash_image(crash);
    drop(running);
    let running = run_node(&left, &[line]);
    assert_eq!(running.holds(3), running.holds(4));
    running.holds(3)
}

fn a_write_is_synced_as_configured() {
    let key = "innostore.flush_log_at_trx_commit";
    let [zero, one, two] = [0, 1, 2].map(|value| format!("{key} = {value}"));
    assert!(outlives(&one, CrashOptions::nothing_unsynced()));
    for line in [&zero, &two] {
        assert!(!outlives(line, CrashOptions::nothing_unsynced()));
        // A crash of only the server loses nothing.
        assert!(outlives(line, CrashOptions::everything()));
        let sync = store(&[line]).sync;
        assert!(matches!(sync, kvorum_backend::SyncStrategy::Interval(_)));
    }
}

fn all(pool: Pool) -> u64 {
    pool.cache + 2 * 64 * pool.dirty_each
}

fn the_percentage_bounds_the_pool() {
    let of = |line| all(pool(&[line], Some(10 * GIGABYTE))) / (10 * GIGABYTE / 100 - 100);
    assert_eq!(of("innostore.buffer_pool_size.percent = 50"), 50);
    assert_eq!(of("innostore.buffer_pool_size.percent = 20"), 20);
}

fn the_amount_bounds_the_pool() {
    let machine = Some(100 * GIGABYTE);
    let of = |line| all(pool(&[line], machine));
    assert_eq!(of("innostore.buffer_pool_size = 3GB"), 3 * GIGABYTE);
    assert!(of("innostore.buffer_pool_size = 99GB") <= 50 * GIGABYTE);
}

fn what_is_in_no_page_has_its_part() {
    let each = |line| pool(&[line, "innostore.buffer_pool_size = 1GB"], None).dirty_each;
    let (little, more) = (
        each("innostore.max_dirty_pages_pct = 10"),
        each("innostore.max_dirty_pages_pct = 40"),
    );
    assert!(more > 3 * little && little > 500 << 10, "{little} {more}");
    let most = pool(
        &["innostore.max_dirty_pages_pct = 75"],
        Some(1_000 * GIGABYTE),
    );
    assert_eq!(most.dirty_each, DIRTY_BYTES_MAX);
    // At this size, a store moves its entries.
    let drawn = settings_of(&loaded(&[]), &most, 7).dirty_bytes_max;
    assert!(drawn <= most.dirty_each && drawn >= most.dirty_each * 3 / 4);
}

fn pages_are_as_large_as_configured() {
    let (small, usual) = (store(&["innostore.page_size = 4KB"]), store(&[]));
    assert_eq!((small.page_bytes, small.body_apart_bytes), (4_096, 1_024));
    assert_eq!((usual.page_bytes, usual.body_apart_bytes), (16_384, 4_096));
    let large = store(&["innostore.page_size = 4MB"]);
    assert_eq!(large.page_bytes, 1 << 20);
}

fn objects_expire_after_their_time() {
    let is_there = |line: &str| {
        let disk = MemoryDisk::new();
        let running = run_node(&disk, &[line]);
        running.put(0, text(0, 100));
        let at = kvorum_backend::ReadAt {
            reading: kvorum_backend::Reading::MayBlock,
            now: Timestamp(NOW.0 + 10_000_000),
        };
        let found = running.store.get(&crate::engines::running::key(0), at);
        matches!(found, Ok(kvorum_backend::Lookup::Found(_)))
    };
    // An object that a test puts was modified in 1970.
    assert!(!is_there("innostore.expiry_secs = 9"));
    assert!(is_there("innostore.expiry_secs = 0"));
}

/// Index entries, upkeep and a restart, as a node does them.
#[test]
fn a_store_of_a_node_moves_what_was_put_to_pages_and_opens_with_it() {
    let disk = MemoryDisk::new();
    let lines = [
        "innostore.buffer_pool_size = 16MB",
        "innostore.page_size = 1KB",
    ];
    let running = run_node(&disk, &lines);
    for number in 0..2_000 {
        running.put(number, text(number, 300));
        let due = running.store.maintenance_due(NOW);
        let budget = StepBudget { bytes: 64 << 10 };
        if let Some(task) = due.first() {
            running.store.maintenance_step(task, budget, NOW).unwrap();
        }
    }
    let status = running.store.status();
    assert!(
        status.files > 0 && status.live_bytes > 100_000,
        "{status:?}"
    );
    drop(running);
    let running = run_node(&disk, &lines);
    assert!((0..2_000).all(|number| running.holds(number)));
}

#[test]
fn a_directory_of_the_original_is_refused_by_the_name_of_its_file() {
    for name in ["ibdata1", "ib_logfile0", "innokeystore"] {
        let disk = MemoryDisk::new();
        let root = Path::new("/data");
        disk.create_directory(root).unwrap();
        assert!(refuse_original(&disk, root).is_ok());
        disk.open(&root.join(name), kvorum_disk::OpenMode::Create)
            .unwrap();
        let refused = refuse_original(&disk, root).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
}
