//! Two versions of the bytes of one file: as programs read them, and as the device has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::crash::{DataSurvival, Draw};
use super::used::Used;

/// Devices write sectors whole; larger writes may be torn between sectors.
const SECTOR_BYTES: usize = 512;

/// A file, independent of its names.
pub(super) struct FileNode {
    pub(super) id: u64,
    pub(super) content: Mutex<Content>,
    /// The number of names that programs see, and of handles.
    holders: AtomicUsize,
    /// Space used on the whole disk; this file's share is freed with its last name and handle.
    used: Arc<Used>,
}

impl FileNode {
    pub(super) fn new(id: u64, content: Content, used: &Arc<Used>) -> Arc<Self> {
        Arc::new(Self {
            id,
            content: Mutex::new(content),
            holders: AtomicUsize::new(0),
            used: Arc::clone(used),
        })
    }

    /// Adds a name or a handle.
    pub(super) fn hold(&self) {
        if self.holders.fetch_add(1, Ordering::AcqRel) == 0 {
            self.used.change(0, self.content.lock().current.len());
        }
    }

    /// Removes a name or a handle.
    pub(super) fn release(&self) {
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.used.change(self.content.lock().current.len(), 0);
        }
    }

    /// Applies an unsynced change, and accounts for the space that the change takes or frees.
    pub(super) fn change(&self, change: Change) {
        let mut content = self.content.lock();
        let before = content.current.len();
        content.change(change);
        self.used.change(before, content.current.len());
    }
}

/// An unsynced change of a file.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
    Reserve { len: usize },
}

impl Change {
    /// The length of a file of `len` bytes after this change.
    pub(super) fn len_after(&self, len: usize) -> usize {
        match self {
            Self::Write { bytes, .. } if bytes.is_empty() => len,
            Self::Write { offset, bytes } => len.max(offset.saturating_add(bytes.len())),
            Self::Truncate { len } => *len,
            Self::Reserve { len: reserved } => len.max(*reserved),
        }
    }

    fn apply(&self, file: &mut Vec<u8>) {
        file.resize(self.len_after(file.len()), 0);
        // An empty write beyond the end changes nothing, the length included.
        if let Self::Write { offset, bytes } = self
            && !bytes.is_empty()
        {
            file[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Applies some sectors of a write, and perhaps the length of the whole write.
    fn apply_torn(&self, file: &mut Vec<u8>, draw: &mut Draw) {
        let Self::Write { offset, bytes } = self else {
            if draw.coin() {
                self.apply(file);
            }
            return;
        };
        if draw.coin() {
            file.resize(self.len_after(file.len()), 0);
        }
        let mut from = 0;
        while from < bytes.len() {
            let at = offset + from;
            let to = bytes.len().min(from + SECTOR_BYTES - at % SECTOR_BYTES);
            if draw.coin() {
                Self::Write {
                    offset: at,
                    bytes: bytes[from..to].to_vec(),
                }
                .apply(file);
            }
            from = to;
        }
    }
}

/// The contents of a file.
#[derive(Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    pub(super) current: Vec<u8>,
    /// The changes from `durable` to `current`, in order, without those that a failed sync lost.
    unsynced: Vec<Change>,
}

impl Content {
    /// The contents of a file after a crash.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            current: bytes,
            unsynced: Vec::new(),
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// The effect of a failed sync: the changes are still read, but no later sync writes them.
    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }

    /// The bytes that a crash leaves.
    pub(super) fn survivor(&self, data: DataSurvival, draw: &mut Draw) -> Vec<u8> {
        let mut file = self.durable.clone();
        match data {
            DataSurvival::Nothing => {}
            DataSurvival::Everything => self.unsynced.iter().for_each(|it| it.apply(&mut file)),
            DataSurvival::Lengths => {
                self.unsynced
                    .iter()
                    .for_each(|it| file.resize(it.len_after(file.len()), 0));
            }
            DataSurvival::Drawn => match draw.below(6) {
                0 => return self.survivor(DataSurvival::Nothing, draw),
                1 => return self.survivor(DataSurvival::Everything, draw),
                2 => return self.survivor(DataSurvival::Lengths, draw),
                3 => self.keep_first(&mut file, draw),
                _ => self.keep_any(&mut file, draw),
            },
        }
        file
    }

    /// Applies the first few changes, the last of them torn.
    fn keep_first(&self, file: &mut Vec<u8>, draw: &mut Draw) {
        let kept = draw.below(self.unsynced.len() + 1);
        for change in &self.unsynced[..kept] {
            change.apply(file);
        }
        if let Some(torn) = self.unsynced.get(kept) {
            torn.apply_torn(file, draw);
        }
    }

    fn keep_any(&self, file: &mut Vec<u8>, draw: &mut Draw) {
        for change in &self.unsynced {
            match draw.below(3) {
                0 => {}
                1 => change.apply(file),
                _ => change.apply_torn(file, draw),
            }
        }
    }
}
