//! The keys that a worker touches: sources of numbers and bytes, and wrappers that shape them.
//!
//! A generator is a small tree of values that is walked for every key. Erlang would find out at
//! the first key that a wrapper got the wrong kind of input; here that is an error of the
//! configuration, before any connection is made.

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
