//! Data that the disk in memory keeps or loses in a crash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_disk::{
    CrashOptions, Disk, DiskFile, ErrorKind, MemoryDisk, OpenMode, Reading, read_file, replace_file,
};
use proptest::prelude::*;

fn content(disk: &MemoryDisk, path: &str) -> Option<Vec<u8>> {
    let path = Path::new(path);
    disk.info(path)
        .unwrap()
        .map(|_| read_file(disk, path, 1 << 20).unwrap())
}

fn create(disk: &MemoryDisk, path: &str, bytes: &[u8]) -> std::sync::Arc<dyn DiskFile> {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

#[test]
fn syncing_a_file_does_not_make_its_name_durable() {
    let disk = MemoryDisk::new();
    create(&disk, "file", b"bytes").sync().unwrap();
    assert_eq!(
        content(&disk.crash_image(CrashOptions::nothing_unsynced()), "file"),
        None
    );
    disk.sync_directory(Path::new("")).unwrap();
    let image = disk.crash_image(CrashOptions::nothing_unsynced());
    assert_eq!(content(&image, "file").unwrap(), b"bytes");
}

#[test]
fn a_directory_that_was_not_synced_takes_its_files_along() {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("a/b")).unwrap();
    create(&disk, "a/b/file", b"bytes").sync().unwrap();
    disk.sync_directory(Path::new("a/b")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    assert_eq!(
        content(
            &disk.crash_image(CrashOptions::nothing_unsynced()),
            "a/b/file"
        ),
        None
    );
    disk.sync_directory(Path::new("a")).unwrap();
    let image = disk.crash_image(CrashOptions::nothing_unsynced());
    assert_eq!(content(&image, "a/b/file").unwrap(), b"bytes");
}

#[test]
fn a_directory_created_durably_survives_with_everything_above_it() {
    let disk = MemoryDisk::new();
    // An earlier process was killed after this.
    disk.create_directory(Path::new("a/b")).unwrap();
    kvorum_disk::create_directory_durably(&disk, Path::new("a/b/c")).unwrap();
    let image = disk.crash_image(CrashOptions::nothing_unsynced());
    assert!(image.info(Path::new("a/b/c")).unwrap().is_some());
}

#[test]
fn each_extreme_leaves_what_it_says() {
    let disk = MemoryDisk::new();
    let file = create(&disk, "old", b"12");
    file.sync().unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    file.write_at(b"xyz", 1).unwrap();
    disk.rename(Path::new("old"), Path::new("new")).unwrap();
    let names = ["old", "new"];
    let left = |options| names.map(|name| content(&disk.crash_image(options), name));
    assert_eq!(
        left(CrashOptions::nothing_unsynced()),
        [Some(b"12".to_vec()), None]
    );
    assert_eq!(
        left(CrashOptions::everything()),
        [None, Some(b"1xyz".to_vec())]
    );
    assert_eq!(
        left(CrashOptions::names_without_data()),
        [None, Some(b"12".to_vec())]
    );
    assert_eq!(
        left(CrashOptions::names_with_zeros()),
        [None, Some(b"12\0\0".to_vec())]
    );
    assert_eq!(
        left(CrashOptions::data_without_names()),
        [Some(b"1xyz".to_vec()), None]
    );
}

#[test]
fn a_rename_is_kept_or_lost_as_one_and_both_happen() {
    let mut seen = BTreeMap::new();
    for seed in 0..64 {
        let disk = MemoryDisk::new();
        replace_file(&disk, Path::new("state"), b"one").unwrap();
        create(&disk, "next", b"two").sync().unwrap();
        disk.rename(Path::new("next"), Path::new("state")).unwrap();
        let image = disk.crash_image(CrashOptions::drawn(seed));
        let left = (content(&image, "state").unwrap(), content(&image, "next"));
        *seen.entry(left).or_insert(0) += 1;
    }
    let possible = [
        (b"one".to_vec(), None),
        (b"one".to_vec(), Some(b"two".to_vec())),
        (b"two".to_vec(), None),
    ];
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), possible);
}

#[test]
fn drawn_crashes_tear_writes_at_sectors() {
    let disk = MemoryDisk::new();
    let file = create(&disk, "file", b"");
    disk.sync_directory(Path::new("")).unwrap();
    file.write_at(&[1; 2000], 100).unwrap();
    let mut torn = 0;
    for seed in 0..64 {
        let left = content(&disk.crash_image(CrashOptions::drawn(seed)), "file").unwrap();
        let sectors: Vec<&[u8]> = left.get(100..).unwrap_or_default().chunks(1).collect();
        let kept = sectors.iter().filter(|byte| byte[0] == 1).count();
        torn += usize::from(kept > 0 && kept < 2000);
        for sector in left.chunks(512) {
            let written = &sector[sector.iter().position(|&it| it == 1).unwrap_or(0)..];
            assert!(
                written.iter().all(|&it| it == written[0]),
                "a sector is written whole"
            );
        }
    }
    assert!(torn > 0);
}

#[test]
fn replacing_a_file_survives_a_cut_at_every_operation() {
    let script = |disk: &MemoryDisk| {
        replace_file(disk, Path::new("state"), b"one")?;
        replace_file(disk, Path::new("state"), b"two")
    };
    let whole = MemoryDisk::new();
    script(&whole).unwrap();
    for cut in 0..=whole.operations() {
        for options in CrashOptions::extremes()
            .into_iter()
            .chain((0..32).map(CrashOptions::drawn))
        {
            let disk = MemoryDisk::new();
            disk.cut_after(cut);
            let done = script(&disk).is_ok();
            assert_eq!(done, cut == whole.operations());
            let left = content(&disk.crash_image(options), "state");
            let allowed = match left.as_deref() {
                None => cut < whole.operations() / 2,
                Some(b"one") => !done,
                Some(b"two") => cut > whole.operations() / 2,
                Some(_) => false,
            };
            assert!(allowed, "cut after {cut}, {options:?}: {left:?}");
        }
    }
}

#[test]
fn after_a_cut_every_change_fails_and_reading_goes_on() {
    let disk = MemoryDisk::new();
    let file = create(&disk, "file", b"bytes");
    assert!(!disk.is_cut());
    disk.cut_after(disk.operations());
    assert!(disk.is_cut());
    let root = Path::new("");
    let errors = [
        file.write_at(b"x", 0).err(),
        file.sync().err(),
        file.truncate(0).err(),
        file.allocate(10).err(),
        disk.open(Path::new("other"), OpenMode::Create).err(),
        disk.create_directory(Path::new("other")).err(),
        disk.rename(Path::new("file"), Path::new("other")).err(),
        disk.link(Path::new("file"), Path::new("other")).err(),
        disk.remove_file(Path::new("file")).err(),
        disk.sync_directory(root).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.to_string().contains("power lost"), "{error}");
    }
    assert_eq!(content(&disk, "file").unwrap(), b"bytes");
    assert_eq!(disk.list(root).unwrap().len(), 1);
}

#[test]
fn a_crash_in_place_releases_locks_and_makes_handles_stale() {
    let disk = MemoryDisk::new();
    let file = create(&disk, "file", b"bytes");
    let lock = disk.lock(Path::new("LOCK"), "before").unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk.cut_after(0);
    disk.crash(CrashOptions::everything());
    let again = disk.lock(Path::new("LOCK"), "after").unwrap();
    drop(lock);
    assert!(
        disk.lock(Path::new("LOCK"), "third").is_err(),
        "the old lock frees nothing"
    );
    drop(again);
    assert_eq!(file.len().err().unwrap().kind(), ErrorKind::Device);
    assert!(file.read_at(&mut [0], 0, Reading::MayBlock).is_err());
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.sync().is_err());
    assert_eq!(content(&disk, "file").unwrap(), b"bytes");
}

#[test]
fn an_image_has_no_locks_and_shares_nothing_with_its_disk() {
    let disk = MemoryDisk::new();
    let _lock = disk.lock(Path::new("LOCK"), "before").unwrap();
    let file = create(&disk, "file", b"one");
    let image = disk.crash_image(CrashOptions::everything());
    drop(image.lock(Path::new("LOCK"), "after").unwrap());
    file.write_at(b"two", 0).unwrap();
    assert_eq!(content(&image, "file").unwrap(), b"one");
}

#[test]
fn links_to_one_file_are_still_one_file_after_a_crash() {
    let disk = MemoryDisk::new();
    create(&disk, "first", b"1");
    disk.link(Path::new("first"), Path::new("second")).unwrap();
    let image = disk.crash_image(CrashOptions::everything());
    image
        .open(Path::new("first"), OpenMode::ReadWrite)
        .unwrap()
        .write_at(b"2", 0)
        .unwrap();
    assert_eq!(content(&image, "second").unwrap(), b"2");
}

#[test]
fn a_full_disk_refuses_growth_until_something_is_removed() {
    let disk = MemoryDisk::with_capacity(10);
    let file = create(&disk, "first", b"12345678");
    assert_eq!(
        file.write_at(b"123", 8).err().unwrap().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(
        file.write_at(b"x", u64::MAX).err().unwrap().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(file.allocate(11).err().unwrap().kind(), ErrorKind::NoSpace);
    file.write_at(b"123", 5).unwrap();
    file.truncate(4).unwrap();
    assert_eq!(disk.space(Path::new("")).unwrap().available, 6);
    drop(file);
    disk.remove_file(Path::new("first")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    create(&disk, "second", b"1234567890");
    assert_eq!(disk.space(Path::new("")).unwrap().available, 0);
}

/// Regression: a server kept removed files open, and the disk of its tests counted their space as
/// free.
#[test]
fn a_removed_file_takes_its_blocks_until_it_is_closed() {
    let disk = MemoryDisk::with_blocks(10 * 4096, 4096);
    let available = || disk.space(Path::new("")).unwrap().available;
    let file = create(&disk, "first", &[7; 4097]);
    assert_eq!(available(), 8 * 4096);
    file.write_at(&[7; 4095], 4097).unwrap();
    assert_eq!(available(), 8 * 4096);
    file.write_at(b"x", 8192).unwrap();
    assert_eq!(available(), 7 * 4096);
    disk.remove_file(Path::new("first")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    assert_eq!(available(), 7 * 4096);
    let image = disk.crash_image(CrashOptions::drawn(1));
    assert_eq!(image.space(Path::new("")).unwrap().available, 10 * 4096);
    drop(file);
    assert_eq!(available(), 10 * 4096);
}

/// Regression: unlike on real file systems, space of removed files was not free before their
/// directory was synced.
#[test]
fn a_removed_file_gives_its_space_back_before_the_removal_is_durable() {
    let disk = MemoryDisk::with_blocks(10 * 4096, 4096);
    let available = || disk.space(Path::new("")).unwrap().available;
    drop(create(&disk, "first", &[7; 4097]));
    disk.sync_directory(Path::new("")).unwrap();
    disk.rename(Path::new("first"), Path::new("second"))
        .unwrap();
    assert_eq!(available(), 8 * 4096);
    disk.remove_file(Path::new("second")).unwrap();
    assert_eq!(available(), 10 * 4096);
}

/// A step of a random script over three files.
#[derive(Clone, Debug)]
enum Step {
    Write { file: u8, offset: u16, len: u16 },
    Truncate { file: u8, len: u16 },
    Allocate { file: u8, len: u16 },
    Sync { file: u8 },
    Rename { from: u8, to: u8 },
    Remove { file: u8 },
    SyncDirectory,
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..3_u8;
    prop_oneof![
        6 => (file.clone(), 0..3000_u16, 0..3000_u16)
            .prop_map(|(file, offset, len)| Step::Write { file, offset, len }),
        1 => (file.clone(), 0..4000_u16).prop_map(|(file, len)| Step::Truncate { file, len }),
        1 => (file.clone(), 0..4000_u16).prop_map(|(file, len)| Step::Allocate { file, len }),
        3 => file.clone().prop_map(|file| Step::Sync { file }),
        2 => (file.clone(), file.clone()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => file.prop_map(|file| Step::Remove { file }),
        2 => Just(Step::SyncDirectory),
    ]
}

/// Possible contents of a file after a crash: the values of each byte since the last sync, and true
/// if the file has not changed since.
#[derive(Clone, Default)]
struct File {
    current: Vec<u8>,
    ever: Vec<Vec<u8>>,
    is_clean: bool,
}

impl File {
    fn resize(&mut self, len: usize) {
        self.is_clean &= self.current.len() == len;
        self.current.resize(len, 0);
        self.ever.resize(self.ever.len().max(len), Vec::new());
    }

    fn may_hold(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.ever.len()
            && bytes
                .iter()
                .zip(&self.ever)
                .all(|(byte, ever)| *byte == 0 || ever.contains(byte))
    }
}

fn name(file: u8) -> PathBuf {
    PathBuf::from(format!("file-{file}"))
}

fn run(disk: &MemoryDisk, steps: &[Step]) -> (BTreeMap<PathBuf, File>, Vec<File>, bool) {
    let mut files: BTreeMap<PathBuf, File> = BTreeMap::new();
    let mut gone = Vec::new();
    let mut names_are_clean = true;
    for (number, step) in (1..).zip(steps) {
        let exists = |file: u8| disk.info(&name(file)).unwrap().is_some();
        match *step {
            Step::Write { file, offset, len } => {
                names_are_clean &= exists(file);
                let byte = u8::try_from(number % 255 + 1).unwrap();
                let handle = disk.open(&name(file), OpenMode::Create).unwrap();
                handle
                    .write_at(&vec![byte; usize::from(len)], u64::from(offset))
                    .unwrap();
                let model = files.entry(name(file)).or_default();
                if len > 0 {
                    let end = usize::from(offset) + usize::from(len);
                    model.resize(model.current.len().max(end));
                    model.current[usize::from(offset)..end].fill(byte);
                    model.ever[usize::from(offset)..end]
                        .iter_mut()
                        .for_each(|it| it.push(byte));
                    model.is_clean = false;
                }
            }
            Step::Truncate { file, len } | Step::Allocate { file, len } if exists(file) => {
                let handle = disk.open(&name(file), OpenMode::ReadWrite).unwrap();
                let model = files.get_mut(&name(file)).unwrap();
                if matches!(step, Step::Truncate { .. }) {
                    handle.truncate(u64::from(len)).unwrap();
                    model.resize(usize::from(len));
                } else {
                    handle.allocate(u64::from(len)).unwrap();
                    model.resize(model.current.len().max(usize::from(len)));
                }
            }
            Step::Sync { file } if exists(file) => {
                disk.open(&name(file), OpenMode::ReadWrite)
                    .unwrap()
                    .sync()
                    .unwrap();
                let model = files.get_mut(&name(file)).unwrap();
                model.ever = model.current.iter().map(|byte| vec![*byte]).collect();
                model.is_clean = true;
            }
            Step::Rename { from, to } if exists(from) && from != to => {
                disk.rename(&name(from), &name(to)).unwrap();
                let moved = files.remove(&name(from)).unwrap();
                gone.extend(files.insert(name(to), moved));
                names_are_clean = false;
            }
            Step::Remove { file } if exists(file) => {
                disk.remove_file(&name(file)).unwrap();
                gone.extend(files.remove(&name(file)));
                names_are_clean = false;
            }
            Step::SyncDirectory => {
                disk.sync_directory(Path::new("")).unwrap();
                gone.clear();
                names_are_clean = true;
            }
            _ => {}
        }
    }
    (files, gone, names_are_clean)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn synced_content_is_there_and_nothing_is_invented(
        steps in prop::collection::vec(step(), 1..30),
        seed: u64,
    ) {
        let disk = MemoryDisk::new();
        let (files, gone, names_are_clean) = run(&disk, &steps);
        let image = disk.crash_image(CrashOptions::drawn(seed));
        for entry in image.list(Path::new("")).unwrap() {
            let left = content(&image, &entry.name).unwrap();
            let known = files.values().chain(&gone).any(|file| file.may_hold(&left));
            prop_assert!(known, "{} holds what nothing wrote", entry.name);
        }
        for (path, file) in files.iter().filter(|_| names_are_clean) {
            let left = content(&image, path.to_str().unwrap());
            prop_assert!(left.is_some(), "{} is lost", path.display());
            let left = left.unwrap();
            prop_assert!(file.may_hold(&left));
            if file.is_clean {
                prop_assert_eq!(&left, &file.current);
            }
        }
        if names_are_clean {
            prop_assert_eq!(image.list(Path::new("")).unwrap().len(), files.len());
        }
        let again = disk.crash_image(CrashOptions::drawn(seed));
        for entry in image.list(Path::new("")).unwrap() {
            prop_assert_eq!(content(&image, &entry.name), content(&again, &entry.name));
        }
    }

    #[test]
    fn everything_survives_a_killed_process(steps in prop::collection::vec(step(), 1..30)) {
        let disk = MemoryDisk::new();
        let (files, _, _) = run(&disk, &steps);
        let image = disk.crash_image(CrashOptions::everything());
        prop_assert_eq!(image.list(Path::new("")).unwrap().len(), files.len());
        for (path, file) in &files {
            prop_assert_eq!(&content(&image, path.to_str().unwrap()).unwrap(), &file.current);
        }
    }
}

/// Regression: a store on a completely full disk could not be opened, and so could not make room.
#[test]
fn a_lock_is_taken_where_there_is_no_room_for_its_holder() {
    let disk = MemoryDisk::with_blocks(8192, 4096);
    let full = disk.open(Path::new("full"), OpenMode::Create).unwrap();
    full.write_at(&[1; 8192], 0).unwrap();
    let lock = disk.lock(Path::new("lock"), "process 1").unwrap();
    let second = disk.lock(Path::new("lock"), "process 2");
    assert_eq!(second.err().unwrap().kind(), ErrorKind::Locked);
    drop(lock);
}
