//! Appended records are read back, in one piece or by parts.

use bytes::Bytes;
use kvorum_disk::Reading;
use kvorum_segment::{
    BatchPlace, Compression, Compressor, Location, Record, ScanOptions, Scanned, SegmentWriter,
    Tail,
};
use proptest::prelude::*;

use crate::log::{ID, append, contents, create, new_disk, path, record};

#[test]
fn a_record_is_read_whole_or_by_its_front() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let mut at = Vec::new();
    let records = [record(1, b"one"), record(2, b"")];
    writer.append(&records, &mut at).unwrap();
    let reader = writer.reader();
    let front = reader.read_front(at[0], Reading::CachedOnly).unwrap();
    assert_eq!((front.sequence, front.raw_back_len), (1, 3));
    assert_eq!(front.front, Bytes::from("front"));
    let whole = reader.read(at[1], Reading::CachedOnly).unwrap();
    assert_eq!(whole.head.location, at[1]);
    assert_eq!(reader.restore(&whole).unwrap(), Bytes::new());
    reader.check_header().unwrap();
}

#[test]
fn a_rough_location_is_good_enough() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let mut at = Vec::new();
    let back = vec![7; 5000];
    writer.append(&[record(1, &back)], &mut at).unwrap();
    for len in [0, 40, 5000, 100_000] {
        let rough = Location {
            offset: at[0].offset,
            front_end: len,
            len,
        };
        let reader = writer.reader();
        let whole = reader.read(rough, Reading::MayBlock).unwrap();
        assert_eq!(whole.head.location, at[0]);
        let front = reader.read_front(rough, Reading::MayBlock).unwrap();
        assert_eq!(front, whole.head);
    }
}

#[test]
fn a_rough_location_of_a_long_record_may_reach_beyond_the_end() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let mut at = Vec::new();
    let back = vec![7; 5 << 20];
    writer.append(&[record(1, &back)], &mut at).unwrap();
    for more in [0, 1, 40_000, 1 << 30] {
        let rough = Location {
            len: at[0].len + more,
            ..at[0]
        };
        let whole = writer.reader().read(rough, Reading::MayBlock).unwrap();
        assert_eq!(whole.head.location, at[0]);
    }
}

#[test]
fn a_sealed_segment_says_what_it_holds() {
    let disk = new_disk();
    let mut writer = SegmentWriter::create(&disk, path(), ID).unwrap();
    writer.reserve_to(4096).unwrap();
    append(&mut writer, 5..=9);
    let before = contents(&disk, ScanOptions::default());
    assert_eq!(before.sequences, [5, 6, 7, 8, 9]);
    assert_eq!(before.end.tail, Tail::Open);
    assert_eq!(before.end.clean_to, writer.end());
    let seal = writer.seal().unwrap();
    assert_eq!(
        (seal.records, seal.sequence_min, seal.sequence_max),
        (5, 5, 9)
    );
    let after = contents(&disk, ScanOptions::default());
    assert_eq!(after.sequences, [5, 6, 7, 8, 9]);
    assert_eq!(after.end.tail, Tail::Sealed(seal));
}

#[test]
fn a_large_append_is_one_write_of_many_parts() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let backs: Vec<Vec<u8>> = (0..40).map(|n| vec![n; 3001]).collect();
    let records: Vec<Record<'_>> = (1..).zip(&backs).map(|(n, back)| record(n, back)).collect();
    let operations = disk.operations();
    let mut at = Vec::new();
    writer.append(&records, &mut at).unwrap();
    assert_eq!(disk.operations(), operations + 1);
    for (location, back) in at.iter().zip(&backs) {
        let whole = writer.reader().read(*location, Reading::MayBlock).unwrap();
        assert_eq!(writer.reader().restore(&whole).unwrap(), back);
    }
    assert_eq!(contents(&disk, ScanOptions::default()).sequences.len(), 40);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn any_records_in_any_compression_come_back(
        planned in proptest::collection::vec(
            (any::<u8>(), 0usize..300, 0usize..3000, any::<bool>(), 0u8..3),
            1..20,
        ),
    ) {
        let disk = new_disk();
        let mut writer = create(&disk);
        let compressors = [Compression::None, Compression::Lz4, Compression::Zstd(1)]
            .map(Compressor::new);
        let mut expected = Vec::new();
        for (sequence, (fill, front_len, back_len, removal, codec)) in (1..).zip(planned) {
            let (front, back) = (vec![fill; front_len], vec![!fill; back_len]);
            let record = Record {
                sequence,
                kind: fill,
                removal,
                batch: BatchPlace::Alone,
                front: &front,
                back: compressors[usize::from(codec)].encode(&back),
            };
            writer.append(&[record], &mut Vec::new()).unwrap();
            expected.push((sequence, fill, removal, front, back));
        }
        let reader = writer.reader();
        let found: Vec<_> = reader
            .scan(ScanOptions::default())
            .unwrap()
            .map(|found| match found.unwrap() {
                Scanned::Record(record) => {
                    let back = reader.restore(&record).unwrap().to_vec();
                    assert_eq!(back.len() as u64, record.head.raw_back_len);
                    let head = record.head;
                    (head.sequence, head.kind, head.removal, head.front.to_vec(), back)
                }
                Scanned::Damage(range) => panic!("{range:?}"),
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}
