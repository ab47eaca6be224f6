//! The promises that need no power cut, for the real disk and the disk in memory.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use kvorum_disk::{
    Disk, DiskError, EntryKind, ErrorKind, MemoryDisk, OpenMode, Operation, Reading, RealDisk,
    read_file, replace_file,
};
use rustix::io::Errno;

/// Runs a check on each disk, in a directory of its own.
fn on_each_disk(check: impl Fn(&dyn Disk, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    check(&RealDisk, directory.path());
    let memory = MemoryDisk::new();
    let root = PathBuf::from("/data");
    memory.create_directory(&root).unwrap();
    check(&memory, &root);
}

fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    disk.open(path, OpenMode::Create)
        .unwrap()
        .write_at(bytes, 0)
        .unwrap();
}

fn get(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    read_file(disk, path, 1 << 20).unwrap()
}

fn kind<T>(result: kvorum_disk::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn open_modes_demand_and_create_what_they_say() {
    on_each_disk(|disk, root| {
        let path = root.join("file");
        assert_eq!(
            kind(disk.open(&path, OpenMode::Read)),
            Some(ErrorKind::NotFound)
        );
        assert_eq!(
            kind(disk.open(&path, OpenMode::ReadWrite)),
            Some(ErrorKind::NotFound)
        );
        disk.open(&path, OpenMode::CreateNew)
            .unwrap()
            .write_at(b"kept", 0)
            .unwrap();
        assert_eq!(
            kind(disk.open(&path, OpenMode::CreateNew)),
            Some(ErrorKind::AlreadyExists)
        );
        for mode in [OpenMode::Create, OpenMode::ReadWrite, OpenMode::Read] {
            assert_eq!(disk.open(&path, mode).unwrap().len().unwrap(), 4);
        }
        let below_nothing = root.join("missing/file");
        assert_eq!(
            kind(disk.open(&below_nothing, OpenMode::Create)),
            Some(ErrorKind::NotFound)
        );
        let read_only = disk.open(&path, OpenMode::Read).unwrap();
        assert!(read_only.write_at(b"x", 0).is_err());
    });
}

#[test]
fn writes_extend_with_zeros_and_reads_stop_at_the_end() {
    on_each_disk(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::CreateNew).unwrap();
        file.write_at(b"end", 10).unwrap();
        file.write_parts_at(
            &[IoSlice::new(b"a"), IoSlice::new(b""), IoSlice::new(b"bc")],
            1,
        )
        .unwrap();
        let mut buffer = [0xff; 20];
        assert_eq!(file.read_at(&mut buffer, 0, Reading::MayBlock).unwrap(), 13);
        assert_eq!(&buffer[..14], b"\0abc\0\0\0\0\0\0end\xff");
        file.write_at(b"", 100).unwrap();
        file.write_parts_at(&[], 100).unwrap();
        assert_eq!(file.len().unwrap(), 13);
        assert_eq!(file.read_at(&mut buffer, 13, Reading::MayBlock).unwrap(), 0);
        assert_eq!(
            file.read_at(&mut buffer, 1 << 40, Reading::MayBlock)
                .unwrap(),
            0
        );
    });
}

#[test]
fn more_parts_than_one_system_call_takes_are_all_written() {
    on_each_disk(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::CreateNew).unwrap();
        let bytes: Vec<[u8; 2]> = (0..3000_u16).map(u16::to_le_bytes).collect();
        let parts: Vec<IoSlice<'_>> = bytes.iter().map(|it| IoSlice::new(it)).collect();
        file.write_parts_at(&parts, 5).unwrap();
        assert_eq!(&get(disk, &root.join("file"))[5..], bytes.concat());
    });
}

#[test]
fn cached_reads_fill_the_buffer_or_say_they_would_block() {
    on_each_disk(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::CreateNew).unwrap();
        file.write_at(&[7; 10_000], 0).unwrap();
        let mut buffer = vec![0; 20_000];
        match file.read_at(&mut buffer, 0, Reading::CachedOnly) {
            Ok(read) => assert_eq!((read, buffer[9_999]), (10_000, 7)),
            Err(error) => assert!(error.would_block(), "{error}"),
        }
    });
}

#[test]
fn truncating_and_allocating_set_the_length() {
    on_each_disk(|disk, root| {
        let file = disk.open(&root.join("file"), OpenMode::CreateNew).unwrap();
        file.write_at(b"abcdef", 0).unwrap();
        file.truncate(3).unwrap();
        file.allocate(5).unwrap();
        assert_eq!(get(disk, &root.join("file")), b"abc\0\0");
        file.allocate(2).unwrap();
        assert_eq!(file.len().unwrap(), 5);
        file.truncate(0).unwrap();
        assert!(file.is_empty().unwrap());
        file.sync().unwrap();
    });
}

#[test]
fn directories_list_their_names_in_order() {
    on_each_disk(|disk, root| {
        disk.create_directory(&root.join("c/deep")).unwrap();
        disk.create_directory(&root.join("c")).unwrap();
        put(disk, &root.join("b"), b"1");
        put(disk, &root.join("a"), b"22");
        let listed: Vec<_> = disk
            .list(root)
            .unwrap()
            .into_iter()
            .map(|entry| (entry.name, entry.kind))
            .collect();
        let expected = [
            ("a".to_owned(), EntryKind::File),
            ("b".to_owned(), EntryKind::File),
            ("c".to_owned(), EntryKind::Directory),
        ];
        assert_eq!(listed, expected);
        assert_eq!(disk.info(&root.join("a")).unwrap().unwrap().len, 2);
        assert_eq!(
            disk.info(&root.join("c")).unwrap().unwrap().kind,
            EntryKind::Directory
        );
        assert_eq!(disk.info(&root.join("d")).unwrap(), None);
        assert_eq!(kind(disk.list(&root.join("d"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn renaming_replaces_and_open_handles_keep_their_file() {
    on_each_disk(|disk, root| {
        let (old, new) = (root.join("old"), root.join("new"));
        put(disk, &old, b"moved");
        put(disk, &new, b"replaced");
        let replaced = disk.open(&new, OpenMode::Read).unwrap();
        disk.rename(&old, &new).unwrap();
        disk.sync_directory(root).unwrap();
        assert_eq!(get(disk, &new), b"moved");
        assert_eq!(disk.info(&old).unwrap(), None);
        assert_eq!(replaced.len().unwrap(), 8);
        assert_eq!(kind(disk.rename(&old, &new)), Some(ErrorKind::NotFound));
        disk.rename(&new, &new).unwrap();
        assert_eq!(get(disk, &new), b"moved");
    });
}

#[test]
fn directories_move_with_what_they_hold_but_not_onto_others() {
    on_each_disk(|disk, root| {
        disk.create_directory(&root.join("a")).unwrap();
        disk.create_directory(&root.join("full")).unwrap();
        put(disk, &root.join("a/file"), b"1");
        put(disk, &root.join("full/file"), b"2");
        assert!(disk.rename(&root.join("a"), &root.join("full")).is_err());
        assert!(disk.rename(&root.join("a"), &root.join("a/b")).is_err());
        assert!(
            disk.rename(&root.join("a"), &root.join("full/file"))
                .is_err()
        );
        disk.rename(&root.join("a"), &root.join("full/a")).unwrap();
        assert_eq!(get(disk, &root.join("full/a/file")), b"1");
        assert_eq!(disk.info(&root.join("a")).unwrap(), None);
    });
}

#[test]
fn links_share_the_file_and_need_a_free_name() {
    on_each_disk(|disk, root| {
        let (first, second) = (root.join("first"), root.join("second"));
        put(disk, &first, b"1");
        disk.link(&first, &second).unwrap();
        assert_eq!(
            kind(disk.link(&first, &second)),
            Some(ErrorKind::AlreadyExists)
        );
        put(disk, &second, b"22");
        assert_eq!(get(disk, &first), b"22");
        disk.rename(&first, &second).unwrap();
        assert!(
            disk.info(&first).unwrap().is_some(),
            "two names of one file both stay"
        );
        disk.remove_file(&first).unwrap();
        assert_eq!(get(disk, &second), b"22");
    });
}

#[test]
fn removal_takes_the_name_and_for_directories_all_below() {
    on_each_disk(|disk, root| {
        disk.create_directory(&root.join("a/b")).unwrap();
        put(disk, &root.join("a/b/file"), b"1");
        assert!(disk.remove_file(&root.join("a")).is_err());
        disk.remove_directory(&root.join("a")).unwrap();
        assert_eq!(disk.info(&root.join("a")).unwrap(), None);
        assert_eq!(
            kind(disk.remove_file(&root.join("a"))),
            Some(ErrorKind::NotFound)
        );
        assert_eq!(
            kind(disk.remove_directory(&root.join("a"))),
            Some(ErrorKind::NotFound)
        );
    });
}

#[test]
fn a_lock_is_held_until_dropped_and_names_its_holder() {
    on_each_disk(|disk, root| {
        let path = root.join("LOCK");
        let lock = disk.lock(&path, "process 7").unwrap();
        let refused = disk.lock(&path, "process 8").err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Locked);
        assert!(refused.to_string().contains("process 7"), "{refused}");
        drop(lock);
        drop(disk.lock(&path, "process 9").unwrap());
        assert_eq!(get(disk, &path), b"process 9");
    });
}

#[test]
fn replacing_a_file_leaves_no_other_name_behind() {
    on_each_disk(|disk, root| {
        let path = root.join("state");
        put(
            disk,
            &kvorum_disk::temporary_name(&path),
            b"left by a crash, and longer",
        );
        replace_file(disk, &path, b"one").unwrap();
        replace_file(disk, &path, b"two").unwrap();
        assert_eq!(get(disk, &path), b"two");
        assert_eq!(disk.list(root).unwrap().len(), 1);
        assert_eq!(kind(read_file(disk, &path, 2)), Some(ErrorKind::TooLarge));
    });
}

#[test]
fn space_is_known() {
    on_each_disk(|disk, root| {
        let space = disk.space(root).unwrap();
        assert!(space.total >= space.available && space.total > 0);
    });
}

/// Linux cannot sync `/dev/null`, so it serves as a file with failing syncs. Regression: a
/// directory that could not be opened for lack of file handles was treated like one with a failed
/// sync, and the value log took no writes until the next start.
#[test]
fn a_directory_that_cannot_be_opened_is_not_taken_for_one_that_failed_to_sync() {
    let missing = Path::new("/nowhere/at/all");
    let error = RealDisk.sync_directory(missing).unwrap_err();
    assert_eq!(error.operation(), Operation::Open);
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_want_of_file_handles_is_no_failure_of_the_device() {
    for errno in [Errno::MFILE, Errno::NFILE] {
        let error = std::io::Error::from(errno);
        let error = DiskError::from_io(Operation::Open, Path::new("file"), &error);
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
}

#[test]
fn a_failed_sync_of_the_real_disk_leaves_all_earlier_handles_suspect() {
    let path = Path::new("/dev/null");
    let first = RealDisk.open(path, OpenMode::ReadWrite).unwrap();
    let second = RealDisk.open(path, OpenMode::ReadWrite).unwrap();
    first.write_at(b"x", 0).unwrap();
    assert_eq!(kind(first.sync()), Some(ErrorKind::Device));
    let third = RealDisk.open(path, OpenMode::ReadWrite).unwrap();
    for handle in [&first, &second] {
        assert_eq!(kind(handle.write_at(b"x", 0)), Some(ErrorKind::Suspect));
        assert_eq!(kind(handle.truncate(0)), Some(ErrorKind::Suspect));
        assert_eq!(kind(handle.sync()), Some(ErrorKind::Suspect));
    }
    third.write_at(b"x", 0).unwrap();
    assert_eq!(kind(third.sync()), Some(ErrorKind::Device));
}
