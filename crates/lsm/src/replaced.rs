//! Replaced versions that may still be read: upkeep, not the last reader, releases them.
//!
//! Releasing the last version with a memtable frees its entries one by one; releasing the last
//! version with a merged table makes the system free the table's file. Either takes a tenth of a
//! second, and would sometimes fall to a read that was in progress when the version was replaced,
//! and delay all other work of its thread. Two cases remain: a snapshot that outlives its store,
//! and a read while a store is erased.

use std::sync::Arc;

use parking_lot::Mutex;

/// The most values to hold if upkeep does not run.
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
    /// Holds a value that new readers no longer see.
    pub(crate) fn hold(&self, replaced: Arc<T>) {
        self.held.lock().push(replaced);
    }

    /// True when upkeep has not run for long: any caller that can should then release unread
    /// versions.
    pub(crate) fn are_many(&self) -> bool {
        self.held.lock().len() > HELD_MAX
    }

    /// Releases values without readers. For threads on which no request waits.
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
