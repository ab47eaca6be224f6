//! The server killed under load, repeatedly, on one data directory.
//!
//! `kill -9` never loses the system's page cache, so this does not test syncs, unlike the power
//! cut. It shows that recovery finds everything after a kill at any moment, even during a recovery,
//! and with logs so small that they rotate all the time.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::console;
use crate::process::backend::{BACKENDS, Backend, Setting};
use crate::process::load::Load;
use crate::run::Run;
use crate::server::Site;
use crate::tally::Tally;

const ROUNDS_LONG: u32 = 100;

/// Logs of the smallest size, so that files are finished, merged and removed in every round.
const SMALL_LOGS: &[Setting] = &[
    ("value_log.segment_bytes", "128KB"),
    ("value_log.bytes_max", "512KB"),
];

/// Without syncs, a crash of only the server still loses nothing.
const NO_SYNC: &[Setting] = &[("durability", "none")];

/// Runs the rounds of every backend.
pub(crate) fn kill(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for backend in &BACKENDS {
        tally += kill_with(run, backend)?;
    }
    Ok(tally)
}

fn kill_with(run: &Run<'_>, backend: &Backend) -> anyhow::Result<Tally> {
    let name = backend.name;
    let directory = run.workspace.clean_scratch(&format!("kill-{name}"))?;
    let site = Site::new(&run.binary, &directory, &[])?;
    let mut load = Load::new()?;
    let mut random = StdRng::seed_from_u64(run.seed);
    let rounds = if run.long { ROUNDS_LONG } else { backend.kills };
    // The settings of the rounds, in turn.
    let variants = [
        backend.with(&[]),
        backend.with_small_files(SMALL_LOGS),
        backend.with(NO_SYNC),
    ];
    let mut tally = Tally::default();
    for (round, variant) in (1..=rounds).zip(variants.iter().cycle()) {
        site.configure(variant)?;
        let result = one_round(&site, &mut load, &mut random);
        tally.check(&format!("{name}: kill {round} of {rounds}"), &result);
    }
    if tally.failed > 0 {
        console::line(&format!(
            "        data and log are in {}",
            directory.display()
        ));
    }
    Ok(tally)
}

fn one_round(site: &Site, load: &mut Load, random: &mut StdRng) -> anyhow::Result<String> {
    let before = load.acknowledged();
    let server = site.start()?;
    let writing = load.start(site.protobuf, random.random());
    let delay = Duration::from_millis(random.random_range(100..1500));
    thread::sleep(delay);
    server.kill();
    load.finish(writing)?;
    let mut killed_starting = 0;
    while random.random_ratio(1, 3) {
        let starting = site.launch()?;
        thread::sleep(Duration::from_millis(random.random_range(0..150)));
        starting.kill();
        killed_starting += 1;
    }
    let server = site.start().context("starting again")?;
    let survey = load.verify(site.protobuf)?;
    server.kill();
    survey.require_no_loss()?;
    let acknowledged = load.acknowledged() - before;
    anyhow::ensure!(acknowledged > 0, "nothing was acknowledged in {delay:?}");
    Ok(format!(
        "after {} ms and {acknowledged} acknowledgements, {killed_starting} times more while \
         starting; {} keys as they should be",
        delay.as_millis(),
        survey.keys
    ))
}
