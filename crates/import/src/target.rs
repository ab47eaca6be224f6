//! The server: connections that put objects, with retries for temporary failures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_client::{
    Client, ClientSettings, Error, ErrorKind, Frame, MessageCode, Put, PutOptions, pb,
};
use kvorum_encoding::Address;
use kvorum_runtime::{Moment, Runtime, Stream};
use parking_lot::Mutex;

use crate::counts::Counts;
use crate::error::ImportError;
use crate::findings::Finding;
use crate::item::{Batch, Item};

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Bytes of a frame's head: length and code.
const FRAME_HEAD_BYTES: usize = 5;
/// Maximum number of buckets with cached properties.
const BUCKETS_MAX: usize = 10_000;
/// Parts of error replies that concern the object and not the server's state. After any other error
/// the put is repeated; if the error persists, the import stops and counts nothing as refused.
const REFUSALS: [&str; 6] = [
    "too_large",
    "too_many_siblings",
    "no_type",
    "zero-length",
    "Invalid message packet",
    "does not fit a frame",
];

/// The server to import into.
#[derive(Clone, Debug)]
pub struct ImportTarget {
    /// Its protocol-buffer interface.
    pub address: SocketAddr,
    /// The server's name in all runs: the address in the command, or the node's data directory.
    pub name: String,
}

/// A server and the connections to it.
pub struct Target {
    shared: Arc<Shared>,
    lanes: Vec<Option<Client<Stream>>>,
}

struct Shared {
    runtime: Runtime,
    address: SocketAddr,
    patience: Duration,
    settings: ClientSettings,
    options: PutOptions,
    /// True for buckets that keep siblings, by type and bucket.
    keeps_siblings: Mutex<BTreeMap<(Bytes, Bytes), bool>>,
}

/// Result of a batch.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Counts of the batch.
    pub counts: Counts,
    /// Refused objects.
    pub findings: Vec<Finding>,
}

/// Result of one attempt.
enum Attempt {
    Done,
    Refused(String),
    /// A temporary failure: another attempt may succeed.
    Later(String),
}

impl Target {
    /// Makes a target that connects on demand. `patience` is the maximum time for which attempts may
    /// fail before the import stops.
    pub(crate) fn new(
        runtime: Runtime,
        address: SocketAddr,
        connections: usize,
        patience: Duration,
    ) -> Self {
        let options = PutOptions {
            asis: Some(true),
            ..PutOptions::default()
        };
        Self {
            shared: Arc::new(Shared {
                runtime,
                address,
                patience,
                settings: ClientSettings::default(),
                options,
                keeps_siblings: Mutex::default(),
            }),
            lanes: (0..connections.max(1)).map(|_| None).collect(),
        }
    }

    /// Bucket types that the server does not have.
    ///
    /// # Errors
    /// [`ImportError::Unavailable`].
    pub(crate) async fn missing_types(&self, names: &[String]) -> Result<Vec<String>, ImportError> {
        let mut client = self.shared.connect_patiently().await?;
        let mut missing = Vec::new();
        for name in names {
            let name_bytes = Bytes::copy_from_slice(name.as_bytes());
            match client.bucket_type_properties(name_bytes).await {
                Ok(_) => {}
                Err(Error::Server { .. }) => missing.push(name.clone()),
                Err(error) => {
                    let reason = with_source(&error);
                    return Err(ImportError::Unavailable { reason });
                }
            }
        }
        Ok(missing)
    }

    /// Puts all objects of a batch. On return the server has acknowledged or refused each.
    ///
    /// # Errors
    /// [`ImportError::Unavailable`].
    pub async fn put(&mut self, batch: &Arc<Batch>) -> Result<Outcome, ImportError> {
        let next = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = self
            .lanes
            .iter_mut()
            .map(|client| {
                let lane = Lane {
                    shared: self.shared.clone(),
                    client: client.take(),
                    outcome: Outcome::default(),
                };
                let work = lane.run(batch.clone(), next.clone());
                self.shared.runtime.spawn("import connection", work)
            })
            .collect();
        let mut whole = Outcome::default();
        let mut failure = None;
        for (place, task) in self.lanes.iter_mut().zip(tasks) {
            match task.await {
                Ok(Ok((client, outcome))) => {
                    *place = client;
                    whole.add(outcome);
                }
                Ok(Err(error)) => failure = Some(error),
                Err(error) => {
                    let reason = error.to_string();
                    failure = Some(ImportError::Unavailable { reason });
                }
            }
        }
        failure.map_or(Ok(whole), Err)
    }
}

impl Outcome {
    /// Puts a batch, or only counts its objects without a target.
    ///
    /// # Errors
    /// The errors of [`Target::put`].
    pub async fn of(batch: &Arc<Batch>, target: Option<&mut Target>) -> Result<Self, ImportError> {
        match target {
            Some(target) => target.put(batch).await,
            None => {
                let mut outcome = Self::default();
                batch.items.iter().for_each(|item| outcome.count(item));
                Ok(outcome)
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.counts += other.counts;
        self.findings.extend(other.findings);
    }

    /// Counts an object as put.
    fn count(&mut self, item: &Item) {
        let siblings = item.puts.contents.len() as u64;
        self.counts.objects += 1;
        self.counts.siblings += siblings;
        self.counts.objects_with_siblings += u64::from(siblings > 1);
        self.counts.value_bytes += item.value_bytes;
    }
}

impl Shared {
    async fn connect(&self) -> Result<Client<Stream>, String> {
        let connecting = self.runtime.connect(self.address);
        let timeout = self.settings.connect_timeout;
        let connected = self.runtime.timeout(timeout, connecting).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(with_source(&error)),
            Err(_) => return Err(format!("no connection to {} in time", self.address)),
        };
        // Without the option a connection is slower, but works.
        let _slower = stream.set_nodelay(true);
        Ok(Client::over(stream, &self.settings))
    }

    async fn connect_patiently(&self) -> Result<Client<Stream>, ImportError> {
        let started = self.runtime.now();
        let mut pause = PAUSE_FIRST;
        loop {
            match self.connect().await {
                Ok(client) => return Ok(client),
                Err(reason) => self.wait(started, &mut pause, reason).await?,
            }
        }
    }

    /// Waits before another attempt. After `patience` the reason for the wait becomes an error.
    async fn wait(
        &self,
        started: Moment,
        pause: &mut Duration,
        reason: String,
    ) -> Result<(), ImportError> {
        if self.runtime.now().since(started) >= self.patience {
            return Err(ImportError::Unavailable { reason });
        }
        self.runtime.sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

struct Lane {
    shared: Arc<Shared>,
    client: Option<Client<Stream>>,
    outcome: Outcome,
}

impl Lane {
    async fn run(
        mut self,
        batch: Arc<Batch>,
        next: Arc<AtomicUsize>,
    ) -> Result<(Option<Client<Stream>>, Outcome), ImportError> {
        while let Some(item) = batch.items.get(next.fetch_add(1, Ordering::Relaxed)) {
            self.put_item(item).await?;
        }
        Ok((self.client, self.outcome))
    }

    async fn put_item(&mut self, item: &Item) -> Result<(), ImportError> {
        let started = self.shared.runtime.now();
        let mut pause = PAUSE_FIRST;
        loop {
            let attempt = self.attempt(item).await;
            match attempt {
                Attempt::Done => {
                    self.outcome.count(item);
                    return Ok(());
                }
                Attempt::Refused(reason) => {
                    self.outcome.counts.refused += 1;
                    self.outcome.findings.push(Finding {
                        file: item.place.file.clone(),
                        offset: item.place.offset,
                        len: None,
                        object: Some(item.address.to_string()),
                        reason: format!("the server refuses it: {reason}"),
                    });
                    return Ok(());
                }
                Attempt::Later(reason) => {
                    self.shared.wait(started, &mut pause, reason).await?;
                }
            }
        }
    }

    async fn attempt(&mut self, item: &Item) -> Attempt {
        let usable = self.client.take().filter(Client::is_usable);
        let mut client = match usable {
            Some(client) => client,
            None => match self.shared.connect().await {
                Ok(client) => client,
                Err(reason) => return Attempt::Later(reason),
            },
        };
        let attempt = self.attempt_over(&mut client, item).await;
        self.client = Some(client);
        attempt.unwrap_or_else(|error| judge(&error))
    }

    async fn attempt_over(
        &mut self,
        client: &mut Client<Stream>,
        item: &Item,
    ) -> Result<Attempt, Error> {
        let shared = self.shared.clone();
        if let [content] = &item.puts.contents[..] {
            client.put(&put_of(item, content, &shared.options)).await?;
            return Ok(Attempt::Done);
        }
        let keeps_siblings = shared.keeps_siblings(client, &item.address).await?;
        let mut frames = Vec::new();
        for content in &item.puts.contents {
            let mut buffer = BytesMut::new();
            put_of(item, content, &shared.options).encode(&mut buffer)?;
            let payload = buffer.split_off(FRAME_HEAD_BYTES).freeze();
            let code = MessageCode::RPB_PUT_REQ;
            frames.push(Frame { code, payload });
        }
        // Puts go in one pipeline, so that reads rarely see one sibling without the others.
        for answer in client.send_pipelined(&frames).await? {
            if answer.code == MessageCode::RPB_ERROR_RESP {
                let error: pb::RpbErrorResp = answer.decode()?;
                return Ok(judge_text(&String::from_utf8_lossy(&error.errmsg)));
            }
        }
        self.outcome.counts.objects_reduced += u64::from(!keeps_siblings);
        Ok(Attempt::Done)
    }
}

impl Shared {
    async fn keeps_siblings(
        &self,
        client: &mut Client<Stream>,
        address: &Address,
    ) -> Result<bool, Error> {
        let (bucket_type, bucket) = (&address.bucket_type, &address.bucket);
        let name = (bucket_type.to_bytes(), bucket.to_bytes());
        if let Some(keeps) = self.keeps_siblings.lock().get(&name) {
            return Ok(*keeps);
        }
        let typed = Some(bucket_type.to_bytes()).filter(|_| !bucket_type.is_default());
        let properties = client.bucket_properties(typed, bucket.to_bytes()).await?;
        let keeps = properties.allow_mult() && !properties.last_write_wins();
        let mut known = self.keeps_siblings.lock();
        if known.len() < BUCKETS_MAX {
            known.insert(name, keeps);
        }
        Ok(keeps)
    }
}

fn put_of<'a>(item: &'a Item, content: &'a pb::RpbContent, options: &'a PutOptions) -> Put<'a> {
    let Address {
        bucket_type,
        bucket,
        key,
    } = &item.address;
    Put {
        bucket_type: (!bucket_type.is_default()).then(|| bucket_type.as_bytes()),
        bucket: bucket.as_bytes(),
        key: Some(key.as_bytes()),
        vclock: Some(&item.puts.vclock),
        content,
        options,
    }
}

fn judge(error: &Error) -> Attempt {
    match (error.kind(), error) {
        (ErrorKind::Server, Error::Server { text, .. }) => judge_text(text),
        _ => Attempt::Later(with_source(error)),
    }
}

fn judge_text(text: &str) -> Attempt {
    match REFUSALS.iter().any(|refusal| text.contains(refusal)) {
        true => Attempt::Refused(text.to_owned()),
        false => Attempt::Later(text.to_owned()),
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
