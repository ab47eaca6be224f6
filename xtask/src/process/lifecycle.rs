//! The server for an operator: refusals with reasons, a graceful stop, low use when idle, and syncs
//! as configured.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::process::backup;
use crate::process::demo;
use crate::process::idle;
use crate::process::load::Load;
use crate::process::sync_trace;
use crate::run::Run;
use crate::server::{Refusal, Site};
use crate::tally::Tally;

const STOPS_AT_ONCE: u32 = 10;

/// Runs all these tests.
pub(crate) fn lifecycle(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut check = |name: &str, test: fn(&Run<'_>, &Path) -> anyhow::Result<String>| {
        let result = run
            .workspace
            .clean_scratch("process")
            .and_then(|directory| test(run, &directory));
        tally.check(name, &result);
    };
    check(
        "ping and admin status find the server",
        verbs_find_the_server,
    );
    check(
        "a second server on a data directory is refused",
        second_server_is_refused,
    );
    check(
        "a port in use is refused with its address",
        port_in_use_is_refused,
    );
    check(
        "a data directory that is none is refused",
        file_as_data_directory_is_refused,
    );
    check(
        "a data directory of a newer format is refused",
        newer_format_is_refused,
    );
    check(
        "an unknown key is refused with its line",
        unknown_key_is_refused,
    );
    check(
        "a stop right after the first answer is graceful",
        stop_at_once_is_graceful,
    );
    check(
        "a graceful stop under load loses nothing",
        graceful_stop_loses_nothing,
    );
    check("an idle server needs little", idle::needs_little);
    check(
        "sync strategy o_sync syncs before each answer",
        sync_trace::o_sync_is_before_each_answer,
    );
    check(
        "sync strategy o_sync shares syncs among writes",
        sync_trace::o_sync_is_shared,
    );
    check(
        "sync strategy none syncs for nobody",
        sync_trace::none_syncs_for_nobody,
    );
    check(
        "sync strategy interval syncs afterwards",
        sync_trace::interval_syncs_afterwards,
    );
    check(
        "a second backup moves what is new",
        backup::second_one_moves_what_is_new,
    );
    check(
        "the demo shows everything, loses nothing and leaves nothing",
        demo::shows_everything_and_leaves_nothing,
    );
    Ok(tally)
}

impl Refusal {
    /// # Errors
    /// If the server did not end as a failure, or its text lacks one of `words`.
    pub(crate) fn require(&self, words: &[&str]) -> anyhow::Result<()> {
        ensure!(
            self.status.code().is_some_and(|code| code != 0),
            "it ended with {} where it had to refuse",
            self.status
        );
        ensure!(
            !self.text.contains("panicked"),
            "it panicked: {}",
            self.text
        );
        for word in words {
            ensure!(
                self.text.contains(word),
                "the message does not name {word}: {}",
                self.text
            );
        }
        Ok(())
    }
}

fn verbs_find_the_server(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    ensure!(
        site.run(&["ping"]).is_err(),
        "ping answers without a server"
    );
    let server = site.start()?;
    let pong = site.run(&["ping"])?;
    ensure!(pong.contains("pong"), "ping prints {pong:?}");
    let status = site.run(&["admin", "status"])?;
    ensure!(
        status.contains("node_gets"),
        "admin status does not show node_gets: {status}"
    );
    let ready_after = server.ready_after;
    server.stop()?;
    ensure!(site.run(&["ping"]).is_err(), "ping answers after the stop");
    Ok(format!("ready after {} ms", ready_after.as_millis()))
}

fn second_server_is_refused(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    let server = site.start()?;
    let second = directory.join("second");
    fs::create_dir_all(&second).context("creating the second site")?;
    let rival = Site::with_data(&run.binary, &second, site.data(), &[])?;
    rival
        .refusal()?
        .require(&[&site.data().to_string_lossy()])?;
    ensure!(server.answers(), "the first server no longer answers");
    server.stop()?;
    Ok(String::new())
}

fn port_in_use_is_refused(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    for address in [site.protobuf, site.http] {
        let _holder = TcpListener::bind(address).context("holding a port")?;
        site.refusal()?.require(&[&address.to_string()])?;
    }
    site.start()
        .context("starting with both ports free")?
        .stop()?;
    Ok(String::new())
}

fn file_as_data_directory_is_refused(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let file = directory.join("file");
    fs::write(&file, "a file").context("writing a file")?;
    for data in [file.clone(), file.join("below")] {
        let site = Site::with_data(&run.binary, directory, &data, &[])?;
        site.refusal()?.require(&[&data.to_string_lossy()])?;
    }
    Ok(String::new())
}

/// The file `format` of a data directory of a future version.
const FORMAT_OF_THE_FUTURE: &str = "kvorum format of a data directory, format 1, sequence 1, 15 bytes, \
                                    crc32c 9b310372\nlayout 4000000\n";

fn newer_format_is_refused(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    site.start()?.stop()?;
    let format = site.data().join("format");
    fs::write(&format, FORMAT_OF_THE_FUTURE).context("writing a format of the future")?;
    let data = site.data();
    site.refusal()?
        .require(&[&data.to_string_lossy(), "newer"])?;
    // A version with such a number would also write a checksum.
    fs::write(&format, "4000000\n").context("writing a damaged format")?;
    site.refusal()?
        .require(&[&format.to_string_lossy(), "damaged"])?;
    Ok(String::new())
}

fn unknown_key_is_refused(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[("storage_backende", "bitcask")])?;
    site.refusal()?
        .require(&["6", "storage_backende", "storage_backend"])?;
    Ok(String::new())
}

/// A server that answers can be stopped: its parent process waits for an answer, but not for a log
/// line or for all vnodes to be open.
fn stop_at_once_is_graceful(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    for attempt in 1..=STOPS_AT_ONCE {
        site.start_until_it_answers()?
            .stop()
            .with_context(|| format!("attempt {attempt} of {STOPS_AT_ONCE}"))?;
    }
    Ok(String::new())
}

fn graceful_stop_loses_nothing(run: &Run<'_>, directory: &Path) -> anyhow::Result<String> {
    let site = Site::new(&run.binary, directory, &[])?;
    let mut load = Load::new()?;
    let server = site.start()?;
    let writing = load.start(site.protobuf, run.seed);
    thread::sleep(Duration::from_millis(700));
    let took = server.stop()?;
    load.finish(writing)?;
    let acknowledged = load.acknowledged();
    ensure!(acknowledged > 0, "nothing was acknowledged");
    let server = site.start().context("starting again")?;
    load.verify(site.protobuf)?.require_no_loss()?;
    server.stop()?;
    Ok(format!(
        "{acknowledged} acknowledgements, stopped in {} ms",
        took.as_millis()
    ))
}
