//! The stages that cargo itself runs.

use crate::command::{cargo, read_lines, succeeds};
use crate::seed::SEED_VARIABLE;
use crate::tally::Tally;
use crate::test_run::Run;

/// Sources are formatted.
pub(crate) fn fmt(run: &Run<'_>) -> anyhow::Result<Tally> {
    succeeds(cargo(run.workspace.root()).args(["fmt", "--all", "--check"])).map(Tally::one)
}

/// No warning from clippy.
pub(crate) fn clippy(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
    command.args(["--", "--deny", "warnings"]);
    succeeds(&mut command).map(Tally::one)
}

/// The documentation of every crate, without a warning.
pub(crate) fn doc(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    succeeds(&mut command).map(Tally::one)
}

/// The tests of every crate, with the run's seed. Their temporary files go below the target
/// directory.
pub(crate) fn crates(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut command = cargo(run.workspace.root());
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command.env(SEED_VARIABLE, run.seed.to_string());
    command.env("PROPTEST_RNG_SEED", run.seed.to_string());
    command.env("TMPDIR", run.workspace.clean_scratch("tmp")?);
    if run.long {
        command.env("KVORUM_TEST_LONG", "1");
    }
    let mut tally = Tally::default();
    let has_passed = read_lines(&mut command, |line| {
        tally += Tally::parse_cargo(line).unwrap_or_default();
    })?;
    if !has_passed && tally.failed == 0 {
        tally.failed += 1; // it did not build, or a test binary died
    }
    Ok(tally)
}
