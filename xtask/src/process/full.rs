//! A full disk under load: writes are refused, but reads succeed. The server can be killed
//! and started meanwhile, no acknowledged write is lost, and writes resume when there is room.
//!
//! The data is on a separate file system, so that the disk is really full, for every file and
//! directory.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::process::backend::{Backend, SMALL_LOGS};
use crate::process::load::Load;
use crate::process::mount::Mount;
use crate::process::mounted_site::site_on;
use crate::run::Run;
use crate::server::Server;

/// The time limit for writers in reserved space, and for the detection of new room. Far more than
/// necessary, for busy machines.
const WITHIN: Duration = Duration::from_secs(60);

/// Fills the disk under load, checks, kills and starts the server, and makes room again.
pub(super) fn a_full_disk_refuses_and_resumes(
    run: &Run<'_>,
    backend: &Backend,
    directory: &Path,
    cutter: &Path,
) -> anyhow::Result<String> {
    let mount = Mount::fresh(directory, cutter)?;
    let site = site_on(run, &mount, &backend.with_small_files(SMALL_LOGS))?;
    let mut load = Load::new()?;
    let mut server = site.start()?;
    let writing = load.start(site.protobuf, run.seed);
    thread::sleep(Duration::from_millis(500));
    mount.fill()?;
    wait_until(&mut server, || writing.is_over()).context("writes on a full disk go on")?;
    load.finish(writing)?;
    let before = load.acknowledged();
    ensure!(before > 0, "nothing was acknowledged before");
    let refused = |load: &Load| load.put_once(site.protobuf).is_err();
    wait_until(&mut server, || refused(&load)).context("a put on a full disk")?;
    let look = |load: &mut Load, when: &str| {
        let survey = load.look(site.protobuf).and_then(|survey| {
            survey.require_no_loss()?;
            Ok(survey.keys)
        });
        survey.with_context(|| when.to_owned())
    };
    let keys = look(&mut load, "while the disk is full")?;
    server.kill();
    let mut server = site.start().context("starting on a full disk")?;
    look(&mut load, "after a start on a full disk")?;
    mount.make_room()?;
    wait_until(&mut server, || !refused(&load)).context("puts when there is room")?;
    let writing = load.start(site.protobuf, run.seed.wrapping_add(1));
    thread::sleep(Duration::from_millis(500));
    ensure!(!writing.is_over(), "no writer goes on when there is room");
    load.finish(writing)?;
    look(&mut load, "when there is room")?;
    server.kill();
    let server = site.start().context("starting when there is room")?;
    look(&mut load, "after a start with room")?;
    server.stop()?;
    Ok(format!(
        "{before} acknowledgements before and {} after, {keys} keys",
        load.acknowledged() - before
    ))
}

fn wait_until(server: &mut Server, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < WITHIN {
        server.require_alive()?;
        if is_so() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("not within {WITHIN:?}")
}
