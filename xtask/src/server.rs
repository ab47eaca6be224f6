//! A server as a process: configured, started, asked for a sign of life, stopped or killed.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::command;

/// How long a server may take until it answers. Far above what it needs, since the machine may be
/// busy with other things.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a graceful stop, and a refusal to start, may take.
const END_WITHIN: Duration = Duration::from_secs(60);

/// Below the range from which the system takes ports for outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A ping and its answer, as frames of the protocol.
const PING: [u8; 5] = [0, 0, 0, 1, 1];
const PONG: [u8; 5] = [0, 0, 0, 1, 2];

/// The server's binary.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    path: PathBuf,
}

/// A configured place for a server: its directory, its ports, its settings.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    binary: Binary,
    directory: PathBuf,
    data: PathBuf,
    pub(crate) protobuf: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// A running server; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    site: Site,
    /// From the start of the process to its first answer.
    pub(crate) ready_after: Duration,
}

/// How a server ended that was expected to refuse its start.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
}

impl Binary {
    /// Where cargo puts it.
    pub(crate) fn in_target(target: &Path, is_release: bool) -> Binary {
        let profile = if is_release { "release" } else { "debug" };
        Binary {
            path: target.join(profile).join("kvorum"),
        }
    }

    /// A binary somewhere else.
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
    /// Configures a server below `directory`, which exists, with ports that are free now.
    pub(crate) fn new(
        binary: &Binary,
        directory: &Path,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Site> {
        Site::with_data(binary, directory, &directory.join("data"), settings)
    }

    /// The same with the data directory somewhere else.
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
        };
        site.configure(settings)?;
        Ok(site)
    }

    /// Writes the configuration file anew; `settings` win over what every site has.
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

    /// The configuration file.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory.join("kvorum.conf")
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// What the server prints, over all its lives.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Starts a server and waits until it answers.
    pub(crate) fn start(&self) -> anyhow::Result<Server> {
        let mut server = self.launch()?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts a server with its system calls of these names written to `trace`, and waits until it
    /// answers.
    pub(crate) fn start_traced(&self, trace: &Path, calls: &str) -> anyhow::Result<Server> {
        // As a grandchild the tracer leaves the server ours, to be signalled and waited for.
        let mut tracer = Command::new("strace");
        tracer.args(["-D", "-f", "-yy", "-s", "0", "-e"]);
        tracer.arg(format!("trace={calls}")).arg("-o").arg(trace);
        tracer.arg(&self.binary.path);
        let mut server = self.spawn(tracer)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts a server and does not wait.
    pub(crate) fn launch(&self) -> anyhow::Result<Server> {
        self.spawn(Command::new(&self.binary.path))
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

    /// Starts a server that has to refuse, and returns how it did.
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
            .stdin(Stdio::null());
        command
    }

    /// Runs one of the binary's other verbs on this configuration; what it prints.
    pub(crate) fn run(&self, verb: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.binary.path);
        command
            .args(verb)
            .arg("--config")
            .arg(self.configuration())
            .current_dir(&self.directory);
        command::quiet(&mut command)
    }
}

impl Server {
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if let Some(status) = self.child.try_wait().context("looking after the server")? {
                bail!("the server ended with {status}: {}", self.last_words());
            }
            if self.answers() {
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

    /// Whether a ping is answered.
    pub(crate) fn answers(&self) -> bool {
        let ping = || -> std::io::Result<[u8; 5]> {
            let patience = Duration::from_secs(5);
            let mut stream = TcpStream::connect_timeout(&self.site.protobuf, patience)?;
            stream.set_read_timeout(Some(patience))?;
            stream.write_all(&PING)?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        ping().is_ok_and(|answer| answer == PONG)
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as the kernel would if it had to: no last word, no flush.
    pub(crate) fn kill(mut self) {
        end(&mut self.child);
    }

    /// Asks it to stop and waits for its end.
    ///
    /// # Errors
    /// If it takes too long or does not end well.
    pub(crate) fn stop(mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let id = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("the server's process number")?;
        kill_process(id, Signal::TERM).context("sending SIGTERM")?;
        let status = wait_for(&mut self.child, END_WITHIN)?
            .with_context(|| format!("it did not stop within {END_WITHIN:?}"))?;
        ensure!(
            status.success(),
            "it ended with {status}: {}",
            self.last_words()
        );
        Ok(start.elapsed())
    }

    /// The end of what it printed.
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

/// Kills a child and waits for it. It may have ended before, which is as good.
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

/// An address of this machine that nobody listens on now.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..1000 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}
