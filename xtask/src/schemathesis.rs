//! Requests that schemathesis makes from a node's description of its HTTP interface, to find
//! answers that are not described.
//!
//! The requests follow from the run's seed. The settings of the checks are in
//! `tests/conformance/schemathesis`.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use crate::command::read_named_lines;
use crate::conformance::{create_bucket_types, install_python};
use crate::prerequisite;
use crate::run::Run;
use crate::server::Site;
use crate::stage::Stage;
use crate::tally::Tally;

/// The folder of the checks, from the root.
const FOLDER: &str = "tests/conformance/schemathesis";

/// The list of the checks' Python packages.
const LISTS: &[(&str, &[&str])] = &[("requirements.txt", &[])];

/// Engines with secondary indexes; long runs add one without.
const ENGINES: &[&str] = &["leveldb"];
const ENGINES_LONG: &[&str] = &["leveldb", "bitcask"];

/// The number of random requests for each operation, beside about sixty that follow from its
/// parameters.
const EXAMPLES: u32 = 3;
const EXAMPLES_LONG: u32 = 100;

/// Sends requests to a server of each engine.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Schemathesis.prerequisites())?;
    let folder = run.workspace.root().join(FOLDER);
    let python = install_python(run, &folder, "conformance/schemathesis", LISTS)?;
    let mut total = Tally::default();
    let engines = if run.long { ENGINES_LONG } else { ENGINES };
    for engine in engines {
        total += ask(run, &folder, &python.with_file_name("schemathesis"), engine)?;
    }
    Ok(total)
}

fn ask(run: &Run<'_>, folder: &Path, program: &Path, engine: &str) -> anyhow::Result<Tally> {
    let name = format!("conformance/schemathesis-{engine}");
    let directory = run.workspace.clean_scratch(&name)?;
    let settings = [("storage_backend", engine), ("ring_size", "8")];
    let site = Site::new(&run.binary, &directory, &settings)?;
    let server = site.start()?;
    create_bucket_types(&site)?;
    let mut command = requests(run, folder, program, &site);
    // The files that it keeps between runs are removed with the server's data.
    command.current_dir(&directory);
    command.env("TMPDIR", run.workspace.scratch("tmp")?);
    let mut total = Tally::default();
    let asked = succeeded(&mut command, engine);
    let check = format!("{engine}: every answer is described");
    total.check(&check, &asked.map(|()| String::new()));
    let result = server.stop().map(|_took| String::new());
    let check = format!("{engine}: the server stops gracefully afterwards");
    total.check(&check, &result);
    Ok(total)
}

fn requests(run: &Run<'_>, folder: &Path, program: &Path, site: &Site) -> Command {
    let examples = if run.long { EXAMPLES_LONG } else { EXAMPLES };
    let mut command = Command::new(program);
    command.arg("--no-color");
    command.arg("--config-file");
    command.arg(folder.join("schemathesis.toml"));
    command.arg("run");
    command.arg(format!("http://{}/openapi.json", site.http));
    command.args(["--seed", &run.seed.to_string()]);
    command.args(["--max-examples", &examples.to_string()]);
    command.env("SCHEMATHESIS_HOOKS", folder.join("checks.py"));
    // Nothing is written beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn succeeded(command: &mut Command, engine: &str) -> anyhow::Result<()> {
    let has_passed = read_named_lines(command, engine, |_| ())?;
    ensure!(has_passed, "the lines above say what is not described");
    Ok(())
}
