//! The command `lines`: the number of lines of code of each crate.
//!
//! It counts the files in `crates/*/src` that are compiled into libraries and programs, without
//! tests, comments and blank lines. Blank lines inside a text count; generated code that a file
//! includes does not. `xtask` does not count: it builds the product and is not part of it.

use crate::console;
use crate::modules::inside::Crate;
use crate::prerequisite::{self, GIT};
use crate::tidy::tree::Tree;
use crate::workspace::Workspace;

/// Prints the lines of each crate, and their sum.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    prerequisite::require(&[GIT])?;
    let crates = Crate::all(&Tree::of(workspace.root())?);
    console::line("  files    lines");
    let [mut files, mut lines] = [0; 2];
    for each in &crates {
        let [own_files, own_lines] = [each.files(), each.lines()];
        console::line(&format!("{own_files:>7} {own_lines:>8}  {}", each.name));
        files += own_files;
        lines += own_lines;
    }
    console::line(&format!("{files:>7} {lines:>8}  {} crates", crates.len()));
    Ok(true)
}
