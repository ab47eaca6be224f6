//! The pages of `kvorum bench` in headless Chromium: their charts and texts match the measurements.

use std::process::Command;

use crate::conformance::{install_npm, run_client};
use crate::prerequisite;
use crate::run::Run;
use crate::stage::Stage;
use crate::tally::Tally;

/// The folder of the checks, from the root.
const FOLDER: &str = "tests/browser";

/// Makes pages from known results and from a small matrix, and checks them.
pub(crate) fn run(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Browser.prerequisites())?;
    let home = install_npm(run, &run.workspace.root().join(FOLDER), "browser")?;
    let mut command = Command::new("node");
    command
        .arg(home.join("run.js"))
        .arg(run.binary.path())
        .arg("chromium")
        .arg(run.workspace.clean_scratch("browser-pages")?)
        .env("TMPDIR", run.workspace.scratch("tmp")?);
    run_client(&mut command, "browser")
}
