//! Experiments: runs of `kvorum bench` on servers of their own, and the pages that show them.
//!
//! A tool at the rim: it starts this very binary as server and as load generator, and has
//! `kvorum-report` read their results.

pub mod command;
mod interruption;
mod load;
mod matrix;
mod program;
mod quick;
mod server_process;

pub use command::{ReportCommand, execute};
pub use program::Program;
