//! Get, put, delete and coverage as pure machines over a preference list, and their driver.
//!
//! A request is planned against the agreed cluster state (which replicas, how many must answer), run by a
//! machine without clock or socket, and driven by [`Coordinator`], which executes the machine's effects. A
//! request to a replica of this node is executed inline, on the thread that received it; work that would
//! have to wait for a device goes to the blocking pool. A single node takes the same path.
//!
//! Files use only files below them in this list:
//!
//! - `coordinator.rs` admits a request.
//! - `reading.rs`, `writing.rs` and `deleting.rs` drive the machines of `get.rs` and `put.rs`;
//!   `listing.rs`, `index_results.rs` and `key_folding.rs` go through the vnodes that `coverage.rs` plans;
//!   `comparing.rs` drives the machine of `get.rs` for anti-entropy, and `key_changes.rs` changes the
//!   keys that a fold finds.
//! - `attempts.rs` plans reads and writes, and paces new tries.
//! - `accounts.rs` gives a request its time and reports its end.
//! - `replicas.rs` asks replicas here and elsewhere, by `local_vnodes.rs` and `peers.rs`.
//! - `plan.rs` has the plans that all of them go by.
//!
//! `service.rs` answers other nodes from `local_vnodes.rs` and `hints.rs`.
//!
//! Outside this crate: protocols, engines, files.

mod accounts;
mod attempts;
mod comparing;
mod coordinator;
mod coverage;
mod data_types;
mod deleting;
mod delivery;
mod error;
mod failure_log;
mod gate;
mod get;
mod hint_notes;
mod hint_rounds;
#[cfg(test)]
mod hint_rounds_test;
mod hinting;
mod hints;
mod index_query;
mod index_results;
mod key_changes;
mod key_folding;
mod listing;
mod local_vnodes;
mod part_reading;
mod parts;
mod peers;
mod plan;
mod property_change;
mod put;
mod quorum;
mod reach;
mod reading;
mod reaper;
mod replicas;
mod request;
#[cfg(test)]
mod script_test;
mod service;
mod trace;
mod under_way;
mod unopened;
mod validating;
mod waiting;
mod writing;

pub use coordinator::{Coordinator, InProgress};
pub use error::RequestError;
pub use get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine, SlotSet};
pub use hinting::HandedOff;
pub use hints::{Hint, HintCursor, HintPage, HintPageLimits, HintStore, VnodeHints};
pub use index_query::{
    Continuation, IndexOptions, IndexQuery, IndexQueryError, IndexSelection, IndexValues,
};
pub use index_results::{IndexMatch, IndexResults};
pub use key_changes::{KeyChange, KeysChanged};
pub use listing::{BucketListing, KeyCount, KeyListing};
pub use local_vnodes::{Absence, LocalVnodes, NextOpening};
pub use parts::{BackendNames, CoordinatorSettings, Parts, Remote};
pub use peers::{Asking, Liveness, PeerFailure, PeerReplicas, ReplicaPeers};
pub use property_change::PropertiesChanged;
pub use put::{PutEffect, PutEffects, PutEvent, PutMachine};
pub use quorum::{Offered, ReadQuorum, WriteQuorum, WriteQuorums};
pub use reach::OutOfReach;
pub use reaper::TombstoneKeeping;
pub use request::{
    DeleteOptions, Deleted, GetOptions, PutKind, PutOptions, PutRequest, ReplicaPlace,
};
pub use service::ReplicaService;
pub use trace::{MaintenanceWitness, Meter, PartReading, Repaired, RequestKind, Trace};
pub use under_way::UnderWay;

pub use kvorum_vnode::{Condition, Detail};
