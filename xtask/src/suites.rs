//! The official clients' own test suites, as their authors published them, against our server.
//!
//! A suite has a folder in `tests/conformance/suites` with the name of its stage. `suite.toml`
//! names its sources, `prepare.sh` installs and compiles, `run.sh` runs it, and the lists in
//! `waiting` name waiting tests, with reasons. The repository contains no suite: sources,
//! dependencies and builds are below the target directory.
//!
//! The scripts run in the suite's directory there. Their environment has `SUITE`, its folder in the
//! repository; `CACHE`, a directory for downloads; and in `run.sh` the server's ports, `PB_PORT`
//! and `HTTP_PORT`. `run.sh` writes files to `results`, which `judge.py` compares with the lists. A
//! suite without available sources counts as not run, and its requirements are printed.

mod description;
mod sources;

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::command::capture;
use crate::conformance::{
    self, SETTINGS, create_bucket_types, create_types, is_installed, note_installed, read_all,
    run_client,
};
use crate::console;
use crate::prerequisite;
use crate::run::Run;
use crate::server::{Server, Site};
use crate::stage::Stage;
use crate::suites::description::Description;
use crate::suites::sources::Sources;
use crate::tally::Tally;

/// The folder of the suites, from the root.
const FOLDER: &str = "tests/conformance/suites";

/// The time limit for a suite's installation.
const PREPARE_SECONDS: u32 = 1200;

/// Bucket types that the suites expect beside the Python client's.
const BUCKET_TYPES: [(&str, &str); 4] = [
    ("gset_bucket", r#"{"props":{"datatype":"gset"}}"#),
    ("yokozuna", r#"{"props":{"datatype":"hll"}}"#),
    ("mr", ""),
    ("search_type", ""),
];

/// A suite on this machine.
struct Suite {
    name: String,
    /// Its folder in the repository.
    folder: PathBuf,
    /// Its directory below the target directory.
    home: PathBuf,
    cache: PathBuf,
    description: Description,
}

/// Runs the suite of a stage.
pub(crate) fn stage(run: &Run<'_>, stage: Stage) -> anyhow::Result<Tally> {
    prerequisite::require(stage.prerequisites())?;
    let suites = run.workspace.root().join(FOLDER);
    capture(
        Command::new("python3")
            .arg("-B")
            .arg(suites.join("judge_test.py")),
    )
    .context("the judge's own test")?;
    let suite = Suite::of(run, &suites, stage.name())?;
    match suite.prepare(run)? {
        Sources::AreThere => suite.run(run),
        Sources::AreMissing { needed } => {
            console::line(&format!("not run {}: {needed}", suite.name));
            Ok(Tally::not_run())
        }
    }
}

/// Runs the Node.js client's own suite, and our scenarios with that client.
pub(crate) fn node(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut total = stage(run, Stage::Node)?;
    total += conformance::node(run)?;
    Ok(total)
}

impl Suite {
    fn of(run: &Run<'_>, suites: &Path, name: String) -> anyhow::Result<Suite> {
        let folder = suites.join(&name);
        Ok(Suite {
            description: Description::read(&folder)?,
            home: run.workspace.scratch(&home_of(&name))?,
            cache: run.workspace.scratch("conformance/suites/cache")?,
            name,
            folder,
        })
    }

    /// Unpacks and prepares the sources, unless that was done before with the same scripts.
    fn prepare(&self, run: &Run<'_>) -> anyhow::Result<Sources> {
        let wanted = read_files(&self.folder)?;
        if is_installed(&self.home, &wanted) {
            return Ok(Sources::AreThere);
        }
        run.workspace.clean_scratch(&home_of(&self.name))?;
        let sources = &self.description.sources;
        let result = sources::provide(run.workspace.root(), sources, &self.home)?;
        if matches!(result, Sources::AreThere) {
            let log = self.home.join("prepare.log");
            let prepared = self.script("prepare.sh", PREPARE_SECONDS, &log, &[])?;
            ensure!(prepared, "prepare.sh failed:\n{}", last_lines(&log));
            note_installed(&self.home, &wanted)?;
        }
        Ok(result)
    }

    /// Runs the suite against a new server, and judges its results.
    fn run(&self, run: &Run<'_>) -> anyhow::Result<Tally> {
        let name = format!("conformance/server-suite-{}", self.name);
        let directory = run.workspace.clean_scratch(&name)?;
        let mut settings = SETTINGS.to_vec();
        settings.push(("storage_backend", "leveldb")); // for indexes
        settings.extend(pairs(&self.description.settings));
        let site = Site::new(&run.binary, &directory, &settings)?;
        let server = site.start()?;
        create_bucket_types(&site)?;
        create_types(&site, &BUCKET_TYPES)?;
        create_types(
            &site,
            &pairs(&self.description.bucket_types).collect::<Vec<_>>(),
        )?;
        self.ask(run, &site)?;
        let mut total = run_client(&mut self.judge(run), &self.name)?;
        let result = stop(server);
        let check = format!("{}: the server stops gracefully afterwards", self.name);
        total.check(&check, &result);
        Ok(total)
    }

    /// Runs the suite's script. A suite with waiting tests ends like a failed one, so its exit code
    /// alone proves nothing.
    fn ask(&self, run: &Run<'_>, site: &Site) -> anyhow::Result<()> {
        run.workspace
            .clean_scratch(&format!("{}/results", home_of(&self.name)))?;
        let ports = [("PB_PORT", site.protobuf), ("HTTP_PORT", site.http)];
        let ports = ports.map(|(name, place)| (name, place.port().to_string()));
        let seconds = self.description.seconds;
        self.script("run.sh", seconds, &self.log(), &ports)
            .map(drop)
    }

    fn log(&self) -> PathBuf {
        self.home.join("run.log")
    }

    /// Runs a script with a limit and its output in a file; true if it succeeded.
    fn script(
        &self,
        name: &str,
        seconds: u32,
        log: &Path,
        variables: &[(&str, String)],
    ) -> anyhow::Result<bool> {
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let status = Command::new("timeout")
            .args(["--kill-after=10", &seconds.to_string(), "bash"])
            .arg(self.folder.join(name))
            .current_dir(&self.home)
            .env("SUITE", &self.folder)
            .env("CACHE", &self.cache)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("sharing the log")?)
            .stderr(output)
            .status()
            .with_context(|| format!("running {name} of the suite {}", self.name))?;
        Ok(status.success())
    }

    fn judge(&self, run: &Run<'_>) -> Command {
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(run.workspace.root().join(FOLDER).join("judge.py"))
            .arg("--suite")
            .arg(&self.folder)
            .args(["--tests", &self.description.tests.to_string()])
            .args(&self.description.results)
            .current_dir(&self.home);
        command
    }
}

fn home_of(name: &str) -> String {
    format!("conformance/suites/{name}")
}

fn pairs(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    map.iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

fn stop(server: Server) -> anyhow::Result<String> {
    server.stop().map(|_took| String::new())
}

/// The files of a suite's folder that its preparation depends on, without the lists.
fn read_files(folder: &Path) -> anyhow::Result<String> {
    let entries = fs::read_dir(folder)
        .with_context(|| format!("listing {}", folder.display()))?
        .collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = entries.iter().map(DirEntry::path).collect();
    files.retain(|file| file.is_file());
    files.sort();
    read_all(&files)
}

fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
