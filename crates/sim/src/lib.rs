//! Whole clusters in one process, on virtual time: one seed, one run.
//!
//! A run begins with a plan ([`RunPlan`]), which its seed alone decides: how many nodes, which engine,
//! what clients do, which faults begin and end when. Then clients and faults meet ([`run`]); what
//! clients are told goes into a ledger, and every read is judged by it. When the faults have ended,
//! everything has to come right within bounded virtual time, by what each replica says when it is asked
//! alone. Two runs of one seed have the same trace, and a failing plan is made smaller by running it
//! again with less in it ([`shrink`]).
//!
//! Where to look: `fault` is what can go wrong and `weather` how it does; `history` is the judge;
//! `machine` is what a node is made of here, `cluster` and `mover` stand in for the control plane.
//!
//! The judge goes by values, each of which is written once, and by what clients had read before they
//! wrote; never by the clocks that the database made.

mod client;
mod cluster;
mod draw;
mod fault;
mod history;
mod machine;
mod mover;
mod plan;
mod run;
mod shrink;
mod stores;
mod trace;
mod weather;

pub use client::Operations;
pub use draw::Draw;
pub use fault::{Fault, FaultKind};
pub use plan::{Engine, RunPlan};
pub use run::{Outcome, run};
pub use shrink::shrink;
pub use trace::Trace;
