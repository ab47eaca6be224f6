//! Losses by damage: reported in the status, set aside in `lost/`, and kept as doubts about keys.
//!
//! Reads that must not wait for a device may find damage, so damage is noted in memory first, and
//! the next upkeep writes the note. A failure to write is ignored.

use std::collections::BTreeSet;
use std::path::Path;

use kvorum_backend::{BackendError, ErrorKind, LostDirectory, LostRange, is_news};
use kvorum_disk::Disk;
use kvorum_disk::anatomy::shown;
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, DoubtRecord, Doubts};
use kvorum_page_tree::{LostPage, PagePlace, file_name};
use parking_lot::Mutex;

/// The file name of the list of losses, below `lost/`.
pub const INDEX: &str = "PAGES.bad";
/// The list's first bytes.
pub const MAGIC: [u8; 8] = *b"KVinnbad";

/// See the module.
pub(crate) struct Losses {
    directory: LostDirectory,
    known: Mutex<Known>,
    pub(crate) doubts: Doubts,
}

#[derive(Default)]
struct Known {
    ranges: Vec<LostRange>,
    /// Ranges that are in the index on disk.
    written: usize,
    /// Damaged pages that are no longer in the tree, by their names.
    left_out: BTreeSet<u64>,
}

impl Losses {
    /// Reads the index, if there is one. A damaged index is itself listed as lost.
    pub(crate) fn open(disk: &dyn Disk, store: &Path, doubts: &DoubtRecord) -> Self {
        let directory = LostDirectory::of(store, INDEX, MAGIC);
        let known = match directory.read(disk) {
            Ok(ranges) => Known {
                written: ranges.len(),
                ranges,
                ..Known::default()
            },
            Err(damaged) => Known {
                ranges: vec![damaged],
                ..Known::default()
            },
        };
        let losses = Self {
            directory,
            known: Mutex::new(known),
            doubts: Doubts::default(),
        };
        losses.doubts.restore(doubts);
        losses
    }

    /// All ranges known to be lost.
    pub(crate) fn ranges(&self) -> Vec<LostRange> {
        self.known.lock().ranges.clone()
    }

    /// Notes a range of a file; a known one does not change.
    pub(crate) fn note(&self, range: LostRange) {
        let mut known = self.known.lock();
        if is_news(&known.ranges, &range) {
            known.ranges.push(range);
        }
    }

    /// Notes lost writes with unknown keys.
    pub(crate) fn note_writes(&self, range: LostRange) {
        self.note(range);
        self.doubts.open(DoubtKind::Lost, KeyRange::everything());
    }

    /// Notes a page that cannot be read, and returns the error of reads.
    pub(crate) fn note_page(&self, lost: &LostPage) -> BackendError {
        let file = match lost.place.len {
            0 => "value_log".to_owned(),
            _ => file_name(lost.place.file),
        };
        let to = lost.range.to.as_ref();
        let held = format!(
            "a page with the keys from {} up to {} ({})",
            shown(&lost.range.from),
            to.map_or_else(|| "the last".to_owned(), |to| shown(to)),
            lost.found
        );
        let detail = format!(
            "{file}, {} bytes at {}: {held}",
            lost.place.len, lost.place.offset
        );
        let (offset, len) = (lost.place.offset, u64::from(lost.place.len));
        self.note(LostRange::new(file, offset, len, held));
        let name = lost.place.name();
        self.doubts.open_for(name, offset, lost.range.clone());
        BackendError::new(ErrorKind::Corrupt, detail)
    }

    /// Notes that the tree no longer leads to this page.
    pub(crate) fn leave_out(&self, lost: &LostPage) {
        let _reported = self.note_page(lost);
        self.known.lock().left_out.insert(lost.place.name());
    }

    /// True when a damaged page with this name may still be in the tree, in an existing file.
    pub(crate) fn is_there(&self, name: u64, has_file: impl Fn(u64) -> bool) -> bool {
        has_file(PagePlace::file_of_name(name)) && !self.known.lock().left_out.contains(&name)
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        let known = self.known.lock();
        known.written < known.ranges.len()
    }

    /// Copies the bytes of noted ranges, and writes the index.
    pub(crate) fn write(&self, disk: &dyn Disk) {
        let (ranges, written) = {
            let known = self.known.lock();
            (known.ranges.clone(), known.written)
        };
        if written >= ranges.len() {
            return;
        }
        for range in &ranges[written..] {
            let _copied_or_failing_disk = self.directory.set_aside(disk, range);
        }
        if self.directory.write(disk, &ranges).is_ok() {
            self.known.lock().written = ranges.len();
        }
    }

    /// Removes all losses, as after an erasure.
    pub(crate) fn clear(&self, disk: &dyn Disk) {
        *self.known.lock() = Known::default();
        self.directory.remove(disk);
    }
}
