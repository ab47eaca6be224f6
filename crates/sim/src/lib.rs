//! Whole clusters in one process, on virtual time: one seed, one run.
//!
//! A run begins with a plan ([`RunPlan`]), which its seed alone decides: the number of nodes, the engine, the
//! clients' requests, the faults and their times. Then clients and faults meet ([`run`]); the clients'
//! answers go into a ledger, and every read is judged by it. When the faults have ended, everything has to
//! recover within bounded virtual time, by each replica's own answers. Two runs of one seed have the same
//! trace. A failing plan is reduced by repeated runs of smaller plans ([`shrink`]).
//!
//! The modules: `scenario` has known failures by name; `fault` has the kinds of faults, and `storm` and
//! `messages` carry them out; `history` is the judge; `machine` has the common parts of nodes;
//! `survivor` is the end of a run that loses all machines but one. A node is a member as the server
//! opens it (`agreeing`, and `operator` for joins and departures), or one with a stand-in for its
//! control plane (`stand_in`, with `cluster` and `mover`): a plan's [`Control`] decides.
//!
//! The judge goes by values, each of which is written once, and by the clients' reads before their
//! writes; never by the clocks that the database made.

mod agreeing;
mod buckets;
mod client;
mod cluster;
mod counting;
mod disk_copy;
mod draw;
mod exchanging;
mod fault;
mod finds;
mod follower;
mod history;
mod ledger;
mod machine;
mod messages;
mod mover;
mod node_log;
mod node_settings;
mod operator;
mod plan;
mod replica_objects;
mod routes;
mod run;
mod scenario;
mod shrink;
mod stand_in;
mod stores;
mod storm;
mod survivor;
mod trace;
mod weather;
mod witness;

pub use draw::Draw;
pub use fault::{Fault, FaultKind};
pub use ledger::Operations;
pub use plan::{Control, Engine, RunPlan};
pub use run::{Outcome, run, run_traced};
pub use scenario::Scenario;
pub use shrink::shrink;
pub use stores::Upkeep;
pub use trace::Trace;
