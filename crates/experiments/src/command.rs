//! The verbs of `kvorum bench` that make pages: `report` and `compare`, and, with runs of their
//! own, `matrix` and `quick`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use kvorum_report::page;
use kvorum_report::result::RunResult;
use kvorum_report::write_atomically;
use kvorum_report::{REPORT, write_page};

use crate::matrix::{self, MatrixArguments};
use crate::program::Program;
use crate::quick::{self, QuickArguments};

/// The commands about reports.
#[derive(Debug, clap::Subcommand)]
pub enum ReportCommand {
    /// Make the HTML report of a run, in its directory
    Report(ReportArguments),
    /// Lay several runs side by side in one HTML page
    Compare(CompareArguments),
    /// Run tests times backends on servers of its own, and compare them in pages
    Matrix(MatrixArguments),
    /// Measure in two minutes how fast this machine is with each backend
    Quick(QuickArguments),
}

/// Arguments of `kvorum bench report`.
#[derive(Debug, clap::Args)]
pub struct ReportArguments {
    /// Directory of a run, of this tool or of basho_bench
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// File of the page [default: report.html in the directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `kvorum bench compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArguments {
    /// Directories of runs
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    directories: Vec<PathBuf>,
    /// File of the page
    #[arg(long, value_name = "FILE", default_value = "comparison.html")]
    out: PathBuf,
    /// The run that ratios are taken against: its directory or its number, from 1
    #[arg(long, value_name = "RUN", default_value = "1")]
    base: String,
    /// The page's title
    #[arg(long, default_value = "Comparison")]
    title: String,
}

/// Runs a command and returns its exit code; its output goes to `out`.
///
/// # Errors
/// A directory that is not a run's, or a page that cannot be written.
pub fn execute(
    command: &ReportCommand,
    program: &Program,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match command {
        ReportCommand::Report(arguments) => {
            let page = arguments
                .out
                .clone()
                .unwrap_or_else(|| arguments.directory.join(REPORT));
            write_page(&arguments.directory, &page)?;
            writeln!(out, "report  {}", page.display())?;
        }
        ReportCommand::Compare(arguments) => {
            compare(arguments)?;
            writeln!(out, "comparison  {}", arguments.out.display())?;
        }
        ReportCommand::Matrix(arguments) => {
            return matrix::execute(arguments, &program.binary, out);
        }
        ReportCommand::Quick(arguments) => return quick::execute(arguments, program, out),
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(arguments: &CompareArguments) -> anyhow::Result<()> {
    let runs: Vec<RunResult> = arguments
        .directories
        .iter()
        .map(|directory| RunResult::read(directory))
        .collect::<Result<_, _>>()?;
    ensure!(
        runs.len() > 1,
        "one run cannot be compared; give a second directory"
    );
    let base = base(&arguments.base, &arguments.directories)?;
    let mut entries = page::entries(&runs);
    let folder = arguments.out.parent().unwrap_or(Path::new(""));
    for entry in &mut entries {
        let report = entry.run.directory.join(REPORT);
        let below = report.strip_prefix(folder).ok().filter(|_| report.exists());
        entry.report = below.map(|path| path.display().to_string());
    }
    let page = page::comparison(&arguments.title, None, &entries, base, &[]);
    write_atomically(&arguments.out, &page)
}

/// The number of the base among the directories, from zero.
fn base(wanted: &str, directories: &[PathBuf]) -> anyhow::Result<usize> {
    if let Some(index) = directories
        .iter()
        .position(|directory| directory == Path::new(wanted))
    {
        return Ok(index);
    }
    let number: usize = wanted.parse().with_context(|| {
        format!("--base {wanted} is neither one of the directories nor a number")
    })?;
    if !(1..=directories.len()).contains(&number) {
        bail!("--base {number}: there are runs 1 to {}", directories.len());
    }
    Ok(number - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_named_by_directory_or_number() {
        let directories = [PathBuf::from("a"), PathBuf::from("b/")];
        assert_eq!(base("b", &directories).unwrap(), 1);
        assert_eq!(base("2", &directories).unwrap(), 1);
        assert!(base("3", &directories).is_err());
        assert!(base("0", &directories).is_err());
        assert!(base("c", &directories).is_err());
    }
}
