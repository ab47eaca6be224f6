//! Numbers in order, which a later run may continue.
//!
//! As in basho_bench, a sequence notes its position every 500 numbers, as an Erlang term in a file
//! named after the worker. The next run repeats the numbers since the last note.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::external_term::{external_integer, external_term};
use super::key::Key;

/// The position is noted whenever the count modulo [`NOTE_EVERY`] is this.
const NOTE_AT: i64 = 400;
const NOTE_EVERY: i64 = 500;

/// Numbers in order, up to an end that is not included.
#[derive(Debug)]
pub(super) struct Sequence {
    next: Arc<AtomicI64>,
    start: i64,
    end: i64,
    notes: Option<PathBuf>,
}

impl Sequence {
    pub(super) fn new(start: i64, end: i64) -> Self {
        Self {
            next: Arc::new(AtomicI64::new(start)),
            start,
            end,
            notes: None,
        }
    }

    /// The next number; `None` at the end.
    pub(super) fn next(&self) -> Option<i64> {
        // Only one worker uses the counter.
        let number = self.next.load(Ordering::Relaxed);
        if number >= self.end {
            return None;
        }
        self.next.store(number + 1, Ordering::Relaxed);
        let count = number - self.start;
        if let Some(path) = self
            .notes
            .as_ref()
            .filter(|_| count % NOTE_EVERY == NOTE_AT)
        {
            // A position that cannot be noted only costs the next run some repeats.
            let _ = std::fs::write(path, external_term(&Key::Integer(count)));
        }
        Some(number)
    }

    /// The counter that generators with one name share.
    pub(super) fn counter(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.next)
    }

    pub(super) fn share(&mut self, counter: &Arc<AtomicI64>) {
        self.next = Arc::clone(counter);
    }

    /// Continues at the position in a file, and notes later positions there. Starts again if the
    /// position is beyond the end.
    pub(super) fn resume(&mut self, notes: &Path) -> io::Result<()> {
        match std::fs::read(notes) {
            Ok(bytes) => {
                let count = external_integer(&bytes)
                    .ok_or_else(|| io::Error::other("it holds no integer as an Erlang term"))?;
                let number = self.start.saturating_add(count);
                if count >= 0 && number < self.end {
                    self.next.store(number, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.notes = Some(notes.to_path_buf());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_goes_on_where_the_place_was_noted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1");
        let mut first = Sequence::new(1000, 5000);
        first.resume(&path).unwrap();
        assert_eq!((0..950).map_while(|_| first.next()).last(), Some(1949));
        let mut second = Sequence::new(1000, 5000);
        second.resume(&path).unwrap();
        assert_eq!(second.next(), Some(1900));
        let mut shorter = Sequence::new(1000, 1900);
        shorter.resume(&path).unwrap();
        assert_eq!(shorter.next(), Some(1000), "the place is beyond its end");
        std::fs::write(&path, "nonsense").unwrap();
        assert!(Sequence::new(0, 10).resume(&path).is_err());
    }
}
