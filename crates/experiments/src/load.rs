//! A load on a server of our own: `kvorum bench run` as a process of its own, so that its
//! measurements of itself include no earlier runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use kvorum_report::draw::Unit;

use crate::interruption::Interruption;
use crate::server_process::{ServerProcess, terminate};

/// Free space on the disk below which a load is ended.
const ROOM_MIN_BYTES: u64 = 2 << 30;

/// A load to be run.
pub(crate) struct Load<'a> {
    /// The binary `kvorum`.
    pub(crate) binary: &'a Path,
    /// Configuration files.
    pub(crate) files: &'a [PathBuf],
    /// The directory that gets a directory of results.
    pub(crate) results: &'a Path,
    /// The name of that directory.
    pub(crate) name: &'a str,
    /// The file of its output.
    pub(crate) log: &'a Path,
    /// Further arguments.
    pub(crate) arguments: Vec<String>,
    /// True if its live view is shown, if there is a terminal.
    pub(crate) is_shown: bool,
}

/// Runs a load to its end against a server.
///
/// # Errors
/// An interruption, the death of the server, or a load that cannot be started.
pub(crate) fn run(
    load: &Load<'_>,
    server: &mut ServerProcess,
    stop: &Interruption,
) -> anyhow::Result<ExitStatus> {
    let targets = load.results.join(format!("{}-targets.config", load.name));
    write_targets(&targets, load.files, server)?;
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(load.log)
        .with_context(|| format!("cannot write {}", load.log.display()))?;
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let errors = if load.is_shown && is_terminal {
        Stdio::inherit()
    } else {
        Stdio::from(log.try_clone().context("cannot share a log")?)
    };
    let mut child = Command::new(load.binary)
        .args(["bench", "run"])
        .args(load.files)
        .arg(&targets)
        .arg("--out")
        .arg(load.results)
        .args(["--name", load.name])
        .args(&load.arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {}", load.binary.display()))?;
    let outcome = loop {
        let ended = child.try_wait().context("cannot look after the load")?;
        if let Some(status) = ended {
            break stop.check().map(|()| status).map_err(Into::into);
        }
        if let Err(error) = stop.check() {
            break Err(error.into());
        }
        if let Err(error) = server.check_alive() {
            break Err(error);
        }
        if let Err(error) = check_room(load.results) {
            break Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if outcome.is_err() {
        terminate(&child);
    }
    // The load ends by itself within its own time limit.
    let _ = child.wait();
    // The results include a copy.
    let _ = std::fs::remove_file(&targets);
    outcome
}

/// Ends a load before it fills the disk, which other programs may use too.
fn check_room(directory: &Path) -> anyhow::Result<()> {
    let disk = rustix::fs::statvfs(directory)
        .with_context(|| format!("cannot ask for the room in {}", directory.display()))?;
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    if room < ROOM_MIN_BYTES {
        anyhow::bail!(
            "only {} are left on the disk of {}; choose a shorter --duration or another place",
            Unit::Bytes.text(
                // The number is only displayed.
                f64::from(u32::try_from(room >> 10).unwrap_or(u32::MAX)) * 1024.0
            ),
            directory.display()
        );
    }
    Ok(())
}

/// Writes the server's address in the keys that the load's driver reads.
fn write_targets(path: &Path, files: &[PathBuf], server: &ServerProcess) -> anyhow::Result<()> {
    let mut text = "%% Where the server of this run was.\n".to_owned();
    let (protobuf, http) = (server.protobuf.port(), server.http.port());
    let (address, name) = ("[{127,0,0,1}]", "[\"127.0.0.1\"]");
    let keys = [
        ("riakc_pb", "riakc_pb", address, protobuf),
        ("nhs", "pb", address, protobuf),
        ("nhs", "http", address, http),
        ("2i", "pb", address, protobuf),
        ("2i", "http", address, http),
        ("http_raw", "http_raw", name, http),
    ];
    for (driver, prefix, hosts, port) in keys {
        if uses_driver(files, driver)? {
            text.push_str(&format!(
                "{{{prefix}_ips, {hosts}}}.\n{{{prefix}_port, {port}}}.\n"
            ));
        }
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// True if a configuration names a driver outside its comments.
fn uses_driver(files: &[PathBuf], driver: &str) -> anyhow::Result<bool> {
    let name = format!("basho_bench_driver_{driver}");
    for file in files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let terms = text
            .lines()
            .map(|line| line.split('%').next().unwrap_or_default());
        let words = |line: &str| {
            line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
                .any(|word| word == name)
        };
        if terms.into_iter().any(words) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_found_in_a_configuration_and_not_in_its_comments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.config");
        let text = "%% basho_bench_driver_nhs\n{driver, basho_bench_driver_http_raw}. % nhs\n";
        std::fs::write(&file, text).unwrap();
        let files = [file];
        assert!(uses_driver(&files, "http_raw").unwrap());
        assert!(!uses_driver(&files, "http").unwrap());
        assert!(!uses_driver(&files, "nhs").unwrap());
    }
}
