//! The engine behind the trait.

mod conformance;
mod engine;
mod planted;
