//! Every byte of a table is flipped, and its end is cut off: reads are right, lost keys are
//! reported, and a block's neighbours are served.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_sst::{
    Compression, FilterKind, KnownTable, Part, ReadContext, ScanOptions, TableOptions,
};

use crate::support::{Map, PATH, Reported, flip, get, map, open, scan, small_options, write};

/// The number of unreadable keys; the others are compared with the map.
fn lost_keys(disk: &MemoryDisk, written: &KnownTable, map: &Map) -> usize {
    let reported = Reported::default();
    let table = open(disk, written, &reported);
    let context = ReadContext {
        sink: &reported,
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
    let reported = reported.0.into_inner().unwrap();
    assert!(
        lost.is_empty() || reported.iter().any(|it| it.keys.is_some()),
        "{reported:?}"
    );
    lost.len()
}

#[test]
fn one_flipped_byte_costs_one_block_at_most_and_is_reported() {
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

fn cut(disk: &MemoryDisk, len: u64) {
    let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).unwrap();
    file.truncate(len).unwrap();
}

/// Every cut, also between two blocks: gets and scans report the lost keys, and the opening reports
/// their range.
#[test]
fn a_cut_table_serves_what_is_left_and_reports_the_keys_that_are_gone() {
    let map = map(35);
    let last = map.last_key_value().unwrap().0.clone();
    for filter in [small_options().filter, FilterKind::Fuse] {
        let disk = MemoryDisk::new();
        let options = TableOptions {
            filter,
            ..small_options()
        };
        let written = write(&disk, &map, options);
        let mut before = 0;
        for len in (0..written.file_len).rev() {
            cut(&disk, len);
            let lost = lost_keys(&disk, &written, &map);
            assert!(lost >= before, "{lost} after {before} at {len}");
            before = lost;
            let reported = Reported::default();
            let _opened = open(&disk, &written, &reported);
            let reported = reported.0.into_inner().unwrap();
            let of_cut = reported.iter().find(|it| it.part == Part::Footer).unwrap();
            assert_eq!((of_cut.offset, of_cut.len), (len, written.file_len - len));
            let keys = of_cut.keys.clone();
            let count = |(from, to): &(Bytes, Bytes)| {
                let range = from.to_vec()..to.to_vec();
                map.range(range).count()
            };
            assert_eq!(keys.as_ref().map_or(0, count), lost, "{keys:?} at {len}");
            let is_to_the_end = keys
                .as_ref()
                .is_none_or(|it| it.0 <= last[..] && last[..] < it.1);
            assert!(is_to_the_end, "{keys:?} at {len} of {}", written.file_len);
        }
        assert_eq!(before, map.len());
    }
}

/// A file that becomes shorter while it is open.
#[test]
fn a_table_that_is_cut_while_it_is_open_says_which_keys_are_gone() {
    let map = map(35);
    let disk = MemoryDisk::new();
    let written = write(&disk, &map, small_options());
    let whole = kvorum_disk::read_file(&disk, Path::new(PATH), 1 << 20).unwrap();
    for len in (0..written.file_len).step_by(7) {
        kvorum_disk::replace_file(&disk, Path::new(PATH), &whole).unwrap();
        let reported = Reported::default();
        let table = open(&disk, &written, &reported);
        let context = ReadContext {
            sink: &reported,
            ..ReadContext::default()
        };
        cut(&disk, len);
        let mut lost = 0;
        for (key, value) in &map {
            match get(&table, key, &context) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value), "{key:?} at {len}"),
                Err(error) => {
                    assert!(error.is_damage(), "{error}");
                    lost += 1;
                }
            }
        }
        let (seen, gaps) = scan(&table, ScanOptions::default(), &context);
        assert_eq!(seen.len() + lost, map.len(), "at {len}");
        assert_eq!(gaps.is_empty(), lost == 0, "at {len}");
        let reported = reported.0.into_inner().unwrap();
        assert_eq!(reported.iter().any(|it| it.keys.is_some()), lost > 0);
    }
}

/// Two neighbouring partitions without a boundary and a top index: the second one's filter must not
/// be used for the first.
#[test]
fn a_hole_over_a_partitions_end_hides_no_key_of_its_neighbours() {
    let map = map(35);
    let disk = MemoryDisk::new();
    let written = write(&disk, &map, small_options());
    let whole = kvorum_disk::read_file(&disk, Path::new(PATH), 1 << 20).unwrap();
    let end = usize::try_from(written.file_len).unwrap();
    for from in (32..end - 48).step_by(13) {
        for len in [60, 400, 900] {
            let mut bytes = whole.clone();
            bytes[end - 48..].fill(0);
            let to = (from + len).min(end);
            bytes[from..to].fill(0);
            kvorum_disk::replace_file(&disk, Path::new(PATH), &bytes).unwrap();
            lost_keys(&disk, &written, &map);
        }
    }
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
    let known = KnownTable { id, ..written };
    let reported = Reported::default();
    let opened = kvorum_sst::Table::open(&disk, Path::new(PATH), known, 1, &reported);
    assert!(matches!(opened, Err(kvorum_sst::SstError::Foreign { .. })));
}
