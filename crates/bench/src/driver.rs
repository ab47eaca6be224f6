//! Drivers: they carry out the operations of the configuration and report their outcomes.
//!
//! A driver has two halves. The plan is made once, from the configuration, and finds every
//! mistake before the first connection. From the plan each worker gets its own driver, which owns
//! its connection and its counters.

mod connect_options;
pub mod embedded;
pub mod http_raw;
mod http_session;
mod index_query;
pub mod nhs;
mod nhs_keys;
mod nhs_plan;
mod nhs_records;
pub mod null;
mod object_access;
mod pb_session;
pub mod riakc_pb;
mod targets;
pub mod two_i;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::configuration::{Configuration, ConfigurationError};
use crate::key_generator::{Exhausted, KeyGenerator};
use crate::random::WorkerRandom;
use crate::settings::Operation;
use crate::value_generator::ValueGenerator;
use crate::verification::{Verification, Verifier};
use kvorum_erlang_terms::Term;
use pb_session::Found;

/// The outcome of an operation, for its statistics.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Success: a latency sample and one unit.
    Done,
    /// Success that found nothing: counted like `Done`, and also as a miss.
    Missed,
    /// Success whose latency is the given time instead of the measured one.
    Timed(Duration),
    /// Nothing is recorded.
    Silent,
    /// An error is counted under this reason; no latency.
    Failed(Term),
    /// The worker's generators have no more keys: the worker ends, and nothing is recorded.
    Exhausted,
}

impl From<Exhausted> for Outcome {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

impl From<Term> for Outcome {
    fn from(reason: Term) -> Self {
        Self::Failed(reason)
    }
}

/// The end of an operation. An error is an outcome that ended it early.
pub type Ended = Result<Outcome, Outcome>;

impl Outcome {
    /// True if the operation counts as done.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Done | Self::Missed | Self::Timed(_))
    }

    /// `Ok` if the operation may continue after this outcome.
    fn go_on(self) -> Ended {
        if self.is_success() {
            Ok(self)
        } else {
            Err(self)
        }
    }

    /// An error whose reason is an atom.
    pub fn failed(reason: &str) -> Self {
        Self::Failed(Term::atom(reason))
    }
}

/// Everything that a worker draws, passed to its driver with each operation.
#[derive(Debug)]
pub struct Draws {
    /// The worker's random stream.
    pub random: WorkerRandom,
    /// Its keys.
    pub keys: KeyGenerator,
    /// Its values.
    pub values: ValueGenerator,
    /// Marks values and checks values that were read, if the run verifies.
    pub verifier: Option<Verifier>,
    /// Bytes of keys and values that the present operation writes.
    pub payload_bytes: u64,
}

/// Number of a bucket among those of a driver; equal keys in different buckets are different keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketNumber(pub u64);

impl Draws {
    /// The next key as bytes on the wire.
    pub fn key(&mut self) -> Result<Bytes, Exhausted> {
        Ok(self.keys.next(&mut self.random)?.into_bytes())
    }

    /// The next value for a key, marked if the run verifies.
    pub fn value(&mut self, key: &[u8]) -> Bytes {
        let value = self.values.next(&mut self.random).into_bytes();
        self.marked(key, value)
    }

    /// The next value for a key that the server chooses; it is not marked.
    pub fn value_without_key(&mut self) -> Bytes {
        let value = self.values.next(&mut self.random).into_bytes();
        self.payload_bytes += value.len() as u64;
        value
    }

    /// A value made elsewhere, marked if the run verifies. Records the beginning of its write.
    pub fn marked(&mut self, key: &[u8], value: Bytes) -> Bytes {
        self.payload_bytes += (key.len() + value.len()) as u64;
        match &mut self.verifier {
            Some(verifier) => verifier.write(key, &value),
            None => value,
        }
    }

    /// The rest of this operation uses another bucket than the driver's first.
    pub fn use_bucket(&mut self, bucket: BucketNumber) {
        if let Some(verifier) = &mut self.verifier {
            verifier.use_bucket(bucket.0);
        }
    }

    /// Records the beginning of a removal.
    pub fn removes(&mut self, key: &[u8]) {
        if let Some(verifier) = &mut self.verifier {
            verifier.remove(key);
        }
    }

    /// Records the beginning of a read.
    pub fn reads(&mut self, key: &[u8]) {
        if let Some(verifier) = &mut self.verifier {
            verifier.read(key);
        }
    }

    /// The outcome of a read that found these siblings.
    pub fn judge<'value>(
        &self,
        key: &[u8],
        siblings: impl IntoIterator<Item = &'value [u8]>,
    ) -> Outcome {
        self.verified(key, siblings).unwrap_or(Outcome::Done)
    }

    /// The outcome of a read that found nothing.
    pub fn judge_absent(&self, key: &[u8]) -> Outcome {
        self.verified(key, []).unwrap_or(Outcome::Missed)
    }

    /// The outcome of a read that found nothing: an error if the key must exist.
    fn judge_missing(&self, key: &[u8], must_exist: bool) -> Outcome {
        match self.judge_absent(key) {
            Outcome::Missed if must_exist => {
                let key = Term::Binary(key.to_vec());
                Outcome::Failed(Term::Tuple(vec![Term::atom("not_found"), key]))
            }
            judged => judged,
        }
    }

    /// The outcome of a read with this answer.
    fn judge_found(&self, key: &[u8], found: Option<&Found>) -> Outcome {
        match found {
            Some(found) => self.judge(key, found.values()),
            None => self.judge_absent(key),
        }
    }

    /// The failed outcome of a read, if the run verifies and the values read are wrong.
    fn verified<'value>(
        &self,
        key: &[u8],
        siblings: impl IntoIterator<Item = &'value [u8]>,
    ) -> Option<Outcome> {
        match self.verifier.as_ref()?.check(key, siblings) {
            Verification::Genuine => None,
            Verification::Wrong(what) => Some(Outcome::Failed(Term::Tuple(vec![
                Term::atom("verification"),
                Term::atom(what),
            ]))),
        }
    }

    /// Records the end of the operation.
    pub fn settle(&mut self, is_success: bool) {
        if let Some(verifier) = &mut self.verifier {
            verifier.settle(is_success);
        }
    }
}

/// One worker's driver.
pub trait Driver: Send + 'static {
    /// Connects; called once before the clock starts. The error is a message for the user.
    fn connect(&mut self) -> impl Future<Output = Result<(), String>>;

    /// Performs the operation with this index in the configuration's list.
    fn run(&mut self, operation: usize, draws: &mut Draws) -> impl Future<Output = Ended>;
}

/// A driver as configured; makes the workers' drivers.
pub trait Plan {
    /// The driver of one worker.
    type Worker: Driver;

    /// The driver of the worker with this id (from 1).
    fn worker(&self, id: u32) -> Self::Worker;

    /// The reason why a key that belongs to this driver in basho_bench has no effect here.
    fn why_without_effect(_key: &str) -> Option<&'static str> {
        None
    }
}

/// The operations as a driver's actions. The error for an unknown operation is a message for the
/// user.
fn actions<Action>(
    configuration: &Configuration,
    operations: &[Operation],
    action: impl Fn(&Term) -> Result<Action, String>,
) -> Result<Vec<Action>, ConfigurationError> {
    operations
        .iter()
        .map(|operation| {
            action(&operation.operation)
                .map_err(|reason| configuration.refusal("operations", &operation.operation, reason))
        })
        .collect()
}
