//! Objects: a clock and the siblings that no write covered by it has superseded.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::metadata_encoding::{metadata_len, put_metadata};
use crate::versions::{Siblings, answers_of_siblings};
use crate::{Clock, DecodeError, Dot, Head, Metadata, ObjectSize, Timestamp, head_encoding};

/// What a client wants stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Its metadata; the last-modified time is set by [`crate::update`].
    pub metadata: Metadata,
    /// Its value.
    pub value: Bytes,
}

impl Content {
    /// What a delete stores: no value, and the mark in the metadata.
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

/// One version among those that nothing has superseded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// The write that made it.
    pub dot: Dot,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its value; empty for a tombstone.
    pub value: Bytes,
}

/// An object as it is stored.
///
/// Holds at least one sibling; siblings are sorted by dot, and no dot occurs twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    clock: Clock,
    siblings: Siblings<Sibling>,
}

answers_of_siblings!(Object, Sibling);

/// The two byte strings of a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Everything but the values; enough to answer HEAD requests and to compare replicas.
    pub head: Bytes,
    /// The siblings' values back to back; of a single sibling, its value itself.
    pub body: Bytes,
}

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

    /// The object that a client wants stored under a clock of its own choice (`asis`).
    ///
    /// The clock is not incremented, so the value gets a dot of [`crate::ActorId::CONTENT`], made of
    /// a hash of clock and content: storing the same twice gives one version. Merged with concurrent
    /// versions such a value is always kept, since no single entry of the given clock is known to
    /// be its write; only a clock that dominates as a whole supersedes it.
    ///
    /// A last-modified time in the metadata is kept; otherwise it is `now`, or just after the newest
    /// time that the clock knows.
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

    /// What [`crate::Limits`] judge by.
    pub fn size(&self) -> ObjectSize {
        let values: usize = self
            .siblings
            .iter()
            .map(|sibling| sibling.value.len())
            .sum();
        let bytes = (head_encoding::head_len(self) + values) as u64;
        ObjectSize {
            bytes,
            siblings: self.siblings.len(),
        }
    }

    /// The byte strings to store. The value of a single sibling is shared, not copied.
    pub fn encode(&self) -> Encoded {
        let body = match &self.siblings[..] {
            [only] => only.value.clone(),
            several => concatenated(several),
        };
        Encoded {
            head: head_encoding::encode_head(self, &body),
            body,
        }
    }

    /// Puts a head and the body that was stored with it together; values share the body's buffer.
    ///
    /// Both are checked: for bytes that came from another machine, or from a file that nobody has
    /// checked yet.
    pub fn from_parts(head: Head, body: &Bytes) -> Result<Self, DecodeError> {
        head.check_body(body)?;
        let mut rest = body.clone();
        let (clock, heads) = head.into_parts();
        let siblings = heads.into_iter().map(|sibling| Sibling {
            dot: sibling.dot,
            metadata: sibling.metadata,
            value: rest.split_to(sibling.value_len),
        });
        let siblings = siblings.collect();
        Ok(Self::new(clock, siblings))
    }

    /// Reads what a storage engine of this node returned; names and values share the two buffers.
    ///
    /// An engine answers for every byte that it returns: it has compared a checksum over head and
    /// body since it read them, bound to the place where they stand. So neither the head's checksum
    /// nor the body's hash is computed again; both are there for bytes on their way to another
    /// machine ([`Head::decode`], [`Object::from_parts`]). The layout is checked all the same.
    ///
    /// Readers share the object with whoever asked, so it is made where it can be shared.
    pub fn from_engine(head: &Bytes, body: Bytes) -> Result<Arc<Self>, DecodeError> {
        head_encoding::read_object(head, body)
    }
}

fn concatenated(siblings: &[Sibling]) -> Bytes {
    let mut body = Vec::with_capacity(siblings.iter().map(|sibling| sibling.value.len()).sum());
    for sibling in siblings {
        body.extend_from_slice(&sibling.value);
    }
    body.into()
}

/// A dot that depends on all that the client gave but the time.
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
