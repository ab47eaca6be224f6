//! Objects: a clock and the siblings that no write covered by it has superseded.

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::metadata_encoding::{metadata_len, put_metadata};
use crate::versions::{Siblings, answers_of_siblings};
use crate::{Clock, Dot, Metadata, Sibling, Timestamp};

/// The content of a client's write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its metadata; the last-modified time is set by [`crate::update`].
    pub metadata: Metadata,
    /// Its value.
    pub value: Bytes,
}

impl Content {
    /// The content of a delete: no value, and the mark in the metadata.
    pub fn tombstone() -> Self {
        let metadata = Metadata {
            deleted: true,
            ..Metadata::default()
        };
        Self {
            metadata,
            value: Bytes::new(),
        }
    }
}

/// An object as it is stored.
///
/// Holds at least one sibling; siblings are sorted by dot, and no dot occurs twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    clock: Clock,
    pub(crate) siblings: Siblings<Sibling>,
}

answers_of_siblings!(Object, Sibling);

impl Object {
    /// Takes siblings that are sorted by dot, at least one.
    pub(crate) fn new(clock: Clock, siblings: Siblings<Sibling>) -> Self {
        debug_assert!(!siblings.is_empty());
        debug_assert!(siblings.is_sorted_by(|a, b| a.dot < b.dot));
        Self { clock, siblings }
    }

    /// The siblings in the order in which Riak lists them: by value, and of one value those with fewer
    /// kinds of metadata first. An object that was read without its values has them by dot.
    pub fn siblings_by_value(&self) -> Vec<&Sibling> {
        let mut siblings: Vec<&Sibling> = self.siblings.iter().collect();
        siblings.sort_by(|a, b| {
            let kinds = |it: &Sibling| it.metadata.kinds();
            a.value.cmp(&b.value).then_with(|| kinds(a).cmp(&kinds(b)))
        });
        siblings
    }

    /// The object of a client, stored under a clock of the client's choice (`asis`).
    ///
    /// The clock is not incremented, so the value gets a dot of [`crate::ActorId::CONTENT`], made
    /// of a hash of clock and content: storing the same twice gives one version. A merge with
    /// concurrent versions always keeps such a value, since no entry of the given clock is known to
    /// be its write. Only a clock that dominates the whole clock supersedes it.
    ///
    /// A last-modified time in the metadata is kept; otherwise it is `now`, or just after the newest
    /// time in the clock.
    pub fn as_is(mut clock: Clock, content: Content, now: Timestamp) -> Self {
        let Content {
            mut metadata,
            value,
        } = content;
        let dot = content_dot(&clock, &metadata, &value);
        if metadata.last_modified == Timestamp::ZERO {
            metadata.last_modified = now.max(clock.newest().next());
        }
        clock.observe(dot, metadata.last_modified);
        let mut siblings = Siblings::new();
        siblings.push(Sibling {
            dot,
            metadata,
            value,
        });
        Self::new(clock, siblings)
    }

    /// An object of a clock and siblings; `None` without siblings, or if they are not in the order of their
    /// dots.
    pub fn of_parts(clock: Clock, siblings: Vec<Sibling>) -> Option<Self> {
        let is_object = !siblings.is_empty() && siblings.is_sorted_by(|a, b| a.dot < b.dot);
        is_object.then(|| Self::new(clock, siblings.into()))
    }

    /// The object with another value in its only sibling.
    ///
    /// # Panics
    /// If there are several siblings.
    #[must_use]
    pub fn with_value(mut self, value: Bytes) -> Self {
        assert_eq!(self.siblings.len(), 1, "the value has one sibling");
        if let [only] = &mut self.siblings[..] {
            only.value = value;
        }
        self
    }

    /// Clock and siblings apart.
    pub fn into_parts(self) -> (Clock, impl ExactSizeIterator<Item = Sibling>) {
        (self.clock, self.siblings.into_iter())
    }

    pub(crate) fn into_sibling_list(self) -> (Clock, Siblings<Sibling>) {
        (self.clock, self.siblings)
    }

    pub(crate) fn siblings_mut(&mut self) -> &mut Siblings<Sibling> {
        &mut self.siblings
    }

    pub(crate) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

/// A dot that depends on everything that the client gave, except for the time.
fn content_dot(clock: &Clock, metadata: &Metadata, value: &[u8]) -> Dot {
    let mut fields = Vec::with_capacity(metadata_len(metadata));
    put_metadata(&mut fields, metadata);
    let mut hash = Xxh3::new();
    hash.update(&clock.fingerprint().to_le_bytes());
    hash.update(&(fields.len() as u64).to_le_bytes());
    hash.update(&fields);
    hash.update(value);
    Dot::of_content(hash.digest())
}
