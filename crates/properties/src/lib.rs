//! Bucket and bucket-type properties: their values, their defaults, and their precedence.
//!
//! Three layers make the properties of a bucket: those set for the bucket, over those set for its type,
//! over the defaults. Each layer but the last is a [`PropertyOverlay`], where anything may be absent;
//! the result is a [`BucketProperties`], where every property with a default has a value. All
//! properties stand in one table (`table.rs`), from which both types, their JSON and the checks of
//! single values are made. It also has the effect of setting each (`effect.rs`), by which new values
//! are checked (`property_check.rs`). Contradictions between properties are in `rules.rs`.
//!
//! The JSON forms are Riak's. The Protocol Buffers form belongs to the PB server; only the numbers
//! that stand for words are known here ([`Quorum::from_wire`]).

mod effect;
mod errors;
mod function;
mod property_check;
mod quorum;
mod rules;
mod table;
mod value;

pub use effect::{Effect, WithoutEffect};
pub use errors::{PropertyErrors, Reason};
pub use function::{CommitHook, KeyFunction, LinkFunction, ModuleFunction};
pub use quorum::{NotQuorum, Quorum};
pub use table::{BucketProperties, HLL_PRECISION_DEFAULT, OBJECT_TAG_DEFAULT, PropertyOverlay};
pub use value::{Datatype, Replication, SyncOnWrite};
