//! One suite that every engine passes: the contract of `kvorum-backend`, shown to hold.
//!
//! An engine's crate implements [`EngineUnderTest`] in its tests and writes
//! `conformance_suite!(engine)`; each [`Group`] then is one test. Checks are functions that return a
//! [`Violation`] and do not panic, so that the suite can be tested as well: an engine with a planted
//! defect has to be caught ([`expect_caught`]).
//!
//! | group | what it does |
//! |---|---|
//! | [`Group::Sentences`] | each sentence of the contract, shown deterministically |
//! | [`Group::Model`] | random scripts against an ordered map with history; failures are shrunk |
//! | [`Group::Crash`] | the power cut at every disk operation, several images of each, reopened |
//! | [`Group::Faults`] | the Nth disk operation fails, for every N |
//! | [`Group::Damage`] | files of a store that was closed or killed are flipped, cut, removed, put back and mixed up |
//!
//! Everything random comes from one seed, which is printed with a failure. Random scripts are
//! generated and shrunk here and not by a property-testing library: a script must stay meaningful
//! when any of its steps is taken out, and the same scripts drive the crash and fault groups.

mod crash;
mod damage;
mod disk_copy;
mod engine;
mod faults;
mod generate;
mod group;
mod history;
mod model;
mod model_based;
mod names;
mod observe;
mod observed;
mod planted;
mod recording;
mod script;
mod sentences;
mod shrink;
mod suite;
mod suite_macro;
mod trial;
mod violation;

pub use damage::expect_left_out_listed;
pub use engine::{DrawNumber, EngineUnderTest, Opening};
pub use group::{Effort, Group, Plan};
pub use planted::expect_caught;
pub use suite::run;
pub use violation::{Checked, Violation};
