//! What a client knows of what it wrote, and whether what is read later can be true.
//!
//! Values tell which write made them ([`value`]); a key's [`Ledger`] knows which writes there were,
//! which each replaced, and which were acknowledged. The tests of killed and partitioned servers and
//! `kvorum demo` judge by this. The simulation has a judge of its own: it also knows what clients
//! learned from one another, in virtual time.
//!
//! What this crate must not know: how anything is written or read.

mod ledger;
mod value;

pub use ledger::{Ledger, Siblings, Wrong};
pub use value::{Lengths, attempt_of, value};
