//! The only command that writes into the tree: formatting, and clippy's own mendings.

use crate::command::{cargo, succeeds};
use crate::workspace::Workspace;

/// Mends, then formats; whether both ended well.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let mended = succeeds(cargo(workspace.root()).args([
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ]))?;
    let formatted = succeeds(cargo(workspace.root()).args(["fmt", "--all"]))?;
    Ok(mended && formatted)
}
