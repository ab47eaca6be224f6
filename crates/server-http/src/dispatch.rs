//! From a request to its resource, with the checks that all resources share.
//!
//! In Webmachine's order: no such path (404), unknown method (501), method not allowed (405),
//! checksum of the body (400); the resources do the rest.

use std::panic::AssertUnwindSafe;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use http::header::{EXPECT, HeaderName, SERVER};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use kvorum_runtime::Moment;
use md5::{Digest as _, Md5};

use crate::body::RequestBody;
use crate::exchange::{Exchange, Service};
use crate::preconditions::{Preconditions, Verdict};
use crate::reply::{Answer, Outcome, Refusal, empty, method_not_allowed, page, text};
use crate::route::{self, Route};
use crate::{
    compressing, counter, data_type, index, key_fold, listing, map_reduce, object, openapi,
    preference_list, properties, range, root, statistics,
};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const URL_ENCODING: HeaderName = HeaderName::from_static("x-riak-url-encoding");

/// Answers one request, even one whose handler panics.
pub(crate) async fn respond(service: &Service, request: Request<Incoming>) -> Answer {
    let runtime = service.coordinator.runtime();
    let arrived = runtime.now();
    let (head, incoming) = request.into_parts();
    let mut body = RequestBody::new(
        incoming,
        service.settings.body_bytes_max,
        service.room.clone(),
    );
    // A panicked handler leaves only its own request half done, which is over then.
    let handled = AssertUnwindSafe(handle(service, &head, &mut body, arrived))
        .catch_unwind()
        .await;
    let mut answer = match handled {
        Ok(outcome) => outcome.unwrap_or_else(Answer::from),
        Err(_) => {
            tracing::error!(event = "http_handler_panicked", method = %head.method, uri = %head.uri);
            page(StatusCode::INTERNAL_SERVER_ERROR)
        }
    };
    // A client that waits to be asked for its body has not sent it.
    if !head.headers.contains_key(EXPECT) {
        body.discard(runtime).await;
    }
    range::cut(&head, &mut answer);
    compressing::compress(&head, &mut answer, runtime).await;
    answer.body_mut().count_in(&service.room);
    answer
        .headers_mut()
        .insert(SERVER, service.server_header.clone());
    answer
}

async fn handle(
    service: &Service,
    head: &Parts,
    body: &mut RequestBody,
    arrived: Moment,
) -> Outcome {
    let asks_for_decoding = || {
        head.headers
            .get(URL_ENCODING)
            .is_some_and(|value| value.as_bytes() == b"on")
    };
    let decoding = service.settings.url_encoding || asks_for_decoding();
    let Some(route) = Route::of_path(head.uri.path(), decoding) else {
        return Ok(page(StatusCode::NOT_FOUND));
    };
    if !route::is_known(&head.method) {
        return Ok(page(StatusCode::NOT_IMPLEMENTED));
    }
    // An object without a key is posted to a bucket, which is a resource of its own.
    let takes_posts = matches!(route, Route::OldBucket(_) | Route::Keys(_));
    let is_posted = head.method == Method::POST && takes_posts;
    if !is_posted && !route.methods().contains(&head.method.as_str()) {
        return Ok(method_not_allowed(route.methods()));
    }
    let mut exchange = Exchange::new(service, head, body, arrived);
    check_content_md5(&mut exchange).await?;
    if matches!(route, Route::Object(..)) || is_posted {
        return serve(exchange, route).await;
    }
    let unversioned = Preconditions::of_request(&exchange).judge_unversioned(&head.method);
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if !is_read && unversioned == Verdict::Failed {
        return Ok(empty(StatusCode::PRECONDITION_FAILED));
    }
    let answer = serve(exchange, route).await?;
    Ok(match (answer.status(), unversioned) {
        (StatusCode::OK, Verdict::Failed) => empty(StatusCode::PRECONDITION_FAILED),
        (StatusCode::OK, Verdict::NotModified) => empty(StatusCode::NOT_MODIFIED),
        _ => answer,
    })
}

async fn serve(exchange: Exchange<'_>, route: Route) -> Outcome {
    let method = exchange.method();
    match route {
        Route::Root => root::resources(&exchange),
        Route::Ping => Ok(root::ping(&exchange)),
        Route::Health(probe) => Ok(root::health(&exchange, probe)),
        Route::Stats => statistics::stats(&exchange),
        Route::Metrics => Ok(statistics::metrics(&exchange)),
        Route::OpenApi => Ok(openapi::description()),
        Route::MapReduce => map_reduce::run(exchange).await,
        Route::Buckets(_, bucket_type) => listing::buckets(&exchange, &bucket_type).await,
        Route::OldBucket(path) => match *method {
            Method::POST => object::store(exchange, path, None).await,
            Method::PUT => properties::set_of_bucket(exchange, path).await,
            _ => old_bucket(&exchange, &path).await,
        },
        Route::BucketProperties(path) => match *method {
            Method::PUT => properties::set_of_bucket(exchange, path).await,
            Method::DELETE => properties::reset(&exchange, path).await,
            _ => properties::of_bucket(&exchange, &path),
        },
        Route::TypeProperties(bucket_type) => match *method {
            Method::PUT => properties::set_of_type(exchange, bucket_type).await,
            _ => properties::of_type(&exchange, &bucket_type),
        },
        Route::Keys(path) => match *method {
            Method::POST => object::store(exchange, path, None).await,
            _ => listing::keys(&exchange, &path).await,
        },
        Route::Object(path, key) => match *method {
            Method::PUT | Method::POST => object::store(exchange, path, Some(key)).await,
            Method::DELETE => object::delete(&exchange, &path, key).await,
            _ => object::get(&exchange, &path, key).await,
        },
        Route::Counter(path, key) => match *method {
            Method::POST => counter::add(exchange, &path, key).await,
            _ => counter::get(&exchange, &path, key).await,
        },
        Route::DataTypes(path) => match *method {
            Method::POST => data_type::update(exchange, path, None).await,
            _ => Ok(page(StatusCode::NOT_FOUND)),
        },
        Route::DataType(path, key) => match *method {
            Method::POST => data_type::update(exchange, path, Some(key)).await,
            _ => data_type::fetch(&exchange, &path, key).await,
        },
        Route::Index(path) => index::query(&exchange, &path).await,
        Route::Query(_) => Ok(text(StatusCode::NOT_IMPLEMENTED, NO_QUERIES)),
        Route::KeyFold(path, verb) => key_fold::fold(&exchange, &path, &verb).await,
        Route::AllBuckets => key_fold::buckets(&exchange).await,
        Route::PreferenceList(path, key) => preference_list::get(&exchange, &path, key),
        Route::LinkWalk(path, key, steps) => object::walk(&exchange, &path, key, &steps).await,
        Route::InvalidLinkWalk => Ok(text(StatusCode::BAD_REQUEST, INVALID_LINK_WALK)),
    }
}

/// `GET /riak/B`: keys if asked for, else properties unless declined.
async fn old_bucket(exchange: &Exchange<'_>, path: &route::BucketPath) -> Outcome {
    let keys = exchange.query.get("keys");
    if matches!(keys, Some(b"true" | b"stream")) {
        return listing::keys(exchange, path).await;
    }
    if exchange.query.get("props") == Some(b"false") {
        return Ok(page(StatusCode::NOT_FOUND));
    }
    properties::of_bucket(exchange, path)
}

/// The answer to queries of Riak 3.4.
const NO_QUERIES: &str =
    "The queries of Riak 3.4 are not supported yet: an index or MapReduce answers some of them\n";

/// The answer to links to walk that are not `bucket,tag,keep`.
const INVALID_LINK_WALK: &str = "Invalid link walk query submitted. Valid link walk query format is: \
    /riak/some_bucket/some_key/<bucket>,<riaktag>,0|1/...";

async fn check_content_md5(exchange: &mut Exchange<'_>) -> Result<(), Refusal> {
    let Some(announced) = exchange.header(&CONTENT_MD5) else {
        return Ok(());
    };
    let body = exchange.body().await?;
    let matches = STANDARD
        .decode(announced.trim_ascii())
        .is_ok_and(|announced| announced == Md5::digest(&body).as_slice());
    if matches {
        Ok(())
    } else {
        let message = "Content-MD5 header does not match request body.";
        Err(text(StatusCode::BAD_REQUEST, message).into())
    }
}
