//! The only command that writes to the repository: formatting, clippy's own fixes, generated
//! messages.

use crate::command::{cargo, succeeds};
use crate::workspace::Workspace;

/// Renews generated messages, applies clippy's fixes, then formats; true if all succeeded.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let renewed = succeeds(
        cargo(workspace.root())
            .args(["test", "--quiet", "--package", "kvorum-protocol"])
            .args(["--test", "it", "the_messages_are_those_of_the_proto_files"])
            .env("KVORUM_RENEW_MESSAGES", "1"),
    )?;
    let mended = succeeds(cargo(workspace.root()).args([
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ]))?;
    let formatted = succeeds(cargo(workspace.root()).args(["fmt", "--all"]))?;
    Ok(renewed && mended && formatted)
}
