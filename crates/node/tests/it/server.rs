//! The binary in a directory of its own: run to its end, or as a server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use kvorum_client::{Client, ClientSettings};
use rustix::process::Signal;

/// Much longer than a start takes, since the machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Below the ports of outgoing connections, any of which may be taken between the choice of a port and
/// its use.
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// Number of ports tried; every test gets others.
static PORTS_TRIED: AtomicU16 = AtomicU16::new(0);

/// A free address of this machine, which no other test is given.
pub(crate) fn free_address() -> SocketAddr {
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    PORTS.map(|_| next_address()).find(is_free).unwrap()
}

fn next_address() -> SocketAddr {
    let tried = u32::from(PORTS_TRIED.fetch_add(1, Ordering::Relaxed));
    // Another run of the tests begins elsewhere.
    let from_here = std::process::id().wrapping_mul(97).wrapping_add(tried);
    let offset = from_here % u32::from(PORTS.end - PORTS.start);
    SocketAddr::from((
        Ipv4Addr::LOCALHOST,
        PORTS.start + u16::try_from(offset).unwrap(),
    ))
}

/// A place for a node: its directory and its ports.
pub(crate) struct Site {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) protobuf: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Further settings, as `--set` takes them.
    pub(crate) settings: Vec<String>,
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            protobuf: free_address(),
            http: free_address(),
            settings: Vec::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The binary with these words, and behind them the settings of this place.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        command.current_dir(self.path()).args(words);
        for setting in [
            "platform_data_dir=data".to_owned(),
            "ring_size=8".to_owned(),
            "buckets.default.allow_mult=true".to_owned(),
            "listener.peer.internal=off".to_owned(),
            format!("listener.protobuf.internal={}", self.protobuf),
            format!("listener.http.internal={}", self.http),
        ] {
            command.args(["--set", &setting]);
        }
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs the binary to its end with these words and no settings.
    pub(crate) fn run_alone(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        command.current_dir(self.path()).args(words);
        command.output().unwrap()
    }

    /// The help of these words.
    pub(crate) fn help(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        command.current_dir(self.path()).args(words).arg("--help");
        command.output().unwrap()
    }

    /// Starts a server and waits until every vnode is open.
    pub(crate) fn start(&self) -> Server {
        self.start_until(|states| states.iter().all(|state| state == "open"))
    }

    /// Starts a server and waits until its vnodes are in these states.
    pub(crate) fn start_until(&self, is_awaited: impl Fn(&[String]) -> bool) -> Server {
        let mut command = self.command(&["server"]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut server = Server { child };
        let deadline = Instant::now() + READY_WITHIN;
        while !self.run(&["ping"]).status.success() || !is_awaited(&self.vnode_states()) {
            let ended = server.child.try_wait().unwrap();
            assert_eq!(ended, None, "the server has ended");
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(30));
        }
        server
    }

    /// The lines of `/metrics`.
    pub(crate) fn metrics(&self) -> Vec<String> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(self.http).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: kvorum\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.lines().map(str::to_owned).collect()
    }

    /// The state of each vnode.
    pub(crate) fn vnode_states(&self) -> Vec<String> {
        let status = self.run(&["admin", "cluster", "partitions", "--json"]);
        let partitions: Vec<serde_json::Value> = serde_json::from_slice(&status.stdout).unwrap();
        let state = |it: &serde_json::Value| it["state"].as_str().unwrap().to_owned();
        partitions.iter().map(state).collect()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.protobuf, &ClientSettings::default())
            .await
            .unwrap()
    }
}

impl Server {
    pub(crate) fn signal(&self, signal: Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Stops the server, and waits for its end.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
