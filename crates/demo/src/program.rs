//! The program under demonstration, which its own `main` passes in.

use std::path::{Path, PathBuf};

/// The program whose `server` verb the nodes run.
#[derive(Clone)]
pub struct Program {
    /// The program's file.
    pub binary: PathBuf,
    /// Sends a verb about the cluster, as words, to the admin interface of the node on a data
    /// directory. Blocks.
    pub ask: fn(&Path, &[&str]) -> anyhow::Result<Reply>,
}

/// An answer of the admin interface.
#[derive(Clone, Debug)]
pub struct Reply {
    /// False for a refusal; the text has the reason.
    pub is_ok: bool,
    /// The answer for people.
    pub text: String,
    /// The answer for programs.
    pub data: serde_json::Value,
}
