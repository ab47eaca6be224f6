//! `kvorum-sim`: runs seeds and prints their results; `cargo xtask sim` builds and calls it.

mod arguments;
mod campaign;
mod console;
#[cfg(feature = "planted-defects")]
mod planted;
mod scenarios;
mod section;
mod single;
mod sum;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use kvorum_runtime::{ProductionOptions, Runtime};
use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;
use crate::console::line;

fn main() -> ExitCode {
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the log without times, which would be wall-clock times; the run's events have its virtual
/// times.
fn print_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .without_time()
        .with_ansi(false)
        .init();
    Ok(())
}

fn start() -> anyhow::Result<bool> {
    let arguments = Arguments::parse();
    if let Some(filter) = &arguments.log {
        print_log(filter)?;
    }
    let executor = Runtime::production(&ProductionOptions::default())?;
    let runtime = executor.runtime();
    #[cfg(feature = "planted-defects")]
    let defect = {
        let named = arguments.defect.as_deref().map(planted::named);
        let named = named.transpose()?;
        if arguments.planted {
            return planted::find_all(&runtime, named, &arguments);
        }
        named
    };
    #[cfg(not(feature = "planted-defects"))]
    let defect = None;
    let Some(wanted) = arguments.scenario.clone() else {
        return campaign::campaign(&runtime, arguments, defect);
    };
    scenarios::run(&runtime, &arguments, defect, &wanted)
}
