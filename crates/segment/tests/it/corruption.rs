//! Corruption: damage to durable data costs the damaged records, and is not mistaken for a torn
//! tail.

use kvorum_disk::{Disk, MemoryDisk, OpenMode, Reading};
use kvorum_segment::{
    FILE_HEADER_BYTES, Location, ScanOptions, SegmentReader, SegmentWriter, Tail,
};

use crate::log::{ID, append, contents, create, flip, new_disk, path, record};

/// The bytes of a record: header, front of 5, back of 100, padding.
const STEP: u64 = 144;

fn offset_of(sequence: u64) -> u64 {
    FILE_HEADER_BYTES + (sequence - 1) * STEP
}

fn five(disk: &MemoryDisk) -> SegmentWriter {
    let mut writer = create(disk);
    append(&mut writer, 1..=5);
    assert_eq!(writer.end(), offset_of(6));
    writer
}

#[test]
fn in_a_sealed_segment_any_flip_costs_one_record_and_is_reported() {
    for at in 0..STEP {
        for sequence in [1, 3, 5] {
            let disk = new_disk();
            five(&disk).seal().unwrap();
            flip(&disk, offset_of(sequence) + at);
            let found = contents(&disk, ScanOptions::default());
            if found.damage.is_empty() {
                // Only the zeros between records have no meaning.
                assert!(at >= 137, "{at}");
                assert_eq!(found.sequences, [1, 2, 3, 4, 5]);
                continue;
            }
            let others: Vec<u64> = (1..=5).filter(|it| *it != sequence).collect();
            assert_eq!(found.sequences, others, "byte {at} of {sequence}");
            assert_eq!(found.damage, [(offset_of(sequence), STEP)]);
            assert!(matches!(found.end.tail, Tail::Sealed(_)));
        }
    }
}

#[test]
fn in_an_open_segment_a_later_record_proves_what_was_durable() {
    let disk = new_disk();
    let mut writer = five(&disk);
    writer.sync_handle().sync().unwrap();
    append(&mut writer, 6..=6);
    flip(&disk, offset_of(3) + 50);
    let found = contents(&disk, ScanOptions::default());
    assert_eq!(found.sequences, [1, 2, 4, 5, 6]);
    assert_eq!(found.damage, [(offset_of(3), STEP)]);
}

#[test]
fn a_mark_proves_what_was_durable_without_a_later_record() {
    let disk = new_disk();
    let mut writer = five(&disk);
    let sync = writer.sync_handle();
    sync.sync().unwrap();
    writer.mark().unwrap();
    let end = writer.end();
    writer.mark().unwrap();
    assert_eq!(writer.end(), end, "one mark is enough");
    assert_eq!(
        sync.synced_to(),
        sync.written_to(),
        "a mark asks for no sync"
    );
    flip(&disk, offset_of(5) + 50);
    let found = contents(&disk, ScanOptions::default());
    assert_eq!(found.sequences, [1, 2, 3, 4]);
    assert_eq!(found.damage, [(offset_of(5), STEP)]);
}

#[test]
fn damage_that_no_promise_covers_is_cut() {
    let disk = new_disk();
    let _writer = five(&disk);
    flip(&disk, offset_of(4) + 50);
    let found = contents(&disk, ScanOptions::default());
    assert_eq!(found.sequences, [1, 2, 3]);
    assert!(found.damage.is_empty());
    assert_eq!(found.end.clean_to, offset_of(4));
    assert_eq!(found.end.tail, Tail::Torn { len: 2 * STEP });
}

#[test]
fn what_the_caller_knows_to_be_durable_is_corruption_when_it_is_gone() {
    let disk = new_disk();
    let writer = five(&disk);
    let durable_to = writer.end();
    let file = disk.open(path(), OpenMode::ReadWrite).unwrap();
    file.write_at(&[0; 300], offset_of(3)).unwrap();
    let known = ScanOptions {
        durable_to,
        ..ScanOptions::default()
    };
    let found = contents(&disk, known);
    assert_eq!(found.sequences, [1, 2]);
    assert_eq!(found.damage, [(offset_of(3), 3 * STEP)]);
}

#[test]
fn a_damaged_read_names_its_place_and_yields_nothing() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let mut at = Vec::new();
    let records = [record(1, b"some bytes of a body")];
    writer.append(&records, &mut at).unwrap();
    let used = at[0].len;
    for byte in 0..used {
        flip(&disk, at[0].offset + byte);
        let reader = SegmentReader::open(&disk, path(), ID).unwrap();
        let error = reader.read(at[0], Reading::MayBlock).unwrap_err();
        assert!(error.is_damage(), "byte {byte}: {error}");
        let front = reader.read_front(at[0], Reading::MayBlock);
        let front_end = at[0].front_end;
        assert_eq!(front.is_ok(), byte >= front_end, "byte {byte}");
        flip(&disk, at[0].offset + byte);
    }
}

#[test]
fn a_copy_of_a_record_inside_a_value_is_never_taken_for_a_record() {
    let disk = new_disk();
    let mut writer = create(&disk);
    let mut at = Vec::new();
    writer.append(&[record(666, b"forged")], &mut at).unwrap();
    let mut copy = vec![0; 48];
    let file = disk.open(path(), OpenMode::Read).unwrap();
    let read = file
        .read_at(&mut copy, at[0].offset, Reading::MayBlock)
        .unwrap();
    assert_eq!(read, 48);
    let body = copy.repeat(4);
    writer.append(&[record(1, &body)], &mut at).unwrap();
    writer.seal().unwrap();
    flip(&disk, at[1].offset + 1);
    assert_eq!(contents(&disk, ScanOptions::default()).sequences, [666]);
}

#[test]
fn random_bytes_are_scanned_to_their_end() {
    let mut state = 99u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[6]
    };
    for len in [0u64, 1, 31, 32, 40, 1000, 70_000] {
        let disk = new_disk();
        let file = disk.open(path(), OpenMode::CreateNew).unwrap();
        let bytes: Vec<u8> = (0..len).map(|_| next()).collect();
        file.write_at(&bytes, 0).unwrap();
        for durable_to in [0, len / 2, len] {
            let known = ScanOptions {
                durable_to,
                ..ScanOptions::default()
            };
            assert!(contents(&disk, known).sequences.is_empty());
        }
        let reader = SegmentReader::open(&disk, path(), ID).unwrap();
        let anywhere = Location {
            offset: 8,
            front_end: 64,
            len: 64,
        };
        assert!(reader.read(anywhere, Reading::MayBlock).is_err());
        assert!(reader.check_header().is_err());
    }
}

#[test]
fn reserved_zeros_are_the_end_even_where_everything_was_durable() {
    let disk = new_disk();
    let mut writer = SegmentWriter::create(&disk, path(), ID).unwrap();
    writer.reserve_to(4096).unwrap();
    append(&mut writer, 1..=3);
    let known = ScanOptions {
        durable_to: u64::MAX,
        ..ScanOptions::default()
    };
    let found = contents(&disk, known);
    assert_eq!(found.sequences, [1, 2, 3]);
    assert!(found.damage.is_empty());
    assert_eq!(
        (found.end.clean_to, found.end.tail),
        (writer.end(), Tail::Open)
    );
}
