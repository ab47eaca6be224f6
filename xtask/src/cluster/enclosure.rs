//! Separate namespaces for the tests of clusters, which the kernel removes with their last process.
//!
//! The stage runs itself again below `unshare`, with its own network, mounts and process numbers.
//! When that process ends or is killed, the kernel kills every server in it and removes bridges,
//! rules, mounts and loop devices. The process ends with its standard input, and so with its parent
//! process.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{self, Command, Stdio};
use std::thread;

use anyhow::{Context, ensure};

use crate::console;
use crate::run::Run;
use crate::tally::Tally;

/// Runs this program's verb `enclosed` in the enclosure, prints its lines, and returns its counts.
pub(super) fn run(run: &Run<'_>) -> anyhow::Result<Tally> {
    let program = env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg(program).arg("enclosed");
    command.args(["--seed", &run.seed.to_string()]);
    command.arg("--binary").arg(run.binary.path());
    if run.long {
        command.arg("--long");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting unshare")?;
    let output = child.stdout.take().context("a program without output")?;
    let mut tally = None;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading from the enclosure")?;
        match Tally::parse(&line) {
            Some(counts) => tally = Some(counts),
            None => console::line(&line),
        }
    }
    let status = child.wait().context("waiting for the enclosure")?;
    let tally = tally.with_context(|| {
        format!(
            "it ended with {status} and without counts. Namespaces, mounts and loop devices need \
             root: sudo -E cargo xtask test, or leave it out: cargo xtask test --without-cluster"
        )
    })?;
    ensure!(
        status.success() || tally.failed > 0,
        "it ended with {status}"
    );
    Ok(tally)
}

/// Ends this process, and so the enclosure, when its standard input ends.
pub(super) fn end_with_input() {
    thread::spawn(|| {
        let mut nothing = [0; 1];
        while matches!(std::io::stdin().read(&mut nothing), Ok(count) if count > 0) {}
        process::exit(1);
    });
}
