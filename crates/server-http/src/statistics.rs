//! `/stats` in Riak's names and `/metrics` in OpenMetrics.

use http::header::VARY;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::reply::{ACCEPT_AND_ENCODING, Answer, JSON, Outcome, TEXT, page, with_body};

const OPEN_METRICS: HeaderValue = HeaderValue::from_static(kvorum_stats::CONTENT_TYPE);

/// The statistics as JSON, or as indented JSON for clients that ask for text.
pub(crate) fn stats(exchange: &Exchange<'_>) -> Outcome {
    let chosen = exchange.choose_type(&["application/json", "text/plain"]);
    let Some(chosen) = chosen else {
        return Ok(page(StatusCode::NOT_ACCEPTABLE));
    };
    let stats = exchange.service.facts.stats();
    let stats: Map<String, Value> = stats
        .into_iter()
        .map(|(name, value)| (name.into_owned(), value))
        .collect();
    let stats = Value::Object(stats);
    let mut answer = if chosen == 0 {
        with_body(StatusCode::OK, JSON, Body::Whole(stats.to_string().into()))
    } else {
        with_body(
            StatusCode::OK,
            TEXT,
            Body::Whole(format!("{stats:#}\n").into()),
        )
    };
    answer.headers_mut().insert(VARY, ACCEPT_AND_ENCODING);
    Ok(answer)
}

/// The metrics.
pub(crate) fn metrics(exchange: &Exchange<'_>) -> Answer {
    let metrics = exchange.service.facts.metrics();
    with_body(StatusCode::OK, OPEN_METRICS, Body::Whole(metrics.into()))
}
