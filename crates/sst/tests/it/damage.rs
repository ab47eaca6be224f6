//! Every byte of a table is flipped, and its end cut off: what is read is right, what is lost is told,
//! and a block's neighbours are served.

use std::collections::BTreeSet;
use std::path::Path;

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_sst::{Compression, FilterKind, ReadContext, ScanOptions, TableOptions, WrittenTable};

use crate::support::{Map, PATH, Told, flip, get, map, open, scan, small_options, write};

/// How many keys cannot be read; what can be is compared with the map.
fn lost_keys(disk: &MemoryDisk, written: &WrittenTable, map: &Map) -> usize {
    let told = Told::default();
    let table = open(disk, written, &told);
    let context = ReadContext {
        sink: &told,
        ..ReadContext::default()
    };
    let mut lost = BTreeSet::new();
    for (key, value) in map {
        match get(&table, key, &context) {
            Ok(found) if found.as_ref() == Some(value) => {}
            Ok(found) => panic!("{key:?} is {found:?}"),
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                lost.insert(key.clone());
            }
        }
    }
    assert_eq!(get(&table, b"key 00004", &context).ok().flatten(), None);
    let (seen, gaps) = scan(&table, ScanOptions::default(), &context);
    for (key, value) in map {
        let is_in_gap = gaps.iter().any(|gap| gap.from <= *key && *key < gap.to);
        assert_eq!(
            seen.get(key),
            (!is_in_gap).then_some(value),
            "{key:?} {gaps:?}"
        );
        assert_eq!(is_in_gap, lost.contains(key), "{key:?}");
    }
    assert!(seen.keys().all(|key| map.contains_key(key)));
    let told = told.0.into_inner().unwrap();
    assert!(
        lost.is_empty() || told.iter().any(|it| it.keys.is_some()),
        "{told:?}"
    );
    lost.len()
}

#[test]
fn one_flipped_byte_costs_one_block_at_most_and_is_told() {
    let map = map(35);
    for options in [
        small_options(),
        TableOptions {
            filter: FilterKind::Fuse,
            compression: Compression::Lz4,
            ..small_options()
        },
    ] {
        let disk = MemoryDisk::new();
        let written = write(&disk, &map, options);
        let mut costs = BTreeSet::new();
        for offset in 0..written.file_len {
            flip(&disk, offset, 1 << (offset % 8));
            let lost = lost_keys(&disk, &written, &map);
            assert!(lost <= 12, "{lost} keys at byte {offset}");
            costs.insert(lost);
            flip(&disk, offset, 1 << (offset % 8));
        }
        assert!(costs.contains(&0) && costs.len() > 1, "{costs:?}");
        assert_eq!(lost_keys(&disk, &written, &map), 0);
    }
}

#[test]
fn a_cut_table_serves_what_is_left_of_it() {
    let map = map(60);
    let disk = MemoryDisk::new();
    let written = write(&disk, &map, small_options());
    let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).unwrap();
    let mut before = 0;
    for len in (100..written.file_len).rev().step_by(37) {
        file.truncate(len).unwrap();
        let told = Told::default();
        let table = open(&disk, &written, &told);
        let (seen, _) = scan(&table, ScanOptions::default(), &ReadContext::default());
        let lost = map.len() - seen.len();
        assert!(lost >= before, "{lost} after {before}");
        assert!(seen.iter().all(|(key, value)| map.get(key) == Some(value)));
        assert!(!told.0.into_inner().unwrap().is_empty());
        before = lost;
    }
    assert!(before > 50);
}

#[test]
fn what_stands_behind_the_end_does_not_matter() {
    let map = map(30);
    let disk = MemoryDisk::new();
    let written = write(&disk, &map, small_options());
    let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).unwrap();
    file.write_at(b"junk from elsewhere", written.file_len)
        .unwrap();
    assert_eq!(lost_keys(&disk, &written, &map), 0);
}

#[test]
fn another_tables_blocks_do_not_pass() {
    let disk = MemoryDisk::new();
    let written = write(&disk, &map(30), small_options());
    let id = kvorum_sst::TableId {
        number: 4,
        ..written.id
    };
    let known = kvorum_sst::KnownTable {
        id,
        file_len: written.file_len,
        properties: written.properties.clone(),
    };
    let told = Told::default();
    let opened = kvorum_sst::Table::open(&disk, Path::new(PATH), known, 1, &told);
    assert!(matches!(opened, Err(kvorum_sst::SstError::Foreign { .. })));
}
