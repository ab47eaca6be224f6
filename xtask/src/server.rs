//! A server as a process: configured, started, pinged, stopped or killed.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::command;
use crate::console;
use crate::workspace::Workspace;

/// The time limit for a server's first answer. Far more than necessary, since the machine may be
/// busy with other things.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The time limit for a graceful stop, and for a refusal to start.
const END_WITHIN: Duration = Duration::from_secs(60);

/// Ports below the range that the system uses for outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A ping and its answer, as frames of the protocol.
const PING: [u8; 5] = [0, 0, 0, 1, 1];
const PONG: [u8; 5] = [0, 0, 0, 1, 2];

/// A ping whose answer has the number of open vnodes in a header.
const HTTP_PING: &[u8] = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The server's binary.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    path: PathBuf,
}

/// The configuration of a server: its directory, its ports, its settings.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    binary: Binary,
    directory: PathBuf,
    data: PathBuf,
    pub(crate) protobuf: SocketAddr,
    pub(crate) http: SocketAddr,
    surroundings: Surroundings,
}

/// The environment of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// A program with its arguments that becomes the server, for example after entering a
    /// namespace.
    pub(crate) launcher: Vec<OsString>,
    /// Environment variables.
    pub(crate) environment: Vec<(String, OsString)>,
}

/// A running server; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    site: Site,
    /// The time from the start of the process until every vnode was open.
    pub(crate) ready_after: Duration,
}

/// The end of a server that had to refuse its start.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
}

/// Settings in the form KEY=VALUE of a command line.
///
/// # Errors
/// If one has no `=`.
pub(crate) fn settings_of(texts: &[String]) -> anyhow::Result<Vec<(&str, &str)>> {
    let pairs = texts.iter().map(|text| {
        let pair = text.split_once('=');
        let (key, value) = pair.with_context(|| format!("{text} is not KEY=VALUE"))?;
        Ok((key.trim(), value.trim()))
    });
    pairs.collect()
}

impl Binary {
    /// The binary in cargo's target directory.
    pub(crate) fn in_target(target: &Path, is_release: bool) -> Binary {
        let profile = if is_release { "release" } else { "debug" };
        Binary {
            path: target.join(profile).join("kvorum"),
        }
    }

    /// A finished build at a path, or a new release build.
    pub(crate) fn at_or_released(
        path: Option<&Path>,
        workspace: &Workspace,
    ) -> anyhow::Result<Binary> {
        path.map_or_else(|| Binary::as_released(workspace), Binary::at)
    }

    /// Makes a release build.
    pub(crate) fn as_released(workspace: &Workspace) -> anyhow::Result<Binary> {
        console::headline("the server, as released");
        let mut build = command::cargo(workspace.root());
        build.args(["build", "--release", "-p", "kvorum-node"]);
        ensure!(command::succeeds(&mut build)?, "the server does not build");
        Ok(Binary::in_target(workspace.target(), true))
    }

    /// A binary at another path.
    pub(crate) fn at(path: &Path) -> anyhow::Result<Binary> {
        let path = path
            .canonicalize()
            .with_context(|| format!("finding {}", path.display()))?;
        Ok(Binary { path })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Site {
    /// Configures a server below the existing `directory`, with ports that are free now.
    pub(crate) fn new(
        binary: &Binary,
        directory: &Path,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Site> {
        Site::with_data(binary, directory, &directory.join("data"), settings)
    }

    /// Like [`Site::new`], with the data directory elsewhere.
    pub(crate) fn with_data(
        binary: &Binary,
        directory: &Path,
        data: &Path,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Site> {
        let site = Site {
            binary: binary.clone(),
            directory: directory.to_owned(),
            data: data.to_owned(),
            protobuf: free_address()?,
            http: free_address()?,
            surroundings: Surroundings::default(),
        };
        site.configure(settings)?;
        Ok(site)
    }

    /// Like [`Site::with_data`], at another address and in other surroundings.
    pub(crate) fn elsewhere(
        binary: &Binary,
        directory: &Path,
        data: &Path,
        host: IpAddr,
        surroundings: Surroundings,
    ) -> Site {
        Site {
            binary: binary.clone(),
            directory: directory.to_owned(),
            data: data.to_owned(),
            protobuf: SocketAddr::new(host, 8087),
            http: SocketAddr::new(host, 8098),
            surroundings,
        }
    }

    /// Rewrites the configuration file; `settings` take precedence over the common ones.
    pub(crate) fn configure(&self, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut text = format!(
            "listener.protobuf.internal = {}\n\
             listener.http.internal = {}\n\
             listener.peer.internal = off\n\
             platform_data_dir = {}\n\
             platform_log_dir = {}\n",
            self.protobuf,
            self.http,
            self.data.display(),
            self.directory.join("log").display(),
        );
        for (key, value) in settings {
            text.push_str(&format!("{key} = {value}\n"));
        }
        let path = self.configuration();
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The configuration file.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory.join("kvorum.conf")
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The server's output, over all its runs.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Starts a server and waits until all of it answers.
    pub(crate) fn start(&self) -> anyhow::Result<Server> {
        let mut server = self.launch()?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts a server and waits for its first answer; some vnodes may not be open yet.
    pub(crate) fn start_until_it_answers(&self) -> anyhow::Result<Server> {
        let mut server = self.launch()?;
        server.wait_until(Server::answers)?;
        Ok(server)
    }

    /// Starts a server whose system calls with these names are written to `trace`, and waits until
    /// it answers.
    pub(crate) fn start_traced(&self, trace: &Path, calls: &str) -> anyhow::Result<Server> {
        // As a grandchild, the tracer leaves the server as our child, which we can signal and wait
        // for.
        let mut tracer = Command::new("strace");
        tracer.args(["-D", "-f", "-yy", "-s", "0", "-e"]);
        tracer.arg(format!("trace={calls}")).arg("-o").arg(trace);
        tracer.arg(&self.binary.path);
        let mut server = self.spawn(tracer)?;
        server.wait_until(Server::answers)?;
        // The trace must have only one ping among the answers over TCP.
        self.run(&["admin", "wait-for-service", "riak_kv"])?;
        Ok(server)
    }

    /// Starts a server without waiting.
    pub(crate) fn launch(&self) -> anyhow::Result<Server> {
        let mut launcher = self.surroundings.launcher.iter();
        let mut program = match launcher.next() {
            Some(first) => Command::new(first),
            None => return self.spawn(Command::new(&self.binary.path)),
        };
        program.args(launcher).arg(&self.binary.path);
        self.spawn(program)
    }

    fn spawn(&self, program: Command) -> anyhow::Result<Server> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .with_context(|| format!("opening {}", self.log().display()))?;
        let child = self
            .server_arguments(program)
            .stdout(log.try_clone().context("sharing the log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", self.binary.path.display()))?;
        Ok(Server {
            child,
            site: self.clone(),
            ready_after: Duration::ZERO,
        })
    }

    /// Starts a server that has to refuse its start, and returns the refusal.
    pub(crate) fn refusal(&self) -> anyhow::Result<Refusal> {
        let log = self.directory.join("refusal.log");
        let output = fs::File::create(&log).context("creating the refusal's log")?;
        let mut child = self
            .server_arguments(Command::new(&self.binary.path))
            .stdout(output.try_clone().context("sharing the log")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", self.binary.path.display()))?;
        let Some(status) = wait_for(&mut child, END_WITHIN)? else {
            end(&mut child);
            bail!("it started, or hung, where it had to refuse");
        };
        let text = fs::read_to_string(&log).context("reading the refusal's log")?;
        Ok(Refusal { status, text })
    }

    fn server_arguments(&self, mut command: Command) -> Command {
        command
            .arg("server")
            .arg("--config")
            .arg(self.configuration())
            .current_dir(&self.directory)
            .envs(self.surroundings.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs one of the binary's other verbs on this configuration; returns its output.
    pub(crate) fn run(&self, verb: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.binary.path);
        command
            .args(verb)
            .arg("--config")
            .arg(self.configuration())
            .current_dir(&self.directory);
        command::capture(&mut command)
    }
}

impl Server {
    /// Waits until all vnodes answer.
    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.wait_until(|server| server.answers() && server.serves())
    }

    fn wait_until(&mut self, is_ready: impl Fn(&Server) -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            self.require_alive()?;
            if is_ready(self) {
                self.ready_after = start.elapsed();
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!(
            "the server does not answer within {READY_WITHIN:?}: {}",
            self.last_words()
        );
    }

    /// True if a ping is answered.
    pub(crate) fn answers(&self) -> bool {
        let mut answer = [0; 5];
        let ping = ask(self.site.protobuf, &PING, |it| it.read_exact(&mut answer));
        ping.is_ok() && answer == PONG
    }

    /// True when every vnode is open. `/health` cannot show that: on a full disk, or beside nodes
    /// that are down, it reports a node with all vnodes open as not ready.
    pub(crate) fn serves(&self) -> bool {
        let mut answer = String::new();
        let pong = ask(self.site.http, HTTP_PING, |it| {
            it.read_to_string(&mut answer)
        });
        let is_opening = answer
            .to_ascii_lowercase()
            .contains("x-kvorum-health: opening");
        pong.is_ok() && !is_opening && answer.contains("opening=0, failed=0")
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU time in user and kernel mode since its start, in steps of 10 ms.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time(self.id())
    }

    /// Its resident memory, in kilobytes.
    pub(crate) fn resident_kilobytes(&self) -> anyhow::Result<u64> {
        resident_kilobytes(self.id())
    }

    /// Pauses or continues the process.
    pub(crate) fn pause(&self, is_paused: bool) -> anyhow::Result<()> {
        let signal = if is_paused {
            Signal::STOP
        } else {
            Signal::CONT
        };
        kill_process(self.process()?, signal).context("pausing the server")
    }

    fn process(&self) -> anyhow::Result<Pid> {
        i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("the server's process number")
    }

    /// Checks that the process exists.
    ///
    /// # Errors
    /// If it has ended by itself; the error has the end of its output.
    pub(crate) fn require_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("looking after the server")? {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.last_words()),
        }
    }

    /// Kills it with SIGKILL: no last message, no flush.
    pub(crate) fn kill(mut self) {
        end(&mut self.child);
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// If it takes too long or fails.
    pub(crate) fn stop(mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        kill_process(self.process()?, Signal::TERM).context("sending SIGTERM")?;
        self.require_end()?;
        Ok(start.elapsed())
    }

    /// Waits for its end, which was requested in another way.
    ///
    /// # Errors
    /// The errors of [`Server::stop`].
    pub(crate) fn await_end(mut self) -> anyhow::Result<()> {
        self.require_end()
    }

    fn require_end(&mut self) -> anyhow::Result<()> {
        let status = wait_for(&mut self.child, END_WITHIN)?
            .with_context(|| format!("it did not stop within {END_WITHIN:?}"))?;
        ensure!(
            status.success(),
            "it ended with {status}: {}",
            self.last_words()
        );
        Ok(())
    }

    /// The end of its output.
    fn last_words(&self) -> String {
        let text = fs::read(self.site.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        lines.join("\n        ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Sends a request over a new connection and reads the answer.
fn ask<T>(
    address: SocketAddr,
    request: &[u8],
    read: impl FnOnce(&mut TcpStream) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request)?;
    read(&mut stream)
}

/// The processor time in the fields after the name, which may have spaces and parentheses.
fn processor_time(process: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))
        .context("reading the process's times")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
    };
    let user = ticks(11).context("finding utime")?;
    let kernel = ticks(12).context("finding stime")?;
    // The system counts in hundredths of a second.
    Ok(Duration::from_millis(10 * (user + kernel)))
}

fn resident_kilobytes(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))
        .context("reading the process's status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .context("finding VmRSS in the process's status")
}

/// Kills a child and waits for it. It may have ended before.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn wait_for(child: &mut Child, patience: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait().context("looking after the server")? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}

/// An address of this machine without a listener.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..1000 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_and_the_memory_of_this_process_can_be_read() {
        assert!(processor_time(std::process::id()).is_ok());
        assert!(resident_kilobytes(std::process::id()).unwrap() > 0);
    }
}
