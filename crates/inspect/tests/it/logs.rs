//! The commit log: its segments shown and checked.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Batch, Fields, Sequence, StoreId, Write};
use kvorum_commit::{CommitLog, CommitLogSettings};
use kvorum_disk::Disk;
use kvorum_disk::MemoryDisk;
use kvorum_disk::anatomy::Piece;
use kvorum_encoding::StorageKey;
use kvorum_inspect::{Kind, recognise};

use crate::store::{covers, pieces, verify, with_each_flip};

fn filled(disk: &MemoryDisk) -> (CommitLog, PathBuf) {
    disk.create_directory(Path::new("log")).unwrap();
    let log = CommitLog::create(
        Arc::new(disk.clone()),
        Path::new("log"),
        0x1234,
        CommitLogSettings {
            segment_bytes: 4096,
            bytes_max: 1 << 20,
        },
    )
    .unwrap();
    for number in 1..4 {
        let key = StorageKey::from_encoded(format!("key {number}").into_bytes());
        let write = Write::put(
            key,
            Fields::default(),
            Bytes::from_static(b"head"),
            Bytes::from_static(b"the body"),
        );
        let ticket = log.append(StoreId(7), Sequence(number), &Batch::of(write));
        ticket.unwrap().wait().unwrap();
    }
    let directory = Path::new("log/0000000000001234");
    let name = &disk.list(directory).unwrap()[0].name;
    let path = directory.join(name);
    (log, path)
}

#[test]
fn a_segment_of_the_commit_log_is_shown_and_its_flips_with_it() {
    let disk = MemoryDisk::new();
    let (_log, path) = filled(&disk);
    let whole = pieces(&disk, &path);
    let len = disk.info(&path).unwrap().unwrap().len;
    covers(&whole, len, &path);
    assert!(!whole.iter().any(Piece::is_damaged), "{whole:?}");
    let records = whole.iter().filter(|piece| piece.title == "record");
    assert_eq!(records.count(), 3);
    let end = whole
        .iter()
        .rfind(|piece| piece.title == "record")
        .unwrap()
        .end();
    let mut seen = 0;
    if len < 1 << 16 {
        with_each_flip(&disk, &path, |at| {
            let now = pieces(&disk, &path);
            covers(&now, len, &path);
            assert!(at >= end || now.iter().any(Piece::is_damaged), "byte {at}");
            seen += 1;
        });
        assert_eq!(seen, len);
    }
}

#[test]
fn a_whole_log_has_no_findings_and_rot_before_a_synced_record_is_one() {
    let disk = MemoryDisk::new();
    let (log, path) = filled(&disk);
    drop(log);
    assert_eq!(verify(&disk, Path::new("log")).findings, []);
    let file = disk.open(&path, kvorum_disk::OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", 80).unwrap();
    assert_eq!(verify(&disk, Path::new("log")).findings.len(), 1);
}

/// It was a file of nobody.
#[test]
fn what_says_whose_stores_are_in_a_directory_is_known_and_its_form_checked() {
    for (text, is_whole) in [
        ("engine bitcask\nhints 17\n", true),
        ("engine bitcask\nhints unknown\n", true),
        ("engine bitcask\nhints 1", false),
        ("engine b!tcask\nhints 17\n", false),
        ("engine", false),
    ] {
        let disk = MemoryDisk::new();
        let path = Path::new("engine");
        let file = disk.open(path, kvorum_disk::OpenMode::CreateNew).unwrap();
        file.write_at(text.as_bytes(), 0).unwrap();
        let found = pieces(&disk, path);
        covers(&found, text.len() as u64, path);
        assert_eq!(!found.iter().any(Piece::is_damaged), is_whole, "{text:?}");
    }
}

/// With damaged first bytes it was a file of nobody, and no finding.
#[test]
fn a_damaged_agreed_log_is_known_by_its_name() {
    let disk = MemoryDisk::new();
    let path = Path::new("log");
    let file = disk.open(path, kvorum_disk::OpenMode::CreateNew).unwrap();
    file.write_at(b"not what it was", 0).unwrap();
    assert_eq!(recognise(&disk, path).unwrap(), Kind::AgreedLog);
    assert!(pieces(&disk, path).iter().any(Piece::is_damaged));
}
