//! Small files of logs: recognized and checked.

use std::path::Path;

use kvorum_disk::Disk;
use kvorum_disk::MemoryDisk;
use kvorum_disk::anatomy::Piece;
use kvorum_inspect::{Kind, recognise};

use crate::store::{covers, pieces};

/// Regression: the file's kind was unknown.
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

/// Regression: with damaged first bytes, the file's kind was unknown, and the damage was no
/// finding.
#[test]
fn a_damaged_agreed_log_is_known_by_its_name() {
    let disk = MemoryDisk::new();
    let path = Path::new("log");
    let file = disk.open(path, kvorum_disk::OpenMode::CreateNew).unwrap();
    file.write_at(b"not what it was", 0).unwrap();
    assert_eq!(recognise(&disk, path).unwrap(), Kind::AgreedLog);
    assert!(pieces(&disk, path).iter().any(Piece::is_damaged));
}
