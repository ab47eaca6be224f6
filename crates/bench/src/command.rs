//! The verbs of `kvorum bench`, each passed to its module.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::arguments::{BenchArguments, BenchCommand};
use crate::driver::embedded::Engine;
use crate::{execution, merge};

/// Runs the command and returns its exit code.
///
/// Blocks; it starts its own threads and runtimes and may be called from anywhere.
/// The exit code is 1 if `shutdown_on_error` ended the run, if a value failed verification, or if
/// nothing but errors came back.
///
/// # Errors
/// A configuration that cannot be used, a server that cannot be reached, or results that cannot be
/// written. Each error states what to change.
pub fn main(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    execute(arguments, &mut io::stdout())
}

/// Like [`main`], with the summary written to `out`.
///
/// # Errors
/// The errors of [`main`].
pub fn execute(arguments: &BenchArguments, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    execute_command(&arguments.command, out)
}

/// Like [`execute`], for a program that has commands of its own beside these.
///
/// # Errors
/// The errors of [`main`].
pub fn execute_command(command: &BenchCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    execute_command_with(command, &[], out)
}

/// Like [`execute_command`], with engines that drivers may open in this process.
///
/// # Errors
/// The errors of [`main`].
pub fn execute_command_with(
    command: &BenchCommand,
    engines: &[Engine],
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Run(arguments) => execution::run(arguments, engines, out),
        BenchCommand::Merge(arguments) => {
            let run = merge::merge(&arguments.directories, &arguments.out)?;
            writeln!(
                out,
                "{} operations of {} workers, {:.0} a second",
                run.operations_total, run.workers, run.operations_per_second
            )?;
            writeln!(out, "results  {}", arguments.out.display())?;
            let report = kvorum_report::write_report(&arguments.out)?;
            writeln!(out, "report  {}", report.display())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
