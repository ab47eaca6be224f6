//! The keys of a worker: sources of numbers and bytes, and wrappers that shape them.
//!
//! A generator is a small tree of values that is walked for every key. In Erlang, a wrapper with
//! the wrong kind of input fails at the first key; here it is an error of the configuration, before
//! any connection is made.

mod build;
mod external_term;
mod format;
mod key;
mod law;
mod line_file;
mod node;
mod sequence;

#[cfg(test)]
mod distribution_test;
#[cfg(test)]
mod key_generator_test;

pub use build::KeySources;
pub use key::Key;
pub use law::KeyLaw;
pub use node::{Exhausted, KeyGenerator};
