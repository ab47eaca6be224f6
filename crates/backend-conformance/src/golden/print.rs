//! Replies as text, in a form that is the same for every engine.

use kvorum_backend::{BackendError, Fields, Lookup, Sequence, Status};
use kvorum_encoding::StorageKey;

/// Longer bytes that are all equal are printed as one byte and a length.
const SHORT_BYTES_MAX: usize = 24;

/// The batches of a script: their numbers are printed in place of sequences, which may have gaps.
#[derive(Default)]
pub(super) struct Batches(Vec<Sequence>);

impl Batches {
    /// Adds a batch with this sequence.
    pub(super) fn add(&mut self, sequence: Sequence) -> String {
        self.0.push(sequence);
        let is_in_order = self.0.iter().rev().nth(1).is_none_or(|it| *it < sequence);
        let note = if is_in_order {
            ""
        } else {
            ", not behind the one before"
        };
        format!("batch {}{note}", self.0.len())
    }

    /// The last batch that a sequence covers.
    pub(super) fn up_to(&self, sequence: Sequence) -> String {
        match self.0.iter().rposition(|it| *it <= sequence) {
            Some(at) => format!("up to batch {}", at + 1),
            None => "up to none".into(),
        }
    }

    /// The batch that has a sequence.
    pub(super) fn named(&self, sequence: Sequence) -> String {
        match self.0.iter().rposition(|it| *it == sequence) {
            Some(at) => format!("batch {}", at + 1),
            None => "no batch of the script".into(),
        }
    }

    /// Drops lost sequences after a crash, since they may be issued again.
    pub(super) fn forget_behind(&mut self, durable: Sequence) {
        self.0.retain(|sequence| *sequence <= durable);
    }

    /// The store was erased.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// A key as scripts write it.
pub(super) fn key(key: &StorageKey) -> String {
    match key.decode() {
        Ok(address) => format!("{}/{}", address.bucket, address.key),
        Err(error) => format!("a key that is none: {error}"),
    }
}

/// `, name=value`, unless there are no bytes.
pub(super) fn named_bytes(name: &str, bytes: &[u8]) -> String {
    match bytes {
        [] => String::new(),
        bytes => format!(" {name}={}", self::bytes(bytes)),
    }
}

/// Bytes as scripts write them.
pub(super) fn bytes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.chars().next() {
        Some(first) if bytes.len() > SHORT_BYTES_MAX && text.chars().all(|it| it == first) => {
            format!("{first}*{}", bytes.len())
        }
        _ => text.into_owned(),
    }
}

/// The fields that are not zero.
pub(super) fn fields(fields: &Fields) -> String {
    let numbers = [
        ("segment", u64::from(fields.segment)),
        ("modified", fields.last_modified.0),
        ("expiry", fields.expiry.map_or(0, |expiry| expiry.0)),
        ("tag", u64::from(fields.tag.0)),
    ];
    let set = numbers.iter().filter(|(_, number)| *number != 0);
    set.map(|(name, number)| format!(" {name}={number}"))
        .collect()
}

/// The result of a read.
pub(super) fn lookup<T>(lookup: Lookup<T>, found: impl Fn(T) -> String) -> String {
    match lookup {
        Lookup::Found(entry) => found(entry),
        Lookup::Absent => "absent".into(),
        Lookup::WouldBlock => "would block".into(),
    }
}

/// An error by its kind: the detail is the engine's own.
pub(super) fn error(error: &BackendError) -> String {
    format!("error {:?}", error.kind())
}

/// Figures that every engine counts alike.
pub(super) fn status(status: &Status) -> String {
    format!(
        "keys={} corrupt_reads={} lost={}",
        status.keys,
        status.corrupt_reads,
        status.lost.len()
    )
}
