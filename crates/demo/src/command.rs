//! The command: its arguments, its setup and cleanup, and its last lines.

use std::io::{IsTerminal as _, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use kvorum_runtime::ProductionOptions;

use crate::Program;
use crate::director::{self, AFTER_SCRIPT, Ending, LENGTH_MAX, Play};
use crate::directory::Directory;
use crate::fleet::Fleet;
use crate::script::Script;

/// The default length of the load.
const DURATION: Duration = Duration::from_secs(120);
/// Time for the runtime to shut down; the rest is left to the end of the process.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(2);
/// The exit code of shells for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// Number of findings that are printed one by one.
const FINDINGS_SHOWN: usize = 10;

/// Arguments of the demo.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Nodes to begin with
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=9))]
    nodes: u32,
    /// Seconds of load [default: 120, or until 15 seconds after the script]
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Script of events, such as "10s kill, 20s heal, 25s cut, 35s heal, 40s add, 60s remove 4";
    /// without a terminal the default is a tour of everything
    #[arg(long)]
    script: Option<Script>,
    /// Print lines, on a terminal as well
    #[arg(long)]
    plain: bool,
    /// Print one JSON document at the end, for programs; lines go to standard error
    #[arg(long)]
    json: bool,
}

/// Plays the demo. The exit code is a success only if nothing was lost.
///
/// # Errors
/// If nodes cannot be started, or files are left behind.
pub fn execute(arguments: &DemoArguments, program: &Program) -> anyhow::Result<ExitCode> {
    let is_screen = !arguments.plain && !arguments.json && std::io::stdout().is_terminal();
    let has_keys = is_screen && std::io::stdin().is_terminal();
    let play = arguments.play(is_screen, has_keys);
    let directory = Directory::below(&std::env::temp_dir())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the demo's threads")?;
    let workers = arguments.workers_of_each();
    let fleet = Fleet::new(program, directory.path(), workers, runtime.handle());
    let nodes = EndOfNodes(fleet.clone());
    let ending = runtime.block_on(director::play(play, fleet));
    drop(nodes);
    runtime.shutdown_timeout(SHUT_DOWN_MAX);
    directory.remove()?;
    let ending = ending?;
    let out = &mut std::io::stdout();
    match arguments.json {
        true => {
            let _nobody_may_listen = writeln!(out, "{:#}", as_json(&ending));
        }
        false => print_ending(&ending, out),
    }
    Ok(if ending.is_interrupted {
        ExitCode::from(INTERRUPTED)
    } else if ending.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl DemoArguments {
    /// The workers of each node: its share of this machine's cores.
    fn workers_of_each(&self) -> NonZeroUsize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        ProductionOptions::workers_of_each(cores, self.nodes as usize)
    }

    fn play(&self, is_screen: bool, has_keys: bool) -> Play {
        let script = match &self.script {
            Some(script) => script.clone(),
            None if has_keys || self.duration.is_some() => Script::default(),
            None => Script::tour(),
        };
        let length = match (self.duration, script.length()) {
            (Some(seconds), _) => Duration::from_secs(seconds),
            (None, Duration::ZERO) => DURATION,
            (None, length) => length + AFTER_SCRIPT,
        };
        Play {
            nodes: self.nodes,
            length: length.min(LENGTH_MAX),
            length_follows_script: self.duration.is_none(),
            script,
            is_screen,
            has_keys,
            is_json: self.json,
        }
    }
}

/// Kills the nodes, also when the demo panics.
struct EndOfNodes(Fleet);

impl Drop for EndOfNodes {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The result for programs.
fn as_json(ending: &Ending) -> serde_json::Value {
    serde_json::json!({
        "acknowledged": ending.acknowledged,
        // Nothing was read back.
        "lost": (!ending.is_interrupted).then_some(ending.lost),
        "interrupted": ending.is_interrupted,
        "keys_read_back": ending.keys,
        "reads_judged": ending.judged,
        "requests_failed": ending.failures,
        "wrong": ending.findings,
    })
}

/// Prints the result; the last line is the verdict.
fn print_ending(ending: &Ending, out: &mut impl Write) {
    let mut text = String::new();
    for finding in ending.findings.iter().take(FINDINGS_SHOWN) {
        text.push_str(&format!("wrong: {finding}\n"));
    }
    let more = ending.findings.len().saturating_sub(FINDINGS_SHOWN);
    if more > 0 {
        text.push_str(&format!("wrong: and {more} more\n"));
    }
    if ending.failures > 0 {
        text.push_str(&format!(
            "{} requests failed while something was broken or moved\n",
            ending.failures
        ));
    }
    if ending.is_interrupted {
        text.push_str(&format!(
            "interrupted; acknowledged {}, not read back\n",
            ending.acknowledged
        ));
    } else {
        text.push_str(&format!(
            "{} keys read back, {} reads held to what was acknowledged meanwhile\n\
             acknowledged {}, lost {}\n",
            ending.keys, ending.judged, ending.acknowledged, ending.lost
        ));
    }
    let _nobody_may_listen = out.write_all(text.as_bytes());
}
