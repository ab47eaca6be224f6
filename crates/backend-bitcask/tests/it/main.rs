//! The engine against the suite that every engine passes, and what is its own.

mod conformance;
mod engine;
mod planted;
