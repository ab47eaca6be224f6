//! MapReduce for Riak's clients: jobs in JSON, built-in functions, key filters, and their
//! execution.
//!
//! [`Job::read`] reads a job, in JSON or as Erlang's terms, or refuses it with Riak's text
//! ([`Refusal`]). [`Execution`] runs it without I/O: it requests pages of keys and objects, and
//! returns the results of the kept phases. [`Gathered`] combines them into one answer; in a stream
//! each [`Output`] is sent by itself. A job takes at most [`JOB_BYTES_MAX`] of memory.
//!
//! Values between phases are Erlang's terms ([`Term`]), on which Riak's functions are defined.
//! JavaScript and clients' Erlang source are not run.
//!
//! Everything here is a pure function of its arguments. The crate does not depend on listings of
//! keys, reads of objects, or the protocol of a job.

mod edit_distance;
mod execution;
mod external;
mod failure;
mod filter;
mod gathered;
mod input;
mod inputs;
mod iolist;
mod job;
mod json;
mod map_function;
mod memory;
mod object;
mod phase;
mod print;
mod reduce_function;
mod refusal;
mod term;
mod term_inputs;
mod term_phases;
mod term_text;

pub use execution::{Execution, Next, OBJECTS_AT_A_TIME_MAX, Output, Reduced, Reducing, Wanted};
pub use failure::Failure;
pub use filter::FilterChain;
pub use gathered::Gathered;
pub use input::Input;
pub use inputs::{IndexRange, Inputs};
pub use job::{Job, JobForm};
pub use map_function::MapFunction;
pub use memory::JOB_BYTES_MAX;
pub use object::{BucketName, ObjectLink, ObjectSibling, ReadObject};
pub use phase::{Phase, Work};
pub use reduce_function::ReduceFunction;
pub use refusal::{HttpRefusal, Refusal};
pub use term::Term;
