//! MapReduce jobs run over the coordinator.
//!
//! [`AdmittedJob`] is a job whose text was read. The machine of `kvorum-map-reduce` requests its
//! inputs, and the loop of `run.rs` gets them: pages of keys from the coordinator's listings and
//! index queries, objects from its gets, as many at a time as the machine requests. Both protocols
//! run jobs with this crate: one sends each [`Output`] when it is ready ([`JobOutputs`]), the other
//! sends one answer ([`answer`]).
//!
//! A job continues only while its results are taken, so a slow client slows its job down and
//! nothing accumulates. The job ends at its deadline, and when memory for requests runs out.
//!
//! This crate depends on no protocol, engine or vnode.

mod admission;
mod job_count;
mod key_source;
mod objects;
mod outputs;
mod run;
mod run_error;

pub use admission::{AdmittedJob, NotAdmitted};
pub use kvorum_map_reduce::{HttpRefusal, JobForm, Output, Refusal};
pub use outputs::JobOutputs;
pub use run::answer;
pub use run_error::RunError;
