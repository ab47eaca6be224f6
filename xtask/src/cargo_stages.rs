//! The stages that cargo itself runs.

use std::collections::BTreeSet;
use std::process::Command;

use crate::command::{cargo, read_lines, succeeds};
use crate::run::Run;
use crate::seed::SEED_VARIABLE;
use crate::tally::Tally;
use crate::tidy::tree::Tree;

/// Checks that sources are formatted.
pub(crate) fn fmt(run: &Run<'_>) -> anyhow::Result<Tally> {
    succeeds(cargo(run.workspace.root()).args(["fmt", "--all", "--check"])).map(Tally::one)
}

/// Checks that clippy reports no warning.
pub(crate) fn clippy(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
    command.args(["--", "--deny", "warnings"]);
    succeeds(&mut command).map(Tally::one)
}

/// Builds the documentation of every crate, without a warning, and runs its examples.
pub(crate) fn doc(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    let mut tally = succeeds(&mut command).map(Tally::one)?;
    let mut command = cargo(run.workspace.root());
    command.args(["test", "--doc", "--no-fail-fast"]);
    let tree = Tree::of(run.workspace.root())?;
    let with_examples = crates_with_examples(&tree);
    if with_examples.is_empty() {
        return Ok(tally);
    }
    for directory in with_examples {
        command.args(["--package", &format!("kvorum-{directory}")]);
    }
    tally += count_tests(&mut command)?;
    Ok(tally)
}

/// The directories below `crates` whose documentation has runnable examples. cargo would need a
/// minute to search all others.
fn crates_with_examples(tree: &Tree) -> BTreeSet<&str> {
    let files = tree.with_extension("rs");
    files
        .filter(|file| has_example(&file.text()))
        .filter_map(|file| file.path.strip_prefix("crates/")?.split('/').next())
        .collect()
}

/// True if documentation has a block that is not marked as text, which is a program.
fn has_example(source: &str) -> bool {
    let mut is_open = false;
    for line in source.lines().map(str::trim_start) {
        let said = line.strip_prefix("//!").or(line.strip_prefix("///"));
        let Some(language) = said.and_then(|said| said.trim().strip_prefix("```")) else {
            continue;
        };
        is_open = !is_open;
        if is_open && language != "text" {
            return true;
        }
    }
    false
}

/// Runs the tests of every crate, with the run's seed; the next stage runs the examples in the
/// documentation. Temporary files are below the target directory.
pub(crate) fn crates(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command.args(["--lib", "--bins", "--tests", "--examples"]);
    command.env(SEED_VARIABLE, run.seed.to_string());
    command.env("PROPTEST_RNG_SEED", run.seed.to_string());
    command.env("TMPDIR", run.workspace.clean_scratch("tmp/crates")?);
    if run.long {
        // Without optimisation the long sweeps of a single engine take hours.
        command.args(["--profile", "long"]);
        command.env("KVORUM_TEST_LONG", "1");
    }
    count_tests(&mut command)
}

/// Runs cargo, and adds the counts in the last lines of its test binaries.
fn count_tests(command: &mut Command) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let has_passed = read_lines(command, |line| {
        tally += Tally::parse_cargo(line).unwrap_or_default();
    })?;
    if !has_passed && tally.failed == 0 {
        tally.failed += 1; // it did not build, or a test binary died
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_not_text_are_examples() {
        assert!(has_example(
            "/// Adds.\n/// ```\n/// add(1);\n/// ```\nfn add() {}"
        ));
        assert!(has_example("//! ```text\n//! ```\n//! ```no_run\n"));
        assert!(!has_example("    /// ```text\n    /// 0  1\n    /// ```\n"));
    }
}
