//! Tests that writers are slowed smoothly and never stopped. A server is loaded with keys in order
//! and then overwritten at random, once or several times, as fast as it accepts writes, beside a
//! witness. It uses the leveldb engine, unless a setting says otherwise.
//!
//! The server runs as in production: the binary with its defaults, its value log, its arbiter and
//! its budgets. The requested number of connections drive it over protocol buffers, each with one
//! write under way. Load follows acceptance, so the rate is the highest that the server can
//! sustain.
//!
//! The witness appends 4 KiB to a file of its own on the same filesystem and syncs it, a hundred
//! times a second: a write of 100 ms or more is the device's fault if the witness was slow at the
//! same moment, else the engine's.
//!
//! Run with `cargo run --release -p kvorum-bench --example stall_free -- SERVER DIRECTORY [KEYS]
//! [VALUE_BYTES] [CONNECTIONS] [TURNOVERS] [SETTING=VALUE]...`, where SERVER is the path of the
//! `kvorum` binary. The directory is created, and removed at the end. Exits with 0 if all phases
//! kept the bounds.

#![expect(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measuring tool prints"
)]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use kvorum_bench::server_probe::file_bytes;
use kvorum_client::{Client, ClientSettings};

/// A write that takes longer counts as stalled.
const STALL: Duration = Duration::from_millis(100);
/// Percentage of seconds that must reach half of the median rate.
const STEADY_PERCENT: f64 = 99.0;
const READY_WITHIN: Duration = Duration::from_secs(120);
const WITNESS_PERIOD: Duration = Duration::from_millis(10);
const WITNESS_BYTES: usize = 4096;
/// The longest duration that is recorded; longer writes count with it.
const MICROS_MAX: u64 = 3_600_000_000;
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);

struct Arguments {
    server: PathBuf,
    directory: PathBuf,
    keys: u64,
    value_bytes: usize,
    connections: usize,
    /// Number of times that all keys are overwritten.
    turnovers: usize,
    settings: Vec<String>,
}

impl Arguments {
    fn read() -> anyhow::Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let (settings, words): (Vec<String>, Vec<String>) =
            words.into_iter().partition(|it| it.contains('='));
        let mut words = words.into_iter();
        let server = words.next().context("name the kvorum binary")?;
        let directory = words.next().context("name a directory to be made")?;
        let mut number = |default: u64| words.next().map_or(Ok(default), |it| it.parse());
        let (keys, value_bytes, connections) = (number(10_000_000)?, number(100)?, number(64)?);
        let turnovers = number(1)?;
        Ok(Self {
            server: std::fs::canonicalize(server)?,
            directory: directory.into(),
            keys,
            value_bytes: usize::try_from(value_bytes)?,
            connections: usize::try_from(connections)?.max(1),
            turnovers: usize::try_from(turnovers)?,
            settings,
        })
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::read()?;
    std::fs::create_dir(&arguments.directory).context("make the directory")?;
    let measured = measure(&arguments);
    std::fs::remove_dir_all(&arguments.directory)?;
    Ok(match measured? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn measure(arguments: &Arguments) -> anyhow::Result<bool> {
    let server = Server::start(arguments)?;
    let witness = Witness::start(&arguments.directory.join("witness"))?;
    let threads = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut is_held = true;
    let turnovers = std::iter::repeat_n(Order::Random, arguments.turnovers);
    for order in std::iter::once(Order::Ascending).chain(turnovers) {
        let writes = threads.block_on(write_all(arguments, server.protobuf, order))?;
        is_held &= writes.report(order, &witness);
        let live = arguments.keys as f64 * arguments.value_bytes as f64;
        let held = file_bytes(&server.data) as f64;
        println!(
            "on the disk: {:.2} bytes for each byte of value\n",
            held / live
        );
        println!("{}", server.maintenance()?);
    }
    witness.stop();
    Ok(is_held)
}

/// A running server; killed when dropped.
struct Server {
    child: Child,
    protobuf: SocketAddr,
    binary: PathBuf,
    data: PathBuf,
}

impl Server {
    fn start(arguments: &Arguments) -> anyhow::Result<Self> {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let (protobuf, http) = (free()?, free()?);
        let data = std::fs::canonicalize(&arguments.directory)?.join("data");
        let mut command = Command::new(&arguments.server);
        command.current_dir(&arguments.directory).arg("server");
        let mut settings = vec![
            format!("platform_data_dir={}", data.display()),
            "storage_backend=leveldb".to_owned(),
            "listener.peer.internal=off".to_owned(),
            format!("listener.protobuf.internal={protobuf}"),
            format!("listener.http.internal={http}"),
        ];
        settings.extend(arguments.settings.iter().cloned());
        for setting in settings {
            command.args(["--set", &setting]);
        }
        let mut server = Self {
            child: command.stdout(Stdio::null()).spawn()?,
            protobuf,
            binary: arguments.server.clone(),
            data,
        };
        let deadline = Instant::now() + READY_WITHIN;
        while !server.is_open().unwrap_or(false) {
            ensure!(server.child.try_wait()?.is_none(), "the server has ended");
            ensure!(Instant::now() < deadline, "the server is not ready");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(server)
    }

    fn is_open(&self) -> anyhow::Result<bool> {
        let answer = self.admin(&["cluster", "partitions", "--json"])?;
        let partitions: Vec<serde_json::Value> = serde_json::from_str(&answer)?;
        Ok(partitions
            .iter()
            .all(|it| it.get("state").is_none_or(|state| state == "open")))
    }

    fn admin(&self, words: &[&str]) -> anyhow::Result<String> {
        let setting = format!("platform_data_dir={}", self.data.display());
        let mut command = Command::new(&self.binary);
        let command = command.arg("admin").args(words).args(["--set", &setting]);
        let output = command.output()?;
        if !output.status.success() {
            bail!("admin {words:?} failed");
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The arbiter's report on its budgets and its work.
    fn maintenance(&self) -> anyhow::Result<String> {
        self.admin(&["maintenance"])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A slow call: its beginning and its duration.
#[derive(Clone, Copy)]
struct Slow {
    began: Instant,
    took: Duration,
}

impl Slow {
    fn overlaps(&self, other: &Self) -> bool {
        self.began < other.began + other.took && other.began < self.began + self.took
    }
}

/// Appends to a file of its own and records slow appends.
struct Witness {
    is_over: Arc<AtomicBool>,
    appends: Arc<parking_lot::Mutex<Vec<Slow>>>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

impl Witness {
    fn start(path: &Path) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let appends = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (is_ended, noted) = (is_over.clone(), appends.clone());
        let thread = std::thread::spawn(move || {
            while !is_ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                append(&mut file)?;
                let took = began.elapsed();
                noted.lock().push(Slow { began, took });
                std::thread::sleep(WITNESS_PERIOD.saturating_sub(took));
            }
            Ok(())
        });
        Ok(Self {
            is_over,
            appends,
            thread,
        })
    }

    fn between(&self, from: Instant, to: Instant) -> Vec<Slow> {
        let appends = self.appends.lock();
        let within = appends
            .iter()
            .filter(|it| it.began < to && it.began + it.took > from);
        within.copied().collect()
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ended = self.thread.join();
    }
}

fn append(file: &mut File) -> std::io::Result<()> {
    file.write_all(&[0x5a; WITNESS_BYTES])?;
    file.sync_data()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
}

/// The writes of one phase as the writers measured them.
struct Writes {
    began: Instant,
    ended: Instant,
    /// Writes that ended in each second.
    seconds: Vec<u64>,
    stalls: Vec<Slow>,
    micros: Histogram<u64>,
}

impl Writes {
    fn new(began: Instant) -> anyhow::Result<Self> {
        Ok(Self {
            began,
            ended: began,
            seconds: Vec::new(),
            stalls: Vec::new(),
            micros: Histogram::new_with_bounds(1, MICROS_MAX, 3)?,
        })
    }

    fn add(&mut self, began: Instant) {
        let ended = Instant::now();
        let took = ended - began;
        let second = usize::try_from((ended - self.began).as_secs()).unwrap_or(0);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += 1;
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.saturating_record(micros);
        if took >= STALL {
            self.stalls.push(Slow { began, took });
        }
        self.ended = ended;
    }

    fn merge(&mut self, other: &Self) -> anyhow::Result<()> {
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), 0);
        }
        for (own, others) in self.seconds.iter_mut().zip(&other.seconds) {
            *own += others;
        }
        self.stalls.extend(&other.stalls);
        self.micros.add(&other.micros)?;
        self.ended = self.ended.max(other.ended);
        Ok(())
    }

    /// Prints the measurements; true if the bounds were kept.
    fn report(&self, order: Order, witness: &Witness) -> bool {
        // The last second is incomplete.
        let whole = &self.seconds[..self.seconds.len().saturating_sub(1)];
        let appends = witness.between(self.began, self.ended);
        println!("\n# {order:?}: second, writes, slowest append of the witness in ms");
        for (second, writes) in whole.iter().enumerate() {
            let from = self.began + Duration::from_secs(second as u64);
            let to = from + Duration::from_secs(1);
            let within = appends
                .iter()
                .filter(|it| it.began < to && it.began >= from);
            let slowest = within.map(|it| it.took).max().unwrap_or_default();
            println!("{second},{writes},{:.1}", slowest.as_secs_f64() * 1e3);
        }
        let mut sorted = whole.to_vec();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
        let percent_at = |part: f64| {
            let steady = whole
                .iter()
                .filter(|it| **it as f64 >= part * median as f64);
            100.0 * steady.count() as f64 / (whole.len() as f64).max(1.0)
        };
        let steady_percent = percent_at(0.5);
        let witness_stalls: Vec<Slow> = appends.into_iter().filter(|it| it.took >= STALL).collect();
        let is_alone = |it: &&Slow| !witness_stalls.iter().any(|other| other.overlaps(it));
        let alone: Vec<&Slow> = self.stalls.iter().filter(is_alone).collect();
        let seconds = (self.ended - self.began).as_secs_f64();
        let millis = |quantile| self.micros.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "# {order:?}: {} writes in {seconds:.0} s, median {median} a second",
            self.micros.len()
        );
        println!(
            "seconds at half the median or more: {steady_percent:.2} % (at least {STEADY_PERCENT} %), at \
             seven tenths: {:.2} %",
            percent_at(0.7)
        );
        println!(
            "a write: median {:.2} ms, 99 % {:.2} ms, 99.9 % {:.2} ms, slowest {:.1} ms",
            millis(0.5),
            millis(0.99),
            millis(0.999),
            self.micros.max() as f64 / 1e3
        );
        println!(
            "writes of 100 ms or more: {}, of them without a stall of the witness: {} (none)",
            self.stalls.len(),
            alone.len()
        );
        for stall in alone.iter().take(20) {
            let at = (stall.began - self.began).as_secs_f64();
            println!("  at {at:.2} s: {:.0} ms", stall.took.as_secs_f64() * 1e3);
        }
        println!("stalls of the witness: {}", witness_stalls.len());
        let is_held = alone.is_empty() && steady_percent >= STEADY_PERCENT;
        println!("bounds held: {}", if is_held { "yes" } else { "no" });
        is_held
    }
}

async fn write_all(
    arguments: &Arguments,
    address: SocketAddr,
    order: Order,
) -> anyhow::Result<Writes> {
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..arguments.connections as u64 {
        let client = Client::connect(address, &ClientSettings::default()).await?;
        let writer = Writer {
            client,
            next: next.clone(),
            order,
            keys: arguments.keys,
            value_bytes: arguments.value_bytes,
            noise: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        writers.spawn(writer.run(began));
    }
    let shown = next.clone();
    let progress = tokio::spawn(async move {
        loop {
            tokio::time::sleep(PROGRESS_PERIOD).await;
            eprintln!("{order:?}: {} writes begun", shown.load(Ordering::Relaxed));
        }
    });
    let mut all = Writes::new(began)?;
    while let Some(seen) = writers.join_next().await {
        all.merge(&seen??)?;
    }
    progress.abort();
    Ok(all)
}

/// One connection, with one write under way.
struct Writer {
    client: Client,
    next: Arc<AtomicU64>,
    order: Order,
    keys: u64,
    value_bytes: usize,
    noise: u64,
}

impl Writer {
    async fn run(mut self, phase_began: Instant) -> anyhow::Result<Writes> {
        let mut seen = Writes::new(phase_began)?;
        // Values are slices of random bytes, which cannot be compressed.
        let noise: Vec<u8> = (0..self.value_bytes + 4096)
            .map(|_| self.draw().to_le_bytes()[3])
            .collect();
        let noise = Bytes::from(noise);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.keys {
                return Ok(seen);
            }
            let key = match self.order {
                Order::Ascending => number,
                Order::Random => self.draw() % self.keys,
            };
            let from = usize::try_from(self.draw() % 4096)?;
            let value = noise.slice(from..from + self.value_bytes);
            let key = format!("{key:012}");
            let began = Instant::now();
            self.client
                .put_value(b"stalls", key.as_bytes(), value)
                .await?;
            seen.add(began);
        }
    }

    fn draw(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }
}
