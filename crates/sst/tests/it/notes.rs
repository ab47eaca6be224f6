//! Tables that their owners open by name alone: notes, indexes that stay in memory, and ranges.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, MemoryDisk, OpenMode, Reading};
use kvorum_sst::{
    Facts, IgnoreDamage, ReadContext, Result, ScanItem, ScanOptions, Table, TableId, TableOptions,
    TableScan, TableWriter,
};

const ID: TableId = TableId {
    store: 7,
    number: 3,
};

fn path() -> &'static Path {
    Path::new("table")
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn write(disk: &MemoryDisk, count: u64, note: &[u8]) {
    let options = TableOptions {
        block_bytes: 256,
        index_block_bytes: 128,
        ..TableOptions::default()
    };
    let mut writer = TableWriter::create(disk, path(), ID, options).unwrap();
    for number in 0..count {
        writer
            .add(&key(number), b"a value", &Facts::default())
            .unwrap();
    }
    writer.set_note(note.to_vec());
    writer.finish().unwrap();
}

/// The keys of a table, its note, and the number of damaged parts.
fn read_all(disk: &MemoryDisk) -> Result<(Vec<Vec<u8>>, Bytes, u64)> {
    let (table, note) = Table::open_whole(disk, path(), ID)?;
    let damaged = table.check_structure(&IgnoreDamage)?.damaged;
    let scan = TableScan::new(Arc::new(table), ScanOptions::default());
    Ok((keys_of(scan)?, note, damaged))
}

/// The keys of a scan, and a placeholder for each gap.
fn keys_of(mut scan: TableScan) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    loop {
        match scan.advance(&ReadContext::default())? {
            ScanItem::Entry => keys.push(scan.key().to_vec()),
            ScanItem::Gap(_) => keys.push(b"gap".to_vec()),
            ScanItem::End => return Ok(keys),
        }
    }
}

#[test]
fn a_note_comes_back_with_the_entries_and_alone() {
    for (count, note) in [(0, &b"alone"[..]), (1, b""), (900, b""), (900, b"beside")] {
        let disk = MemoryDisk::new();
        write(&disk, count, note);
        let (keys, found, damaged) = read_all(&disk).unwrap();
        assert!(keys.into_iter().eq((0..count).map(key)));
        assert_eq!((&found[..], damaged), (note, 0));
    }
}

#[test]
fn any_flip_or_cut_of_a_table_that_is_opened_whole_is_noticed() {
    let disk = MemoryDisk::new();
    write(&disk, 60, b"a note");
    let whole = read_all(&disk).unwrap();
    let file = disk.open(path(), OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    file.read_at(&mut bytes, 0, Reading::MayBlock).unwrap();
    for (at, byte) in (0..).zip(&bytes) {
        file.write_at(&[byte ^ 4], at).unwrap();
        let read = read_all(&disk);
        assert!(
            read.is_err() || read.is_ok_and(|it| it != whole),
            "byte {at}"
        );
        file.write_at(&[*byte], at).unwrap();
    }
    assert_eq!(read_all(&disk).unwrap(), whole);
    for cut in (0..len).rev() {
        file.truncate(cut).unwrap();
        assert!(read_all(&disk).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_scan_up_to_a_key_reads_no_block_that_begins_behind_it() {
    let disk = MemoryDisk::new();
    write(&disk, 900, b"");
    let table = Arc::new(Table::open_whole(&disk, path(), ID).unwrap().0);
    for (from, to) in [(0, 3), (100, 110), (450, 899)] {
        let options = ScanOptions {
            from: Bound::Included(key(from).into()),
            ..ScanOptions::default()
        };
        let to_key = Bytes::from(key(to));
        for to_bound in [Bound::Included(to_key.clone()), Bound::Excluded(to_key)] {
            let scan = TableScan::new(table.clone(), options.clone()).up_to(to_bound);
            let keys = keys_of(scan).unwrap();
            let last = u64::try_from(keys.len()).unwrap() + from;
            assert!(keys.into_iter().eq((from..last).map(key)));
            assert!((to..to + 60).contains(&last), "{from} to {to}: {last}");
        }
    }
}
