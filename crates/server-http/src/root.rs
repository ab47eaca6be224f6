//! `/ping`, `/health` and `/`, by which clients find out what a server can do.

use std::fmt::Write as _;

use http::header::{LINK, VARY};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::facts::VnodeCounts;
use crate::reply::{ACCEPT_AND_ENCODING, Answer, HTML, JSON, Outcome, page, with_body};

/// Riak's names for what is served, and the first path piece of each. Clients switch features on by
/// these names, so nothing is listed that is not here.
const RESOURCES: [(&str, &str); 19] = [
    ("riak_kv_wm_bucket_type", "/types"),
    ("riak_kv_wm_buckets", "/buckets"),
    ("riak_kv_wm_buckets", "/riak"),
    ("riak_kv_wm_buckets", "/types"),
    ("riak_kv_wm_index", "/buckets"),
    ("riak_kv_wm_index", "/types"),
    ("riak_kv_wm_keylist", "/buckets"),
    ("riak_kv_wm_keylist", "/riak"),
    ("riak_kv_wm_keylist", "/types"),
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

/// Of `/ping`: how many vnodes serve.
const VNODES: HeaderName = HeaderName::from_static("x-kvorum-vnodes");

/// `OK`, from the moment on when the node listens; a header says how many vnodes serve.
pub(crate) fn ping(exchange: &Exchange<'_>) -> Answer {
    let mut answer = with_body(StatusCode::OK, HTML, Body::Whole("OK".into()));
    let VnodeCounts {
        open,
        opening,
        failed,
    } = exchange.service.facts.vnodes();
    let counts = format!("open={open}, opening={opening}, failed={failed}");
    if let Ok(counts) = HeaderValue::from_str(&counts) {
        answer.headers_mut().insert(VNODES, counts);
    }
    answer
}

/// Whether every vnode serves, for whoever spreads requests over nodes: 503 while stores are being
/// opened. One that could not be opened keeps nobody away from the others.
pub(crate) fn health(exchange: &Exchange<'_>) -> Answer {
    let VnodeCounts {
        open,
        opening,
        failed,
    } = exchange.service.facts.vnodes();
    let (status, word) = match (opening, failed) {
        (0, 0) => (StatusCode::OK, "ready"),
        (0, _) => (StatusCode::OK, "degraded"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "opening"),
    };
    let vnodes = serde_json::json!({"open": open, "opening": opening, "failed": failed});
    let body = serde_json::json!({"status": word, "vnodes": vnodes}).to_string();
    with_body(status, JSON, Body::Whole(body.into()))
}

/// The list of resources, for people by default and for programs if they ask; always in `Link`.
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

/// An object in which names repeat, as Riak's does: readers take one of the paths, or all.
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
