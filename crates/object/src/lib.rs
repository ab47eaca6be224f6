//! Objects: dotted version vector sets, siblings, metadata, tombstones, and their head and body encodings.
//!
//! Everything here is a pure function of its arguments. Dots, wall-clock times and random bytes
//! come from the caller, so that the same calls give the same bytes on every replica and in every
//! simulated run. Outside this crate: the place of an object, and its readers.
//!
//! A write: the coordinating vnode turns the client's [`Content`] into an [`Object`] by [`update`],
//! and the other replicas merge that object by [`merge_into_stored`]. Both call
//! [`update_needs_body`] or [`merge_needs_body`] first, so that a stored value is read only when it
//! survives. A read: replicas' objects go through [`merge`].
//!
//! The stored form of an object depends on its kind: [`ObjectTag`].

mod base62;
mod clock;
mod clock_encoding;
mod decode_error;
mod document;
mod dot;
mod etag;
mod generated_key;
mod head;
mod head_encoding;
mod index_term;
mod indexes;
mod limits;
mod merge;
mod metadata;
mod metadata_encoding;
mod object;
mod object_encoding;
mod resolution;
mod sibling;
mod tag;
mod timestamp;
mod update;
mod versions;

pub use clock::{Causality, Clock};
pub use decode_error::{DecodeError, Part};
pub use dot::{ActorId, Dot};
pub use etag::Etag;
pub use generated_key::generated_key;
pub use head::Head;
pub use index_term::{IndexOrder, IndexTerms};
pub use indexes::IndexEntry;
pub use limits::{LimitExceeded, LimitLevel, LimitVerdict, Limits, ObjectSize};
pub use merge::{Merged, merge, merge_into_stored, merge_needs_body};
pub use metadata::{Link, Metadata, UnrecognizedFields, UserMetadata};
pub use object::{Content, Object};
pub use object_encoding::Encoded;
pub use resolution::{Resolution, resolve};
pub use sibling::{Sibling, SiblingHead};
pub use tag::{ObjectTag, OpenedHead, Retention};
pub use timestamp::Timestamp;
pub use update::{Stored, Succession, UpdateError, Write, succeed, update, update_needs_body};
