//! kvorum bench: basho_bench configurations, generators, drivers and results.
//!
//! A tool at the rim: it knows the wire and nothing of the server behind it.
//!
//! - [`eterm`]: Erlang terms; [`configuration`]: files merged into settings.
//! - [`key_generator`], [`value_generator`]: what is touched and what is written.
//! - [`driver`]: what an operation does; [`worker`]: one closed loop of operations.
//! - [`runner`]: a whole run; [`recorder`], [`output`]: what it measured.

pub mod arguments;
mod calendar;
pub mod configuration;
pub mod driver;
pub mod erlang_hash;
pub mod eterm;
pub mod key_generator;
pub mod output;
pub mod process;
mod progress;
pub mod random;
pub mod recorder;
pub mod runner;
pub mod value_generator;
pub mod verification;
pub mod worker;

pub use arguments::{BenchArguments, execute, main};
