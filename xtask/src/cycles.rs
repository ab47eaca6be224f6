//! The command `cycles`: the modules of a crate that reach one another, and the paths between them.

use anyhow::ensure;
use clap::Args;

use crate::console;
use crate::modules::edges::{self, Edges};
use crate::modules::inside::{Crate, Target};
use crate::modules::knots::{self, Knot};
use crate::prerequisite::{self, GIT};
use crate::tidy::tree::Tree;
use crate::workspace::Workspace;

/// Selection of crates.
#[derive(Debug, Args)]
pub(crate) struct CyclesOptions {
    /// Directories below `crates`, or `xtask`; all below `crates` if none is named.
    crates: Vec<String>,
}

/// Prints the knots of each crate, and the number of crates with knots.
pub(crate) fn run(workspace: &Workspace, options: &CyclesOptions) -> anyhow::Result<bool> {
    prerequisite::require(&[GIT])?;
    let tree = Tree::of(workspace.root())?;
    let mut crates = Crate::all(&tree);
    if !options.crates.is_empty() {
        crates.extend(Crate::at(&tree, "xtask"));
        for name in &options.crates {
            ensure!(
                crates.iter().any(|each| each.name == *name),
                "there is no crates/{name}"
            );
        }
        crates.retain(|each| options.crates.contains(&each.name));
    }
    let [mut with_cycles, mut modules] = [0; 2];
    for each in &crates {
        let in_knots = show(each);
        with_cycles += usize::from(in_knots > 0);
        modules += in_knots;
    }
    console::line(&format!(
        "{with_cycles} of {} crates have cycles, with {modules} modules in them",
        crates.len()
    ));
    Ok(true)
}

/// Prints the knots of a crate; returns the number of modules in them.
fn show(each: &Crate) -> usize {
    let mut in_knots = 0;
    for target in &each.targets {
        let edges = edges::of(target);
        for knot in knots::of(target.modules.len(), &edges) {
            in_knots += knot.len();
            show_knot(&each.name, target, &edges, &knot);
        }
    }
    in_knots
}

fn show_knot(name: &str, target: &Target, edges: &Edges, knot: &Knot) {
    let modules: Vec<&str> = knot
        .iter()
        .map(|&position| target.modules[position].name.as_str())
        .collect();
    console::line(&format!(
        "{name}: {} modules reach each other: {}",
        knot.len(),
        modules.join(", ")
    ));
    console::line("    They do not without these paths:");
    for (from, to) in knots::ties(knot, edges) {
        let [from_module, to_module] = [&target.modules[from], &target.modules[to]];
        let lines = edges.get(&(from, to)).into_iter().flatten();
        let lines: Vec<String> = lines.map(usize::to_string).collect();
        console::line(&format!(
            "    {} -> {}  {}:{}",
            from_module.name,
            to_module.name,
            from_module.file,
            lines.join(",")
        ));
    }
}
