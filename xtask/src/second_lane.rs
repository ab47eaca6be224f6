//! Stages that run beside the others, in a separate process: they mostly wait for servers, while
//! tests of crates and the simulation keep the processor busy.

use std::env;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};

use crate::command::read_named_lines;
use crate::run::Run;
use crate::seed::SEED_VARIABLE;
use crate::stage::Stage;
use crate::tally::Tally;

/// The prefix of each line that these stages print.
const NAME: &str = "beside";

/// Stages under way in another process.
pub(crate) struct SecondLane {
    reader: JoinHandle<anyhow::Result<Tally>>,
}

impl SecondLane {
    /// Starts this program again, for `stages` and with the run's seed.
    pub(crate) fn start(run: &Run<'_>, stages: &[Stage], is_release: bool) -> anyhow::Result<Self> {
        let program = env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg("test");
        for stage in stages {
            command.args(["--only", &stage.name()]);
        }
        let switches = [("--long", run.long), ("--release", is_release)];
        let set = switches.iter().filter(|(_, is_set)| *is_set);
        command.args(set.map(|(name, _)| name));
        command.env(SEED_VARIABLE, run.seed.to_string());
        let reader = thread::spawn(move || counted(&mut command));
        Ok(Self { reader })
    }

    /// Waits for the stages; returns the sum of their counts.
    pub(crate) fn end(self) -> anyhow::Result<Tally> {
        let ended = self.reader.join();
        ended.map_err(|_| anyhow!("the thread that reads their output died"))?
    }
}

/// The counts that the other process ends with.
fn counted(command: &mut Command) -> anyhow::Result<Tally> {
    let mut closing = None;
    let read = |line: &str| closing = Tally::parse(line).or(closing);
    let has_passed = read_named_lines(command, NAME, read)?;
    let mut tally = closing.context("they ended without a line of counts")?;
    if !has_passed && tally.failed == 0 {
        tally.failed += 1; // it died
    }
    Ok(tally)
}
