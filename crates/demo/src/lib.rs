//! `kvorum demo`: a cluster on this machine, and a load that records acknowledged writes. Keys kill
//! nodes, cut the network, and change the members; a terminal shows the effects.
//!
//! Nodes are processes of the same program. Each is behind a relay (`network`), which passes on all
//! messages from other nodes; everything else uses the interfaces of operators and clients.
//! Decisions are pure (`script`, `scene`, `account`, `observation`, `picture`); a director carries
//! them out.
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
