//! The load: writers that read, replace the siblings read, and record acknowledged writes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use hdrhistogram::Histogram;
use kvorum_client::{
    Client, ClientSettings, Error, ErrorKind, Get, GetOptions, Put, PutOptions, pb,
};
use kvorum_witness::{Lengths, Siblings, attempt_of, value};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::account::{Account, KeyId};
use crate::script::NodeNumber;

/// Connections that read and write at the same time.
const WRITERS: u32 = 12;

/// Keys that a writer uses at a time: few, so that most writes replace something.
const SLOTS: u32 = 32;

/// Writes of a key after which a new key takes its slot: every read searches the key's history.
const WRITES_OF_A_KEY: u64 = 100;

/// Pause between two operations of a writer: the cluster is busy, but the machine not overloaded.
const PAUSE: Duration = Duration::from_millis(10);

/// The approximate number of operations before a writer changes to the next node.
const OPERATIONS_OF_A_CONNECTION: u32 = 100;

/// The pause of a writer without an answer before it asks the next node.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The time limit of a request on the servers.
const TIMEOUT_MS: u32 = 1_000;

const BUCKET: &[u8] = b"demo";
const LENGTHS: Lengths = Lengths::Short;

/// The nodes that clients may ask, with their addresses.
pub(crate) type Targets = BTreeMap<NodeNumber, SocketAddr>;

/// Counts while the load runs.
pub(crate) struct Counts {
    pub(crate) acknowledged: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// Reads that were checked against acknowledged writes.
    pub(crate) judged: AtomicU64,
    /// Siblings that a write replaced by one value.
    pub(crate) siblings: AtomicU64,
    /// Requests with an error as the answer, or without an answer.
    pub(crate) refused: AtomicU64,
    /// Latencies of requests since they were last taken, in microseconds.
    latencies: Mutex<Histogram<u64>>,
    /// Operations by node since they were last taken.
    by_node: Mutex<BTreeMap<NodeNumber, u64>>,
    /// The error of the last request that failed.
    failure: Mutex<Option<String>>,
}

/// Writers at work.
pub(crate) struct Load {
    pub(crate) counts: Arc<Counts>,
    shared: Arc<Shared>,
    accounts: Vec<Arc<Mutex<Account>>>,
    stop: watch::Sender<bool>,
    writers: Vec<JoinHandle<()>>,
}

struct Shared {
    counts: Arc<Counts>,
    targets: watch::Receiver<Targets>,
    /// The number of the present period in which the cluster is whole.
    whole: watch::Receiver<Option<u64>>,
    /// Number of writers that ask each node, or are about to.
    asking: Mutex<BTreeMap<NodeNumber, usize>>,
    began: Instant,
}

impl Counts {
    fn new() -> anyhow::Result<Self> {
        let latencies = Histogram::new_with_bounds(1, 120_000_000, 3);
        Ok(Self {
            acknowledged: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            judged: AtomicU64::new(0),
            siblings: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            latencies: Mutex::new(latencies.context("a histogram of latencies")?),
            by_node: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    /// Latencies since the last call: median, 99th percentile and longest.
    pub(crate) fn take_latencies(&self) -> [Duration; 3] {
        let mut latencies = self.latencies.lock();
        let us = |us| Duration::from_micros(us);
        let taken = [
            us(latencies.value_at_quantile(0.5)),
            us(latencies.value_at_quantile(0.99)),
            us(latencies.max()),
        ];
        latencies.reset();
        taken
    }

    /// Operations by node since the last call.
    pub(crate) fn take_by_node(&self) -> BTreeMap<NodeNumber, u64> {
        std::mem::take(&mut self.by_node.lock())
    }

    /// The error of the last request that failed since the last call.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    fn fail(&self, error: &Error) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *self.failure.lock() = Some(error.to_string());
    }

    fn note(&self, node: NodeNumber, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latencies.lock().saturating_record(us);
        *self.by_node.lock().entry(node).or_default() += 1;
    }
}

impl Load {
    /// Begins to write through the nodes in `targets`, and to check reads while `whole` is set.
    /// Must be called in the runtime.
    pub(crate) fn start(
        targets: watch::Receiver<Targets>,
        whole: watch::Receiver<Option<u64>>,
    ) -> anyhow::Result<Self> {
        let counts = Arc::new(Counts::new()?);
        let shared = Arc::new(Shared {
            counts: Arc::clone(&counts),
            targets,
            whole,
            asking: Mutex::default(),
            began: Instant::now(),
        });
        let stop = watch::Sender::new(false);
        let accounts: Vec<Arc<Mutex<Account>>> = (0..WRITERS).map(|_| Arc::default()).collect();
        let writers = (0..).zip(&accounts).map(|(number, account)| {
            let writer = Writer {
                number,
                shared: Arc::clone(&shared),
                account: Arc::clone(account),
                keys: (0..SLOTS).collect(),
                connection: None,
                turn: number as usize,
            };
            tokio::spawn(writer.work(stop.subscribe()))
        });
        Ok(Self {
            writers: writers.collect(),
            counts,
            shared,
            accounts,
            stop,
        })
    }

    /// Ends the writing.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        for writer in self.writers.drain(..) {
            writer.await.context("a writer died")?;
        }
        Ok(())
    }

    /// The number of writers that ask a node now.
    pub(crate) fn asking(&self) -> impl Fn(NodeNumber) -> usize + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |node| shared.asking.lock().get(&node).copied().unwrap_or(0)
    }

    /// Writes that reads did not find although the cluster was whole.
    pub(crate) fn lost(&self) -> u64 {
        self.accounts.iter().map(|it| it.lock().lost()).sum()
    }

    /// Violations that no failure explains.
    pub(crate) fn findings(&self) -> Vec<String> {
        let accounts = self.accounts.iter();
        accounts
            .flat_map(|it| it.lock().findings().to_vec())
            .collect()
    }

    /// The account of each writer.
    pub(crate) fn accounts(&self) -> &[Arc<Mutex<Account>>] {
        &self.accounts
    }
}

struct Writer {
    number: u32,
    shared: Arc<Shared>,
    account: Arc<Mutex<Account>>,
    /// The key in each slot.
    keys: Vec<u32>,
    connection: Option<(NodeNumber, Client)>,
    /// The place of the next target when it connects again.
    turn: usize,
}

/// Counts a writer as asking a node, until it is dropped.
struct Asking<'a> {
    shared: &'a Shared,
    node: NodeNumber,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.shared.asking.lock().get_mut(&self.node) {
            *count -= 1;
        }
    }
}

impl Writer {
    async fn work(mut self, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let pause = match self.replace().await {
                Ok(()) => PAUSE,
                Err(error) => {
                    self.note(&error);
                    RETRY_PAUSE
                }
            };
            // So nodes that were added later or were down get their share of connections.
            if rand::rng().random_ratio(1, OPERATIONS_OF_A_CONNECTION) {
                self.move_on();
            }
            // Equal pauses would cause bursts.
            let pause = pause.mul_f64(rand::rng().random_range(0.5..1.5));
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads a key and replaces the siblings read.
    async fn replace(&mut self) -> Result<(), Error> {
        let key = self.next_key();
        let shared = Arc::clone(&self.shared);
        // Counted before the targets are read, so that every writer that may still ask a removed
        // target is counted.
        let Some((node, address, _asking)) = self.choose(&shared) else {
            return Ok(());
        };
        let client = match &mut self.connection {
            Some((connected, client)) if *connected == node => client,
            connection => &mut connection.insert((node, connect(address).await?)).1,
        };
        let began = Instant::now();
        let now = began - shared.began;
        let whole = *shared.whole.borrow();
        let read = read(client, key).await;
        shared.counts.note(node, began.elapsed());
        let (siblings, context) = match read {
            Ok(Ok(found)) => found,
            Ok(Err(foreign)) => {
                self.account.lock().find(foreign);
                return Ok(());
            }
            // A key that cannot be read is still written, as a sibling.
            Err(error) if error.kind() == ErrorKind::Server => {
                shared.counts.fail(&error);
                return self.write(key, Siblings::new(), None).await;
            }
            Err(error) => return Err(error),
        };
        shared.counts.reads.fetch_add(1, Ordering::Relaxed);
        if whole.is_some() && *shared.whole.borrow() == whole {
            shared.counts.judged.fetch_add(1, Ordering::Relaxed);
            self.account.lock().judge(key, &siblings, now);
        }
        self.write(key, siblings, context).await
    }

    /// Writes a key in place of siblings that were read.
    async fn write(
        &mut self,
        key: KeyId,
        replaced: Siblings,
        context: Option<Bytes>,
    ) -> Result<(), Error> {
        let Some((node, client)) = &mut self.connection else {
            return Ok(());
        };
        let counts = &self.shared.counts;
        let merged = replaced.len().saturating_sub(1) as u64;
        let attempt = self.account.lock().attempt(key, replaced);
        let began = Instant::now();
        put(client, key, context.as_deref(), attempt).await?;
        counts.note(*node, began.elapsed());
        counts.acknowledged.fetch_add(1, Ordering::Relaxed);
        counts.siblings.fetch_add(merged, Ordering::Relaxed);
        self.account.lock().acknowledge(key);
        Ok(())
    }

    /// A key with a missed write, or any key.
    fn next_key(&mut self) -> KeyId {
        let account = self.account.lock();
        if let Some(missed) = account.second_look(self.shared.began.elapsed()) {
            return missed;
        }
        let slot = rand::rng().random_range(0..self.keys.len());
        if account.attempts((self.number, self.keys[slot])) >= WRITES_OF_A_KEY {
            self.keys[slot] += SLOTS;
        }
        (self.number, self.keys[slot])
    }

    /// The node to ask: the connected node while it is a target, else the next one.
    fn choose<'a>(&self, shared: &'a Shared) -> Option<(NodeNumber, SocketAddr, Asking<'a>)> {
        let connected = self.connection.as_ref().map(|(node, _)| *node);
        for _ in 0..2 {
            let node = {
                let targets = shared.targets.borrow();
                let kept = connected.filter(|node| targets.contains_key(node));
                let turn = self.turn.checked_rem(targets.len())?;
                kept.or(targets.keys().nth(turn).copied())?
            };
            *shared.asking.lock().entry(node).or_default() += 1;
            let asking = Asking { shared, node };
            if let Some(address) = shared.targets.borrow().get(&node) {
                return Some((node, *address, asking));
            }
        }
        None
    }

    /// Makes the writer ask another node next.
    fn move_on(&mut self) {
        self.connection = None;
        self.turn += 1;
    }

    /// Records an error. After a refusal the connection is kept; else another node is asked.
    fn note(&mut self, error: &Error) {
        self.shared.counts.fail(error);
        if error.kind() != ErrorKind::Server {
            self.move_on();
        }
    }
}

/// Connects to a node.
pub(crate) async fn connect(address: SocketAddr) -> Result<Client, Error> {
    let settings = ClientSettings {
        connect_timeout: Duration::from_secs(2),
        answer_timeout: Some(Duration::from_secs(6)),
        ..ClientSettings::default()
    };
    Client::connect(address, &settings).await
}

/// Siblings and context of a key, or bytes that are no value of the load.
pub(crate) async fn read(
    client: &mut Client,
    (writer, key): KeyId,
) -> Result<Result<(Siblings, Option<Bytes>), String>, Error> {
    let options = GetOptions {
        timeout_ms: Some(TIMEOUT_MS),
        ..GetOptions::default()
    };
    let name = name((writer, key));
    let get = Get {
        bucket_type: None,
        bucket: BUCKET,
        key: &name,
        options: &options,
    };
    let answer = client.get(&get).await?;
    let values = answer.content.iter().filter(|it| !it.deleted());
    let siblings = values.map(|content| attempt_of(writer, key, &content.value, LENGTHS));
    Ok(siblings
        .collect::<Result<Siblings, String>>()
        .map(|siblings| (siblings, answer.vclock)))
}

async fn put(
    client: &mut Client,
    (writer, key): KeyId,
    vclock: Option<&[u8]>,
    attempt: u64,
) -> Result<(), Error> {
    let options = PutOptions {
        timeout_ms: Some(TIMEOUT_MS),
        ..PutOptions::default()
    };
    let content = pb::RpbContent {
        value: Bytes::from(value(writer, key, attempt, LENGTHS)),
        ..pb::RpbContent::default()
    };
    let name = name((writer, key));
    let put = Put {
        bucket_type: None,
        bucket: BUCKET,
        key: Some(&name),
        vclock,
        content: &content,
        options: &options,
    };
    client.put(&put).await.map(drop)
}

fn name((writer, key): KeyId) -> Vec<u8> {
    format!("writer-{writer}/key-{key}").into_bytes()
}
