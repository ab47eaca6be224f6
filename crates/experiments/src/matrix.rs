//! `kvorum bench matrix`: tests times backends (times durabilities), each on a server of its own,
//! and the pages that compare them.
//!
//! A matrix takes hours, so an interruption must not cost finished cells. Every cell is recorded
//! when its results are complete, and `--resume` runs the rest. A cell whose plan has changed since
//! is run again.

mod cell;
mod estimate;
mod pages;
mod plan;
mod record;
mod site;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use kvorum_report::draw::Unit;

use self::cell::run_cell;
use self::estimate::Estimate;
use self::plan::{Cell, Plan};
use self::record::Record;
use self::site::Site;
use crate::interruption::{Interrupted, Interruption};

/// Arguments of `kvorum bench matrix`.
#[derive(Debug, clap::Args)]
pub struct MatrixArguments {
    /// Matrix to run: a TOML file, such as bench/configs/published.toml
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Directory of results and pages; servers keep their data below it while they run
    #[arg(long, value_name = "DIR", default_value = "matrix")]
    out: PathBuf,
    /// Keep the cells that are done and run the rest
    #[arg(long)]
    resume: bool,
    /// Run cells for this many seconds instead of those in the file
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Write the pages there too when all cells are done: a set worth keeping, without raw results and
    /// a page for each run
    #[arg(long, value_name = "DIR")]
    publish: Option<PathBuf>,
    /// Run this test alone; may be repeated
    #[arg(long, value_name = "TEST")]
    test: Vec<String>,
    /// Run this backend alone; may be repeated
    #[arg(long, value_name = "BACKEND")]
    backend: Vec<String>,
}

/// Runs a matrix and returns true if all its cells succeeded.
///
/// # Errors
/// An invalid file, existing results, an interruption.
pub(crate) fn execute(
    arguments: &MatrixArguments,
    binary: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut plan = Plan::read(&arguments.file)?;
    plan.narrow(&arguments.test, &arguments.backend)?;
    if let Some(seconds) = arguments.duration {
        plan.set_duration(seconds)?;
    }
    let site = Site::open(&arguments.out, arguments.resume)?;
    let matrix = Matrix {
        plan: &plan,
        site: &site,
        binary,
        publish: arguments.publish.as_deref(),
        command: &arguments.command(),
        stop: &Interruption::listen(),
    };
    matrix.run(out)
}

impl MatrixArguments {
    /// The command that makes the same results again.
    fn command(&self) -> String {
        let mut words = vec![
            "kvorum bench matrix".to_owned(),
            self.file.display().to_string(),
        ];
        words.extend(self.duration.map(|seconds| format!("--duration {seconds}")));
        words.extend(self.test.iter().map(|test| format!("--test {test}")));
        let backends = self.backend.iter();
        words.extend(backends.map(|backend| format!("--backend {backend}")));
        words.join(" ")
    }
}

/// A matrix being run.
struct Matrix<'a> {
    plan: &'a Plan,
    site: &'a Site,
    binary: &'a Path,
    /// The directory to which the pages are published when all cells are done.
    publish: Option<&'a Path>,
    command: &'a str,
    stop: &'a Interruption,
}

impl Matrix<'_> {
    fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let mut record = Record::read(&self.site.record())?;
        let left: Vec<&Cell> = self
            .plan
            .cells
            .iter()
            .filter(|cell| !self.is_done(&record, cell))
            .collect();
        let mut estimate = Estimate::new(left.iter().map(|cell| cell.expected_seconds()));
        let total = self.plan.cells.len();
        writeln!(
            out,
            "{}: {total} cells, {} to run, about {}",
            self.plan.title,
            left.len(),
            Unit::Seconds.text(estimate.left().round())
        )?;
        let mut failed = Vec::new();
        for (index, cell) in left.iter().enumerate() {
            let number = total - left.len() + index + 1;
            write!(out, "cell {number} of {total}: {}", cell.title())?;
            out.flush()?;
            let start = Instant::now();
            let outcome = run_cell(cell, self.site, self.binary, self.stop);
            estimate.finish(cell.expected_seconds(), start.elapsed().as_secs_f64());
            match outcome {
                Ok(remark) => {
                    record.finish(cell);
                    record.write(&self.site.record())?;
                    self.write_pages(&record)?;
                    writeln!(
                        out,
                        ": {remark}; about {} left",
                        Unit::Seconds.text(estimate.left().round())
                    )?;
                }
                Err(error) if error.is::<Interrupted>() => {
                    writeln!(out, ": interrupted")?;
                    self.say_how_to_go_on(out)?;
                    return Ok(ExitCode::from(130));
                }
                Err(error) => {
                    writeln!(out, ": failed: {error:#}")?;
                    failed.push(cell.title());
                }
            }
        }
        self.write_pages(&record)?;
        self.site.remove_left_overs()?;
        writeln!(
            out,
            "pages  {}",
            self.site.root.join("index.html").display()
        )?;
        if failed.is_empty() {
            self.publish(&record, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(out, "failed: {}", failed.join("; "))?;
        self.say_how_to_go_on(out)?;
        Ok(ExitCode::FAILURE)
    }

    fn is_done(&self, record: &Record, cell: &Cell) -> bool {
        record.has(cell) && self.site.results(cell).join("summary.csv").exists()
    }

    fn write_pages(&self, record: &Record) -> anyhow::Result<()> {
        self.write_pages_to(record, &self.site.root, true)
    }

    fn publish(&self, record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
        let Some(folder) = self.publish else {
            return Ok(());
        };
        self.write_pages_to(record, folder, false)?;
        writeln!(out, "published  {}", folder.join("index.html").display())?;
        Ok(())
    }

    fn write_pages_to(
        &self,
        record: &Record,
        root: &Path,
        has_reports: bool,
    ) -> anyhow::Result<()> {
        let is_done = |cell: &&Cell| self.is_done(record, cell);
        let done: Vec<&Cell> = self.plan.cells.iter().filter(is_done).collect();
        let output = pages::Output {
            root,
            has_reports,
            command: self.command,
        };
        pages::write(self.plan, &done, self.site, &output)
    }

    fn say_how_to_go_on(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(
            out,
            "to run what is left: the same command with --out {} --resume",
            self.site.root.display()
        )?;
        Ok(())
    }
}
