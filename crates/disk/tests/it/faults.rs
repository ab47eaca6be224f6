//! Failures, counts and logs of the faulty disk.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{
    CrashOptions, Disk, ErrorKind, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Reading,
    Rule, read_file, replace_file,
};

fn disks() -> (MemoryDisk, FaultyDisk) {
    let memory = MemoryDisk::new();
    let faulty = FaultyDisk::over_memory(&memory);
    (memory, faulty)
}

fn kind<T>(result: kvorum_disk::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn without_rules_nothing_fails() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(Arc::new(kvorum_disk::RealDisk));
    let path = directory.path().join("a/file");
    disk.create_directory(path.parent().unwrap()).unwrap();
    replace_file(&disk, &path, b"bytes").unwrap();
    assert_eq!(read_file(&disk, &path, 10).unwrap(), b"bytes");
    disk.link(&path, &directory.path().join("other")).unwrap();
    disk.remove_file(&path).unwrap();
    drop(disk.lock(&directory.path().join("LOCK"), "me").unwrap());
    assert!(disk.space(directory.path()).unwrap().total > 0);
    assert_eq!(disk.list(directory.path()).unwrap().len(), 3);
    disk.remove_directory(&directory.path().join("a")).unwrap();
    assert_eq!(disk.faults(), 0);
}

#[test]
fn rules_choose_by_operation_path_and_occurrence() {
    let (_, disk) = disks();
    let rule = Rule::new(Fault::Error(ErrorKind::NoSpace));
    let second_hint = disk.add_rule(
        rule.clone()
            .on(Operation::Write)
            .path_ends_with(".hint")
            .nth(2),
    );
    let renames_of_b = disk.add_rule(rule.clone().on(Operation::Rename).path(Path::new("b")));
    let later_syncs = disk.add_rule(rule.on(Operation::Sync).path_contains("da").from_nth(2));
    let hint = disk.open(Path::new("a.hint"), OpenMode::Create).unwrap();
    let data = disk.open(Path::new("a.data"), OpenMode::Create).unwrap();
    hint.write_at(b"1", 0).unwrap();
    data.write_at(b"1", 0).unwrap();
    assert_eq!(kind(hint.write_at(b"2", 1)), Some(ErrorKind::NoSpace));
    hint.write_at(b"3", 1).unwrap();
    assert_eq!(
        kind(disk.rename(Path::new("a.hint"), Path::new("b"))),
        Some(ErrorKind::NoSpace)
    );
    data.sync().unwrap();
    assert_eq!(kind(data.sync()), Some(ErrorKind::NoSpace));
    assert_eq!(
        [second_hint, renames_of_b, later_syncs].map(|it| disk.fired(it)),
        [1, 1, 1]
    );
    disk.heal();
    disk.rename(Path::new("a.hint"), Path::new("b")).unwrap();
    assert_eq!(disk.faults(), 3);
}

#[test]
fn a_failed_sync_leaves_all_earlier_handles_suspect() {
    let (_, disk) = disks();
    let path = Path::new("file");
    let file = disk.open(path, OpenMode::Create).unwrap();
    let other = disk.open(path, OpenMode::ReadWrite).unwrap();
    disk.rename(path, Path::new("renamed")).unwrap();
    let third = disk
        .open(Path::new("renamed"), OpenMode::ReadWrite)
        .unwrap();
    disk.add_rule(
        Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Sync)
            .nth(1),
    );
    assert_eq!(kind(file.sync()), Some(ErrorKind::Device));
    for handle in [&file, &other, &third] {
        assert_eq!(kind(handle.sync()), Some(ErrorKind::Suspect));
        assert_eq!(kind(handle.write_at(b"x", 0)), Some(ErrorKind::Suspect));
        assert_eq!(kind(handle.truncate(0)), Some(ErrorKind::Suspect));
        assert_eq!(kind(handle.allocate(1)), Some(ErrorKind::Suspect));
        assert_eq!(handle.len().unwrap(), 0);
    }
    disk.open(Path::new("renamed"), OpenMode::ReadWrite)
        .unwrap()
        .sync()
        .unwrap();
}

#[test]
fn writes_lost_by_a_failed_sync_are_read_until_the_crash() {
    let (memory, disk) = disks();
    let path = Path::new("file");
    let file = disk.open(path, OpenMode::Create).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    file.write_at(b"lost", 0).unwrap();
    disk.add_rule(
        Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Sync)
            .nth(1),
    );
    file.sync().unwrap_err();
    assert_eq!(read_file(&disk, path, 10).unwrap(), b"lost");
    let again = disk.open(path, OpenMode::ReadWrite).unwrap();
    again.write_at(b"kept", 4).unwrap();
    again.sync().unwrap();
    let image = memory.crash_image(CrashOptions::everything());
    assert_eq!(read_file(&image, path, 10).unwrap(), b"\0\0\0\0kept");
}

#[test]
fn torn_writes_short_reads_flipped_bits_and_cold_caches() {
    let (_, disk) = disks();
    let file = disk.open(Path::new("file"), OpenMode::Create).unwrap();
    let torn = disk.add_rule(Rule::new(Fault::TornWrite { bytes: 2 }).nth(1));
    assert_eq!(kind(file.write_at(b"1234", 0)), Some(ErrorKind::Device));
    assert_eq!(file.len().unwrap(), 2);
    file.write_at(b"1234", 0).unwrap();
    assert_eq!(disk.fired(torn), 1);

    let mut buffer = [0; 8];
    let short = disk.add_rule(Rule::new(Fault::ShortRead { bytes: 3 }));
    assert_eq!(file.read_at(&mut buffer, 0, Reading::MayBlock).unwrap(), 3);
    disk.remove_rule(short);
    let flipped = disk.add_rule(Rule::new(Fault::FlippedBit { bit: 33 }));
    assert_eq!(file.read_at(&mut buffer, 0, Reading::MayBlock).unwrap(), 4);
    assert_eq!(&buffer[..4], b"3234");
    disk.remove_rule(flipped);
    disk.add_rule(Rule::new(Fault::NotCached));
    assert_eq!(
        kind(file.read_at(&mut buffer, 0, Reading::CachedOnly)),
        Some(ErrorKind::WouldBlock)
    );
    assert_eq!(file.read_at(&mut buffer, 0, Reading::MayBlock).unwrap(), 4);
    assert_eq!(&buffer[..4], b"1234");
}

#[test]
fn each_operation_fails_once_in_its_turn() {
    let script = |disk: &FaultyDisk| replace_file(disk, Path::new("state"), b"new");
    let mut failed = Vec::new();
    for n in 1.. {
        let (_, disk) = disks();
        disk.fail_operation_number(n);
        let result = script(&disk);
        assert_eq!(result.is_err(), disk.faults() == 1);
        match result {
            Ok(()) => break,
            Err(error) => failed.push(error.operation()),
        }
    }
    let expected = [
        Operation::Info,
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDirectory,
    ];
    assert_eq!(failed, expected);
}

#[test]
fn the_log_lists_all_that_happened_in_order() {
    let (_, disk) = disks();
    replace_file(&disk, Path::new("state"), b"new").unwrap();
    let log = disk.log();
    let position = |operation| log.iter().position(|it| it.operation == operation).unwrap();
    assert!(position(Operation::Sync) < position(Operation::Rename));
    assert!(position(Operation::Rename) < position(Operation::SyncDirectory));
    let write = &log[position(Operation::Write)];
    assert_eq!(
        (write.path.as_path(), write.offset, write.bytes),
        (Path::new("state.tmp"), Some(0), 3)
    );
    let rename = &log[position(Operation::Rename)];
    assert_eq!(rename.other.as_deref(), Some(Path::new("state")));
    assert!(log.iter().all(|it| it.succeeded && it.fault.is_none()));
    disk.clear_log();
    assert!(disk.log().is_empty());
    assert_eq!(disk.operations(), log.len() as u64);
}
