//! `kvorum demo`, run as by a new user, with a script in place of key presses.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::run::Run;

/// All actions of keys; `add` and `remove` wait until they are possible.
const SCRIPT: &str = "2s kill, 5s heal, 8s cut, 16s heal, 18s add, 19s remove 2";

/// The required events.
const EVENTS: [&str; 8] = [
    "node 1 is killed",
    "node 1 is back",
    "nothing passes between nodes 1, 2 and the others",
    "neither half sees the other any more",
    "the network is whole",
    "node 6 has joined",
    "node 2 has left and is stopped",
    "every key is read back",
];

/// The time limit for the nodes of a killed demo to end, and for a demo to have nodes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A killed demo ends its nodes too. The next demo removes the remains, shows everything, loses
/// nothing, and leaves nothing.
pub(crate) fn shows_everything_and_leaves_nothing(
    run: &Run<'_>,
    directory: &Path,
) -> anyhow::Result<String> {
    let directory = directory.join("temporary");
    fs::create_dir_all(&directory).context("making a temporary directory")?;
    let mut killed = demo(run, &directory)?;
    until("a killed demo has had nodes", || {
        Ok(nodes_below(&directory)? >= 5)
    })?;
    killed.kill().context("killing a demo")?;
    killed.wait().context("waiting for a killed demo")?;
    until("the nodes of a killed demo are gone", || {
        Ok(nodes_below(&directory)? == 0)
    })?;
    ensure!(entries(&directory)? == 1, "it left no directory");

    let mut played = demo(run, &directory)?;
    let mut text = String::new();
    let output = played.stdout.as_mut().context("a demo without output")?;
    output.read_to_string(&mut text).context("reading a demo")?;
    let status = played.wait().context("waiting for a demo")?;
    ensure!(status.success(), "it ended with {status}: {text}");
    let last = text.lines().last().unwrap_or_default();
    let acknowledged = last.strip_prefix("acknowledged ");
    let acknowledged = acknowledged.and_then(|rest| rest.strip_suffix(", lost 0"));
    let acknowledged: u64 = acknowledged
        .and_then(|count| count.parse().ok())
        .with_context(|| format!("its last line is {last:?}"))?;
    ensure!(acknowledged > 0, "nothing was acknowledged: {text}");
    for event in EVENTS {
        ensure!(text.contains(event), "it does not say {event:?}: {text}");
    }
    ensure!(nodes_below(&directory)? == 0, "nodes are left");
    ensure!(entries(&directory)? == 0, "files are left");
    Ok(last.to_owned())
}

fn demo(run: &Run<'_>, directory: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(run.binary.path());
    command.args(["demo", "--script", SCRIPT]);
    command.env("TMPDIR", directory).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("starting a demo")
}

fn until(what: &str, holds: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() >= deadline {
            bail!("it never comes to hold that {what}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The number of processes with a file below `directory` in their arguments.
fn nodes_below(directory: &Path) -> anyhow::Result<usize> {
    let processes = fs::read_dir("/proc").context("listing processes")?;
    let wanted = directory.as_os_str();
    let is_wanted = |line: &Vec<u8>| {
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| Path::new(OsStr::from_bytes(word)).starts_with(wanted))
    };
    let lines = processes
        .flatten()
        // A process that is just ending has no arguments.
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    Ok(lines.filter(is_wanted).count())
}

fn entries(directory: &Path) -> anyhow::Result<usize> {
    let entries = fs::read_dir(directory).context("listing what is left")?;
    Ok(entries.count())
}
