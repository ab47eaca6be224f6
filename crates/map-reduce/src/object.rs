//! An object for a map or link phase: its siblings' values and links.
//!
//! The caller reads it and converts it to this form. A tombstone in it is a sibling with an empty
//! value, as for Riak's functions.

use bytes::Bytes;

/// A bucket, with or without a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketName {
    /// The type; none for the type `default`.
    pub bucket_type: Option<Bytes>,
    /// The bucket within its type.
    pub bucket: Bytes,
}

/// A link of a sibling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLink {
    /// The bucket of the linked object.
    pub bucket: Bytes,
    /// Its key.
    pub key: Bytes,
    /// The `riaktag`.
    pub tag: Bytes,
}

/// A value of an object, one of several if there were concurrent writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSibling {
    /// The bytes that were stored.
    pub value: Bytes,
    /// The links of its metadata.
    pub links: Vec<ObjectLink>,
}

/// An object that was read for a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadObject {
    /// The bucket that it is stored in.
    pub bucket: BucketName,
    /// Its key there.
    pub key: Bytes,
    /// Its siblings, at least one.
    pub siblings: Vec<ObjectSibling>,
}

/// The memory of a link without its texts, in bytes.
const LINK_OVERHEAD_BYTES: usize = 96;

impl ReadObject {
    /// Its approximate memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let siblings: usize = self.siblings.iter().map(ObjectSibling::bytes).sum();
        self.bucket.bucket.len() + self.key.len() + siblings
    }
}

impl ObjectSibling {
    fn bytes(&self) -> usize {
        let link =
            |it: &ObjectLink| it.bucket.len() + it.key.len() + it.tag.len() + LINK_OVERHEAD_BYTES;
        self.value.len() + self.links.iter().map(link).sum::<usize>()
    }
}
