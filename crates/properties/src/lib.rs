//! Bucket and bucket-type properties: what they may be, what they are by default, which one counts.
//!
//! Three layers make the properties of a bucket: what was set for the bucket, over what was set for
//! its type, over the defaults. Each layer but the last is a [`PropertyOverlay`], where anything may
//! be absent; what comes out is a [`BucketProperties`], where everything that has a default has a
//! value. All properties stand in one table (`table.rs`), from which both types, their JSON and
//! the checks of single values are made; it also has the effect of setting each (`effect.rs`), by which
//! what is set is checked (`kept.rs`).
//! Contradictions between properties are in `rules.rs`. The hooks that run here are validators
//! (`validator.rs`), one of which goes by a schema (`json_schema.rs`).
//!
//! The JSON forms are Riak's. The Protocol Buffers form belongs to the PB server; only the numbers
//! that stand for words are known here ([`Quorum::from_wire`]).

mod commit_hook;
mod effect;
mod errors;
mod function;
mod json_schema;
mod kept;
mod quorum;
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
