//! Index queries: in one JSON object, or as a `multipart/mixed` stream of them.
//!
//! As with listings, an answer in one object is held back up to a size, so that a failure has its
//! status; a longer one is sent as it arrives. A stream waits for its first results before the
//! answer begins, so that a refusal has its status too.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::HeaderValue;
use http::{Method, StatusCode};
use kvorum_coordinator::{
    Continuation, IndexMatch, IndexOptions, IndexQuery, IndexQueryError, IndexResults,
    IndexSelection, IndexValues, RequestError,
};
use serde_json::Value;

use crate::body::Abandoned;
use crate::exchange::Exchange;
use crate::listing::check_enabled;
use crate::name_list::{NameList, put_text};
use crate::reply::{JSON, Outcome, Refusal, in_pieces, json, text};
use crate::route::IndexPath;
use crate::{failure, origin};

const HELD_BACK_BYTES: usize = 1 << 20;

/// The objects that an index has in a range, or under one value.
pub(crate) async fn query(exchange: &Exchange<'_>, index: &IndexPath) -> Outcome {
    let is_streamed = exchange.query.get("stream") == Some(b"true");
    let wants_terms = boolean(exchange, "return_terms")?;
    let query = query_of(exchange, index)?;
    origin::check(exchange)?;
    let jobs = &exchange.service.settings.jobs;
    if is_streamed {
        check_enabled(jobs.stream_secondary_index, "stream_secondary_index")?;
    } else {
        check_enabled(jobs.secondary_index, "secondary_index")?;
        exchange.require_json()?;
    }
    let bucket_type = &index.path.bucket_type;
    let refused = |error: RequestError| failure::of_listing(&error, bucket_type);
    let form = Form {
        with_terms: wants_terms && query.selection.has_terms(),
    };
    let coordinator = exchange.coordinator();
    coordinator.until_opened(query.options.timeout).await;
    let mut results = coordinator.query_index(query).map_err(refused)?;
    let first = results.next().await.transpose().map_err(refused)?;
    if is_streamed {
        let random = coordinator.runtime().random_u64();
        let boundary = format!("{random:016x}{:016x}", coordinator.runtime().random_u64());
        let pieces = parts(results, first, form, boundary.clone());
        let content_type = HeaderValue::from_str(&format!("multipart/mixed;boundary={boundary}"));
        let content_type = content_type.unwrap_or(JSON);
        return Ok(match *exchange.method() {
            Method::HEAD => in_pieces(content_type, stream::empty()),
            _ => in_pieces(content_type, pieces),
        });
    }
    let mut object = Object::new(form);
    let mut found = first;
    while let Some(some) = found {
        object.push(&some);
        if object.bytes() > HELD_BACK_BYTES {
            return Ok(in_pieces(JSON, rest_of_object(results, object)));
        }
        found = results.next().await.transpose().map_err(refused)?;
    }
    let object = object.end(results.continuation().as_ref());
    Ok(json(StatusCode::OK, object))
}

fn query_of(exchange: &Exchange<'_>, index: &IndexPath) -> Result<IndexQuery, Refusal> {
    let values = match &index.last {
        None => IndexValues::Equal(index.first.clone()),
        Some(last) => IndexValues::Range(index.first.clone(), last.clone()),
    };
    let refused = |error: IndexQueryError| {
        bad_request(match error {
            IndexQueryError::PatternOnNumbers => {
                "Can not use term regular expressions on integer queries".to_owned()
            }
            error @ IndexQueryError::InvalidPattern { .. } => format!("{error}\n"),
            error => format!("Invalid query: {error}\n"),
        })
    };
    let selection = IndexSelection::new(&index.field, &values).map_err(refused)?;
    let pattern = exchange.query.get("term_regex").map(Bytes::copy_from_slice);
    let pattern = pattern.map(|it| selection.pattern(&it)).transpose();
    let after = exchange.query.get("continuation").map(Continuation::parse);
    let options = IndexOptions {
        pattern: pattern.map_err(refused)?,
        results_max: results_max(exchange)?,
        after: after.transpose().map_err(refused)?,
        is_sorted: boolean(exchange, "pagination_sort")?,
        timeout: match timeout(exchange)? {
            None => exchange.service.settings.index_timeout,
            Some(Duration::ZERO) => None,
            timeout => timeout,
        },
    };
    Ok(IndexQuery {
        bucket_type: index.path.bucket_type.clone(),
        bucket: index.path.bucket.clone(),
        selection,
        options,
    })
}

/// The `timeout` parameter; its refusal has the text of Riak's index resource.
fn timeout(exchange: &Exchange<'_>) -> Result<Option<Duration>, Refusal> {
    exchange.timeout().map_err(|_| {
        let given = shown(exchange.query.get("timeout").unwrap_or_default());
        bad_request(format!(
            "Bad timeout value {given}. Must be a non-negative integer\n"
        ))
    })
}

/// A parameter as an answer repeats it: a number unchanged, anything else in quotes.
fn shown(given: &[u8]) -> String {
    let given = String::from_utf8_lossy(given);
    match given.parse::<i128>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{given:?}"),
    }
}

fn boolean(exchange: &Exchange<'_>, name: &str) -> Result<bool, Refusal> {
    match exchange.query.get(name) {
        None => Ok(false),
        Some(word) if word.eq_ignore_ascii_case(b"true") => Ok(true),
        Some(word) if word.eq_ignore_ascii_case(b"false") => Ok(false),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let message = format!("Invalid \"{name}\". {other:?} is not a boolean");
            Err(bad_request(message))
        }
    }
}

fn results_max(exchange: &Exchange<'_>) -> Result<Option<NonZeroU32>, Refusal> {
    let Some(given) = exchange.query.get("max_results") else {
        return Ok(None);
    };
    let given = String::from_utf8_lossy(given);
    match given.parse::<u64>().ok().and_then(|it| {
        // A larger number than there can be means all, in order.
        NonZeroU32::new(u32::try_from(it).unwrap_or(u32::MAX))
    }) {
        Some(count) => Ok(Some(count)),
        None => Err(bad_request(format!(
            "Invalid \"max_results\". {} is not a positive integer",
            shown(given.as_bytes())
        ))),
    }
}

fn bad_request(message: String) -> Refusal {
    text(StatusCode::BAD_REQUEST, message).into()
}

/// The form of the results.
#[derive(Clone, Copy)]
struct Form {
    with_terms: bool,
}

/// A JSON object of results under construction.
struct Object {
    form: Form,
    json: Vec<u8>,
    list: NameList,
}

impl Object {
    fn new(form: Form) -> Self {
        let field = if form.with_terms { "results" } else { "keys" };
        Self {
            form,
            json: format!("{{\"{field}\":[").into_bytes(),
            list: NameList::new(field),
        }
    }

    fn push(&mut self, results: &[IndexMatch]) {
        for IndexMatch { value, key } in results {
            let key = key.as_bytes();
            match self.form.with_terms {
                true => self.list.push_pair(&mut self.json, value, key),
                false => self.list.push(&mut self.json, key),
            }
        }
    }

    fn bytes(&self) -> usize {
        self.json.len() + self.list.waiting_bytes()
    }

    /// Ends the object and returns the part that is still to be sent.
    fn end(self, continuation: Option<&Continuation>) -> Vec<u8> {
        let Self { mut json, list, .. } = self;
        list.end_list(&mut json);
        if let Some(continuation) = continuation {
            json.extend_from_slice(b",\"continuation\":");
            put_text(&mut json, &continuation.to_text());
        }
        json.push(b'}');
        json
    }
}

/// A large object: its present part, and the rest as it arrives.
fn rest_of_object(
    results: IndexResults,
    object: Object,
) -> impl Stream<Item = Result<Bytes, Abandoned>> {
    stream::unfold(Some((results, object)), |state| async {
        let (mut results, mut object) = state?;
        if object.json.is_empty() {
            match results.next().await {
                Some(Ok(found)) => {
                    object.push(&found);
                    if let Err(abandoned) = object.list.check() {
                        return Some((Err(abandoned), None));
                    }
                }
                Some(Err(error)) => {
                    let reason = error.to_string();
                    return Some((Err(Abandoned { reason }), None));
                }
                None => {
                    let rest = object.end(results.continuation().as_ref());
                    return Some((Ok(Bytes::from(rest)), None));
                }
            }
        }
        let piece = Bytes::from(std::mem::take(&mut object.json));
        Some((Ok(piece), Some((results, object))))
    })
}

/// A part for each chunk of results, one for the continuation, and the end; a failure is a part too.
fn parts(
    results: IndexResults,
    first: Option<Vec<IndexMatch>>,
    form: Form,
    boundary: String,
) -> impl Stream<Item = Result<Bytes, Abandoned>> {
    stream::unfold(Some((results, first, boundary)), move |state| async move {
        let (mut results, ready, boundary) = state?;
        let found = match ready {
            Some(ready) => Some(Ok(ready)),
            None => results.next().await,
        };
        let last = match found {
            Some(Ok(found)) => {
                let mut object = Object::new(form);
                object.push(&found);
                let piece = part(&boundary, &object.end(None));
                return Some((Ok(piece.into()), Some((results, None, boundary))));
            }
            Some(Err(error)) => {
                let error = Value::from(error.to_string());
                part(&boundary, format!("{{\"error\":{error}}}").as_bytes())
            }
            None => results.continuation().map_or_else(Vec::new, |it| {
                let it = Value::from(it.to_text());
                part(&boundary, format!("{{\"continuation\":{it}}}").as_bytes())
            }),
        };
        let end = format!("\r\n--{boundary}--\r\n");
        let piece = Bytes::from([&last[..], end.as_bytes()].concat());
        Some((Ok(piece), None))
    })
}

fn part(boundary: &str, json: &[u8]) -> Vec<u8> {
    let head = format!("\r\n--{boundary}\r\nContent-Type: application/json\r\n\r\n");
    [head.as_bytes(), json].concat()
}
