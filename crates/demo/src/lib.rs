//! `kvorum demo`: a cluster on this machine, a load that remembers what was acknowledged, and keys
//! that kill nodes, cut the network, and change the members, while a terminal shows what comes of it.
//!
//! Nodes are processes of the same program, each behind a relay (`network`) through which all that
//! they say to one another goes; the rest is what operators and clients use. What it shows is decided
//! purely (`script`, `scene`, `account`, `observation`, `picture`); a director does what was
//! decided.
//!
//! What this crate must not know: server internals.

mod account;
mod command;
mod director;
mod directory;
mod fleet;
mod keys;
mod lines;
mod load;
mod network;
mod node;
mod observation;
mod picture;
mod program;
mod reading_back;
mod scene;
mod screen;
mod script;
mod show;

pub use command::{DemoArguments, execute};
pub use program::{Program, Reply};
pub use script::Script;
