//! Expiry: entries expire by their own time or the store's, and files with no other entries are
//! removed whole.

use std::time::Duration;

use kvorum_backend::{Backend, Fields, TaskKind, Timestamp};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::MemoryDisk;

use crate::store::{
    NOW, at, do_all, do_task, folded, key, one_file_each, open, put, put_of, write,
};

fn expiring(micros: u64) -> Fields {
    Fields {
        last_modified: NOW,
        expiry: Some(Timestamp(NOW.0 + micros)),
        ..Fields::default()
    }
}

fn later(micros: u64) -> Timestamp {
    Timestamp(NOW.0 + micros)
}

#[test]
fn a_file_of_expired_entries_is_dropped_without_being_rewritten() {
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    write(&store, put_of("a", "x", expiring(10)));
    write(&store, put_of("b", "x", expiring(20)));
    put(&store, "c", "x");
    do_all(&store, NOW);
    let written = store.status().written_bytes;
    let files = store.status().files;
    let done = do_all(&store, later(20));
    assert!(done.contains(&TaskKind::Expire), "{done:?}");
    let status = store.status();
    assert_eq!((status.keys, status.written_bytes), (1, written));
    assert!(status.files < files);
    assert_eq!(folded(&store, later(20)).len(), 1);
}

#[test]
fn what_an_expired_entry_hid_does_not_come_back() {
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    put(&store, "k", "lives for ever");
    write(&store, put_of("k", "expires", expiring(10)));
    put(&store, "other", "x");
    do_task(&store, TaskKind::Hint, 2, NOW);
    do_task(&store, TaskKind::Expire, 2, later(10));
    drop(store);
    let store = open(&disk, one_file_each());
    assert_eq!(folded(&store, NOW).len(), 1);
    assert_eq!(store.status().keys, 1);
}

#[test]
fn the_stores_expiry_counts_from_the_last_change_and_grace_delays_collecting() {
    let disk = MemoryDisk::new();
    let settings = BitcaskSettings {
        expiry: Some(Duration::from_micros(50)),
        expiry_grace: Duration::from_micros(30),
        ..one_file_each()
    };
    let store = open(&disk, settings);
    let fields = Fields {
        last_modified: NOW,
        ..Fields::default()
    };
    write(&store, put_of("k", "x", fields));
    write(
        &store,
        put_of(
            "l",
            "x",
            Fields {
                last_modified: later(1000),
                ..fields
            },
        ),
    );
    do_all(&store, NOW);
    let is_found = |now| {
        matches!(
            store.get(&key("k"), at(now)),
            Ok(kvorum_backend::Lookup::Found(_))
        )
    };
    assert!(is_found(later(49)));
    assert!(!is_found(later(50)));
    do_all(&store, later(79));
    assert_eq!(store.status().keys, 2);
    do_all(&store, later(80));
    assert_eq!(store.status().keys, 1);
}

#[test]
fn a_store_of_expired_entries_is_empty() {
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    assert!(store.is_empty(NOW).unwrap());
    for name in 0..30 {
        write(&store, put_of(&name.to_string(), "x", expiring(10)));
    }
    assert!(!store.is_empty(NOW).unwrap());
    assert!(store.is_empty(later(10)).unwrap());
}

#[test]
fn expired_entries_beside_others_that_last_are_a_reason_to_merge() {
    let disk = MemoryDisk::new();
    let settings = BitcaskSettings {
        file_bytes_max: 64 << 10,
        ..BitcaskSettings::default()
    };
    let store = open(&disk, settings.clone());
    let body = "x".repeat(1_000);
    for number in 0..4_000 {
        let name = number.to_string();
        match number % 4 {
            0 => write(&store, put_of(&name, &body, expiring(10))),
            1 => write(&store, put_of(&name, &body, expiring(20))),
            _ => put(&store, &name, &body),
        };
    }
    do_all(&store, later(9));
    let disk_bytes = |store: &kvorum_backend_bitcask::Bitcask| store.status().disk_bytes;
    let before = disk_bytes(&store);
    let check = |store: &kvorum_backend_bitcask::Bitcask| {
        do_all(store, later(20));
        let after = disk_bytes(store);
        assert!(after * 10 < before * 8, "{after} of {before}");
        assert_eq!(folded(store, later(20)).len(), 2_000);
    };
    // The known expiries outlive the process.
    store.close().unwrap();
    let store = open(&disk, settings);
    check(&store);
}
