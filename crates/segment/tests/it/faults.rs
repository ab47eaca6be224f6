//! Full disks, torn writes that the disk reports, and syncs that fail.

use kvorum_disk::{CrashOptions, ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_segment::{BatchPlace, Record, ScanOptions, SegmentError, Tail};

use crate::log::{append, contents, create, new_disk, record};

#[test]
fn a_failed_append_leaves_nothing_and_the_next_one_works() {
    for bytes in [0, 10, 40, 150, 170] {
        let memory = new_disk();
        let disk = FaultyDisk::over_memory(&memory);
        let mut writer = create(&disk);
        append(&mut writer, 1..=1);
        disk.add_rule(Rule::new(Fault::TornWrite { bytes }).nth(1));
        let batch: Vec<Record<'_>> = (0..3)
            .map(|index| Record {
                batch: BatchPlace::of(index, 3),
                ..record(2, b"of a batch")
            })
            .collect();
        let mut at = Vec::new();
        assert!(writer.append(&batch, &mut at).is_err());
        assert!(at.is_empty());
        append(&mut writer, 3..=3);
        let found = contents(&memory, ScanOptions::default());
        assert_eq!(found.sequences, [1, 3], "{bytes}");
        assert_eq!(found.end.tail, Tail::Open);
    }
}

#[test]
fn a_cut_that_fails_is_made_up_before_the_next_append() {
    let memory = new_disk();
    let disk = FaultyDisk::over_memory(&memory);
    let mut writer = create(&disk);
    disk.add_rule(Rule::new(Fault::TornWrite { bytes: 60 }).nth(1));
    let no_cut = Rule::new(Fault::Error(ErrorKind::Device)).on(Operation::Truncate);
    disk.add_rule(no_cut.nth(1));
    let back = [1; 200];
    assert!(writer.append(&[record(1, &back)], &mut Vec::new()).is_err());
    append(&mut writer, 2..=2);
    let found = contents(&memory, ScanOptions::default());
    assert_eq!(found.sequences, [2]);
    assert_eq!(found.end.tail, Tail::Open);
}

#[test]
fn a_full_disk_refuses_and_takes_more_when_there_is_room() {
    let memory = MemoryDisk::with_capacity(1000);
    let disk = FaultyDisk::over_memory(&memory);
    kvorum_disk::Disk::create_directory(&disk, std::path::Path::new("log")).unwrap();
    let mut writer = create(&disk);
    let large = vec![1; 2000];
    let refused = writer.append(&[record(1, &large)], &mut Vec::new());
    let Err(SegmentError::Disk(error)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    append(&mut writer, 2..=2);
    assert_eq!(contents(&memory, ScanOptions::default()).sequences, [2]);
}

#[test]
fn after_a_failed_sync_the_segment_takes_nothing_more() {
    let memory = new_disk();
    let disk = FaultyDisk::over_memory(&memory);
    let mut writer = create(&disk);
    append(&mut writer, 1..=1);
    let sync = writer.sync_handle();
    disk.add_rule(
        Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Sync)
            .nth(1),
    );
    assert!(sync.sync().is_err());
    assert!(sync.is_suspect());
    assert!(matches!(sync.sync(), Err(SegmentError::Suspect { .. })));
    let refused = writer.append(&[record(2, b"")], &mut Vec::new());
    assert!(matches!(refused, Err(SegmentError::Suspect { .. })));
    assert!(writer.seal().is_err());
    let image = memory.crash_image(CrashOptions::everything());
    let found = contents(&image, ScanOptions::default());
    assert!(found.sequences.len() <= 1);
}
