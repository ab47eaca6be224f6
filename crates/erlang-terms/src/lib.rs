//! Erlang terms of configuration files: the value type, its reader and its printer; and terms in
//! Erlang's binary form, from Riak's objects ([`external_term`]).
//!
//! The language is that of Erlang's `file:consult`: a sequence of literal terms, each ended by a
//! full stop. Configurations of basho_bench and Riak's `advanced.config` are such files. After a
//! conversion to another notation, each of them would have to be checked again.
//!
//! This crate must not depend on files, or on the meaning of any key.

pub mod external_term;
mod lex;
mod parse;
mod print;
mod syntax_error;
mod term;

#[cfg(test)]
mod terms_test;

pub use parse::{parse_term, parse_terms};
pub use syntax_error::SyntaxError;
pub use term::{LocatedTerm, Position, Term};
