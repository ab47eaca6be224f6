//! Whole clusters in one process, on virtual time: one seed, one run.
//!
//! A run begins with a plan ([`RunPlan`]), which its seed alone decides: how many nodes, which engine,
//! what clients do, which faults begin and end when. Then clients and faults meet ([`run`]); what
//! clients are told goes into a ledger, and every read is judged by it. When the faults have ended,
//! everything has to come right within bounded virtual time, by what each replica says when it is asked
//! alone. Two runs of one seed have the same trace, and a failing plan is made smaller by running it
//! again with less in it ([`shrink`]).
//!
//! Where to look: `scenario` has known failures by name; `fault` is what can go wrong, `storm` and
//! `messages` how it does; `history` is the judge; `machine` has what nodes have in common; `survivor` is the
//! end of a run that loses all machines but one. A node is a member as the server opens it (`agreeing`, and
//! `operator` for joins and departures), or one whose control plane is stood in for (`telling`, with `cluster`
//! and `mover`): a plan's [`Control`] says which.
//!
//! The judge goes by values, each of which is written once, and by what clients had read before they
//! wrote; never by the clocks that the database made.

mod agreeing;
mod buckets;
mod client;
mod cluster;
mod counting;
mod disk_copy;
mod draw;
mod exchanging;
mod fault;
mod history;
mod ledger;
mod machine;
mod messages;
mod mover;
mod node_log;
mod node_settings;
mod operator;
mod plan;
mod routes;
mod run;
mod scenario;
mod shrink;
mod stores;
mod storm;
mod survivor;
mod telling;
mod told;
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
