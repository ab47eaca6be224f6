//! A server in a temporary directory: configured, started, awaited and stopped.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interruption::Interruption;

/// Time in which a server has to answer; an empty one needs a fraction of a second.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Time for a graceful stop before the server is killed: an engine may have to write some gigabytes
/// from memory.
const STOP_WITHIN: Duration = Duration::from_secs(180);

/// Below the range from which the system takes ports for outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A ping and its answer, as frames of the protocol.
const PING: [u8; 5] = [0, 0, 0, 1, 1];
const PONG: [u8; 5] = [0, 0, 0, 1, 2];

/// The prefix of the names of servers' directories.
pub(crate) const DIRECTORY_PREFIX: &str = "server-";

/// The parameters of a server's start.
pub(crate) struct ServerPlan<'a> {
    /// The binary `kvorum`.
    pub(crate) binary: &'a Path,
    /// The parent of the server's directory. That directory is removed when the server ends.
    pub(crate) below: &'a Path,
    /// The file of its output.
    pub(crate) log: &'a Path,
    /// Its settings, beyond listeners and directories.
    pub(crate) settings: &'a [(String, String)],
}

/// A running server; killed, and its data removed, when it is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    directory: TempDir,
    log: PathBuf,
    /// Its address for protocol buffers.
    pub(crate) protobuf: SocketAddr,
    /// Its address for HTTP.
    pub(crate) http: SocketAddr,
}

impl ServerProcess {
    /// Starts a server and waits until it answers.
    pub(crate) fn start(plan: &ServerPlan<'_>, stop: &Interruption) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(DIRECTORY_PREFIX)
            .tempdir_in(plan.below)
            .with_context(|| format!("cannot make a directory in {}", plan.below.display()))?;
        let (protobuf, http) = (free_address()?, free_address()?);
        let configuration = directory.path().join("kvorum.conf");
        let text = configuration_text(directory.path(), protobuf, http, plan.settings);
        std::fs::write(&configuration, text)
            .with_context(|| format!("cannot write {}", configuration.display()))?;
        let log = std::fs::File::create(plan.log)
            .with_context(|| format!("cannot write {}", plan.log.display()))?;
        let child = Command::new(plan.binary)
            .arg("server")
            .arg("--config")
            .arg(&configuration)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share a log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", plan.binary.display()))?;
        let mut server = Self {
            child,
            directory,
            log: plan.log.to_owned(),
            protobuf,
            http,
        };
        server.wait_until_ready(stop)?;
        Ok(server)
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The directory of its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Fails if the process has ended, with the end of its output.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        match self
            .child
            .try_wait()
            .context("cannot look after the server")?
        {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.last_words()),
        }
    }

    /// Stops the server and waits for its end; kills it when it takes too long.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        terminate(&self.child);
        let start = Instant::now();
        while start.elapsed() < STOP_WITHIN {
            let ended = self
                .child
                .try_wait()
                .context("cannot look after the server")?;
            if let Some(status) = ended {
                if !status.success() {
                    bail!("the server ended with {status}: {}", self.last_words());
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the server did not stop within {STOP_WITHIN:?} and was killed");
    }

    fn wait_until_ready(&mut self, stop: &Interruption) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            stop.check()?;
            self.check_alive()?;
            if answers(self.protobuf) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!(
            "the server does not answer within {READY_WITHIN:?}: {}",
            self.last_words()
        );
    }

    /// The end of its output, and the path of the whole output.
    fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(4)..)
            .unwrap_or_default();
        format!("{} (all of it: {})", last.join(" / "), self.log.display())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration_text(
    directory: &Path,
    protobuf: SocketAddr,
    http: SocketAddr,
    settings: &[(String, String)],
) -> String {
    let mut text = format!(
        "listener.protobuf.internal = {protobuf}\n\
         listener.http.internal = {http}\n\
         listener.peer.internal = off\n\
         platform_data_dir = {data}\n\
         platform_log_dir = {log}\n",
        data = directory.join("data").display(),
        log = directory.join("log").display(),
    );
    for (key, value) in settings {
        text.push_str(&format!("{key} = {value}\n"));
    }
    text
}

/// Asks a child to end.
pub(crate) fn terminate(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // It may have ended by itself.
        let _ = kill_process(id, Signal::TERM);
    }
}

/// True if a ping is answered.
fn answers(address: SocketAddr) -> bool {
    let ping = || -> std::io::Result<[u8; 5]> {
        let patience = Duration::from_secs(5);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(&PING)?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    ping().is_ok_and(|answer| answer == PONG)
}

/// A free address of this machine.
fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..1000 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}
