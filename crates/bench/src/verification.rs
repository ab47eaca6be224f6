//! Verification of reads: marks in values, and a ledger of writes against which reads are checked.
//!
//! The mark shows that a value is complete and was written for its key. The [`Ledger`] decides
//! whether a read may return a value: it must not return a value that an acknowledged write
//! replaced, and it must find a value after an acknowledged write. A write without an answer may or
//! may not have happened, and a read may or may not see a write that overlaps it.

mod ledger;
mod mark;

use std::sync::Arc;

use bytes::Bytes;

pub use ledger::{Ledger, Reading};
pub use mark::{MARK_BYTES, Mark};

/// Marks the values that one worker writes, and checks the values that it reads.
#[derive(Debug)]
pub struct Verifier {
    worker: u32,
    ledger: Arc<Ledger>,
    /// Writes of the present operation: hash of the key and sequence number.
    writes: Vec<(u64, u64)>,
    reading: Option<Reading>,
    /// The bucket of the operations.
    bucket: u64,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// The value may be read.
    Genuine,
    /// The value must not be read: `not_marked`, `other_key`, `wrong_length`, `damaged`, `stale` or
    /// `missing`.
    Wrong(&'static str),
}

impl Verifier {
    /// The verifier of the worker with this id; all workers of a run share a ledger.
    pub fn new(worker: u32, ledger: Arc<Ledger>) -> Self {
        Self {
            worker,
            ledger,
            writes: Vec::new(),
            reading: None,
            bucket: 0,
        }
    }

    /// Sets the bucket of the operation, among the driver's buckets.
    pub fn use_bucket(&mut self, bucket: u64) {
        self.bucket = bucket;
    }

    /// Records the beginning of a write; returns the value with the mark in place of its first
    /// bytes.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Bytes {
        let hash = mark::hash(self.bucket, key);
        let sequence = self.ledger.write_begins(hash, false);
        self.writes.push((hash, sequence));
        let mark = Mark {
            key: hash,
            run: self.ledger.run(),
            worker: self.worker,
            sequence,
        };
        mark.stamp(value)
    }

    /// Records the beginning of a removal.
    pub fn remove(&mut self, key: &[u8]) {
        let hash = mark::hash(self.bucket, key);
        let sequence = self.ledger.write_begins(hash, true);
        self.writes.push((hash, sequence));
    }

    /// Records the end of the operation; after a success, its writes are acknowledged.
    pub fn settle(&mut self, is_success: bool) {
        for (hash, sequence) in self.writes.drain(..) {
            if is_success {
                self.ledger.write_ended(hash, sequence);
            }
        }
        self.reading = None;
    }

    /// Records the beginning of a read.
    pub fn read(&mut self, key: &[u8]) {
        self.reading = Some(self.ledger.read_begins(mark::hash(self.bucket, key)));
    }

    /// Checks whether a read may return these siblings; no sibling means not found.
    pub fn check<'value>(
        &self,
        key: &[u8],
        siblings: impl IntoIterator<Item = &'value [u8]>,
    ) -> Verification {
        let key = mark::hash(self.bucket, key);
        let mut marks = Vec::new();
        for value in siblings {
            match Mark::of(value) {
                Ok(mark) if mark.key == key => marks.push(mark),
                Ok(_) => return Verification::Wrong("other_key"),
                Err(what) => return Verification::Wrong(what),
            }
        }
        let Some(reading) = self.reading.as_ref().filter(|reading| reading.is_of(key)) else {
            return Verification::Genuine;
        };
        if marks.is_empty() {
            return if self.ledger.may_be_absent(reading) {
                Verification::Genuine
            } else {
                Verification::Wrong("missing")
            };
        }
        let is_current = |mark: &Mark| self.ledger.may_be_read(reading, mark.run, mark.sequence);
        if marks.iter().any(is_current) {
            Verification::Genuine
        } else {
            Verification::Wrong("stale")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier() -> Verifier {
        Verifier::new(7, Arc::new(Ledger::new(1, true)))
    }

    fn check(verifier: &mut Verifier, key: &[u8], found: &[&[u8]]) -> Verification {
        verifier.read(key);
        verifier.check(key, found.iter().copied())
    }

    #[test]
    fn a_value_is_genuine_until_another_is_acknowledged() {
        let mut verifier = verifier();
        let first = verifier.write(b"key", &[5; 64]);
        verifier.settle(true);
        assert_eq!(
            check(&mut verifier, b"key", &[&first]),
            Verification::Genuine
        );
        let second = verifier.write(b"key", &[6; 64]);
        assert_eq!(
            check(&mut verifier, b"key", &[&first]),
            Verification::Genuine,
            "the second write is under way"
        );
        verifier.settle(true);
        assert_eq!(
            check(&mut verifier, b"key", &[&first]),
            Verification::Wrong("stale")
        );
        assert_eq!(
            check(&mut verifier, b"key", &[&first, &second]),
            Verification::Genuine,
            "one sibling is the newest"
        );
        assert_eq!(
            check(&mut verifier, b"key", &[]),
            Verification::Wrong("missing")
        );
        verifier.remove(b"key");
        verifier.settle(true);
        assert_eq!(check(&mut verifier, b"key", &[]), Verification::Genuine);
        assert_eq!(
            check(&mut verifier, b"key", &[&second]),
            Verification::Wrong("stale")
        );
    }

    #[test]
    fn equal_keys_in_two_buckets_are_two_keys() {
        let mut verifier = verifier();
        let first = verifier.write(b"key", &[5; 64]);
        verifier.use_bucket(1);
        let second = verifier.write(b"key", &[5; 64]);
        verifier.settle(true);
        assert_eq!(
            check(&mut verifier, b"key", &[&second]),
            Verification::Genuine
        );
        assert_eq!(
            check(&mut verifier, b"key", &[&first]),
            Verification::Wrong("other_key")
        );
        verifier.use_bucket(0);
        assert_eq!(
            check(&mut verifier, b"key", &[&first]),
            Verification::Genuine
        );
    }

    #[test]
    fn damage_is_found_before_anything_else() {
        let mut verifier = verifier();
        let value = verifier.write(b"key", &[5; 64]);
        assert_eq!(
            check(&mut verifier, b"other", &[&value]),
            Verification::Wrong("other_key")
        );
        assert_eq!(
            check(&mut verifier, b"key", &[&value, b"short"]),
            Verification::Wrong("not_marked")
        );
    }
}
