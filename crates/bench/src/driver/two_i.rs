//! The driver `2i`: objects with numbers in their secondary indexes, and range queries of these
//! numbers.

use bytes::Bytes;
use kvorum_protocol::pb::{RpbContent, RpbPair};

use super::index_query::IndexQuery;
use super::object_access::{AccessPlan, ObjectAccess, Via, why_without_http};
use super::pb_session::Bucket;
use super::riakc_pb::bucket_of;
use super::{Draws, Driver, Ended, Outcome, Plan, actions};
use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Get,
    /// Writes an object with this many index entries.
    Put(u32),
    /// Queries a range of this many numbers.
    Query(u32),
    QueryOverHttp(u32),
}

/// The driver as configured.
#[derive(Debug, Clone)]
pub struct TwoIPlan {
    actions: Vec<Action>,
    objects: AccessPlan,
    bucket: Bucket,
    /// True if a query that finds less than its range is an error.
    must_be_complete: bool,
}

impl TwoIPlan {
    /// Reads the driver's keys.
    pub fn read(
        configuration: &Configuration,
        operations: &[Operation],
    ) -> Result<Self, ConfigurationError> {
        let actions = actions(configuration, operations, action)?;
        let needs_http = actions
            .iter()
            .any(|action| matches!(action, Action::QueryOverHttp(_)));
        let range = configuration.get("enforce_keyrange");
        Ok(Self {
            actions,
            objects: AccessPlan::read(configuration, needs_http)?,
            bucket: bucket_of(configuration, "riakc_pb_bucket", "mybucket")?,
            must_be_complete: range
                .is_some_and(|term| !matches!(term.as_atom(), Some("false" | "undefined"))),
        })
    }
}

fn action(operation: &Term) -> Result<Action, String> {
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
    Err(format!("{reason}; {expected}"))
}

impl Plan for TwoIPlan {
    type Worker = TwoIDriver;

    fn worker(&self, id: u32) -> TwoIDriver {
        TwoIDriver {
            objects: self.objects.of_worker(id),
            plan: self.clone(),
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        why_without_http(key)
    }
}

/// One worker's connections.
#[derive(Debug)]
pub struct TwoIDriver {
    plan: TwoIPlan,
    objects: ObjectAccess,
}

impl Driver for TwoIDriver {
    async fn connect(&mut self) -> Result<(), String> {
        self.objects.connect().await
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        let Some(action) = self.plan.actions.get(operation).copied() else {
            return Ok(Outcome::Silent);
        };
        match action {
            Action::Get => self.get(draws).await,
            Action::Put(entries) => self.put(entries, draws).await,
            Action::Query(count) => self.query(count, draws).await,
            Action::QueryOverHttp(count) => self.query_over_http(count, draws).await,
        }
    }
}

impl TwoIDriver {
    async fn get(&mut self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let found = self.objects.get(Via::Pb, &self.plan.bucket, &key).await?;
        Ok(draws.judge_found(&key, found.as_ref()))
    }

    /// Writes an object with its key as the number in each of its indexes.
    async fn put(&mut self, entries: u32, draws: &mut Draws) -> Ended {
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
        let bucket = &self.plan.bucket;
        let put = self.objects.put(Via::Pb, bucket, &key, None, &content);
        put.await?;
        Ok(Outcome::Done)
    }

    async fn query(&mut self, count: u32, draws: &mut Draws) -> Ended {
        let query = query(&draws.key()?, count);
        let request = query.request(&self.plan.bucket);
        let found = self.objects.pb.query_index(&request).await?;
        Ok(self.judge(found, count))
    }

    async fn query_over_http(&mut self, count: u32, draws: &mut Draws) -> Ended {
        let query = query(&draws.key()?, count);
        let answer = self.objects.fetch(&query.path(&self.plan.bucket)).await?;
        Ok(self.judge(keys_in(&answer), count))
    }

    fn judge(&self, found: usize, count: u32) -> Outcome {
        if !self.plan.must_be_complete || found >= count as usize {
            return Outcome::Done;
        }
        Outcome::Failed(Term::Tuple(vec![
            Term::atom("not_enough_results"),
            Term::Integer(i128::try_from(found).unwrap_or(0)),
            Term::Integer(i128::from(count)),
        ]))
    }
}

fn query(key: &[u8], count: u32) -> IndexQuery {
    let (first, last) = range(key, count);
    IndexQuery::numbers(first, last)
}

/// The first and the last of `count` numbers from a key on; a key that is not a number counts as 0.
fn range(key: &[u8], count: u32) -> (i64, i64) {
    let text = std::str::from_utf8(key).unwrap_or_default();
    let first: i64 = text.parse().unwrap_or(0);
    (first, first.saturating_add(i64::from(count) - 1))
}

/// Number of keys that an answer lists.
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
