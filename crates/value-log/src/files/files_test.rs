//! Writes and their order when a group is committed while more is queued behind it.

use std::path::Path;
use std::sync::{Arc, Barrier};

use bytes::Bytes;
use kvorum_backend::{ErrorKind, Purpose, Sequence, StoreId};
use kvorum_disk::{Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_segment::{EncodedBack, StoredBack, file_name};

use crate::files::GroupFailure;
use crate::files::{Files, Placing};
use crate::item::{Batch, Item};
use crate::opening;
use crate::promise::LogPromise;
use crate::record::LogRecord;
use crate::settings::ValueLogSettings;

fn files(disk: &FaultyDisk, segment_bytes: u64) -> Files {
    let directory = Path::new("values");
    let opened = opening::open(disk, directory, 1).unwrap();
    let settings = ValueLogSettings {
        segment_bytes,
        garbage_percent_max: 30,
    };
    Files::new(
        Arc::new(disk.clone()),
        directory.to_owned(),
        settings,
        opened,
    )
}

/// A batch in a place that has room for it.
fn place(files: &Files, sequence: u64, value_bytes: usize) -> Arc<Item> {
    let batch = batch(sequence, value_bytes);
    assert!(makes_room(files, batch.stored_len()));
    match files.place(batch, Purpose::Store).unwrap() {
        Placing::Placed(item, _) => item,
        Placing::NoRoom(_) => unreachable!("nobody else takes the room"),
    }
}

fn makes_room(files: &Files, len: u64) -> bool {
    is_written(files.make_room(len, Purpose::Store))
}

fn batch(sequence: u64, value_bytes: usize) -> Batch {
    let bytes = Bytes::from(vec![b'v'; value_bytes]);
    let record = LogRecord {
        kind: 1,
        removal: false,
        front: LogRecord::front_for(0),
        back: StoredBack::of(EncodedBack::plain(&bytes), &bytes),
    };
    Batch::encode(StoreId(1), Sequence(sequence), vec![record]).unwrap()
}

fn count(disk: &FaultyDisk, operation: Operation) -> usize {
    let log = disk.log();
    log.iter().filter(|it| it.operation == operation).count()
}

fn is_written(result: Result<(), GroupFailure>) -> bool {
    result.map_err(GroupFailure::into_error).is_ok()
}

#[test]
fn what_waits_behind_a_sync_is_written_meanwhile_and_then_only_synced() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1 << 20);
    let small = place(&files, 1, 100);
    disk.clear_log();
    assert!(is_written(files.write_ahead()));
    assert_eq!(count(&disk, Operation::Write), 0, "not worth a write");
    let large = place(&files, 2, 100_000);
    assert!(is_written(files.write_ahead()));
    disk.clear_log();
    assert!(!files.is_synced_to(files.appended()));
    assert!(is_written(
        files.write(&[small, large], LogPromise::Durable)
    ));
    assert_eq!(count(&disk, Operation::Write), 0);
    assert_eq!(count(&disk, Operation::Sync), 1);
    assert!(files.is_synced_to(files.appended()));
}

#[test]
fn a_group_that_the_sync_before_it_covered_needs_none_of_its_own() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1 << 20);
    let (first, second) = (place(&files, 1, 100), place(&files, 2, 100));
    assert!(is_written(files.write(&[first], LogPromise::Durable)));
    disk.clear_log();
    assert!(is_written(files.write(&[second], LogPromise::Durable)));
    assert_eq!(disk.log(), []);
}

/// Regression: key directories assumed that no record begins beyond 8 GiB of a segment.
#[test]
fn no_segment_is_longer_than_places_can_name() {
    let files = files(&FaultyDisk::over_memory(&MemoryDisk::new()), 1 << 40);
    assert_eq!(files.settings.segment_bytes, 8 << 30);
}

/// Regression: upkeep that marked an idle segment waited for the state and kept all batches from their
/// places. Meanwhile the holder of the state waited for a file, and the maker of the file for a place.
#[test]
fn a_wait_for_the_state_keeps_no_batch_from_its_place() {
    let files = files(&FaultyDisk::over_memory(&MemoryDisk::new()), 1 << 20);
    let begun = Barrier::new(2);
    let state = files.state.lock();
    std::thread::scope(|threads| {
        let marking = threads.spawn(|| {
            begun.wait();
            files.mark_if_idle()
        });
        begun.wait();
        for _ in 0..10_000 {
            assert!(files.room.cursor.try_lock().is_some());
            std::thread::yield_now();
        }
        drop(state);
        assert!(marking.join().unwrap().is_ok());
    });
}

/// Regression: after a disk was full once, no spare was made ahead of need until the next start.
#[test]
fn spares_are_made_again_once_there_is_space() {
    for (kind, operation) in [
        (kvorum_disk::ErrorKind::NoSpace, Operation::Allocate),
        (kvorum_disk::ErrorKind::Exhausted, Operation::Open),
    ] {
        let disk = FaultyDisk::over_memory(&MemoryDisk::new());
        let files = files(&disk, 1_000);
        place(&files, 1, 600);
        disk.add_rule(Rule::new(Fault::Error(kind)).on(operation));
        assert!(!makes_spare(&files) && !files.room.wants_spare());
        disk.heal();
        place(&files, 2, 600);
        assert!(files.room.wants_spare() && makes_spare(&files));
    }
}

fn makes_spare(files: &Files) -> bool {
    let made = files.room.make_spare().map_err(GroupFailure::into_error);
    made.unwrap()
}

/// Regression: two writers made room for one file and each took a place. The second place was in a
/// segment without reserved space, so the batch was refused, but could be read.
#[test]
fn no_place_is_given_where_there_is_no_file() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1_000);
    place(&files, 1, 600);
    let refused = batch(2, 600);
    let len = refused.stored_len();
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    disk.add_rule(Rule::new(no_space).on(Operation::Allocate));
    assert!(!makes_room(&files, len));
    let Placing::NoRoom(refused) = files.place(refused, Purpose::Store).unwrap() else {
        unreachable!("there is no file for it");
    };
    let placed = files.appended();
    disk.heal();
    assert!(makes_room(&files, len));
    assert!(matches!(
        files.place(refused, Purpose::Store),
        Ok(Placing::Placed(..))
    ));
    assert!(files.appended() > placed);
}

/// Regression: a batch longer than a segment was placed in a file with a segment's space.
#[test]
fn a_batch_that_is_longer_than_a_segment_has_its_space_before_its_place() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1_000);
    place(&files, 1, 600);
    assert!(makes_spare(&files));
    let long = batch(2, 5_000);
    let len = long.stored_len();
    let Placing::NoRoom(long) = files.place(long, Purpose::Store).unwrap() else {
        unreachable!("its file is as long as others");
    };
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    disk.add_rule(Rule::new(no_space).on(Operation::Allocate));
    assert!(!makes_room(&files, len));
    disk.heal();
    assert!(makes_room(&files, len));
    disk.add_rule(Rule::new(no_space).on(Operation::Allocate));
    let Placing::Placed(long, _) = files.place(long, Purpose::Store).unwrap() else {
        unreachable!("room was made for it");
    };
    assert!(is_written(files.write(&[long], LogPromise::Durable)));
}

/// The same for an empty segment that was begun.
#[test]
fn a_begun_segment_is_widened_for_a_batch_that_is_longer() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1_000);
    let first = place(&files, 1, 600);
    assert!(is_written(files.write(&[first], LogPromise::Durable)));
    let next = files.roll().unwrap().number;
    assert!(is_written(files.begin(next)));
    let long = place(&files, 2, 5_000);
    assert_eq!(long.segment, next);
    assert!(is_written(files.write(&[long], LogPromise::Durable)));
}

#[test]
fn a_group_is_not_failed_by_what_did_not_fit_behind_it() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1_000);
    let first = place(&files, 1, 600);
    assert!(is_written(files.write(&[first], LogPromise::Durable)));
    let (ours, later) = (place(&files, 2, 100), place(&files, 3, 600));
    assert_ne!(ours.segment, later.segment);
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    // Writes into reserved space fail, as on a copy-on-write disk.
    let file = Path::new("values").join(file_name(later.segment.into()));
    disk.add_rule(Rule::new(no_space).on(Operation::Write).path(&file));
    assert!(is_written(
        files.write(std::slice::from_ref(&ours), LogPromise::Durable)
    ));
    assert!(files.is_stalled(), "and the next append fails");
    let failure = files.write(std::slice::from_ref(&later), LogPromise::Durable);
    let Err(GroupFailure::ThisGroup(error)) = failure else {
        unreachable!("it could not be written");
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    disk.heal();
    assert!(is_written(files.write(&[later], LogPromise::Durable)));
    assert!(files.is_synced_to(files.appended()));
}

/// Places puts and removals until both are refused. Returns the number of each, and the free bytes
/// at the first refusal of a put.
fn fill(files: &Files, disk: &FaultyDisk) -> (usize, usize, u64) {
    let mut sequence = 0;
    let mut placed = |purpose| {
        sequence += 1;
        let batch = batch(sequence, 10_000);
        let has_room = is_written(files.make_room(batch.stored_len(), purpose));
        if has_room {
            let Placing::Placed(item, _) = files.place(batch, purpose).unwrap() else {
                unreachable!("nobody else takes the room");
            };
            assert!(is_written(files.write(&[item], LogPromise::Durable)));
        }
        has_room
    };
    let mut count = |purpose| {
        std::iter::repeat_with(|| placed(purpose))
            .take_while(|it| *it)
            .count()
    };
    let puts = count(Purpose::Store);
    let available = disk.space(Path::new("")).unwrap().available;
    (puts, count(Purpose::Free), available)
}

/// Regression: the first put on a small disk was refused, since a whole file of 64 MB did not fit.
/// On a larger disk the log took all of the space, and nothing could be copied or removed any more.
#[test]
fn on_a_small_disk_files_are_shorter_and_the_last_part_is_left_to_others() {
    let memory = MemoryDisk::with_blocks(40 << 20, 4096);
    let disk = FaultyDisk::over_memory(&memory);
    let files = files(&disk, 64 << 20);
    let (puts, removals, available) = fill(&files, &disk);
    let reserve = (40 << 20) / 16;
    assert!(puts > 3_000, "{puts}");
    assert!(
        available >= reserve && available < reserve + (1 << 20),
        "{available}"
    );
    assert!(removals > 100, "{removals}");
    assert!(disk.space(Path::new("")).unwrap().available >= reserve / 2);
    assert!(files.segments().len() > 20);
}

/// Health reports puts as refused when there is no room for a small one; puts have to agree with
/// this report.
#[test]
fn the_room_for_puts_is_what_puts_can_take_and_deletions_do_not_show_in_it() {
    let memory = MemoryDisk::with_blocks(40 << 20, 4096);
    let disk = FaultyDisk::over_memory(&memory);
    let files = files(&disk, 64 << 20);
    let ballast = memory
        .open(Path::new("ballast"), kvorum_disk::OpenMode::CreateNew)
        .unwrap();
    files.reserve.set_own_bytes(38 << 20);
    ballast.allocate(38 << 20).unwrap();
    assert_eq!(files.room.room_for_puts(), 0, "no file could be made");
    assert!(!makes_room(&files, 1_000));
    assert!(is_written(files.make_room(1_000, Purpose::Free)));
    assert_eq!(files.room.room_for_puts(), 0, "this file is for removals");
    ballast.truncate(0).unwrap();
    assert!(files.room.room_for_puts() > 1 << 20);
    let (puts, _, _) = fill(&files, &disk);
    assert!(puts > 3_000, "{puts}");
    let left = files.room.room_for_puts();
    assert!(left < 11_000, "a put of 10,000 bytes was refused: {left}");
}

/// Another program had filled the file system to its last byte.
#[test]
fn the_end_of_a_file_is_left_to_removals_while_there_is_no_next_one() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1 << 20);
    place(&files, 1, 600);
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    disk.add_rule(Rule::new(no_space).on(Operation::Allocate));
    let (puts, removals, _) = fill(&files, &disk);
    assert!(puts > 90 && removals > 3, "{puts} and {removals}");
    disk.heal();
    assert!(makes_room(&files, 10_000));
}

/// A file made for removals, out of the reserve, takes no puts before the reserve is refilled.
#[test]
fn a_file_for_removals_takes_puts_once_there_is_room() {
    let memory = MemoryDisk::with_blocks(40 << 20, 4096);
    let disk = FaultyDisk::over_memory(&memory);
    let files = files(&disk, 64 << 20);
    let ballast = memory
        .open(Path::new("ballast"), kvorum_disk::OpenMode::CreateNew)
        .unwrap();
    files.reserve.set_own_bytes(38 << 20);
    ballast.allocate(38 << 20).unwrap();
    assert!(!makes_room(&files, 1_000));
    assert!(is_written(files.make_room(1_000, Purpose::Free)));
    assert!(!makes_room(&files, 1_000));
    ballast.truncate(0).unwrap();
    assert!(makes_room(&files, 1_000));
    assert_eq!(
        files
            .room
            .ready_to
            .load(std::sync::atomic::Ordering::Acquire),
        1
    );
}

fn suits(files: &Files) -> bool {
    let at_once = files.at_once();
    at_once.is_some_and(|mut at_once| at_once.suits())
}

#[test]
fn what_is_little_and_stays_in_the_open_segment_is_written_at_once_and_not_synced() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let files = files(&disk, 1 << 20);
    let first = place(&files, 1, 100);
    assert!(!suits(&files), "no segment is open");
    assert!(is_written(files.write(&[first], LogPromise::Written)));
    let second = place(&files, 2, 100);
    disk.clear_log();
    let mut at_once = files.at_once().unwrap();
    assert!(at_once.suits() && files.at_once().is_none());
    assert!(is_written(at_once.write(&[second])));
    let operations: Vec<_> = disk.log().iter().map(|it| it.operation).collect();
    assert_eq!(operations, [Operation::Write]);
    assert!(!files.is_synced_to(files.appended()));
}

#[test]
fn what_may_wait_for_the_device_is_left_to_the_driver() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let long = files(&disk, 4 << 20);
    let opening = place(&long, 1, 100);
    assert!(is_written(long.write(&[opening], LogPromise::Written)));
    let large = place(&long, 2, 300 << 10);
    assert!(!suits(&long), "much is to be written");
    assert!(is_written(long.write(&[large], LogPromise::Written)));

    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let short = files(&disk, 1_000);
    let first = place(&short, 1, 600);
    assert!(is_written(short.write(&[first], LogPromise::Written)));
    let next = place(&short, 2, 600);
    assert!(!suits(&short), "the segment is to be synced first");
    assert!(is_written(short.write(&[next], LogPromise::Written)));

    disk.add_rule(Rule::new(Fault::Error(kvorum_disk::ErrorKind::NoSpace)).on(Operation::Write));
    let unwritten = place(&short, 3, 100);
    assert!(!is_written(short.write(&[unwritten], LogPromise::Written)));
    assert!(!suits(&short), "an earlier write failed");
}
