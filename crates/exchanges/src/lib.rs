//! Anti-entropy as a node runs it: replicas find and mend their differences without a read.
//!
//! The pure machines of `kvorum-anti-entropy` decide; the modules here carry out their decisions:
//!
//! - `places` finds the tree of a key by its bucket's properties, and notices keys that have come to
//!   other trees;
//! - `building` takes the trees of this node's vnodes from their files or builds them, one step after
//!   another with pauses between, and keeps them in files;
//! - `body_checks` reads all entries of a store that has reported damage, and has the damaged ones mended;
//! - `targets` lists the preference lists that this node compares, with their replicas;
//! - `conversation` drives one exchange: asks replicas, waits, has keys mended;
//! - `rounding` drives a round, by which tombstones go, behind a complete exchange; [`RoundMeans`] is its
//!   way to replicas and members;
//! - `rounds_look` counts the rounds, and looks for tombstones that wait; `staying` finds the reason for which
//!   those of a list stay;
//! - [`Exchanges`] begins exchanges as they fall due, and reports on them.
//!
//! The node of the first replica of a preference list that is up compares it. Two nodes that see
//! different nodes up may both do so for a while, which costs questions and harms nothing.
//!
//! Questions and repairs go through the coordinator: the machine that read repair uses mends each key.
//!
//! Outside this crate: the trees and their files, engines, the transport of questions to other nodes.

mod body_checks;
mod building;
mod conversation;
mod exchanges;
mod places;
mod report;
mod round_question;
mod rounding;
mod rounds_look;
mod settings;
mod staying;
mod targets;

pub use exchanges::{Exchanges, Parts};
pub use places::{KeyPlaces, list_to_reap};
pub use report::{BuildingReport, ComparedCounts, ExchangesReport, ListTombstones, RoundsReport};
pub use round_question::{AskedRound, RoundAnswer, RoundMeans, RoundQuestion, RoundStep};
pub use settings::{ExchangeSettings, StepBudget, Unbounded};
pub use staying::Stay;
