//! A segment on a disk in memory, and the result of scanning it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set up its disk has failed"
)]

use std::path::Path;

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_segment::{
    BatchPlace, EncodedBack, Record, ScanEnd, ScanOptions, Scanned, SegmentId, SegmentReader,
    SegmentWriter,
};

pub(crate) const ID: SegmentId = SegmentId {
    log_id: 77,
    number: 1,
    kind: 1,
};

pub(crate) fn path() -> &'static Path {
    Path::new("log/0000000001.segment")
}

pub(crate) fn new_disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("log")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk
}

pub(crate) fn create(disk: &dyn Disk) -> SegmentWriter {
    SegmentWriter::create(disk, path(), ID).unwrap()
}

pub(crate) fn record(sequence: u64, back: &[u8]) -> Record<'_> {
    Record {
        sequence,
        kind: 0,
        removal: false,
        batch: BatchPlace::Alone,
        front: b"front",
        back: EncodedBack::plain(back),
    }
}

pub(crate) fn append(writer: &mut SegmentWriter, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        let back = vec![sequence.to_le_bytes()[0]; 100];
        let appended = writer.append(&[record(sequence, &back)], &mut Vec::new());
        appended.unwrap();
    }
}

/// The result of a scan: sequences of records, ranges of damage, and the end.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) sequences: Vec<u64>,
    pub(crate) damage: Vec<(u64, u64)>,
    pub(crate) end: ScanEnd,
}

pub(crate) fn contents(disk: &dyn Disk, options: ScanOptions) -> Contents {
    let reader = SegmentReader::open(disk, path(), ID).unwrap();
    let mut scan = reader.scan(options).unwrap();
    let (mut sequences, mut damage) = (Vec::new(), Vec::new());
    for found in scan.by_ref() {
        match found.unwrap() {
            Scanned::Record(record) => sequences.push(record.head.sequence),
            Scanned::Damage(range) => damage.push((range.offset, range.len)),
        }
    }
    let end = scan.end().unwrap();
    Contents {
        sequences,
        damage,
        end,
    }
}

pub(crate) fn flip(disk: &dyn Disk, at: u64) {
    let file = disk.open(path(), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    let read = file
        .read_at(&mut byte, at, kvorum_disk::Reading::MayBlock)
        .unwrap();
    assert_eq!(read, 1);
    file.write_at(&[byte[0] ^ 0x20], at).unwrap();
    file.sync().unwrap();
}
