//! Replaced versions that may still be read: upkeep releases them, and not the last reader.
//!
//! Releasing the last version with a memtable frees every entry of it, one by one; releasing the
//! last one with a merged table makes the system free its file. Either takes a tenth of a second. A
//! read in progress when the version was replaced would do that now and then, and delay all other
//! work of its thread. Two cases remain: a snapshot that outlives its store, and a read while a
//! store is erased.

use std::sync::Arc;

use parking_lot::Mutex;

/// More than this is not to be held where upkeep does not come round.
const HELD_MAX: usize = 8;

/// Values that were replaced.
pub(crate) struct Replaced<T> {
    held: Mutex<Vec<Arc<T>>>,
}

impl<T> Default for Replaced<T> {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
        }
    }
}

impl<T> Replaced<T> {
    /// Holds a value that new readers do not see any more.
    pub(crate) fn hold(&self, replaced: Arc<T>) {
        self.held.lock().push(replaced);
    }

    /// True when upkeep has not run for long: then any caller should release unread versions if it
    /// can.
    pub(crate) fn are_many(&self) -> bool {
        self.held.lock().len() > HELD_MAX
    }

    /// Releases those without readers. For threads on which no request waits.
    pub(crate) fn release_unread(&self) {
        let is_unread = |it: &mut Arc<T>| Arc::strong_count(it) == 1;
        let unread: Vec<Arc<T>> = self.held.lock().extract_if(.., is_unread).collect();
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reader_leaves_it_to_upkeep() {
        let replaced = Replaced::default();
        let value = Arc::new(7);
        let seen = Arc::downgrade(&value);
        let reader = value.clone();
        replaced.hold(value);
        replaced.release_unread();
        assert_eq!(*reader, 7);
        drop(reader);
        assert!(seen.upgrade().is_some());
        replaced.release_unread();
        assert!(seen.upgrade().is_none());
    }

    #[test]
    fn what_upkeep_does_not_come_round_for_is_noticed() {
        let replaced = Replaced::default();
        let read = Arc::new(0);
        (0..HELD_MAX).for_each(|it| replaced.hold(Arc::new(it)));
        assert!(!replaced.are_many());
        replaced.hold(read.clone());
        assert!(replaced.are_many());
        replaced.release_unread();
        assert!(!replaced.are_many() && Arc::strong_count(&read) == 2);
    }
}
