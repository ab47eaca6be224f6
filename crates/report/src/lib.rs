//! The pages of `kvorum bench`: one run, several side by side, and a matrix of tests and backends.
//!
//! A tool at the rim: it reads result directories and writes HTML that needs no network, and it
//! starts this very binary as server and as load generator when a matrix asks for it.
//!
//! - [`result`]: a result directory, read; [`figures`]: what is said of a run in one number.
//! - [`draw`]: scales, ticks, units and the SVG of a chart.
//! - [`page`]: the documents.

pub mod command;
pub mod draw;
pub mod figures;
mod files;
mod interruption;
mod load;
mod matrix;
pub mod page;
mod program;
mod quick;
pub mod result;
mod run_report;
mod server_process;

pub use command::{ReportCommand, execute};
pub use program::Program;
pub use run_report::write_report;
