//! One node: its directory, its ports, its relay, and its process, which ends with the demo's.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::network::{Network, Relay};
use crate::script::NodeNumber;
use crate::{Program, Reply};

/// Time for a node to answer: far more than it needs, since the machine may be busy.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Time for a node to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Ports below the range that the system uses for connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// Characters of a failed node's last output that are shown.
const LAST_WORDS: usize = 2_000;

/// Few enough partitions to be shown, and to move within a show.
pub(crate) const RING_SIZE: usize = 32;

/// A node.
pub(crate) struct Node {
    pub(crate) number: NodeNumber,
    /// Its address for clients.
    pub(crate) protobuf: SocketAddr,
    pub(crate) http: SocketAddr,
    program: Program,
    directory: PathBuf,
    relay: Relay,
    process: Mutex<Process>,
}

#[derive(Default)]
struct Process {
    child: Option<Child>,
    /// True when its process must not be started any more.
    is_over: bool,
}

impl Node {
    /// Configures a node below `parent`, without starting it.
    pub(crate) async fn configure(
        number: NodeNumber,
        parent: &Path,
        program: &Program,
        network: &Network,
        workers: NonZeroUsize,
    ) -> anyhow::Result<Self> {
        let directory = parent.join(format!("node{number}"));
        let [protobuf, http, peer] = [free_address()?, free_address()?, free_address()?];
        let relay = network.relay(number, peer).await?;
        let node = Self {
            number,
            protobuf,
            http,
            program: program.clone(),
            directory,
            relay,
            process: Mutex::default(),
        };
        fs::create_dir_all(&node.directory).context("make a node's directory")?;
        let file = node.directory.join("kvorum.conf");
        fs::write(&file, node.configuration(peer, workers))
            .context("write a node's configuration")?;
        Ok(node)
    }

    fn configuration(&self, peer: SocketAddr, workers: NonZeroUsize) -> String {
        format!(
            "nodename = {}\n\
             cluster_name = demo\n\
             ring_size = {RING_SIZE}\n\
             worker_threads = {workers}\n\
             buckets.default.allow_mult = on\n\
             listener.protobuf.internal = {}\n\
             listener.http.internal = {}\n\
             listener.peer.internal = {peer}\n\
             peer.advertised_address = {}\n\
             platform_data_dir = {}\n\
             platform_log_dir = {}\n",
            self.name(),
            self.protobuf,
            self.http,
            self.relay.address,
            self.data().display(),
            self.directory.join("log").display(),
        )
    }

    /// Its name in the cluster.
    pub(crate) fn name(&self) -> String {
        format!("node{}@127.0.0.1", self.number)
    }

    /// The name with which others join its cluster.
    pub(crate) fn call_name(&self) -> String {
        format!("{}:{}", self.name(), self.relay.address.port())
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Starts its process, and waits until it answers. Blocks.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        {
            let mut process = self.process.lock();
            if process.is_over {
                bail!("the demo has ended");
            }
            process.child = Some(self.launch()?);
        }
        let deadline = Instant::now() + ANSWER_WAIT;
        while self.ask(&["member-status"]).is_err() {
            if let Some(status) = self.ended()? {
                bail!("it ended with {status}: {}", self.last_words());
            }
            if Instant::now() >= deadline {
                bail!("it does not answer: {}", self.last_words());
            }
            thread::sleep(LOOK_PERIOD);
        }
        Ok(())
    }

    fn launch(&self) -> anyhow::Result<Child> {
        let path = self.log();
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let log = opened.with_context(|| format!("open {}", path.display()))?;
        let mut command = Command::new(&self.program.binary);
        command.args(["server", "--stop-with-input", "--config"]);
        command.arg(self.directory.join("kvorum.conf"));
        command.current_dir(&self.directory);
        // Only this process holds it open, so the node's input ends with this process.
        command.stdin(Stdio::piped());
        command.stdout(log.try_clone().context("share the log")?);
        command.stderr(log);
        command.spawn().context("run this program")
    }

    /// Sends a command to its admin interface. Blocks.
    pub(crate) fn ask(&self, words: &[&str]) -> anyhow::Result<Value> {
        let Reply { is_ok, text, data } = (self.program.ask)(&self.data(), words)?;
        if is_ok {
            return Ok(data);
        }
        bail!("{}", text.trim_end())
    }

    /// The exit status of its process, if it ended by itself.
    pub(crate) fn ended(&self) -> anyhow::Result<Option<ExitStatus>> {
        match self.process.lock().child.as_mut() {
            Some(child) => child.try_wait().context("look after a node"),
            None => Ok(None),
        }
    }

    /// Kills its process with SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock();
        if let Some(mut child) = process.child.take() {
            end(&mut child);
        }
    }

    /// Kills its process, which is not started again.
    pub(crate) fn end(&self) {
        self.process.lock().is_over = true;
        self.kill();
    }

    /// Stops its process with SIGTERM, or with SIGKILL if that takes too long. Blocks.
    pub(crate) fn stop(&self) {
        let Some(mut child) = self.process.lock().child.take() else {
            return;
        };
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let asked = id.map(|id| kill_process(id, Signal::TERM));
        let deadline = Instant::now() + STOP_WAIT;
        while matches!(asked, Some(Ok(()))) && Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK_PERIOD);
        }
        end(&mut child);
    }

    /// Removes its files. Remains are removed with the demo's directory.
    pub(crate) fn remove_directory(&self) {
        let _removed_now_or_later = fs::remove_dir_all(&self.directory);
    }

    /// The file of its output.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// The end of its output: from its first panic on, or the last characters.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        last_words(&String::from_utf8_lossy(&text))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The part of a log with the reason of the end. A panic's message comes before the other text
/// about it.
fn last_words(log: &str) -> String {
    let panic = log.find(" panicked at ");
    let panic = panic.and_then(|at| log[..at].rfind('\n'));
    let text: String = match panic {
        Some(at) => log[at..].trim().chars().take(LAST_WORDS).collect(),
        None => {
            let reversed: Vec<char> = log.trim().chars().rev().take(LAST_WORDS).collect();
            reversed.into_iter().rev().collect()
        }
    };
    text
}

/// Kills a child and waits for it; it may have ended before.
fn end(child: &mut Child) {
    let _killed_or_gone = child.kill();
    let _waited_or_gone = child.wait();
}

/// A free address of this machine. Each is returned only once, since its node binds it later.
fn free_address() -> anyhow::Result<SocketAddr> {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(rand::random_range(PORTS)));
    for _ in 0..1000 {
        let port = PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_starts_no_more_workers_than_its_share() {
        let parent = tempfile::tempdir().unwrap();
        let program = Program {
            binary: PathBuf::new(),
            ask: |_, _| bail!("no node is asked"),
        };
        let (network, share) = (Network::whole(), NonZeroUsize::new(3).unwrap());
        let node = Node::configure(1, parent.path(), &program, &network, share).await;
        let text = fs::read_to_string(node.unwrap().directory.join("kvorum.conf")).unwrap();
        let given: Vec<_> = text.lines().filter(|it| it.contains("worker")).collect();
        assert_eq!(given, ["worker_threads = 3"]);
    }

    #[test]
    fn last_words_are_the_first_panic_or_the_end() {
        let long = "x".repeat(3 * LAST_WORDS);
        assert_eq!(last_words(&long).len(), LAST_WORDS);
        let log = format!("{long}\nthread 'a' panicked at b:\nc\n{long}");
        assert!(last_words(&log).starts_with("thread 'a' panicked at b:\nc\nxxx"));
        assert_eq!(last_words("port is taken\n"), "port is taken");
    }
}
