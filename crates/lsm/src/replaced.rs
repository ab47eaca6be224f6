//! What was replaced and may still be read: it is let go by upkeep, and never by the last reader.
//!
//! Whoever lets go of the last version that has a memtable frees every entry of it, one by one; the last
//! that has a table which was merged away has the system free its file. Either takes a tenth of a second.
//! A read that was under way when the version was replaced would be that one now and then, and what the
//! thread that serves it has to do besides waits.

use std::sync::Arc;

use parking_lot::Mutex;

/// More is not held back where upkeep does not come round.
const HELD_MAX: usize = 64;

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
    /// Holds a value that no new reader comes to any more.
    pub(crate) fn hold(&self, replaced: Arc<T>) {
        let oldest = {
            let mut held = self.held.lock();
            held.push(replaced);
            (held.len() > HELD_MAX).then(|| held.remove(0))
        };
        drop(oldest);
    }

    /// Lets go of those that nobody reads any more. For threads that nobody waits for.
    pub(crate) fn release_unread(&self) {
        let is_unread = |it: &mut Arc<T>| Arc::strong_count(it) == 1;
        let unread: Vec<Arc<T>> = self.held.lock().extract_if(.., is_unread).collect();
        drop(unread);
    }

    /// Lets go of all of them; those that are read go with their last readers.
    pub(crate) fn release_all(&self) {
        let all = std::mem::take(&mut *self.held.lock());
        drop(all);
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
    fn without_upkeep_it_does_not_grow() {
        let replaced = Replaced::default();
        let values: Vec<Arc<usize>> = (0..HELD_MAX + 10).map(Arc::new).collect();
        let seen: Vec<_> = values.iter().map(Arc::downgrade).collect();
        values.into_iter().for_each(|it| replaced.hold(it));
        let held = seen.iter().filter(|it| it.upgrade().is_some()).count();
        assert_eq!(held, HELD_MAX);
        assert!(seen[9].upgrade().is_none() && seen[10].upgrade().is_some());
        replaced.release_all();
        assert!(seen.iter().all(|it| it.upgrade().is_none()));
    }
}
