//! The state that the members of a cluster agree on: name, members, ring, bucket types and properties.
//!
//! Three parts, kept apart on purpose:
//!
//! - [`ClusterState`] is a value. Readers hold one and see nothing change under them.
//! - [`apply`] is the only way from one state to the next: a pure function of the state and a
//!   [`Command`], so that every member that applies the same commands has the same state.
//! - [`AgreedState`] is the interface that makes commands agreed. [`LocalState`] is the one for a
//!   single node: a file in two generations. In a cluster of many a replicated log takes its place, and
//!   the callers stay the same.
//!
//! Requests look up the properties of their bucket in the state ([`ClusterState::properties`]);
//! all layers are resolved when the state is made, not when it is asked.

mod agreed;
pub mod anatomy;
mod bucket_types;
pub mod checked_text;
mod cluster_id;
mod command;
mod command_document;
mod content;
mod document;
mod file_format;
mod local;
mod motion;
mod name_text;
mod plan;
mod recovery;
mod refusal;
mod resolved;
mod round_record;
mod rounds;
mod rounds_document;
mod staged;
mod staged_change;
mod state;

pub use agreed::{AgreedState, Look, ProposeError};
pub use cluster_id::ClusterId;
pub use command::{Command, apply};
pub use content::{BucketTypeEntry, Member, MemberStatus, Recovery, TypeStatus};
pub use file_format::DecodeError;
pub use local::{Founding, LocalState, OpenError, OpenNote, Opened, Unreadable};
pub use motion::{GrowthStep, MoveStep};
pub use plan::{Plan, PlanError, TARGET_N_VAL, Transfer};
pub use refusal::{Refusal, StagingRefusal};
pub use resolved::UnknownBucketType;
pub use round_record::RoundRefusal;
pub use staged_change::StagedChange;
pub use state::ClusterState;
