//! Writers that record their reads and writes, on any node of a cluster, and continue after any
//! failure.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use kvorum_client::{
    Client, ClientSettings, Delete, DeleteOptions, Error, ErrorKind, Get, GetOptions, Put,
    PutOptions, pb, quorum,
};
use kvorum_witness::{Ledger, Lengths, Siblings, attempt_of, value};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Keys of each writer: few, so that most writes replace something.
const KEYS_OF_A_WRITER: u32 = 25;

/// The bucket of all writers, which allows siblings.
pub(super) const BUCKET: &[u8] = b"survivors";

/// The time limit of a request on the servers.
const TIMEOUT_MS: u32 = 3000;

/// The pause between two attempts of a writer: the cluster is busy, but the machine not overloaded.
const PAUSE: Duration = Duration::from_millis(4);

/// A key: its writer and its number for that writer.
pub(super) type KeyId = (u32, u32);

/// The records of all writers.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) ledgers: BTreeMap<KeyId, Ledger>,
    pub(super) acknowledged: u64,
    /// Requests that were answered with an error, by its text.
    pub(super) refused: BTreeMap<String, u64>,
    /// Connections that were refused or broke, and requests without an answer.
    pub(super) broken: u64,
    /// Impossible results, one sentence each.
    pub(super) findings: Vec<String>,
}

/// Running writers.
pub(super) struct Writing {
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<Knowledge>>,
}

/// The guarantees of a read, and the options for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// Nothing fails: every read returns the last acknowledged value.
    Current,
    /// A quorum may consist of fallbacks: a read may miss values.
    Whatever,
    /// Without fallbacks, reads and writes overlap: despite any failure a read returns the last
    /// acknowledged value or an error.
    Strict,
}

impl Expectation {
    /// The reason why a value is impossible, if reads are checked.
    fn grounds(self) -> Option<&'static str> {
        match self {
            Expectation::Current => Some("read while nothing failed"),
            Expectation::Strict => Some("read from a quorum of primaries"),
            Expectation::Whatever => None,
        }
    }

    fn quorum(self) -> Option<u32> {
        (self == Expectation::Strict).then_some(quorum::QUORUM)
    }

    /// The options of a read.
    pub(super) fn get(self) -> GetOptions {
        GetOptions {
            pr: self.quorum(),
            sloppy_quorum: Some(self != Expectation::Strict),
            ..GetOptions::default()
        }
    }

    fn put(self) -> PutOptions {
        PutOptions {
            pw: self.quorum(),
            sloppy_quorum: Some(self != Expectation::Strict),
            ..PutOptions::default()
        }
    }

    fn delete(self) -> DeleteOptions {
        DeleteOptions {
            pr: self.quorum(),
            pw: self.quorum(),
            sloppy_quorum: Some(self != Expectation::Strict),
            ..DeleteOptions::default()
        }
    }
}

impl Knowledge {
    pub(super) fn add(&mut self, other: Knowledge) {
        self.ledgers.extend(other.ledgers);
        self.acknowledged += other.acknowledged;
        self.broken += other.broken;
        self.findings.extend(other.findings);
        for (text, count) in other.refused {
            *self.refused.entry(text).or_default() += count;
        }
    }

    /// The outcomes of all requests, in one line.
    pub(super) fn outline(&self) -> String {
        let (refused, broken) = (self.refused.values().sum::<u64>(), self.broken);
        let mut text = format!(
            "{} acknowledgements, {refused} refusals, {broken} without an answer",
            self.acknowledged
        );
        if refused > 0 {
            text.push_str(&format!(" {:?}", self.refused));
        }
        text
    }

    /// Removes and returns these writers' records of their keys.
    fn take_ledgers(&mut self, writers: &Range<u32>) -> BTreeMap<KeyId, Ledger> {
        let keys = (writers.start, 0)..(writers.end, 0);
        self.ledgers.extract_if(keys, |_, _| true).collect()
    }

    /// True when every request was answered without an error.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.refused.is_empty() && self.broken == 0
    }

    /// # Errors
    /// The first few findings.
    pub(super) fn require_sound(&self) -> anyhow::Result<()> {
        require_none("things", &self.findings)
    }
}

/// # Errors
/// The first few problems.
pub(super) fn require_none(what: &str, wrong: &[String]) -> anyhow::Result<()> {
    let first: Vec<&str> = wrong.iter().take(5).map(String::as_str).collect();
    anyhow::ensure!(
        wrong.is_empty(),
        "{} {what} cannot be: {}",
        wrong.len(),
        first.join("; ")
    );
    Ok(())
}

/// Starts writers, which share the nodes; the first writer has the first node. A writer moves to
/// the next node when its own does not answer.
pub(super) fn start(
    runtime: &Handle,
    writers: Range<u32>,
    nodes: &[SocketAddr],
    expectation: Expectation,
    seed: u64,
) -> Writing {
    let nobody = &mut Knowledge::default();
    go_on(runtime, writers, nodes, expectation, seed, nobody)
}

/// Like [`start`]; earlier writers continue with their keys in `known`.
pub(super) fn go_on(
    runtime: &Handle,
    writers: Range<u32>,
    nodes: &[SocketAddr],
    expectation: Expectation,
    seed: u64,
    known: &mut Knowledge,
) -> Writing {
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers
        .zip(0..)
        .map(|(number, place)| {
            let known = Knowledge {
                ledgers: known.take_ledgers(&(number..number + 1)),
                ..Knowledge::default()
            };
            let writer = Writer {
                number,
                nodes: nodes.to_vec(),
                node: place % nodes.len().max(1),
                client: None,
                expectation,
                random: StdRng::seed_from_u64(seed ^ (u64::from(number) << 32)),
                known,
            };
            runtime.spawn(writer.work(Arc::clone(&stop)))
        })
        .collect();
    Writing { stop, writers }
}

impl Writing {
    /// Ends the writing; returns the records.
    pub(super) fn finish(self, runtime: &Handle) -> anyhow::Result<Knowledge> {
        self.stop.store(true, Ordering::SeqCst);
        let mut knowledge = Knowledge::default();
        for writer in self.writers {
            knowledge.add(runtime.block_on(writer).context("a writer died")?);
        }
        Ok(knowledge)
    }
}

struct Writer {
    number: u32,
    nodes: Vec<SocketAddr>,
    node: usize,
    client: Option<Client<tokio::net::TcpStream>>,
    expectation: Expectation,
    random: StdRng,
    known: Knowledge,
}

impl Writer {
    async fn work(mut self, stop: Arc<AtomicBool>) -> Knowledge {
        while !stop.load(Ordering::SeqCst) {
            let key = self.random.random_range(0..KEYS_OF_A_WRITER);
            if let Err(error) = self.replace(key).await {
                self.note(&error);
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.known
    }

    /// Reads a key and replaces its value.
    async fn replace(&mut self, key: u32) -> Result<(), Error> {
        let id = (self.number, key);
        let Some(client) = &mut self.client else {
            self.client = Some(connect(self.nodes[self.node]).await?);
            return Ok(());
        };
        let expectation = self.expectation;
        let (siblings, context) = match read(client, id, &expectation.get()).await? {
            Ok(found) => found,
            Err(foreign) => {
                self.known.findings.push(foreign);
                return Ok(());
            }
        };
        let ledger = self.known.ledgers.entry(id).or_default();
        if let Some(grounds) = expectation.grounds() {
            let wrong = ledger.judge(&siblings).into_iter();
            let findings = wrong.map(|wrong| finding(id, &format!("{wrong}, {grounds}")));
            self.known.findings.extend(findings);
        }
        let is_delete = !siblings.is_empty() && self.random.random_ratio(1, 10);
        let attempt = ledger.attempt(is_delete, siblings);
        match is_delete {
            true => delete(client, id, context.as_deref(), expectation.delete()).await?,
            false => write(client, id, context.as_deref(), attempt, expectation.put()).await?,
        }
        ledger.acknowledge();
        self.known.acknowledged += 1;
        Ok(())
    }

    /// Records an error. After a refusal the connection stays usable; else another node is used.
    fn note(&mut self, error: &Error) {
        if error.kind() == ErrorKind::Server {
            *self.known.refused.entry(error.to_string()).or_default() += 1;
            return;
        }
        self.known.broken += 1;
        self.client = None;
        self.node = (self.node + 1) % self.nodes.len();
    }
}

/// A sentence about a key.
pub(super) fn finding((writer, key): KeyId, what: &str) -> String {
    format!("key {key} of writer {writer}: {what}")
}

/// Connects to a node.
pub(super) async fn connect(node: SocketAddr) -> Result<Client<tokio::net::TcpStream>, Error> {
    let settings = ClientSettings {
        connect_timeout: Duration::from_secs(2),
        answer_timeout: Some(Duration::from_secs(6)),
        ..ClientSettings::default()
    };
    Client::connect(node, &settings).await
}

/// The siblings and the context of a key, or the defect of a value.
pub(super) async fn read(
    client: &mut Client<tokio::net::TcpStream>,
    id: KeyId,
    options: &GetOptions,
) -> Result<Result<(Siblings, Option<Bytes>), String>, Error> {
    let options = GetOptions {
        deletedvclock: Some(true),
        timeout_ms: Some(TIMEOUT_MS),
        ..options.clone()
    };
    let name = name(id);
    let get = Get {
        bucket_type: None,
        bucket: BUCKET,
        key: &name,
        options: &options,
    };
    let answer = client.get(&get).await?;
    let values = answer.content.iter().filter(|it| !it.deleted());
    let siblings = values.map(|content| attempt_of(id.0, id.1, &content.value, Lengths::Varied));
    Ok(siblings
        .collect::<Result<Siblings, String>>()
        .map(|siblings| (siblings, answer.vclock)))
}

/// Writes the value of an attempt.
pub(super) async fn put(
    client: &mut Client<tokio::net::TcpStream>,
    id: KeyId,
    vclock: Option<&[u8]>,
    attempt: u64,
) -> Result<(), Error> {
    write(client, id, vclock, attempt, PutOptions::default()).await
}

async fn write(
    client: &mut Client<tokio::net::TcpStream>,
    id: KeyId,
    vclock: Option<&[u8]>,
    attempt: u64,
    options: PutOptions,
) -> Result<(), Error> {
    let options = PutOptions {
        timeout_ms: Some(TIMEOUT_MS),
        ..options
    };
    let content = pb::RpbContent {
        value: Bytes::from(value(id.0, id.1, attempt, Lengths::Varied)),
        ..pb::RpbContent::default()
    };
    let name = name(id);
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

async fn delete(
    client: &mut Client<tokio::net::TcpStream>,
    id: KeyId,
    vclock: Option<&[u8]>,
    options: DeleteOptions,
) -> Result<(), Error> {
    let options = DeleteOptions {
        timeout_ms: Some(TIMEOUT_MS),
        ..options
    };
    let name = name(id);
    let delete = Delete {
        bucket_type: None,
        bucket: BUCKET,
        key: &name,
        vclock,
        options: &options,
    };
    client.delete(&delete).await
}

/// A key's name in the bucket.
pub(super) fn name((writer, key): KeyId) -> Vec<u8> {
    format!("writer-{writer}/key-{key}").into_bytes()
}

/// Allows siblings in the writers' bucket.
pub(super) async fn allow_siblings(node: SocketAddr) -> Result<(), Error> {
    let props = pb::RpbBucketProps {
        allow_mult: Some(true),
        ..Default::default()
    };
    let mut client = connect(node).await?;
    client
        .set_bucket_properties(None, Bytes::from_static(BUCKET), props)
        .await
}
