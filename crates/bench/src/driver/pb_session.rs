//! A worker's connection during a run: timeouts, reconnects, reasons of errors.
//!
//! basho_bench retries a lost connection within the same operation and without limit, which hides an
//! outage as one long latency. Here every operation that meets a lost connection is an error, and the
//! next one reconnects.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, ClientSettings, Error};
use kvorum_protocol::pb::{
    CounterOp, DtFetchReq, DtOp, DtUpdateReq, RpbContent, RpbIndexReq, RpbListKeysReq,
};
use kvorum_protocol::request::{Delete, DeleteOptions, Get, GetOptions, Put, PutOptions};

use super::targets::Target;
use crate::configuration::{Configuration, ConfigurationError};
use kvorum_erlang_terms::Term;

/// Answers larger than this are refused.
const FRAME_BYTES_MAX: u32 = 512 << 20;

/// Pause after a failed connect, so that workers do not flood a server that is down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Bucket type and bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) bucket_type: Option<Bytes>,
    pub(super) name: Bytes,
}

/// An object as a get returns it.
#[derive(Debug)]
pub(super) struct Found {
    /// Its causal context, for a later put.
    pub(super) vclock: Option<Bytes>,
    /// The first of its siblings.
    pub(super) content: RpbContent,
    /// The other siblings.
    pub(super) others: Vec<RpbContent>,
}

impl Found {
    /// The values of all siblings.
    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let all = std::iter::once(&self.content).chain(&self.others);
        all.map(|content| &content.value[..])
    }
}

/// Time limits of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) read: Duration,
    pub(super) write: Duration,
    pub(super) list_keys: Duration,
}

/// The timeouts of `pb_timeout_*`, with the driver's default in milliseconds.
pub(super) fn timeouts(
    configuration: &Configuration,
    default_ms: u64,
) -> Result<Timeouts, ConfigurationError> {
    let milliseconds = |key, default| configuration.integer(key, 1..=1_000_000_000, default);
    let general = milliseconds("pb_timeout_general", default_ms)?;
    let specific = |key| milliseconds(key, general).map(Duration::from_millis);
    Ok(Timeouts {
        read: specific("pb_timeout_read")?,
        write: specific("pb_timeout_write")?,
        list_keys: specific("pb_timeout_listkeys")?,
    })
}

/// A target, and the connection to it, if there is one.
#[derive(Debug)]
pub(super) struct PbSession {
    target: Target,
    timeouts: Timeouts,
    client: Option<Client>,
}

impl PbSession {
    pub(super) fn new(target: Target, timeouts: Timeouts) -> Self {
        Self {
            target,
            timeouts,
            client: None,
        }
    }

    /// Connects before the run. The error is a message for the user.
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        let client = connect(&self.target, self.timeouts.read)
            .await
            .map_err(|error| format!("cannot connect to {}: {}", self.target, causes(&error)))?;
        self.client = Some(client);
        Ok(())
    }

    /// Reads an object. The error is the reason to count.
    pub(super) async fn get(
        &mut self,
        bucket: &Bucket,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<Option<Found>, Term> {
        let timeout = self.timeouts.read;
        let request = Get {
            bucket_type: bucket.bucket_type.as_deref(),
            bucket: &bucket.name,
            key,
            options,
        };
        let answer = within(timeout, self.connected().await?.get(&request)).await;
        let answer = answer.map_err(|error| self.reason(error))?;
        let vclock = answer.vclock;
        let mut siblings = answer.content.into_iter();
        Ok(siblings.next().map(|content| Found {
            vclock,
            content,
            others: siblings.collect(),
        }))
    }

    /// Writes an object. The error is the reason to count.
    pub(super) async fn put(
        &mut self,
        bucket: &Bucket,
        key: &[u8],
        vclock: Option<&[u8]>,
        content: &RpbContent,
        options: &PutOptions,
    ) -> Result<(), Term> {
        let timeout = self.timeouts.write;
        let request = Put {
            bucket_type: bucket.bucket_type.as_deref(),
            bucket: &bucket.name,
            key: Some(key),
            vclock,
            content,
            options,
        };
        let answer = within(timeout, self.connected().await?.put(&request)).await;
        answer.map(drop).map_err(|error| self.reason(error))
    }

    /// Deletes an object, present or not. The error is the reason to count.
    pub(super) async fn delete(
        &mut self,
        bucket: &Bucket,
        key: &[u8],
        options: &DeleteOptions,
    ) -> Result<(), Term> {
        let timeout = self.timeouts.write;
        let request = Delete {
            bucket_type: bucket.bucket_type.as_deref(),
            bucket: &bucket.name,
            key,
            vclock: None,
            options,
        };
        let answer = within(timeout, self.connected().await?.delete(&request)).await;
        answer.map_err(|error| self.reason(error))
    }

    /// Adds one to a counter. The error is the reason to count.
    pub(super) async fn increment(&mut self, bucket: &Bucket, key: &[u8]) -> Result<(), Term> {
        let timeout = self.timeouts.write;
        let request = DtUpdateReq {
            bucket: bucket.name.clone(),
            key: Some(Bytes::copy_from_slice(key)),
            r#type: bucket.bucket_type.clone().unwrap_or_default(),
            op: DtOp {
                counter_op: Some(CounterOp { increment: Some(1) }),
                ..DtOp::default()
            },
            ..DtUpdateReq::default()
        };
        let client = self.connected().await?;
        let answer = within(timeout, client.update_data_type(&request)).await;
        answer.map(drop).map_err(|error| self.reason(error))
    }

    /// Reads a counter: true if there is one. The error is the reason to count.
    pub(super) async fn counter(&mut self, bucket: &Bucket, key: &[u8]) -> Result<bool, Term> {
        let timeout = self.timeouts.read;
        let request = DtFetchReq {
            bucket: bucket.name.clone(),
            key: Bytes::copy_from_slice(key),
            r#type: bucket.bucket_type.clone().unwrap_or_default(),
            ..DtFetchReq::default()
        };
        let client = self.connected().await?;
        let answer = within(timeout, client.fetch_data_type(&request)).await;
        let answer = answer.map_err(|error| self.reason(error))?;
        Ok(answer.value.is_some())
    }

    /// Queries an index and reads all results; returns their number. The error is the reason to
    /// count.
    pub(super) async fn query_index(&mut self, request: &RpbIndexReq) -> Result<usize, Term> {
        let timeout = self.timeouts.read;
        let client = self.connected().await?;
        let answer = within(timeout, async {
            let mut answers = client.query_index(request).await?;
            let mut found = 0;
            while let Some(part) = answers.next().await? {
                found += part.keys.len() + part.results.len();
            }
            Ok(found)
        });
        let answer = answer.await;
        answer.map_err(|error| self.reason(error))
    }

    /// Starts to list the bucket's keys on a connection of its own, without waiting for the end.
    pub(super) fn list_keys_in_background(&self, bucket: &Bucket) {
        let (target, timeout) = (self.target.clone(), self.timeouts.list_keys);
        let request = RpbListKeysReq {
            bucket: bucket.name.clone(),
            timeout: u32::try_from(timeout.as_millis()).ok(),
            r#type: bucket.bucket_type.clone(),
        };
        tokio::task::spawn_local(async move {
            let listing = async {
                let mut client = connect(&target, timeout).await?;
                let mut answers = client.list_keys(&request).await?;
                while answers.next().await?.is_some() {}
                Ok::<(), Error>(())
            };
            // The listing only makes load, as in basho_bench; its result does not matter.
            let _ = within(timeout, listing).await;
        });
    }

    async fn connected(&mut self) -> Result<&mut Client, Term> {
        if self.client.is_none() && self.connect().await.is_err() {
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        self.client
            .as_mut()
            .ok_or_else(|| Term::atom("disconnected"))
    }

    /// Returns the reason of an error, and drops a connection that can no longer be used.
    fn reason(&mut self, error: Error) -> Term {
        if !self.client.as_ref().is_some_and(Client::is_usable) {
            self.client = None;
        }
        match error {
            Error::Server { text, .. } => Term::Binary(text.into_bytes()),
            Error::Timeout { .. } => Term::atom("timeout"),
            Error::ConnectionLost { .. } | Error::OutOfStep => Term::atom("disconnected"),
            other => Term::Tuple(vec![Term::atom("bad_answer"), Term::String(causes(&other))]),
        }
    }
}

async fn connect(target: &Target, timeout: Duration) -> Result<Client, Error> {
    // Requests have time limits that differ by kind, so the client itself has none.
    let settings = ClientSettings {
        connect_timeout: timeout,
        answer_timeout: None,
        frame_bytes_max: FRAME_BYTES_MAX,
    };
    Client::connect((target.host.as_str(), target.port), &settings).await
}

async fn within<T>(
    after: Duration,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(after, request)
        .await
        .unwrap_or(Err(Error::Timeout { after }))
}

/// The error with its causes.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
