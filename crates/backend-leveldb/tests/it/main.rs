//! The engine behind the trait.

mod behind_log;
mod conformance;
mod engine;
mod planted;
