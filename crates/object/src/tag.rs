//! Tags: kinds of objects. A kind decides the part of an object that is kept beside its head, its index
//! entries, and the records of it that a journal keeps.
//!
//! All of them are in one table, [`TAGS`]: a new one is a new row there. The bucket property
//! `object_tag` names a row. A stored object carries the number of its row, so that it is read
//! correctly under any later value of the property.

use std::fmt;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, put_varint};

use crate::index_term::IndexTerms;
use crate::object_encoding::Encoded;
use crate::{DecodeError, Object, Part, document};

/// The number under which a store keeps tombstones of any kind.
const TOMBSTONE: u8 = 1;

/// The records of replaced objects that a journal of whole entries keeps, so that lost keys and
/// heads can be rebuilt from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The newest record of a key stays, and a removal as long as an older record of its key. Index
    /// entries are rebuilt from their list in the record.
    Retain,
    /// The same records stay. Index entries are rebuilt from the object.
    Recalc,
    /// The newest record of a key stays; a removal goes as soon as keys and heads no longer need it.
    /// If these are lost, a removed object may come back.
    Recovr,
}

/// The places of an object's parts.
#[derive(Clone, Copy)]
enum Layout {
    /// The head is the object's, the body its values.
    Plain,
    /// The head has a part of the object beside it, which can be read without the body.
    Projected(fn(&Object) -> Vec<u8>),
    /// The head has the values beside it, and there is no body.
    HeadOnly,
}

/// A row of the table.
struct Rules {
    /// As stores keep it, for ever.
    number: u8,
    /// As the property `object_tag` has it, for ever.
    name: &'static str,
    retention: Retention,
    layout: Layout,
    index_terms: fn(&Object) -> IndexTerms,
}

/// All tags. Numbers go up to 127, and 1 is taken by tombstones.
static TAGS: [Rules; 3] = [
    Rules {
        number: 0,
        name: "o_rkv",
        retention: Retention::Retain,
        layout: Layout::Plain,
        index_terms: Object::index_terms,
    },
    Rules {
        number: 2,
        name: "h",
        retention: Retention::Recovr,
        layout: Layout::HeadOnly,
        index_terms: Object::index_terms,
    },
    Rules {
        number: 3,
        name: "document",
        retention: Retention::Recalc,
        layout: Layout::Projected(document::projection),
        index_terms: document::index_terms,
    },
];

/// A kind of objects: a row of the table. The default is the kind of Riak's objects, `o_rkv`.
#[derive(Clone, Copy)]
pub struct ObjectTag(&'static Rules);

impl Default for ObjectTag {
    fn default() -> Self {
        Self(&TAGS[0])
    }
}

impl PartialEq for ObjectTag {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl Eq for ObjectTag {}

impl fmt::Debug for ObjectTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectTag").field(&self.0.name).finish()
    }
}

impl ObjectTag {
    /// All tags, the default first.
    pub fn all() -> impl Iterator<Item = Self> {
        TAGS.iter().map(Self)
    }

    /// The tag of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|it| it.name() == name)
    }

    /// The tag that a bucket's property names. A name that a newer version set, and this one does
    /// not have, counts as the default: nodes log such properties when they start.
    pub fn chosen(name: &str) -> Self {
        Self::named(name).unwrap_or_default()
    }

    /// The tag under this number in a store. `None` for tombstones, which have none, and for numbers of newer
    /// versions.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::all().find(|it| it.number() == number)
    }

    /// The name, as the property `object_tag` has it.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The number under which stores keep objects of this kind, at most 127. Tombstones have another.
    pub fn number(self) -> u8 {
        self.0.number
    }

    /// The records that a journal keeps.
    pub fn retention(self) -> Retention {
        self.0.retention
    }

    /// The index entries that an object of this kind makes, sorted, each once; none of a tombstone.
    pub fn index_terms(self, object: &Object) -> IndexTerms {
        match object.is_tombstone() {
            true => Vec::new(),
            false => (self.0.index_terms)(object),
        }
    }

    /// The byte strings to store. For Riak's kind, and for every tombstone, they are those of
    /// [`Object::encode`]. The head of another kind is:
    ///
    /// ```text
    /// varint  length of the object's head
    ///         the object's head
    ///         what stands beside it, to the end: the projection, or the body of a kind without bodies
    /// ```
    ///
    /// Its store verifies each byte, so no checksum is added to that of the object's head.
    pub fn encode(self, object: &Object) -> Encoded {
        let Encoded { head, body } = object.encode();
        let (beside, body) = match self.0.layout {
            _ if object.is_tombstone() => return Encoded { head, body },
            Layout::Plain => return Encoded { head, body },
            Layout::Projected(project) => (Bytes::from(project(object)), body),
            Layout::HeadOnly => (body, Bytes::new()),
        };
        let mut framed = Vec::with_capacity(10 + head.len() + beside.len());
        put_varint(&mut framed, head.len() as u64);
        framed.extend_from_slice(&head);
        framed.extend_from_slice(&beside);
        let head = framed.into();
        Encoded { head, body }
    }
}

/// A head as it is stored, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedHead {
    /// The object's head, for [`crate::Head::from_engine`].
    pub head: Bytes,
    /// The part beside it; empty for Riak's kind.
    pub beside: Bytes,
    /// `beside` is the body, and no other was stored.
    pub has_body: bool,
}

impl OpenedHead {
    /// Takes apart a head that was stored under a tag's number, or under that of tombstones; parts are slices.
    ///
    /// # Errors
    /// [`DecodeError::Tag`] for a number of a newer version, [`DecodeError::Malformed`] for other bytes.
    pub fn of(number: u8, stored: &Bytes) -> Result<Self, DecodeError> {
        let plain = |head: &Bytes| Self {
            head: head.clone(),
            beside: Bytes::new(),
            has_body: false,
        };
        if number == TOMBSTONE {
            return Ok(plain(stored));
        }
        let tag = ObjectTag::numbered(number).ok_or(DecodeError::Tag { number })?;
        let has_body = match tag.0.layout {
            Layout::Plain => return Ok(plain(stored)),
            Layout::Projected(_) => false,
            Layout::HeadOnly => true,
        };
        let mut reader = ByteReader::new(stored);
        let head = reader
            .take_prefixed()
            .map_err(DecodeError::cut(Part::Head))?;
        let head = stored.slice_ref(head);
        let beside = stored.slice_ref(reader.take_rest());
        Ok(Self {
            head,
            beside,
            has_body,
        })
    }

    /// The object's head and body, with the body that was stored apart.
    pub fn with_body(self, apart: Bytes) -> Encoded {
        Encoded {
            head: self.head,
            body: if self.has_body { self.beside } else { apart },
        }
    }
}

#[cfg(test)]
#[path = "tag_test.rs"]
mod tests;
