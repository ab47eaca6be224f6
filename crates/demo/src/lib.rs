//! `kvorum demo`: a cluster on this machine, a load that remembers acknowledged writes, and keys that
//! kill nodes, cut the network, and change the members, while a terminal shows the effects.
//!
//! Nodes are processes of the same program, each behind a relay (`network`) through which all messages
//! between nodes go; everything else is what operators and clients use. Decisions are pure (`script`,
//! `scene`, `account`, `observation`, `picture`); a director carries them out.
//!
//! Outside this crate: server internals.

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
