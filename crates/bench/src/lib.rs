//! kvorum bench: basho_bench configurations, generators, drivers and results.
//!
//! The tool uses the wire protocol and no other part of the server.
//!
//! - [`configuration`]: files of Erlang terms merged; [`settings`]: the settings of all runs.
//! - [`key_generator`], [`value_generator`]: the keys and the values of operations.
//! - [`driver`]: the operations; [`worker`]: one closed loop of operations.
//! - [`runner`]: a whole run; [`recorder`], [`server_probe`]: its measurements.
//! - [`output`], [`run_record`]: the result directory; [`merge`]: several as one.
//! - [`hits`]: the share of gets that could find anything.

mod activity;
pub mod arguments;
mod command;
pub mod configuration;
pub mod driver;
pub mod erlang_hash;
mod execution;
#[cfg(test)]
mod goodness_of_fit;
pub mod hits;
pub mod key_generator;
pub mod machine;
pub mod merge;
pub mod output;
pub mod process;
mod progress;
pub mod random;
pub mod recorder;
pub mod run_record;
pub mod runner;
mod schedule;
mod seconds;
pub mod server_probe;
pub mod settings;
pub mod value_generator;
pub mod verification;
pub mod worker;

pub use arguments::{BenchArguments, BenchCommand};
pub use command::{execute, execute_command, execute_command_with, main};
pub use driver::embedded::Engine;
