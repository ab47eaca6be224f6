//! Kvorum's server beside Redis: the processor time of each for the same request.
//!
//! ```text
//! cargo run --release --manifest-path bench/peers/Cargo.toml --bin beside-redis -- target/release/kvorum
//! ```
//!
//! Both servers make every put durable (`durability = grouped`, `appendfsync always`). The same
//! threads send them requests over the same number of connections, each with one request under way:
//! puts of incompressible 1 KB values under random keys, then gets of the first thousand. Rounds
//! alternate. `redis-server` is Debian's package of that name, or the program that `--redis` names.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use clap::Parser;
use kvorum_bench::process::ProcessUsage;
use kvorum_bench::random::{Seed, WorkerRandom};
use kvorum_protocol::frame::announced_bytes;
use kvorum_protocol::request::{Get, GetOptions, Put, PutOptions};
use kvorum_protocol::{MessageCode, pb};

/// The time within which a server answers after its start.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The most keys that gets read, which fit every cache.
const READ_KEYS_MAX: u64 = 1_000;
/// The bucket of all keys.
const BUCKET: &[u8] = b"redis";
/// The seed of the first values; a connection's seed differs by its number.
const SEED: Seed = Seed([42, 23, 12]);

#[derive(Parser)]
struct Arguments {
    /// The `kvorum` binary, as it is released.
    kvorum: PathBuf,
    /// The `redis-server` binary.
    #[arg(long, default_value = "redis-server")]
    redis: PathBuf,
    /// Repetitions.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The length of a phase, in seconds.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Connections.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Keys that are put. The first thousand of them are read.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1_000)]
    value_bytes: usize,
    /// The directory of the servers' files; removed before each round.
    #[arg(long, default_value = "target/beside-redis")]
    directory: PathBuf,
    /// A setting of Kvorum's server, as KEY=VALUE; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
}

impl Arguments {
    /// The number of keys that are read: the first ones.
    fn read_keys(&self) -> u64 {
        self.keys.min(READ_KEYS_MAX)
    }
}

/// A protocol: the form of requests, and the end of answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// Riak's protocol buffers.
    Kvorum,
    /// The Redis serialisation protocol, version 2.
    Redis,
}

/// The processor time of an operation of each kind, in microseconds.
struct Costs {
    put: f64,
    get: f64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut kvorum = Vec::new();
    let mut redis = Vec::new();
    for round in 1..=arguments.rounds {
        for (wire, costs) in [(Wire::Redis, &mut redis), (Wire::Kvorum, &mut kvorum)] {
            let cost = one_round(&arguments, wire)?;
            println!(
                "round {round}: {:<6} put {:5.2} us, get {:5.2} us",
                wire.name(),
                cost.put,
                cost.get
            );
            costs.push(cost);
        }
    }
    for (what, of) in [
        ("durable put", (|it: &Costs| it.put) as fn(&Costs) -> f64),
        ("get", |it| it.get),
    ] {
        let (ours, theirs) = (median(&kvorum, of), median(&redis, of));
        println!(
            "{what}: {ours:.2} us of the server's processor time beside {theirs:.2} us of Redis', {:.2} of it",
            ours / theirs
        );
    }
    Ok(())
}

fn median(costs: &[Costs], of: fn(&Costs) -> f64) -> f64 {
    let mut sorted: Vec<f64> = costs.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn one_round(arguments: &Arguments, wire: Wire) -> Result<Costs> {
    let server = Server::start(arguments, wire)?;
    server.fill(arguments)?;
    let put = server.load(arguments, true)?;
    // Remaining work of the puts must not count for the gets.
    std::thread::sleep(Duration::from_secs(2));
    let get = server.load(arguments, false)?;
    Ok(Costs { put, get })
}

struct Server {
    child: Child,
    address: SocketAddr,
    wire: Wire,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Server {
    fn start(arguments: &Arguments, wire: Wire) -> Result<Self> {
        let directory = arguments.directory.join(wire.name());
        let _may_be_missing = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        let directory = fs::canonicalize(&directory)?;
        let address = free_address()?;
        let mut command = match wire {
            Wire::Kvorum => kvorum_command(arguments, &directory, address)?,
            Wire::Redis => redis_command(arguments, &directory, address),
        };
        let child = command.stdout(Stdio::null()).spawn();
        let child = child.with_context(|| format!("start the server of {}", wire.name()))?;
        let mut server = Self {
            child,
            address,
            wire,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        let request = self.wire.put(0, &Bytes::from_static(b"ready?"))?;
        while Connection::open(self.address, self.wire)
            .and_then(|mut it| it.exchange(&request))
            .is_err()
        {
            ensure!(self.child.try_wait()?.is_none(), "the server has ended");
            ensure!(
                Instant::now() < deadline,
                "the server does not answer within {READY_WITHIN:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Puts the keys that are read.
    fn fill(&self, arguments: &Arguments) -> Result<()> {
        let mut connection = Connection::open(self.address, self.wire)?;
        let mut random = WorkerRandom::new(SEED);
        for key in 0..arguments.read_keys() {
            let value = value(&mut random, arguments.value_bytes);
            connection.exchange(&self.wire.put(key, &value)?)?;
        }
        Ok(())
    }

    /// Runs the connections for a phase. Returns the server's processor time for an operation, in
    /// microseconds.
    fn load(&self, arguments: &Arguments, is_put: bool) -> Result<f64> {
        let before = self.cpu_micros()?;
        let operations = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (1..=arguments.connections)
                .map(|number| {
                    let (operations, is_over) = (&operations, &is_over);
                    scope.spawn(move || {
                        self.one_connection(arguments, is_put, number, operations, is_over)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_secs(arguments.seconds));
            is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(_) => bail!("a connection's thread panicked"),
                }
            }
            Ok(())
        })?;
        let operations = operations.into_inner() as f64;
        Ok((self.cpu_micros()? - before) / operations)
    }

    fn one_connection(
        &self,
        arguments: &Arguments,
        is_put: bool,
        number: u32,
        operations: &AtomicU64,
        is_over: &AtomicBool,
    ) -> Result<()> {
        let mut connection = Connection::open(self.address, self.wire)?;
        let mut random = WorkerRandom::new(SEED.of_worker(number));
        let value = value(&mut random, arguments.value_bytes);
        while !is_over.load(Ordering::Relaxed) {
            let request = if is_put {
                let key = random.uniform(arguments.keys) - 1;
                self.wire.put(key, &value)?
            } else {
                let key = random.uniform(arguments.read_keys()) - 1;
                self.wire.get(key)?
            };
            connection.exchange(&request)?;
            operations.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The time of all of the server's threads in user mode and in the kernel.
    fn cpu_micros(&self) -> Result<f64> {
        let usage = ProcessUsage::of(self.child.id()).context("read what the server used")?;
        Ok(usage.cpu.as_secs_f64() * 1e6)
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr()?)
}

fn kvorum_command(arguments: &Arguments, directory: &Path, address: SocketAddr) -> Result<Command> {
    let binary = fs::canonicalize(&arguments.kvorum)
        .with_context(|| format!("find {}", arguments.kvorum.display()))?;
    let mut command = Command::new(binary);
    command.current_dir(directory).arg("server");
    let settings = [
        format!("platform_data_dir={}", directory.join("data").display()),
        "listener.peer.internal=off".to_owned(),
        format!("listener.protobuf.internal={address}"),
        format!("listener.http.internal={}", free_address()?),
        "durability=grouped".to_owned(),
    ];
    for setting in settings.iter().chain(&arguments.settings) {
        command.args(["--set", setting]);
    }
    Ok(command)
}

fn redis_command(arguments: &Arguments, directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(&arguments.redis);
    let port = address.port().to_string();
    command.current_dir(directory).args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]);
    command
}

struct Connection {
    stream: TcpStream,
    wire: Wire,
    answer: BytesMut,
}

impl Connection {
    fn open(address: SocketAddr, wire: Wire) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            wire,
            answer: BytesMut::new(),
        })
    }

    fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request)?;
        self.answer.clear();
        let mut piece = [0; 16 << 10];
        loop {
            let bytes = self.stream.read(&mut piece)?;
            ensure!(bytes > 0, "the server closed the connection");
            self.answer.extend_from_slice(&piece[..bytes]);
            if self.wire.is_whole(&self.answer)? {
                return Ok(());
            }
        }
    }
}

impl Wire {
    fn name(self) -> &'static str {
        match self {
            Self::Kvorum => "kvorum",
            Self::Redis => "redis",
        }
    }

    fn put(self, key: u64, value: &Bytes) -> Result<BytesMut> {
        let key = key_name(key);
        match self {
            Self::Kvorum => kvorum_put(key.as_bytes(), value),
            Self::Redis => Ok(redis_request(&[b"SET", key.as_bytes(), value])),
        }
    }

    fn get(self, key: u64) -> Result<BytesMut> {
        let key = key_name(key);
        match self {
            Self::Kvorum => kvorum_get(key.as_bytes()),
            Self::Redis => Ok(redis_request(&[b"GET", key.as_bytes()])),
        }
    }

    /// True when the answer is complete. An error as the answer ends the program.
    fn is_whole(self, answer: &[u8]) -> Result<bool> {
        match self {
            Self::Kvorum => is_kvorum_answer(answer),
            Self::Redis => is_redis_answer(answer),
        }
    }
}

fn key_name(key: u64) -> String {
    format!("key-{key:010}")
}

fn kvorum_put(key: &[u8], value: &Bytes) -> Result<BytesMut> {
    let content = pb::RpbContent {
        value: value.clone(),
        ..pb::RpbContent::default()
    };
    let put = Put {
        bucket_type: None,
        bucket: BUCKET,
        key: Some(key),
        vclock: None,
        content: &content,
        options: &PutOptions::default(),
    };
    let mut buffer = BytesMut::new();
    put.encode(&mut buffer)?;
    Ok(buffer)
}

fn kvorum_get(key: &[u8]) -> Result<BytesMut> {
    let get = Get {
        bucket_type: None,
        bucket: BUCKET,
        key,
        options: &GetOptions::default(),
    };
    let mut buffer = BytesMut::new();
    get.encode(&mut buffer)?;
    Ok(buffer)
}

fn is_kvorum_answer(answer: &[u8]) -> Result<bool> {
    let Some(bytes) = announced_bytes(answer) else {
        return Ok(false);
    };
    let is_whole = answer.len() >= bytes;
    if is_whole {
        let code = MessageCode(answer[4]);
        ensure!(
            code == MessageCode::RPB_PUT_RESP || code == MessageCode::RPB_GET_RESP,
            "the server answers {}",
            code.name().unwrap_or("an unknown message")
        );
        ensure!(
            bytes > 5 || code == MessageCode::RPB_PUT_RESP,
            "nothing was found"
        );
    }
    Ok(is_whole)
}

/// A command and its arguments, each preceded by its length.
fn redis_request(words: &[&[u8]]) -> BytesMut {
    let mut buffer = BytesMut::new();
    buffer.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        buffer.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        buffer.extend_from_slice(word);
        buffer.extend_from_slice(b"\r\n");
    }
    buffer
}

fn is_redis_answer(answer: &[u8]) -> Result<bool> {
    let Some(end) = answer.windows(2).position(|it| it == b"\r\n") else {
        return Ok(false);
    };
    let line = &answer[..end];
    match line.first() {
        Some(b'+') => Ok(true),
        Some(b'$') => {
            let bytes: usize = std::str::from_utf8(&line[1..])?
                .parse()
                .context("nothing was found")?;
            Ok(answer.len() >= end + 2 + bytes + 2)
        }
        _ => bail!("Redis answers {}", String::from_utf8_lossy(line)),
    }
}

/// Incompressible bytes.
fn value(random: &mut WorkerRandom, bytes: usize) -> Bytes {
    let mut value = vec![0; bytes];
    random.fill(&mut value);
    value.into()
}
