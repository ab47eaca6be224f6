//! The reserve: free space on a node's file systems, kept for work that frees space.
//!
//! Merges and collections write copies before they remove their sources. On a full file system
//! neither can begin, and a disk filled by overwrites would stay full for ever. So clients must
//! leave the last part of the free space: appends for clients take room here first; merges,
//! collections, flushes and checkpoints need not. Removals may take half of the reserve, since they
//! free space in the end.
//!
//! The reserve is a minimum of free space, not a file that would have to be written and removed in
//! time. Its size follows the usable space of the node, the free space and the space of the node's
//! own files: a small disk, or one that other programs have nearly filled, gets a small reserve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Disk, ErrorKind, Result, Space};

/// The reserve of a small file system is its usable space divided by this.
const RESERVE_PART: u64 = 16;
/// Above this many bytes a smaller part is enough, since merges are limited to the reserve.
const RESERVE_LARGE_BYTES: u64 = 1 << 30;
const RESERVE_LARGE_PART: u64 = 64;
const RESERVE_BYTES_MAX: u64 = 4 << 30;
/// A file that is reserved as a whole takes at most the usable space divided by this.
const FILE_PART: u64 = 32;
/// Shorter files, in bytes, would cost more than they save.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// The same for files of which several are copied before the first is removed.
const PART_PART: u64 = 128;
const PART_BYTES_MIN: u64 = 256 << 10;
/// The same for the file that each of a node's stores writes, which is not merged even if it is
/// garbage.
const STORE_FILE_PART: u64 = 8192;
/// The fewest bytes of a file for clients' writes while space is short.
pub const PUT_FILE_BYTES_MIN: u64 = 256 << 10;
/// Each count of files lowers the usable space by at most one byte in this many: files that are
/// being written or still have readers are not counted.
const FORGOTTEN_PART: u64 = 256;
/// Each measurement by background work, several times a second, lowers it by at most one byte in
/// this many: while puts are refused nothing is written, and files are not counted.
const FORGOTTEN_PART_OF_LOOK: u64 = 1024;
/// After a query of the file systems, the remaining space divided by this, up to the limit in
/// bytes, may be appended to files without reserved space before the next query.
const ALLOWED_PART: u64 = 4;
const ALLOWED_BYTES_MAX: u64 = 64 << 20;

/// Free space, and its reserved part, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Free space, less the data that stores have only in memory and will write.
    pub available: u64,
    /// All space that the node's files could take: the free space and their own.
    pub usable: u64,
    /// The reserved part of the usable space.
    pub reserve: u64,
}

impl Headroom {
    /// The headroom of an unknown file system: nothing is reserved.
    pub const UNKNOWN: Self = Self {
        available: u64::MAX,
        usable: u64::MAX,
        reserve: 0,
    };

    /// The headroom of a file system on which the node's own files take `own_bytes`.
    pub fn of(space: Space, own_bytes: u64) -> Self {
        if space.total == 0 {
            // Some network file systems do not report their size.
            return Self::UNKNOWN;
        }
        let usable = space.available.saturating_add(own_bytes).min(space.total);
        let large = (usable / RESERVE_LARGE_PART).clamp(RESERVE_LARGE_BYTES, RESERVE_BYTES_MAX);
        Self {
            available: space.available,
            usable,
            reserve: (usable / RESERVE_PART).min(large),
        }
    }

    /// Space that clients' writes may take.
    pub fn for_puts(&self) -> u64 {
        self.available.saturating_sub(self.reserve)
    }

    /// Space that removals may take.
    pub fn for_removals(&self) -> u64 {
        self.available.saturating_sub(self.reserve / 2)
    }

    /// True when work that frees space has priority.
    pub fn is_scarce(&self) -> bool {
        self.available < self.reserve.saturating_mul(2)
    }

    /// True when clients' writes are refused, or are about to be.
    pub fn is_exhausted(&self) -> bool {
        self.available < self.reserve.saturating_add(self.reserve / 4)
    }

    /// True when clients' writes are refused: there is no room for another of their files.
    pub fn refuses_puts(&self) -> bool {
        self.for_puts() < PUT_FILE_BYTES_MIN.min(self.reserve / 4)
    }

    /// True when removals have used half of their part of the reserve. They are refused when all of
    /// it is used, so any work that frees space is worth its cost.
    pub fn is_short_for_removals(&self) -> bool {
        self.available < self.reserve / 4 * 3
    }

    /// The length of files of `wanted` bytes, if several are copied before the first is removed.
    pub fn part_bytes(&self, wanted: u64) -> u64 {
        wanted.min((self.usable / PART_PART).max(PART_BYTES_MIN))
    }

    /// The length of the file that each of many stores writes, if `wanted` bytes are wanted.
    pub fn store_file_bytes(&self, wanted: u64) -> u64 {
        wanted.min((self.usable / STORE_FILE_PART).max(PART_BYTES_MIN))
    }

    /// The length of a file that is reserved or copied as a whole, if `wanted` bytes are wanted.
    pub fn file_bytes(&self, wanted: u64) -> u64 {
        wanted.min((self.usable / FILE_PART).max(FILE_BYTES_MIN))
    }
}

/// The reserves of the file systems of a node's stores and its log.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    places: Mutex<Vec<Place>>,
    own_bytes: AtomicU64,
    promised_bytes: AtomicU64,
    seen: Mutex<Headroom>,
    /// Bytes that may be appended before the file systems are queried again.
    allowed: AtomicI64,
}

/// A directory, and its usable space at the last measurement.
struct Place {
    directory: PathBuf,
    usable: u64,
}

impl Place {
    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            usable: 0,
        }
    }
}

impl Reserve {
    /// The reserve of the file system of a directory that may not exist yet.
    pub fn new(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        Self {
            disk,
            places: Mutex::new(vec![Place::new(directory)]),
            own_bytes: AtomicU64::new(0),
            promised_bytes: AtomicU64::new(0),
            seen: Mutex::new(Headroom::UNKNOWN),
            allowed: AtomicI64::new(0),
        }
    }

    /// Adds the file system of another directory. The file system with the least room decides.
    pub fn watch(&self, directory: &Path) {
        let mut places = self.places.lock();
        if places.iter().all(|it| it.directory != directory) {
            places.push(Place::new(directory));
        }
    }

    /// Notes the space of the node's files, in bytes.
    pub fn set_own_bytes(&self, bytes: u64) {
        self.own_bytes.store(bytes, Ordering::Relaxed);
        self.forget(FORGOTTEN_PART);
    }

    /// Notes the bytes of data that stores have only in memory. They will write it to files of
    /// their own, and the log drops it only afterwards.
    pub fn set_promised_bytes(&self, bytes: u64) {
        self.promised_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Queries the file systems for background work, several times a second. After a while, space
    /// taken by another program no longer counts as the node's, even if nothing is written.
    pub fn look(&self) -> Headroom {
        self.forget(FORGOTTEN_PART_OF_LOOK);
        self.measure()
    }

    fn forget(&self, part: u64) {
        for place in self.places.lock().iter_mut() {
            place.usable -= place.usable / part;
        }
    }

    /// Queries the file systems, which is too slow for every put.
    pub fn measure(&self) -> Headroom {
        let own_bytes = self.own_bytes.load(Ordering::Relaxed);
        let promised_bytes = self.promised_bytes.load(Ordering::Relaxed);
        let mut places = self.places.lock();
        let measured = places.iter_mut().map(|place| {
            let Ok(space) = space_of(&*self.disk, &place.directory) else {
                return Headroom::UNKNOWN;
            };
            let known_bytes = place.usable.saturating_sub(space.available);
            let headroom = Headroom::of(space, own_bytes.max(known_bytes));
            if headroom == Headroom::UNKNOWN {
                return headroom;
            }
            place.usable = headroom.usable;
            Headroom {
                available: headroom.available.saturating_sub(promised_bytes),
                ..headroom
            }
        });
        let least = measured.min_by_key(Headroom::for_puts);
        let headroom = least.unwrap_or(Headroom::UNKNOWN);
        drop(places);
        *self.seen.lock() = headroom;
        headroom
    }

    /// Takes room for a client's append to a file without reserved space; false if the bytes would
    /// touch the reserve. Queries the file systems once for many writes.
    pub fn take(&self, bytes: u64, is_removal: bool) -> bool {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.allowed.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
            return true;
        }
        let headroom = self.measure();
        let allowed = (headroom.for_puts() / ALLOWED_PART).min(ALLOWED_BYTES_MAX);
        let left = i64::try_from(allowed.saturating_sub(bytes)).unwrap_or(0);
        self.allowed.store(left, Ordering::Relaxed);
        bytes
            <= match is_removal {
                true => headroom.for_removals(),
                false => headroom.for_puts(),
            }
    }

    /// The headroom at the last measurement.
    pub fn seen(&self) -> Headroom {
        *self.seen.lock()
    }
}

/// The space on the file system of a directory that may not exist yet.
fn space_of(disk: &dyn Disk, directory: &Path) -> Result<Space> {
    let here = Path::new(".");
    let above = directory
        .ancestors()
        .map(|it| match it.as_os_str().is_empty() {
            true => here,
            false => it,
        });
    for existing in above {
        match disk.space(existing) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
    }
    disk.space(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDisk, OpenMode};

    const MEBIBYTE: u64 = 1 << 20;
    const GIBIBYTE: u64 = 1 << 30;

    fn headroom(total: u64, available: u64, own_bytes: u64) -> Headroom {
        Headroom::of(Space { total, available }, own_bytes)
    }

    #[test]
    fn the_reserve_follows_what_the_node_can_have() {
        let reserve = |total| headroom(total, total, 0).reserve;
        assert_eq!(reserve(16 * MEBIBYTE), MEBIBYTE);
        assert_eq!(reserve(16 * GIBIBYTE), GIBIBYTE);
        assert_eq!(reserve(64 * GIBIBYTE), GIBIBYTE);
        assert_eq!(reserve(128 * GIBIBYTE), 2 * GIBIBYTE);
        assert_eq!(reserve(1 << 44), 4 * GIBIBYTE);
        // A large disk that other programs have nearly filled still has room for a first put.
        let crowded = headroom(1 << 40, 32 * MEBIBYTE, 0);
        assert_eq!(
            (crowded.reserve, crowded.for_puts()),
            (2 * MEBIBYTE, 30 * MEBIBYTE)
        );
    }

    #[test]
    fn the_reserve_does_not_shrink_while_the_node_fills_the_disk() {
        for filled in [0, 100, 150, 159] {
            let here = headroom(200 * MEBIBYTE, (160 - filled) * MEBIBYTE, filled * MEBIBYTE);
            assert_eq!(here.reserve, 10 * MEBIBYTE);
        }
    }

    #[test]
    fn removals_go_on_where_puts_are_refused() {
        let full = headroom(160 * MEBIBYTE, 9 * MEBIBYTE, 151 * MEBIBYTE);
        assert_eq!((full.for_puts(), full.for_removals()), (0, 4 * MEBIBYTE));
        assert!(full.is_scarce() && full.is_exhausted());
        let roomy = headroom(160 * MEBIBYTE, 30 * MEBIBYTE, 130 * MEBIBYTE);
        assert!(!roomy.is_scarce() && !roomy.is_exhausted());
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_measured_and_the_fullest_counts() {
        let disk = MemoryDisk::with_capacity(64 * MEBIBYTE);
        let reserve = Reserve::new(Arc::new(disk.clone()), Path::new("not/there"));
        assert_eq!(reserve.seen(), Headroom::UNKNOWN);
        assert_eq!(reserve.measure().available, 64 * MEBIBYTE);
        let file = disk.open(Path::new("file"), OpenMode::CreateNew).unwrap();
        file.allocate(60 * MEBIBYTE).unwrap();
        reserve.set_own_bytes(60 * MEBIBYTE);
        let measured = reserve.measure();
        assert_eq!((measured.available, measured.for_puts()), (4 * MEBIBYTE, 0));
        assert_eq!(reserve.seen(), measured);
    }

    #[test]
    fn what_is_appended_leaves_the_reserve_alone() {
        let disk = MemoryDisk::with_capacity(64 * MEBIBYTE);
        let reserve = Reserve::new(Arc::new(disk.clone()), Path::new(""));
        let file = disk.open(Path::new("file"), OpenMode::CreateNew).unwrap();
        let mut end = 0;
        while reserve.take(10_000, false) {
            end += 10_000;
            file.allocate(end).unwrap();
        }
        let full = reserve.measure();
        assert!(full.for_puts() < 20_000, "{full:?}");
        assert!(full.available >= full.reserve * 9 / 10, "{full:?}");
        assert!(reserve.take(10_000, true) && !reserve.take(10_000, false));
        file.truncate(0).unwrap();
        assert!(reserve.take(10_000, false));
    }

    /// Regression: files that a collection was writing were not counted, and the reserve shrank
    /// when it was needed.
    #[test]
    fn what_is_not_counted_for_a_moment_does_not_shrink_the_reserve() {
        let disk = MemoryDisk::with_capacity(64 * MEBIBYTE);
        let reserve = Reserve::new(Arc::new(disk.clone()), Path::new(""));
        let first = reserve.measure();
        let file = disk.open(Path::new("file"), OpenMode::CreateNew).unwrap();
        file.allocate(60 * MEBIBYTE).unwrap();
        reserve.set_own_bytes(0);
        assert!(reserve.measure().reserve > first.reserve * 9 / 10);
        // Other programs keep the space, so it is not the node's.
        for _ in 0..10_000 {
            reserve.set_own_bytes(0);
            reserve.measure();
        }
        assert!(reserve.seen().reserve < first.reserve / 10);
    }

    /// Regression: stores had room for their memory at the time of the put, but not when they wrote
    /// it.
    #[test]
    fn what_stores_will_write_is_not_free() {
        let disk = MemoryDisk::with_capacity(64 * MEBIBYTE);
        let reserve = Reserve::new(Arc::new(disk), Path::new(""));
        let before = reserve.measure();
        reserve.set_promised_bytes(61 * MEBIBYTE);
        let after = reserve.measure();
        assert_eq!(after.available, 3 * MEBIBYTE);
        assert_eq!(
            (after.usable, after.reserve),
            (before.usable, before.reserve)
        );
        assert!(after.refuses_puts() && !reserve.take(1, false));
        reserve.set_promised_bytes(100 * MEBIBYTE);
        assert_eq!(reserve.measure().available, 0);
    }

    /// Regression: another program filled the disk. Puts were refused, so nothing was appended or
    /// counted, and the reserve stayed that of the whole disk.
    #[test]
    fn what_another_program_takes_shrinks_the_reserve_though_nothing_is_written() {
        let disk = MemoryDisk::with_capacity(64 * MEBIBYTE);
        let reserve = Reserve::new(Arc::new(disk.clone()), Path::new(""));
        reserve.measure();
        let other = disk.open(Path::new("other"), OpenMode::CreateNew).unwrap();
        other.allocate(61 * MEBIBYTE).unwrap();
        assert!(reserve.look().refuses_puts());
        for _ in 0..10_000 {
            reserve.look();
        }
        assert!(!reserve.seen().refuses_puts(), "{:?}", reserve.seen());
    }

    #[test]
    fn where_the_file_system_says_nothing_nothing_is_held_back() {
        let unknown = headroom(0, 0, 0);
        assert!(!unknown.is_scarce() && unknown.for_puts() == u64::MAX);
        assert_eq!((unknown.file_bytes(7), unknown.store_file_bytes(7)), (7, 7));
    }

    #[test]
    fn files_are_short_where_many_stores_could_fill_the_disk_with_one_each() {
        let least = |free: u64| headroom(1 << 40, free, 0).store_file_bytes(10 * MEBIBYTE);
        assert_eq!(least(64 * MEBIBYTE), 256 << 10);
        assert_eq!(least(8 * GIBIBYTE), MEBIBYTE);
        assert_eq!(least(1 << 40), 10 * MEBIBYTE);
    }
}
