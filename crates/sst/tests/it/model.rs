//! With any options, a table has the contents of the map that it was written from.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Reading, Rule};
use kvorum_sst::{
    Compression, FilterKind, ReadContext, ScanFilter, ScanItem, ScanOptions, Table, TableOptions,
    TableScan,
};
use proptest::prelude::*;

use crate::support::{Reported, get, map, open, scan, segments_of, small_options, write};

fn options() -> impl Strategy<Value = TableOptions> {
    let filters = prop_oneof![
        Just(FilterKind::None),
        Just(FilterKind::Bloom { bits_per_key: 10 }),
        Just(FilterKind::Fuse)
    ];
    let compressions = prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Zstd(1))
    ];
    (
        1usize..2000,
        1u32..20,
        any::<bool>(),
        1usize..400,
        filters,
        compressions,
    )
        .prop_map(
            |(
                block_bytes,
                restart_interval,
                has_hash_index,
                index_block_bytes,
                filter,
                compression,
            )| {
                TableOptions {
                    block_bytes,
                    restart_interval,
                    has_hash_index,
                    index_block_bytes,
                    filter,
                    compression,
                    has_segment_sets: true,
                    sync_every_bytes: 1000,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..Default::default() })]

    #[test]
    fn reads_and_scans_agree_with_the_map(options in options(), keys in 1usize..300, ahead in 0usize..5000) {
        let disk = MemoryDisk::new();
        let map = map(keys);
        let reported = Reported::default();
        let table = open(&disk, &write(&disk, &map, options), &reported);
        let context = ReadContext { sink: &reported, fills_cache: ahead == 0, ..ReadContext::default() };
        for number in 0..keys * 3 + 2 {
            let key = format!("key {number:05}").into_bytes();
            let got = get(&table, &key, &context).unwrap();
            prop_assert_eq!(got.as_ref(), map.get(&key));
            if number % 5 == 0 {
                for from in [Bound::Included(key.clone()), Bound::Excluded(key.clone())] {
                    let options = ScanOptions {
                        from: from.as_ref().map(|it| Bytes::copy_from_slice(it)),
                        read_ahead_bytes: ahead,
                        ..ScanOptions::default()
                    };
                    let (seen, gaps) = scan(&table, options, &context);
                    prop_assert!(gaps.is_empty());
                    prop_assert!(seen.iter().eq(map.range((from, Bound::Unbounded))));
                }
            }
        }
        prop_assert!(reported.0.lock().unwrap().is_empty());
        let properties = table.properties();
        prop_assert_eq!(properties.entries, keys as u64);
        prop_assert_eq!(&properties.smallest[..], &map.first_key_value().unwrap().0[..]);
        prop_assert_eq!(&properties.largest[..], &map.last_key_value().unwrap().0[..]);
    }
}

fn bytes_read(table: &Arc<Table>, options: ScanOptions, context: &ReadContext<'_>) -> u64 {
    let mut scan = TableScan::new(table.clone(), options);
    while scan.advance(context).unwrap() != ScanItem::End {}
    scan.bytes_read()
}

#[test]
fn a_filtered_scan_misses_nothing_that_it_was_asked_for_and_reads_less() {
    let disk = MemoryDisk::new();
    let map = map(2_000);
    let table = open(
        &disk,
        &write(&disk, &map, small_options()),
        &Reported::default(),
    );
    let context = ReadContext {
        fills_cache: false,
        ..ReadContext::default()
    };
    let (everything, _) = scan(&table, ScanOptions::default(), &context);
    let all_bytes = bytes_read(&table, ScanOptions::default(), &context);
    let modified = |range: std::ops::RangeInclusive<u64>| ScanFilter {
        last_modified: Some(range),
        segments: None,
    };
    let segments = ScanFilter {
        last_modified: None,
        segments: Some(segments_of(&[17, 1_500])),
    };
    let cases: [(ScanFilter, Vec<usize>); 3] = [
        (modified(1_100..=1_120), (100..=120).collect()),
        (modified(10_000..=20_000), Vec::new()),
        (segments, vec![17, 1_500]),
    ];
    for (filter, wanted) in cases {
        let options = ScanOptions {
            filter,
            ..ScanOptions::default()
        };
        let (seen, _) = scan(&table, options.clone(), &context);
        let read = bytes_read(&table, options, &context);
        assert!(read < all_bytes / 5, "{read} bytes of {all_bytes}");
        for number in wanted {
            let key = format!("key {:05}", number * 3).into_bytes();
            assert_eq!(seen.get(&key), map.get(&key));
        }
        assert!(seen.len() < everything.len() / 10, "{} of 2000", seen.len());
    }
}

#[test]
fn a_cached_read_of_a_cold_file_says_that_it_would_block() {
    let disk = MemoryDisk::new();
    let written = write(&disk, &map(50), small_options());
    let faulty = FaultyDisk::over_memory(&disk);
    let table = open(&faulty, &written, &Reported::default());
    let cold = Fault::Error(kvorum_disk::ErrorKind::WouldBlock);
    faulty.add_rule(Rule::new(cold).on(Operation::Read));
    let context = ReadContext {
        reading: Reading::CachedOnly,
        ..ReadContext::default()
    };
    let error = get(&table, b"key 00003", &context).unwrap_err();
    assert!(error.would_block(), "{error}");
    assert_eq!(get(&table, b"zzz", &context).unwrap(), None);
}
