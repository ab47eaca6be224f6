//! Numbers in order, which a later run may continue.
//!
//! Like basho_bench, a sequence notes how far it has come every 500 numbers, in a file that is
//! named after the worker and holds an Erlang term. A run that ends in between repeats the numbers
//! since then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::external_term::{external_integer, external_term};
use super::key::Key;

/// The place is noted whenever the count has this remainder of [`NOTE_EVERY`].
const NOTE_AT: i64 = 400;
const NOTE_EVERY: i64 = 500;

/// Numbers in order, up to an end that is not one of them.
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
        // Only one worker counts here.
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
            // A place that cannot be noted costs the next run some repeats, and this one nothing.
            let _ = std::fs::write(path, external_term(&Key::Integer(count)));
        }
        Some(number)
    }

    /// The counter that several generators of a name share.
    pub(super) fn counter(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.next)
    }

    pub(super) fn share(&mut self, counter: &Arc<AtomicI64>) {
        self.next = Arc::clone(counter);
    }

    /// Goes on at the place that is noted in a file, and notes its own there. A place beyond the
    /// end begins again.
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
