//! The project's rules that no other tool checks, each with a list of violations.
//!
//! A machine can judge these rules without doubt: the allowed imports between crates, the crates
//! with access to the clock, the targets of links. Length and naming are taste, which readers
//! judge. Every rule is tested on a planted violation.

mod dependencies;
mod floors;
pub(crate) mod lexer;
mod links;
mod manifests;
mod module_cycles;
mod openings;
mod scenarios;
mod seams;
mod sources;
pub(crate) mod test_items;
pub(crate) mod tree;
mod unused_public;
mod use_paths;

use crate::console;
use crate::prerequisite::{self, GIT};
use crate::printed;
use crate::tally::Tally;
use crate::workspace::Workspace;

use self::floors::CrateOnFloor;
use self::tree::Tree;

/// Checks every rule and prints the violations.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<Tally> {
    prerequisite::require(&[GIT])?;
    let tree = Tree::of(workspace.root())?;
    let crates = CrateOnFloor::all(workspace);
    let rules = [
        ("crates import lower floors only", floors::check(&crates)),
        (
            "dependencies are allowed by deny.toml",
            dependencies::check(workspace.root())?,
        ),
        (
            "every crate follows the workspace's lints",
            manifests::check(&tree),
        ),
        (
            "no module reaches itself by others",
            module_cycles::check(&tree),
        ),
        (
            "public items are named outside tests",
            unused_public::check(&tree),
        ),
        (
            "the seams are the only way to the world",
            seams::check(&tree),
        ),
        (
            "every Rust file says what it is",
            sources::check_introduction(&tree),
        ),
        (
            "doc comments begin with a noun or a verb",
            openings::check(&tree),
        ),
        ("sources are ASCII", sources::check_ascii(&tree)),
        ("no file is larger than 256 KiB", sources::check_size(&tree)),
        ("nothing is left for later", sources::check_finished(&tree)),
        (
            "no lint is silenced without a reason, no test switched off",
            sources::check_attributes(&tree),
        ),
        ("links in documents lead to files", links::check(&tree)),
        (
            "command lines in documents say whether they are run",
            printed::check(&tree),
        ),
        (
            "the tests of the table of named failures are there",
            scenarios::check(&tree),
        ),
    ];
    let mut tally = Tally::default();
    for (rule, violations) in rules {
        for violation in &violations {
            console::line(&format!("        {violation}"));
        }
        let result = match violations.len() {
            0 => Ok(String::new()),
            count => Err(anyhow::anyhow!("{count} violations, above")),
        };
        tally.check(rule, &result);
    }
    Ok(tally)
}
