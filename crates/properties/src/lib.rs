//! Bucket and bucket-type properties: their values, their defaults, and their precedence.
//!
//! Three layers make the properties of a bucket: those set for the bucket, over those set for its
//! type, over the defaults. Each layer but the last is a [`PropertyOverlay`], in which any property
//! may be absent. The result is a [`BucketProperties`], in which every property with a default has
//! a value. All properties are in one table (`table.rs`), from which both types, their JSON and the
//! checks of single values are made. The table also has the effect of each property (`effect.rs`),
//! by which new values are checked (`property_check.rs`). Contradictions between properties are in
//! `rules.rs`; `resetting.rs` resets properties. The hooks that run here are validators
//! (`validator.rs`); one of them checks a schema (`json_schema.rs`).
//!
//! The JSON forms are Riak's. The Protocol Buffers form belongs to the PB server; only the numbers
//! that stand for words are here ([`Quorum::from_wire`]).

mod commit_hook;
mod effect;
mod errors;
mod function;
mod json_schema;
mod property_check;
mod quorum;
mod resetting;
mod rules;
mod table;
mod validator;
mod value;

pub use commit_hook::CommitHook;
pub use effect::{Effect, WithoutEffect};
pub use errors::{PropertyErrors, Reason};
pub use function::{KeyFunction, LinkFunction, ModuleFunction};
pub use quorum::{NotQuorum, Quorum};
pub use table::{BucketProperties, HLL_PRECISION_DEFAULT, OBJECT_TAG_DEFAULT, PropertyOverlay};
pub use validator::{Rejected, Validator};
pub use value::{Datatype, Replication, SyncOnWrite};
