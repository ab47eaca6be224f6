//! The documents: each is a single HTML file that needs no other file.

mod charts;
mod comparison;
mod data;
mod document;
mod failures;
mod figure;
mod hits;
mod matrix;
mod ratios;
mod run;
mod run_tables;

pub use comparison::{Entry, comparison, entries};
pub use document::{Link, escape_json};
pub use failures::failure;
pub(crate) use hits::{keys, sentences, share};
pub(crate) use matrix::kinds;
pub use matrix::{MatrixIndex, MatrixRow, matrix};
pub use run::run;
