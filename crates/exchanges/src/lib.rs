//! Anti-entropy as a node runs it: replicas find and mend their differences without a read.
//!
//! The pure machines of `kvorum-anti-entropy` decide; here is what carries them out:
//!
//! - `places` says in which tree a key is, by its bucket's properties, and when keys have come to other trees;
//! - `building` has the trees of this node's vnodes built, one step after another with pauses between;
//! - `targets` says which preference lists this node compares, and which replicas they have;
//! - `conversation` drives one exchange: asks replicas, waits, has keys mended;
//! - [`Exchanges`] begins exchanges as they fall due, and reports on them.
//!
//! The node of the first replica of a preference list that is up compares it. Two nodes that see different nodes
//! up may both do so for a while, which costs questions and harms nothing.
//!
//! Questions and repairs go through the coordinator: the machine that read repair uses mends each key.
//!
//! What this crate must not know: how trees are kept, engines, how questions travel.

mod building;
mod conversation;
mod exchanges;
mod places;
mod report;
mod settings;
mod targets;

pub use exchanges::{Exchanges, Parts};
pub use places::KeyPlaces;
pub use report::{BuildingReport, ExchangesReport};
pub use settings::{ExchangeSettings, StepBudget, Unbounded};
