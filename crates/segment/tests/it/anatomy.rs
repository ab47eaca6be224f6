//! A segment is taken apart while a server appends to it.

use kvorum_disk::Reading;
use kvorum_disk::{Disk, OpenMode};
use kvorum_segment::{RecordFront, SegmentAnatomy, SegmentWriter};

use crate::log::{ID, append, new_disk, path};

const RESERVED_BYTES: u64 = 2 << 20;

fn no_front(_: &RecordFront<'_>) -> Option<Vec<kvorum_disk::anatomy::Field>> {
    None
}

/// Regression: `kvorum inspect` read zeros behind the last record, then a record that had been
/// appended there meanwhile, and reported 0 bytes of zeros in front of it as damage.
#[test]
fn what_is_appended_between_two_reads_is_no_damage() {
    for appended in [1, 9, 4000] {
        let disk = new_disk();
        let mut writer = SegmentWriter::create(&disk, path(), ID).unwrap();
        writer.reserve_to(RESERVED_BYTES).unwrap();
        append(&mut writer, 1..=2);
        let mut anatomy = SegmentAnatomy::open(&disk, path(), None, 0, no_front).unwrap();
        // The header of the file and the first record; the bytes behind are in memory by now.
        assert!(anatomy.by_ref().take(2).all(|piece| piece.is_ok()));
        append(&mut writer, 3..=2 + appended);
        let pieces: Vec<_> = anatomy.map(Result::unwrap).collect();
        let damaged: Vec<_> = pieces.iter().filter(|piece| piece.is_damaged()).collect();
        assert!(damaged.is_empty(), "{damaged:?}");
        let records = pieces.iter().filter(|piece| piece.title == "record");
        assert_eq!(records.count() as u64, 1 + appended);
    }
}

/// Zeros that stay zeros in front of a record are still damage.
#[test]
fn zeros_in_front_of_a_record_are_damage() {
    let disk = new_disk();
    let mut writer = crate::log::create(&disk);
    append(&mut writer, 1..=1);
    let file = disk.open(path(), OpenMode::ReadWrite).unwrap();
    let start = file.len().unwrap();
    append(&mut writer, 2..=3);
    let mut header = [0; 32];
    file.read_at(&mut header, start, Reading::MayBlock).unwrap();
    assert_ne!(header, [0; 32]);
    let second = (file.len().unwrap() - start) / 2;
    let zeros = vec![0; usize::try_from(second).unwrap()];
    file.write_at(&zeros, start).unwrap();
    let anatomy = SegmentAnatomy::open(&disk, path(), None, 0, no_front).unwrap();
    let pieces: Vec<_> = anatomy.map(Result::unwrap).collect();
    assert!(
        pieces.iter().any(kvorum_disk::anatomy::Piece::is_damaged),
        "{pieces:?}"
    );
}
