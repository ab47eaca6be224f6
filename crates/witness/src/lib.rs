//! A client's record of its writes, and the check of later reads against it.
//!
//! Values identify the write that made them ([`value`]); a key's [`Ledger`] records the writes, the
//! values that each replaced, and the acknowledgements. The tests of killed and partitioned servers
//! and `kvorum demo` use this. The simulation has a check of its own: it also records the flow of
//! knowledge between clients, in virtual time.
//!
//! This crate does not depend on the way of writing or reading.

mod ledger;
mod value;

pub use ledger::{Ledger, Siblings, Wrong};
pub use value::{Lengths, attempt_of, value};
