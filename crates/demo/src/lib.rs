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
mod reading_back;
mod scene;
mod screen;
mod script;
mod show;

use std::path::{Path, PathBuf};

pub use command::{DemoArguments, execute};
pub use script::Script;

/// The program whose `server` verb the nodes run.
#[derive(Clone)]
pub struct Program {
    /// Its file.
    pub binary: PathBuf,
    /// Asks the admin interface of the node on a data directory with the words of a verb about the
    /// cluster. Blocks.
    pub ask: fn(&Path, &[&str]) -> anyhow::Result<Reply>,
}

/// What an admin interface says.
#[derive(Clone, Debug)]
pub struct Reply {
    /// False when it refused; the text says why.
    pub is_ok: bool,
    /// For people.
    pub text: String,
    /// For programs.
    pub data: serde_json::Value,
}
