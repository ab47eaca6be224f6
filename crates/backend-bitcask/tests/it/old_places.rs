//! A write with the place of the entry that it replaces reads nothing; an outdated place costs one
//! read.

use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Lookup, OldEntry, Reading, TaskKind, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Rule};

use crate::store::{
    NOW, at, body_of, do_task, folded, key, one_file_each, open, put, put_of, remove,
};

/// The lookup of a writer that has just read the head and must not wait.
fn looked_up(store: &Bitcask, name: &str) -> OldEntry {
    let Ok(Lookup::Found(found)) = store.head(&key(name), at(NOW)) else {
        unreachable!("no head");
    };
    assert!(found.place.is_some());
    OldEntry {
        place: found.place,
        reading: Reading::CachedOnly,
    }
}

fn put_over(name: &str, body: &str, known: OldEntry) -> Write {
    let mut write = put_of(name, body, Fields::default());
    if let Write::Put { old, .. } = &mut write {
        *old = known;
    }
    write
}

fn try_write(store: &Bitcask, write: Write) -> Option<ErrorKind> {
    let put = store.put(&Batch::of(write), Durability::Grouped);
    put.err().map(|error| error.kind())
}

/// Reads of the disk since the last call.
fn reads(disk: &FaultyDisk) -> usize {
    let log = disk.log();
    disk.clear_log();
    let reads = log.iter().filter(|it| it.operation == Operation::Read);
    reads.count()
}

#[test]
fn an_overwrite_reads_the_old_front_once_and_a_removal_too() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, BitcaskSettings::default());
    put(&store, "k", "first");
    reads(&disk);
    let known = looked_up(&store, "k");
    assert_eq!(reads(&disk), 1, "the head");
    assert_eq!(try_write(&store, put_over("k", "second", known)), None);
    assert_eq!(reads(&disk), 0, "the put");
    let (key, old) = (key("k"), looked_up(&store, "k"));
    assert_eq!(reads(&disk), 1, "the head");
    assert_eq!(try_write(&store, Write::Remove { key, old }), None);
    assert_eq!(reads(&disk), 0, "the removal");
    assert_eq!(folded(&store, NOW), []);
    let status = store.status();
    assert_eq!((status.keys, status.live_bytes), (0, 0));
}

#[test]
fn a_place_that_is_out_of_date_costs_a_read() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, one_file_each());
    put(&store, "k", "first");
    put(&store, "other", "other");
    let overwritten = looked_up(&store, "k");
    put(&store, "k", "second");
    put(&store, "other", "another");
    let moved = looked_up(&store, "k");
    for file in 1..=3 {
        do_task(&store, TaskKind::Hint, file, NOW);
        do_task(&store, TaskKind::Merge, file, NOW);
    }
    let removed = looked_up(&store, "other");
    remove(&store, "other");
    for (number, known) in [overwritten, moved, removed].into_iter().enumerate() {
        let body = number.to_string();
        reads(&disk);
        assert_eq!(try_write(&store, put_over("k", &body, known)), None);
        assert_eq!(reads(&disk), 1, "{known:?}");
        let expected = [("k".to_owned(), body)];
        assert_eq!(folded(&store, NOW), expected);
        assert_eq!(store.status().keys, 1);
    }
}

#[test]
fn a_write_that_must_not_wait_is_refused_where_it_would_and_nothing_is_done() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, BitcaskSettings::default());
    put(&store, "k", "first");
    let known = looked_up(&store, "k");
    disk.add_rule(Rule::new(Fault::NotCached));
    assert_eq!(try_write(&store, put_over("k", "second", known)), None);
    let (would_block, waits) = (Some(ErrorKind::WouldBlock), OldEntry::UNKNOWN);
    assert_eq!(
        try_write(&store, put_over("k", "third", known)),
        would_block
    );
    let (gone, old) = (key("k"), known);
    assert_eq!(
        try_write(&store, Write::Remove { key: gone, old }),
        would_block
    );
    assert_eq!(body_of(&store, "k").as_deref(), Some("second"));
    assert_eq!(store.status().keys, 1);
    // Nothing has to be read for an absent key.
    assert_eq!(try_write(&store, put_over("new", "new", known)), None);
    assert_eq!(try_write(&store, put_over("k", "third", waits)), None);
    assert_eq!(body_of(&store, "k").as_deref(), Some("third"));
}

/// A place belongs to one key, even if other keys have its fingerprint.
#[test]
fn keys_with_one_fingerprint_keep_their_own_values() {
    let settings = BitcaskSettings {
        fingerprint: Some(|_| 42),
        ..one_file_each()
    };
    let store = open(&MemoryDisk::new(), settings);
    let names = ["a", "b", "c"];
    for round in 0..6_usize {
        let known: Vec<OldEntry> = match round {
            0 => vec![OldEntry::UNKNOWN; names.len()],
            _ => names.iter().map(|name| looked_up(&store, name)).collect(),
        };
        let file = u64::try_from(round).unwrap_or(1);
        do_task(&store, TaskKind::Merge, file, NOW);
        for (name, known) in names.iter().zip(known) {
            let body = format!("{name} {round}");
            assert_eq!(try_write(&store, put_over(name, &body, known)), None);
        }
        let expected = names.map(|name| (name.to_owned(), format!("{name} {round}")));
        assert_eq!(folded(&store, NOW), expected);
        assert_eq!(store.status().keys, 3);
    }
}
