//! Power cuts: synced records survive, torn records are cut, and batches are whole or absent.

use kvorum_disk::{
    CrashOptions, Disk, ErrorKind, Fault, FaultyDisk, OpenMode, Operation, Reading, Rule,
};
use kvorum_segment::{
    BatchPlace, Record, ResumeAt, ScanOptions, SegmentError, SegmentReader, SegmentWriter, Tail,
};

use crate::log::{ID, append, contents, create, flip, new_disk, path, record};

#[test]
fn synced_records_survive_and_torn_ones_leave_a_prefix() {
    let disk = new_disk();
    let mut writer = create(&disk);
    append(&mut writer, 1..=3);
    writer.sync_handle().sync().unwrap();
    append(&mut writer, 4..=9);
    let drawn = (0..200).map(CrashOptions::drawn);
    for options in CrashOptions::extremes().into_iter().chain(drawn) {
        let image = disk.crash_image(options);
        let found = contents(&image, ScanOptions::default());
        let count = found.sequences.len() as u64;
        assert!(count >= 3, "{options:?}: {found:?}");
        assert!(found.sequences.iter().copied().eq(1..=count), "{options:?}");
        assert!(found.damage.is_empty(), "{options:?}: {found:?}");
    }
}

#[test]
fn a_batch_is_there_whole_or_not_at_all() {
    let disk = new_disk();
    let mut writer = create(&disk);
    append(&mut writer, 1..=1);
    writer.sync_handle().sync().unwrap();
    let back = [9; 400];
    let batch: Vec<Record<'_>> = (0..4)
        .map(|index| Record {
            batch: BatchPlace::of(index, 4),
            ..record(2, &back)
        })
        .collect();
    writer.append(&batch, &mut Vec::new()).unwrap();
    let mut seen = [false; 2];
    for seed in 0..200 {
        let image = disk.crash_image(CrashOptions::drawn(seed));
        let found = contents(&image, ScanOptions::default()).sequences;
        assert!(
            found == [1] || found == [1, 2, 2, 2, 2],
            "{seed}: {found:?}"
        );
        seen[usize::from(found.len() > 1)] = true;
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn a_writer_resumes_behind_what_is_whole() {
    for seed in 0..100 {
        let disk = new_disk();
        let mut writer = create(&disk);
        append(&mut writer, 1..=5);
        disk.crash(CrashOptions::drawn(seed));
        let found = contents(&disk, ScanOptions::default());
        let at = ResumeAt {
            end: found.end.clean_to,
            records: found.sequences.len() as u64,
            ..ResumeAt::default()
        };
        let mut writer = SegmentWriter::resume(&disk, path(), ID, at, None).unwrap();
        append(&mut writer, 10..=11);
        writer.sync_handle().sync().unwrap();
        disk.crash(CrashOptions::nothing_unsynced());
        let again = contents(&disk, ScanOptions::default());
        let expected: Vec<u64> = found.sequences.into_iter().chain([10, 11]).collect();
        assert_eq!(again.sequences, expected, "{seed}");
        assert_eq!(again.end.tail, Tail::Open);
    }
}

#[test]
fn what_a_failed_sync_lost_is_written_again() {
    let memory = new_disk();
    let disk = FaultyDisk::over_memory(&memory);
    let mut writer = create(&disk);
    append(&mut writer, 1..=5);
    disk.add_rule(Rule::new(Fault::Error(ErrorKind::Device)).on(Operation::Sync));
    writer.sync_handle().sync().unwrap_err();
    drop(writer);
    disk.heal();
    let found = contents(&disk, ScanOptions::default());
    let at = ResumeAt {
        end: found.end.clean_to,
        ..ResumeAt::default()
    };
    let again = Some(found.end.durable_to);
    SegmentWriter::resume(&disk, path(), ID, at, again).unwrap();
    memory.crash(CrashOptions::nothing_unsynced());
    assert_eq!(
        contents(&memory, ScanOptions::default()).sequences,
        [1, 2, 3, 4, 5]
    );
}

#[test]
fn a_bit_that_flips_while_it_is_read_is_not_written_back() {
    for fault in [
        Fault::FlippedBit { bit: 8 * 40 },
        Fault::ShortRead { bytes: 60 },
    ] {
        let memory = new_disk();
        append(&mut create(&memory), 1..=5);
        let end = contents(&memory, ScanOptions::default()).end.clean_to;
        let at = ResumeAt {
            end,
            ..ResumeAt::default()
        };
        let resume = |disk: &FaultyDisk| {
            let again = Some(kvorum_segment::FILE_HEADER_BYTES);
            SegmentWriter::resume(disk, path(), ID, at, again).map(drop)
        };
        for nth in 1..=2 {
            let disk = FaultyDisk::over_memory(&memory);
            disk.add_rule(Rule::new(fault).on(Operation::Read).nth(nth));
            resume(&disk).unwrap();
            assert_eq!(disk.faults(), 1);
            let found = contents(&memory, ScanOptions::default());
            assert_eq!(found.sequences, [1, 2, 3, 4, 5], "{fault:?}");
        }
    }
}

#[test]
fn a_new_segment_survives_a_power_cut_with_its_name() {
    let disk = new_disk();
    let mut writer = create(&disk);
    append(&mut writer, 1..=2);
    writer.sync_handle().sync().unwrap();
    disk.crash(CrashOptions::nothing_unsynced());
    assert_eq!(contents(&disk, ScanOptions::default()).sequences, [1, 2]);
}

#[test]
fn a_failed_creation_leaves_no_file_in_the_way() {
    let disk = new_disk();
    let full = FaultyDisk::over_memory(&disk);
    let no_space = Fault::Error(ErrorKind::NoSpace);
    full.add_rule(Rule::new(no_space).on(Operation::Write));
    let failed = SegmentWriter::create(&full, path(), ID);
    assert!(matches!(failed, Err(SegmentError::Disk(_))));
    assert_eq!(disk.info(path()).unwrap(), None);
    full.heal();
    create(&full);
    SegmentReader::open(&disk, path(), ID)
        .unwrap()
        .check_header()
        .unwrap();
}

#[test]
fn a_seal_that_survives_vouches_for_the_mark_before_it() {
    for cut in 0..9 {
        let disk = new_disk();
        let mut writer = create(&disk);
        append(&mut writer, 1..=3);
        writer.sync_handle().sync().unwrap();
        writer.mark().unwrap();
        disk.cut_after(disk.operations() + cut);
        let _sealed_or_cut = writer.seal();
        for seed in 0..50 {
            let image = disk.crash_image(CrashOptions::drawn(seed));
            let found = contents(&image, ScanOptions::default());
            assert_eq!(found.sequences, [1, 2, 3], "cut {cut}, seed {seed}");
            assert_eq!(found.damage, [], "cut {cut}, seed {seed}");
        }
    }
}

/// Regression: a power cut tore the seal of a segment at the boundary of two sectors, when the next
/// segment had records already. The segment was reported as damaged, read at every opening, and set
/// aside.
#[test]
fn a_torn_seal_or_mark_is_no_damage_where_everything_was_durable() {
    let known = ScanOptions {
        durable_to: u64::MAX,
        ..ScanOptions::default()
    };
    for is_seal in [true, false] {
        let disk = new_disk();
        let mut writer = create(&disk);
        append(&mut writer, 1..=3);
        writer.sync_handle().sync().unwrap();
        let end = writer.end();
        if is_seal {
            writer.seal().unwrap();
        } else {
            writer.mark().unwrap();
        }
        let file = disk.open(path(), OpenMode::ReadWrite).unwrap();
        let len = usize::try_from(file.len().unwrap() - end).unwrap();
        let mut word = vec![0; len];
        file.read_at(&mut word, end, Reading::MayBlock).unwrap();
        for reserved in [0, 500] {
            for cut in 0..=len {
                for is_first_part in [true, false] {
                    let mut left = word.clone();
                    match is_first_part {
                        true => left[cut..].fill(0),
                        false => left[..cut].fill(0),
                    }
                    left.resize(len + reserved, 0);
                    file.write_at(&left, end).unwrap();
                    file.truncate(end + left.len() as u64).unwrap();
                    let found = contents(&disk, known);
                    let what = (is_seal, reserved, cut, is_first_part);
                    assert_eq!(found.sequences, [1, 2, 3], "{what:?}");
                    assert_eq!(found.damage, [], "{what:?}");
                }
            }
        }
    }
}

#[test]
fn a_flip_in_the_last_record_is_damage_where_everything_was_durable() {
    let known = ScanOptions {
        durable_to: u64::MAX,
        ..ScanOptions::default()
    };
    // An empty back, and a front as long as a seal's.
    for (front, back) in [(&[9; 32][..], &[][..]), (&[9; 8], &[]), (&[9; 8], &[9; 24])] {
        let disk = new_disk();
        let mut writer = create(&disk);
        let fronted = |sequence| Record {
            front,
            ..record(sequence, back)
        };
        writer.append(&[fronted(1)], &mut Vec::new()).unwrap();
        let last = writer.end();
        writer.append(&[fronted(2)], &mut Vec::new()).unwrap();
        for at in last..writer.end() {
            flip(&disk, at);
            let found = contents(&disk, known);
            assert_eq!((found.sequences, found.damage.len()), (vec![1], 1), "{at}");
            flip(&disk, at);
        }
    }
}
