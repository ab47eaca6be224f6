//! Experiments: runs of `kvorum bench` on servers of their own, and the pages that show them.
//!
//! The tool starts this binary as server and as load generator; `kvorum-report` reads the results.

pub mod command;
mod interruption;
mod load;
mod matrix;
mod program;
mod quick;
mod server_process;

pub use command::{ReportCommand, execute};
pub use program::Program;
