//! The driver `riakc_pb`: objects over protocol buffers, one connection per worker.

use std::time::Duration;

use bytes::Bytes;
use kvorum_protocol::pb::RpbContent;
use kvorum_protocol::quorum;
use kvorum_protocol::request::{DeleteOptions, GetOptions, PutOptions};

use super::connect_options;
use super::index_query::IndexQuery;
use super::nhs_records::record_entries_with_dashes;
use super::pb_session::{Bucket, Found, PbSession, Timeouts, timeouts};
use super::targets::Targets;
use super::{Draws, Driver, Ended, Outcome, Plan, actions};
use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

/// Length of a `pause_minute`.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    /// With `true`, a missing key is an error.
    Get {
        must_exist: bool,
    },
    Put,
    Update {
        must_exist: bool,
    },
    Delete,
    UpdateIndexed,
    QueryPostcode,
    QueryBirth,
    /// Adds one to a counter of a bucket type with the data type.
    Increment,
    ReadCounter,
    ListKeys,
    PauseMinute,
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct RiakcPbPlan {
    actions: Vec<Action>,
    targets: Targets,
    timeouts: Timeouts,
    bucket: Bucket,
    content_type: Bytes,
    get_options: GetOptions,
    put_options: PutOptions,
    delete_options: DeleteOptions,
}

impl RiakcPbPlan {
    /// Reads the driver's keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        let replies = configuration
            .convert("riakc_pb_replies", replicas)?
            .unwrap_or(quorum::QUORUM);
        let replicas_of = |key| {
            configuration
                .convert(key, replicas)
                .map(|value| Some(value.unwrap_or(replies)))
        };
        // basho_bench reads pr and pw but never sends them; here they are sent when they are set.
        let primaries_of = |key| configuration.convert(key, replicas);
        let content_type = configuration.convert("riakc_pb_content_type", text)?;
        connect_options::read(configuration)?;
        Ok(Self {
            actions: actions(configuration, operations, action)?,
            targets: Targets::read(configuration, "riakc_pb_ips", "riakc_pb_port", 8087)?,
            timeouts: timeouts(configuration, 62_000)?,
            bucket: bucket_of(configuration, "riakc_pb_bucket", "test")?,
            content_type: content_type
                .unwrap_or_else(|| Bytes::from_static(b"application/octet-stream")),
            get_options: GetOptions {
                r: replicas_of("riakc_pb_r")?,
                pr: primaries_of("riakc_pb_pr")?,
                ..GetOptions::default()
            },
            put_options: PutOptions {
                w: replicas_of("riakc_pb_w")?,
                dw: replicas_of("riakc_pb_dw")?,
                pw: primaries_of("riakc_pb_pw")?,
                ..PutOptions::default()
            },
            delete_options: DeleteOptions {
                rw: replicas_of("riakc_pb_rw")?,
                ..DeleteOptions::default()
            },
        })
    }
}

fn action(operation: &Term) -> Result<Action, String> {
    const EXPECTED: &str = "expected get, get_existing, put, update, update_existing, delete, \
         update_with2i, query_postcode, query_dob, {counter, increment}, {counter, value}, listkeys or \
         pause_minute with the driver riakc_pb";
    let refuse = |reason: &str| Err(format!("{reason}; {EXPECTED}"));
    if let Some(action) = counter_action(operation) {
        return Ok(action);
    }
    match operation.as_atom() {
        Some("get") => Ok(Action::Get { must_exist: false }),
        Some("get_existing") => Ok(Action::Get { must_exist: true }),
        Some("put") => Ok(Action::Put),
        Some("update") => Ok(Action::Update { must_exist: false }),
        Some("update_existing") => Ok(Action::Update { must_exist: true }),
        Some("delete") => Ok(Action::Delete),
        Some("listkeys") => Ok(Action::ListKeys),
        Some("pause_minute") => Ok(Action::PauseMinute),
        Some("search" | "search_interval") => refuse("it needs full-text search"),
        Some("mr_bucket_erlang" | "mr_bucket_js" | "mr_keylist_erlang" | "mr_keylist_js") => {
            refuse("it needs MapReduce")
        }
        Some("update_with2i") => Ok(Action::UpdateIndexed),
        Some("query_postcode") => Ok(Action::QueryPostcode),
        Some("query_dob") => Ok(Action::QueryBirth),
        Some("counter_incr" | "counter_val") => refuse("it needs counters of Riak 1.4"),
        Some(name) if name.ends_with("_unique") || name.starts_with("alwaysget_") => {
            refuse("it belongs to the driver nhs")
        }
        None if operation.as_tuple().is_some() => refuse("it needs sets or maps"),
        _ => refuse("there is no such operation"),
    }
}

/// `{counter, increment}` and `{counter, value}`. The amount is always one, since value generators
/// make bytes here.
fn counter_action(operation: &Term) -> Option<Action> {
    let [kind, verb] = operation.as_tuple()? else {
        return None;
    };
    match (kind.as_atom()?, verb.as_atom()?) {
        ("counter", "increment") => Some(Action::Increment),
        ("counter", "value") => Some(Action::ReadCounter),
        _ => None,
    }
}

/// A quorum: a number or one of the four names.
pub(super) fn replicas(term: &Term) -> Result<u32, String> {
    let value = match term.as_atom() {
        Some("one") => Some(quorum::ONE),
        Some("quorum") => Some(quorum::QUORUM),
        Some("all") => Some(quorum::ALL),
        Some("default") => Some(quorum::DEFAULT),
        _ => term
            .as_integer()
            .and_then(|count| u32::try_from(count).ok())
            .filter(|n| *n <= 64),
    };
    value.ok_or_else(|| "expected one, quorum, all, default or a number of replicas".to_owned())
}

/// The bucket configured under a key, or the bucket with this name.
pub(super) fn bucket_of(
    configuration: &Configuration,
    key: &'static str,
    name: &'static str,
) -> Result<Bucket, ConfigurationError> {
    let read = configuration.convert(key, bucket)?;
    Ok(read.unwrap_or(Bucket {
        bucket_type: None,
        name: Bytes::from_static(name.as_bytes()),
    }))
}

/// A bucket, or `{Type, Bucket}`.
fn bucket(term: &Term) -> Result<Bucket, String> {
    const EXPECTED: &str = "expected a bucket as a binary or string, or {Type, Bucket}";
    match term.as_tuple() {
        Some([bucket_type, name]) => Ok(Bucket {
            bucket_type: Some(text(bucket_type)?),
            name: text(name)?,
        }),
        Some(_) => Err(EXPECTED.to_owned()),
        None => Ok(Bucket {
            bucket_type: None,
            name: text(term).map_err(|_| EXPECTED)?,
        }),
    }
}

fn text(term: &Term) -> Result<Bytes, String> {
    term.as_bytes()
        .map(Bytes::from)
        .ok_or_else(|| "expected a binary or a string".to_owned())
}

impl Plan for RiakcPbPlan {
    type Worker = RiakcPbDriver;

    fn worker(&self, id: u32) -> RiakcPbDriver {
        let session = PbSession::new(self.targets.of_worker(id), self.timeouts);
        RiakcPbDriver {
            plan: self.clone(),
            id,
            session,
        }
    }
}

/// One worker's connection and settings.
#[derive(Debug)]
pub struct RiakcPbDriver {
    plan: RiakcPbPlan,
    id: u32,
    session: PbSession,
}

impl Driver for RiakcPbDriver {
    async fn connect(&mut self) -> Result<(), String> {
        self.session.connect().await
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Ok(Outcome::Silent);
        };
        match action {
            Action::Get { must_exist } => self.get(must_exist, draws).await,
            Action::Put => self.put(draws).await,
            Action::Update { must_exist } => self.update(must_exist, draws).await,
            Action::Delete => self.delete(draws).await,
            Action::UpdateIndexed => self.update_indexed(draws).await,
            Action::QueryPostcode => {
                let query = IndexQuery::postcode_with_terms(&mut draws.random);
                self.query(&query).await
            }
            Action::QueryBirth => {
                let query = IndexQuery::birth_with_terms(&mut draws.random);
                self.query(&query).await
            }
            Action::Increment => self.increment(draws).await,
            Action::ReadCounter => self.read_counter(draws).await,
            Action::ListKeys => {
                // Only the first worker makes this load.
                if self.id == 1 {
                    self.session.list_keys_in_background(&self.plan.bucket);
                }
                Ok(Outcome::Done)
            }
            Action::PauseMinute => {
                tokio::time::sleep(PAUSE).await;
                Ok(Outcome::Done)
            }
        }
    }
}

impl RiakcPbDriver {
    async fn get(&mut self, must_exist: bool, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let (bucket, options) = (&self.plan.bucket, &self.plan.get_options);
        let found = self.session.get(bucket, &key, options).await?;
        Ok(judge(found.as_ref(), must_exist, &key, draws))
    }

    async fn put(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        let content = self.new_content(draws.value(&key));
        let (bucket, options) = (&self.plan.bucket, &self.plan.put_options);
        let put = self.session.put(bucket, &key, None, &content, options);
        put.await?;
        Ok(Outcome::Done)
    }

    /// Reads a value, then replaces it with a new one; one sample covers both.
    async fn update(&mut self, must_exist: bool, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let (bucket, options) = (&self.plan.bucket, &self.plan.get_options);
        let found = self.session.get(bucket, &key, options).await?;
        judge(found.as_ref(), must_exist, &key, draws).go_on()?;
        let value = draws.value(&key);
        let (vclock, content) = match found {
            Some(found) => {
                let content = found.content;
                (found.vclock, RpbContent { value, ..content })
            }
            None => (None, self.new_content(value)),
        };
        let (vclock, options) = (vclock.as_deref(), &self.plan.put_options);
        let put = self
            .session
            .put(&self.plan.bucket, &key, vclock, &content, options);
        put.await?;
        Ok(Outcome::Done)
    }

    /// Reads a value, then replaces it with a new one with new index entries; the original gives
    /// neither request a number of replicas.
    async fn update_indexed(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let (bucket, options) = (&self.plan.bucket, GetOptions::default());
        let found = self.session.get(bucket, &key, &options).await?;
        draws.judge_found(&key, found.as_ref()).go_on()?;
        let mut content = self.new_content(draws.value(&key));
        content.indexes = record_entries_with_dashes(&mut draws.random);
        let vclock = found.and_then(|found| found.vclock);
        let (vclock, options) = (vclock.as_deref(), PutOptions::default());
        let put = self
            .session
            .put(&self.plan.bucket, &key, vclock, &content, &options);
        put.await?;
        Ok(Outcome::Done)
    }

    async fn query(&mut self, query: &IndexQuery) -> Ended {
        let request = query.request(&self.plan.bucket);
        self.session.query_index(&request).await?;
        Ok(Outcome::Done)
    }

    async fn delete(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.removes(&key);
        let (bucket, options) = (&self.plan.bucket, &self.plan.delete_options);
        self.session.delete(bucket, &key, options).await?;
        Ok(Outcome::Done)
    }

    async fn increment(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        self.session.increment(&self.plan.bucket, &key).await?;
        Ok(Outcome::Done)
    }

    async fn read_counter(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        match self.session.counter(&self.plan.bucket, &key).await? {
            true => Ok(Outcome::Done),
            false => Ok(draws.judge_missing(&key, false)),
        }
    }

    fn new_content(&self, value: Bytes) -> RpbContent {
        RpbContent {
            value,
            content_type: Some(self.plan.content_type.clone()),
            ..RpbContent::default()
        }
    }
}

/// The outcome of a read.
fn judge(found: Option<&Found>, must_exist: bool, key: &[u8], draws: &Draws) -> Outcome {
    match found {
        Some(found) => draws.judge(key, found.values()),
        None => draws.judge_missing(key, must_exist),
    }
}
