//! `/ping`, `/health` and `/`, which show clients the abilities of a server.

use std::fmt::Write as _;

use http::header::{LINK, VARY};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::facts::VnodeCounts;
use crate::reply::{ACCEPT_AND_ENCODING, Answer, HTML, JSON, Outcome, page, with_body};
use crate::route::Probe;

/// Riak's names for the resources, and the first path piece of each. Clients enable features by
/// these names, so only existing resources are listed.
const RESOURCES: [(&str, &str); 25] = [
    ("riak_kv_wm_bucket_type", "/types"),
    ("riak_kv_wm_buckets", "/buckets"),
    ("riak_kv_wm_buckets", "/riak"),
    ("riak_kv_wm_buckets", "/types"),
    ("riak_kv_wm_counter", "/buckets"),
    ("riak_kv_wm_crdt", "/types"),
    ("riak_kv_wm_index", "/buckets"),
    ("riak_kv_wm_index", "/types"),
    ("riak_kv_wm_keylist", "/buckets"),
    ("riak_kv_wm_keylist", "/riak"),
    ("riak_kv_wm_keylist", "/types"),
    ("riak_kv_wm_link_walker", "/buckets"),
    ("riak_kv_wm_link_walker", "/riak"),
    ("riak_kv_wm_link_walker", "/types"),
    ("riak_kv_wm_mapred", "/mapred"),
    ("riak_kv_wm_object", "/buckets"),
    ("riak_kv_wm_object", "/riak"),
    ("riak_kv_wm_object", "/types"),
    ("riak_kv_wm_ping", "/ping"),
    ("riak_kv_wm_preflist", "/buckets"),
    ("riak_kv_wm_preflist", "/types"),
    ("riak_kv_wm_props", "/buckets"),
    ("riak_kv_wm_props", "/riak"),
    ("riak_kv_wm_props", "/types"),
    ("riak_kv_wm_stats", "/stats"),
];

/// Header of `/ping` with the number of vnodes that serve.
const VNODES: HeaderName = HeaderName::from_static("x-kvorum-vnodes");

/// Header of `/ping`: the state of the node in one word.
const STATUS: HeaderName = HeaderName::from_static("x-kvorum-health");

/// `OK` as soon as the node listens; headers have the node's health and the number of vnodes that
/// serve.
pub(crate) fn ping(exchange: &Exchange<'_>) -> Answer {
    let mut answer = with_body(StatusCode::OK, HTML, Body::Whole("OK".into()));
    let health = exchange.service.facts.health();
    let VnodeCounts {
        open,
        opening,
        failed,
    } = health.vnodes;
    let counts = format!("open={open}, opening={opening}, failed={failed}");
    let headers = answer.headers_mut();
    if let Ok(counts) = HeaderValue::from_str(&counts) {
        headers.insert(VNODES, counts);
    }
    headers.insert(STATUS, HeaderValue::from_static(health.status));
    answer
}

/// Answers a question about the node's health.
///
/// Orchestrators restart a process that is not live and send no requests to one that is not ready.
/// A process that answers is live in any state of its stores, since a restart makes no room on a
/// disk. A process is ready when requests may be sent to it; otherwise the answer is 503 with the
/// reasons. A problem with a part of the data is a reason too, but leaves the process ready.
pub(crate) fn health(exchange: &Exchange<'_>, probe: Probe) -> Answer {
    if probe == Probe::Live {
        return with_body(StatusCode::OK, JSON, Body::Whole(LIVE.into()));
    }
    let health = exchange.service.facts.health();
    let status = match health.is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let reasons: Vec<Value> = health
        .reasons
        .iter()
        .map(|(reason, text)| json!({"reason": reason, "text": text}))
        .collect();
    let VnodeCounts {
        open,
        opening,
        failed,
    } = health.vnodes;
    let mut body = json!({
        "status": health.status,
        "ready": health.is_ready,
        "reasons": reasons,
        "vnodes": {"open": open, "opening": opening, "failed": failed},
    });
    if let Value::Object(members) = &mut body {
        members.extend(health.details);
    }
    with_body(status, JSON, Body::Whole(body.to_string().into()))
}

/// The answer of a live process.
pub(crate) const LIVE: &str = r#"{"status":"live"}"#;

/// The list of resources, as HTML or, if preferred, as JSON; always in `Link` too.
pub(crate) fn resources(exchange: &Exchange<'_>) -> Outcome {
    let mut answer = match exchange.choose_type(&["text/html", "application/json"]) {
        None => return Ok(page(StatusCode::NOT_ACCEPTABLE)),
        Some(0) => with_body(StatusCode::OK, HTML, Body::Whole(list().into())),
        Some(_) => with_body(StatusCode::OK, JSON, Body::Whole(object().into())),
    };
    let headers = answer.headers_mut();
    headers.insert(VARY, ACCEPT_AND_ENCODING);
    if let Ok(links) = HeaderValue::from_str(&links()) {
        headers.insert(LINK, links);
    }
    Ok(answer)
}

fn list() -> String {
    joined(
        "<html><body><ul>",
        "",
        "</ul></body></html>",
        |name, path| format!("<li><a href=\"{path}\">{name}</a></li>"),
    )
}

/// An object with repeated names, as Riak's has: readers use one of the paths, or all.
fn object() -> String {
    joined("{", ",", "}", |name, path| format!("\"{name}\":\"{path}\""))
}

fn links() -> String {
    joined("", ",", "", |name, path| {
        format!("<{path}>; rel=\"{name}\"")
    })
}

fn joined(open: &str, between: &str, close: &str, one: impl Fn(&str, &str) -> String) -> String {
    let mut whole = String::from(open);
    for (at, (name, path)) in RESOURCES.iter().enumerate() {
        let between = if at == 0 { "" } else { between };
        // Writing into a string cannot fail.
        let _ = write!(whole, "{between}{}", one(name, path));
    }
    whole.push_str(close);
    whole
}
