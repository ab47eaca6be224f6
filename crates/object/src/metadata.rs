//! Metadata: a sibling's statements about its value.

use bytes::Bytes;

use crate::{IndexEntry, Timestamp};

/// The metadata of one sibling.
///
/// An empty content type, charset or content encoding means that the client gave none. Names taken
/// from a decoded head share its buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata {
    /// The time of the value's write; set by [`crate::update`], later than all that it supersedes.
    pub last_modified: Timestamp,
    /// True for a tombstone.
    pub deleted: bool,
    /// The time of the value's expiry; none for never.
    pub expires_at: Option<Timestamp>,
    /// The media type, without parameters.
    pub content_type: Bytes,
    /// The media type's charset parameter.
    pub charset: Bytes,
    /// The content encoding; stored and replayed, never decoded.
    pub content_encoding: Bytes,
    /// Links to other objects, in the client's order.
    pub links: Vec<Link>,
    /// The client's own pairs, in the client's order.
    pub user_metadata: Vec<UserMetadata>,
    /// Secondary index entries, in the client's order.
    pub indexes: Vec<IndexEntry>,
    /// Fields that a newer program stored here; kept, so that an older replica loses nothing.
    pub unrecognized: UnrecognizedFields,
}

impl Metadata {
    /// The number of kinds of metadata that a client gave the value; 0 for a tombstone.
    pub(crate) fn kinds(&self) -> usize {
        let given = [
            self.expires_at.is_some(),
            !self.content_type.is_empty(),
            !self.charset.is_empty(),
            !self.content_encoding.is_empty(),
            !self.links.is_empty(),
            !self.user_metadata.is_empty(),
            !self.indexes.is_empty(),
        ];
        given.into_iter().filter(|is_given| *is_given).count()
    }
}

/// A link to an object of the default bucket type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The bucket linked to.
    pub bucket: Bytes,
    /// The key linked to.
    pub key: Bytes,
    /// The meaning of the link to the client.
    pub tag: Bytes,
}

/// A name and perhaps a value of the client's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserMetadata {
    /// The name. HTTP headers come with their `X-Riak-Meta-` in it, in lower or mixed case as given.
    pub name: Bytes,
    /// The value; the PB protocol allows a name without one.
    pub value: Option<Bytes>,
}

/// Fields of a newer encoding, kept as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnrecognizedFields(pub(crate) Vec<(u8, Bytes)>);

impl UnrecognizedFields {
    /// True when there are no unrecognized fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
