//! The program under demonstration, as its own `main` hands it in.

use std::path::{Path, PathBuf};

/// The program whose `server` verb the nodes run.
#[derive(Clone)]
pub struct Program {
    /// Its file.
    pub binary: PathBuf,
    /// Asks the admin interface of the node on a data directory with the words of a verb about the
    /// cluster. Blocks.
    pub ask: fn(&Path, &[&str]) -> anyhow::Result<Reply>,
}

/// An answer of the admin interface.
#[derive(Clone, Debug)]
pub struct Reply {
    /// False when it refused; the text has the reason.
    pub is_ok: bool,
    /// For people.
    pub text: String,
    /// For programs.
    pub data: serde_json::Value,
}
