//! One cell: a server is started, filled, loaded and stopped, and its results are kept.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use kvorum_report::draw::Unit;
use kvorum_report::figures::throughput;
use kvorum_report::page;
use kvorum_report::result::RunResult;

use super::plan::Cell;
use super::site::Site;
use crate::interruption::Interruption;
use crate::load::{self, Load};
use crate::server_process::{ServerPlan, ServerProcess};

/// Runs a cell; returns a summary in a few words.
///
/// # Errors
/// An interruption, or a failure of the server or the load.
pub(super) fn run_cell(
    cell: &Cell,
    site: &Site,
    binary: &Path,
    stop: &Interruption,
) -> anyhow::Result<String> {
    stop.check()?;
    let name = cell.name();
    let log = |what: &str| site.logs().join(format!("{name}.{what}.log"));
    // The log of an earlier attempt is no longer useful.
    let _ = std::fs::remove_file(log("load"));
    let settings = server_settings(cell);
    let mut server = ServerProcess::start(
        &ServerPlan {
            binary,
            below: &site.root,
            log: &log("server"),
            settings: &settings,
        },
        stop,
    )?;
    if !cell.preload.is_empty() {
        let filling = Load {
            binary,
            files: &cell.preload,
            results: &site.running(),
            name: &format!("{name}-preload"),
            log: &log("load"),
            arguments: scale_arguments(cell),
            is_shown: true,
        };
        run_load(&filling, &mut server, stop).context("filling the server")?;
    }
    let measuring = Load {
        binary,
        files: &cell.files,
        results: &site.running(),
        name: &name,
        log: &log("load"),
        arguments: arguments(cell, &server, &settings),
        is_shown: true,
    };
    run_load(&measuring, &mut server, stop)?;
    server.stop()?;
    keep(&site.running().join(&name), &site.results(cell))?;
    let run = RunResult::read(&site.results(cell))?;
    let rate = Unit::Rate.text(throughput(&run)).replace('\u{a0}', " ");
    Ok(match page::failure(&run) {
        Some(failure) => format!("{rate}, FAILED {failure}"),
        None => rate,
    })
}

fn run_load(
    load: &Load<'_>,
    server: &mut ServerProcess,
    stop: &Interruption,
) -> anyhow::Result<()> {
    let status = load::run(load, server, stop)?;
    ensure!(
        status.success(),
        "the load ended with {status}; see {}",
        load.log.display()
    );
    Ok(())
}

fn server_settings(cell: &Cell) -> Vec<(String, String)> {
    let mut settings = vec![("storage_backend".to_owned(), cell.backend.clone())];
    if let Some(durability) = &cell.durability {
        settings.push(("durability".to_owned(), durability.clone()));
    }
    let more = cell.server.iter();
    settings.extend(more.map(|(key, value)| (key.clone(), value.clone())));
    settings
}

fn scale_arguments(cell: &Cell) -> Vec<String> {
    vec!["--scale".to_owned(), cell.scale.to_string()]
}

fn arguments(cell: &Cell, server: &ServerProcess, settings: &[(String, String)]) -> Vec<String> {
    let mut arguments = scale_arguments(cell);
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("--duration", cell.duration.to_string());
    if cell.warm_up > 0.0 {
        add("--warm-up", cell.warm_up.to_string());
    }
    for (key, term) in &cell.set {
        add("--set", format!("{key}={term}"));
    }
    if !cell.preload.is_empty() {
        arguments.push("--filled".to_owned());
    }
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("--backend", cell.backend.clone());
    if let Some(durability) = &cell.durability {
        add("--durability", durability.clone());
    }
    for (key, value) in settings {
        add("--server-setting", format!("{key}={value}"));
    }
    add("--server-pid", server.id().to_string());
    add("--server-http", server.http.to_string());
    add("--server-data", server.data().display().to_string());
    arguments
}

/// Moves results to their final place, over those of an earlier plan.
fn keep(from: &Path, to: &PathBuf) -> anyhow::Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    std::fs::rename(from, to)
        .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}
