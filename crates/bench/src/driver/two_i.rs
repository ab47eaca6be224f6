//! The driver `2i`: objects with numbers in their secondary indexes, and queries of ranges of them.

use bytes::Bytes;
use hyper::Method;
use kvorum_protocol::pb::{RpbContent, RpbIndexReq, RpbPair, rpb_index_req::IndexQueryType};
use kvorum_protocol::request::{GetOptions, PutOptions};

use super::http_session::{HttpRequest, HttpSession};
use super::object_access::bucket_path;
use super::pb_session::{Bucket, PbSession, Timeouts};
use super::riakc_pb::{bucket, timeouts};
use super::targets::Targets;
use super::{Draws, Driver, Outcome, Plan};
use crate::configuration::{Configuration, ConfigurationError};
use crate::key_generator::Exhausted;
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Get,
    /// With this many index entries.
    Put(u32),
    /// Of this many numbers.
    Query(u32),
    QueryOverHttp(u32),
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct TwoIPlan {
    actions: Vec<Action>,
    targets: Targets,
    http_targets: Option<Targets>,
    timeouts: Timeouts,
    http_timeout: std::time::Duration,
    bucket: Bucket,
    /// Whether a query that finds less than its range is an error.
    must_be_complete: bool,
}

impl TwoIPlan {
    /// Reads the driver's keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        let actions: Vec<Action> = operations
            .iter()
            .map(|operation| action(configuration, &operation.operation))
            .collect::<Result<_, _>>()?;
        let needs_http = actions
            .iter()
            .any(|action| matches!(action, Action::QueryOverHttp(_)));
        let http_targets = needs_http
            .then(|| Targets::read(configuration, "http_ips", "http_port", 8098))
            .transpose()?;
        let http_timeout = match http_targets {
            Some(_) => configuration.integer("http_timeout_general", 1..=1_000_000_000, 30_000)?,
            None => 30_000,
        };
        let range = configuration.get("enforce_keyrange");
        Ok(Self {
            actions,
            targets: Targets::read(configuration, "pb_ips", "pb_port", 8087)?,
            http_targets,
            timeouts: timeouts(configuration, 30_000)?,
            http_timeout: std::time::Duration::from_millis(http_timeout),
            bucket: configuration
                .convert("riakc_pb_bucket", bucket)?
                .unwrap_or_else(|| Bucket {
                    bucket_type: None,
                    name: Bytes::from_static(b"mybucket"),
                }),
            must_be_complete: range
                .is_some_and(|term| !matches!(term.as_atom(), Some("false" | "undefined"))),
        })
    }
}

fn action(configuration: &Configuration, operation: &Term) -> Result<Action, ConfigurationError> {
    if operation.as_atom() == Some("get_pb") {
        return Ok(Action::Get);
    }
    let count = |term: &Term| {
        let count = u32::try_from(term.as_integer()?).ok();
        count.filter(|count| (1..=100_000).contains(count))
    };
    let pair = match operation.as_tuple() {
        Some([Term::Atom(name), term]) => count(term).map(|count| (name.as_str(), count)),
        _ => None,
    };
    let reason = match pair {
        Some(("put_pb", count)) => return Ok(Action::Put(count)),
        Some(("query_pb", count)) => return Ok(Action::Query(count)),
        Some(("query_http", count)) => return Ok(Action::QueryOverHttp(count)),
        Some(("query_mr" | "query_mr2", _)) => "it needs MapReduce",
        _ => "there is no such operation",
    };
    let expected = "expected get_pb, {put_pb, N}, {query_pb, N} or {query_http, N} with the \
                    driver 2i";
    Err(configuration.refusal("operations", operation, format!("{reason}; {expected}")))
}

impl Plan for TwoIPlan {
    type Worker = TwoIDriver;

    fn worker(&self, id: u32) -> TwoIDriver {
        let http = self.http_targets.as_ref();
        TwoIDriver {
            session: PbSession::new(self.targets.of_worker(id), self.timeouts),
            http: http.map(|targets| HttpSession::new(targets.of_worker(id), self.http_timeout)),
            plan: self.clone(),
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        match key {
            "http_ips" | "http_port" | "http_timeout_general" => {
                Some("no operation of this run goes over HTTP")
            }
            _ => None,
        }
    }
}

/// One worker's connections.
#[derive(Debug)]
pub struct TwoIDriver {
    plan: TwoIPlan,
    session: PbSession,
    http: Option<HttpSession>,
}

impl Driver for TwoIDriver {
    async fn connect(&mut self) -> Result<(), String> {
        if let Some(http) = &mut self.http {
            http.connect().await?;
        }
        self.session.connect().await
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Outcome {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Outcome::Silent;
        };
        let result = match action {
            Action::Get => self.get(draws).await,
            Action::Put(entries) => self.put(entries, draws).await,
            Action::Query(count) => self.query(count, draws).await,
            Action::QueryOverHttp(count) => self.query_over_http(count, draws).await,
        };
        result.unwrap_or_else(Outcome::from)
    }
}

impl TwoIDriver {
    async fn get(&mut self, draws: &mut Draws) -> Result<Outcome, Exhausted> {
        let key = draws.key()?;
        draws.reads(&key);
        let options = GetOptions::default();
        Ok(
            match self.session.get(&self.plan.bucket, &key, &options).await {
                Ok(Some(found)) => draws.judge(&key, found.values()),
                Ok(None) => draws.judge_absent(&key),
                Err(reason) => Outcome::Failed(reason),
            },
        )
    }

    /// Writes an object whose key is the number in each of its indexes.
    async fn put(&mut self, entries: u32, draws: &mut Draws) -> Result<Outcome, Exhausted> {
        let key = draws.key()?;
        let indexes = (1..=entries).map(|number| RpbPair {
            key: Bytes::from(format!("field{number}_int")),
            value: Some(key.clone()),
        });
        let content = RpbContent {
            value: draws.value(&key),
            indexes: indexes.collect(),
            ..RpbContent::default()
        };
        let options = PutOptions::default();
        let put = self
            .session
            .put(&self.plan.bucket, &key, None, &content, &options);
        Ok(put.await.map_or_else(Outcome::Failed, |()| Outcome::Done))
    }

    async fn query(&mut self, count: u32, draws: &mut Draws) -> Result<Outcome, Exhausted> {
        let (first, last) = range(&draws.key()?, count);
        let request = RpbIndexReq {
            bucket: self.plan.bucket.name.clone(),
            r#type: self.plan.bucket.bucket_type.clone(),
            index: Bytes::from_static(b"field1_int"),
            qtype: i32::from(IndexQueryType::Range),
            range_min: Some(Bytes::from(first.to_string())),
            range_max: Some(Bytes::from(last.to_string())),
            ..RpbIndexReq::default()
        };
        let answer = self.session.query_index(&request).await;
        Ok(self.judge(answer, count))
    }

    async fn query_over_http(
        &mut self,
        count: u32,
        draws: &mut Draws,
    ) -> Result<Outcome, Exhausted> {
        let (first, last) = range(&draws.key()?, count);
        let path = bucket_path(&self.plan.bucket);
        let path = format!("{path}/index/field1_int/{first}/{last}");
        let Some(http) = &mut self.http else {
            return Ok(Outcome::failed("disconnected"));
        };
        let answer = http.send(Method::GET, &path, HttpRequest::default()).await;
        let found = answer.and_then(|answer| {
            if answer.status.is_success() {
                Ok(keys_in(&answer.body))
            } else {
                Err(answer.reason())
            }
        });
        Ok(self.judge(found, count))
    }

    fn judge(&self, found: Result<usize, Term>, count: u32) -> Outcome {
        match found {
            Ok(found) if self.plan.must_be_complete && found < count as usize => {
                let found = i128::try_from(found).unwrap_or(0);
                let too_few = [Term::Integer(found), Term::Integer(i128::from(count))];
                let [found, count] = too_few;
                Outcome::Failed(Term::Tuple(vec![
                    Term::atom("not_enough_results"),
                    found,
                    count,
                ]))
            }
            Ok(_) => Outcome::Done,
            Err(reason) => Outcome::Failed(reason),
        }
    }
}

/// The first and the last of `count` numbers from a key on; a key that is no number counts as 0.
fn range(key: &[u8], count: u32) -> (i64, i64) {
    let text = std::str::from_utf8(key).unwrap_or_default();
    let first: i64 = text.parse().unwrap_or(0);
    (first, first.saturating_add(i64::from(count) - 1))
}

/// How many keys an answer lists.
fn keys_in(body: &[u8]) -> usize {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    answer
        .get("keys")
        .and_then(serde_json::Value::as_array)
        .map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_as_many_numbers_as_asked_for() {
        assert_eq!(range(b"17", 1), (17, 17));
        assert_eq!(range(b"17", 100), (17, 116));
        assert_eq!(range(b"no number", 2), (0, 1));
        assert_eq!(keys_in(br#"{"keys":["1","2"]}"#), 2);
        assert_eq!(keys_in(b"no JSON"), 0);
    }
}
