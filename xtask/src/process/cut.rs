//! The power cut under load: no acknowledged write is lost.
//!
//! The data is on a separate file system, whose power is cut by a shutdown request that does not
//! flush the journal: unsynced data is lost, as on a machine whose plug is pulled. The last round,
//! without syncs, has to lose writes, or the others would prove nothing.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::prerequisite;
use crate::process::backend::{BACKENDS, Backend, SMALL_LOGS};
use crate::process::load::{Load, Power, Survey};
use crate::process::mount::Mount;
use crate::process::mounted_site::site_on;
use crate::process::{filled, full};
use crate::run::Run;
use crate::server::Site;
use crate::stage::Stage;
use crate::tally::Tally;

const ROUNDS_LONG: u32 = 50;

/// The program that cuts the power, from the root.
const CUTTER: &str = "tests/process/cut_power.py";

/// Runs the rounds, then the round that has to lose writes.
pub(crate) fn power_cut(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::PowerCut.prerequisites())?;
    let directory = run.workspace.scratch("power-cut")?;
    let cutter = run.workspace.root().join(CUTTER);
    let mut tally = Tally::default();
    for backend in &BACKENDS {
        tally += acknowledged_survives(run, backend, &directory, &cutter)?;
        let result = without_syncs_something_is_lost(run, backend, &directory, &cutter);
        let name = format!("{}: without syncs the power cut loses writes", backend.name);
        tally.check(&name, &result);
        let result = full::a_full_disk_refuses_and_resumes(run, backend, &directory, &cutter);
        let name = format!(
            "{}: a full disk refuses writes, and they resume",
            backend.name
        );
        tally.check(&name, &result);
        for logs in filled::LOGS {
            let filled = filled::a_disk_filled_by_overwrites_heals;
            let result = filled(run, backend, logs, &directory, &cutter);
            let sizes = if logs.is_empty() { "default" } else { "small" };
            let name = format!(
                "{}, logs of {sizes} size: a disk that overwrites have filled heals by itself",
                backend.name
            );
            tally.check(&name, &result);
        }
    }
    let result = a_read_only_disk_is_refused(run, &directory, &cutter);
    tally.check(
        "a disk that cannot be written is refused with a message",
        &result,
    );
    Ok(tally)
}

fn acknowledged_survives(
    run: &Run<'_>,
    backend: &Backend,
    directory: &Path,
    cutter: &Path,
) -> anyhow::Result<Tally> {
    let mount = Mount::fresh(directory, cutter)?;
    let site = site_on(run, &mount, &[])?;
    let mut load = Load::new()?;
    let mut random = StdRng::seed_from_u64(run.seed);
    let rounds = if run.long { ROUNDS_LONG } else { backend.cuts };
    let variants = [backend.with(&[]), backend.with_small_files(SMALL_LOGS)];
    let mut tally = Tally::default();
    for (round, variant) in (1..=rounds).zip(variants.iter().cycle()) {
        site.configure(variant)?;
        let before = load.acknowledged();
        let result = one_round(&mount, &site, &mut load, &mut random).and_then(|survey| {
            survey.require_no_loss()?;
            let acknowledged = load.acknowledged() - before;
            ensure!(acknowledged > 0, "nothing was acknowledged");
            Ok(format!(
                "{acknowledged} acknowledgements, {} keys as they should be",
                survey.keys
            ))
        });
        tally.check(
            &format!("{}: power cut {round} of {rounds}", backend.name),
            &result,
        );
    }
    Ok(tally)
}

/// The control: if nothing is lost here, the cut has no effect, and the rounds above prove nothing.
fn without_syncs_something_is_lost(
    run: &Run<'_>,
    backend: &Backend,
    directory: &Path,
    cutter: &Path,
) -> anyhow::Result<String> {
    let mount = Mount::fresh(directory, cutter)?;
    let site = site_on(run, &mount, &backend.with(&[("durability", "none")]))?;
    let mut load = Load::new()?;
    let mut random = StdRng::seed_from_u64(run.seed);
    let survey = one_round(&mount, &site, &mut load, &mut random)?;
    ensure!(
        !survey.losses.is_empty(),
        "all {} keys survived a cut that nothing was synced before: the cut cuts nothing",
        survey.keys
    );
    Ok(format!("{} of {} keys", survey.losses.len(), survey.keys))
}

/// Writes, cuts the power at a random moment, powers up, reads.
fn one_round(
    mount: &Mount,
    site: &Site,
    load: &mut Load,
    random: &mut StdRng,
) -> anyhow::Result<Survey> {
    let server = site.start()?;
    let writing = load.start(site.protobuf, random.random());
    thread::sleep(Duration::from_millis(random.random_range(200..1500)));
    let cutter = mount.cutter()?;
    writing.set_power(Power::Failing);
    cutter.cut()?;
    writing.set_power(Power::Off);
    // The server runs for a moment with a failing disk, and has to report that to its clients.
    thread::sleep(Duration::from_millis(random.random_range(0..100)));
    server.kill();
    load.finish(writing)?;
    mount.power_up()?;
    let server = site.start().context("starting after the power cut")?;
    let survey = load.verify(site.protobuf)?;
    server.stop().context("stopping after the power cut")?;
    Ok(survey)
}

fn a_read_only_disk_is_refused(
    run: &Run<'_>,
    directory: &Path,
    cutter: &Path,
) -> anyhow::Result<String> {
    let mount = Mount::fresh(directory, cutter)?;
    mount.make_read_only()?;
    let site = site_on(run, &mount, &[])?;
    let refusal = site.refusal()?;
    refusal.require(&[&site.data().to_string_lossy()])?;
    Ok(String::new())
}
