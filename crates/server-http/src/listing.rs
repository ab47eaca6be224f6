//! Listings of keys and buckets: in one JSON object, or as a stream of them.
//!
//! A listing in one object is held back until it is complete, so that a failure has its
//! status; one that exceeds [`HELD_BACK_BYTES`] is sent piece by piece, and a failure then cuts
//! the answer off.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Method, StatusCode};
use kvorum_coordinator::{BucketListing, KeyListing, RequestError};
use kvorum_encoding::{Bucket, BucketType, Key};
use serde_json::{Map, Value};

use crate::body::Abandoned;
use crate::exchange::Exchange;
use crate::name_list::NameList;
use crate::reply::{JSON, Outcome, Refusal, in_pieces, json, page, text};
use crate::route::{BucketPath, Form};
use crate::{failure, origin, properties};

/// The time-outs of a listing of keys, and of one of buckets.
const KEYS_TIMEOUT: Duration = Duration::from_secs(480);
const BUCKETS_TIMEOUT: Duration = Duration::from_secs(300);

const HELD_BACK_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    Stream,
}

/// The keys of a bucket; on the old URL with its properties, unless those are declined.
pub(crate) async fn keys(exchange: &Exchange<'_>, path: &BucketPath) -> Outcome {
    let timeout = exchange.timeout()?.unwrap_or(KEYS_TIMEOUT);
    origin::check(exchange)?;
    let jobs = &exchange.service.settings.jobs;
    let mode = mode_of(exchange.query.get("keys"));
    match mode {
        Some(Mode::Whole) => check_enabled(jobs.list_keys, "list_keys")?,
        Some(Mode::Stream) => check_enabled(jobs.stream_list_keys, "stream_list_keys")?,
        None => {}
    }
    exchange.require_json()?;
    let coordinator = exchange.coordinator();
    let mut opening = Map::new();
    if path.form == Form::Old && exchange.query.get("props") != Some(b"false") {
        let properties = properties::bucket_json(coordinator, path);
        let properties = properties.ok_or_else(|| page(StatusCode::NOT_FOUND))?;
        opening.insert("props".to_owned(), Value::Object(properties));
    }
    coordinator.until_opened(Some(timeout)).await;
    let listing = coordinator
        .list_keys(&path.bucket_type, &path.bucket, timeout)
        .map_err(|error| failure::of_listing(&error, &path.bucket_type))?;
    let Some(mode) = mode else {
        return Ok(json(StatusCode::OK, "{}"));
    };
    answer(
        exchange,
        Listing::Keys(listing),
        opening,
        mode,
        &path.bucket_type,
    )
    .await
}

/// The buckets of a type.
pub(crate) async fn buckets(exchange: &Exchange<'_>, bucket_type: &BucketType) -> Outcome {
    let timeout = exchange.timeout()?.unwrap_or(BUCKETS_TIMEOUT);
    let Some(mode) = mode_of(exchange.query.get("buckets")) else {
        let message = "buckets query parameter must be true or stream\n";
        return Ok(text(StatusCode::BAD_REQUEST, message));
    };
    origin::check(exchange)?;
    let jobs = &exchange.service.settings.jobs;
    match mode {
        Mode::Whole => check_enabled(jobs.list_buckets, "list_buckets")?,
        Mode::Stream => check_enabled(jobs.stream_list_buckets, "stream_list_buckets")?,
    }
    exchange.require_json()?;
    let coordinator = exchange.coordinator();
    coordinator.until_opened(Some(timeout)).await;
    let listing = coordinator
        .list_buckets(bucket_type, timeout)
        .map_err(|error| failure::of_listing(&error, bucket_type))?;
    answer(
        exchange,
        Listing::Buckets(listing),
        Map::new(),
        mode,
        bucket_type,
    )
    .await
}

fn mode_of(parameter: Option<&[u8]>) -> Option<Mode> {
    match parameter {
        Some(b"true") => Some(Mode::Whole),
        Some(b"stream") => Some(Mode::Stream),
        _ => None,
    }
}

pub(crate) fn check_enabled(is_enabled: bool, job: &str) -> Result<(), Refusal> {
    if is_enabled {
        return Ok(());
    }
    let message = format!("Operation '{{riak_kv,{job}}}' is not enabled");
    Err(text(StatusCode::FORBIDDEN, message).into())
}

/// `opening` precedes the names: in the same object, or in a stream as an object of its own.
async fn answer(
    exchange: &Exchange<'_>,
    listing: Listing,
    opening: Map<String, Value>,
    mode: Mode,
    bucket_type: &BucketType,
) -> Outcome {
    if *exchange.method() == Method::HEAD {
        return Ok(in_pieces(JSON, stream::empty()));
    }
    match mode {
        Mode::Whole => whole(listing, opening, bucket_type).await,
        Mode::Stream => {
            let opening = (!opening.is_empty()).then(|| Value::Object(opening).to_string());
            let opening = stream::iter(opening.map(|object| Ok(Bytes::from(object))));
            Ok(in_pieces(JSON, opening.chain(objects(listing))))
        }
    }
}

async fn whole(
    mut listing: Listing,
    mut opening: Map<String, Value>,
    bucket_type: &BucketType,
) -> Outcome {
    opening.insert(listing.field().to_owned(), Value::Array(Vec::new()));
    let mut object = Value::Object(opening).to_string().into_bytes();
    // The list of names is the last member: without these bytes, list and object are open at their end.
    object.truncate(object.len() - END.len());
    let mut list = NameList::new(listing.field());
    while let Some(names) = listing.next().await {
        let names = names.map_err(|error| failure::of_listing(&error, bucket_type))?;
        for name in &names {
            list.push(&mut object, name);
        }
        if object.len() + list.waiting_bytes() > HELD_BACK_BYTES {
            let so_far = stream::iter([Ok(Bytes::from(object))]);
            return Ok(in_pieces(JSON, so_far.chain(rest_of_object(listing, list))));
        }
    }
    list.end(&mut object);
    Ok(json(StatusCode::OK, object))
}

/// The end of an object whose last member is a list.
const END: &[u8] = b"]}";

/// The rest of an object behind its first names.
fn rest_of_object(
    listing: Listing,
    list: NameList,
) -> impl Stream<Item = Result<Bytes, Abandoned>> {
    stream::unfold(Some((listing, list)), |state| async {
        let (mut listing, mut list) = state?;
        let mut piece = Vec::new();
        match listing.next().await {
            Some(Ok(names)) => {
                for name in &names {
                    list.push(&mut piece, name);
                }
                match list.check() {
                    Ok(()) => Some((Ok(Bytes::from(piece)), Some((listing, list)))),
                    Err(abandoned) => Some((Err(abandoned), None)),
                }
            }
            Some(Err(error)) => Some((
                Err(Abandoned {
                    reason: error.to_string(),
                }),
                None,
            )),
            None => {
                list.end(&mut piece);
                Some((Ok(Bytes::from(piece)), None))
            }
        }
    })
}

/// One object for each chunk of names, and an empty one at the end; a failure is an object too.
fn objects(listing: Listing) -> impl Stream<Item = Result<Bytes, Abandoned>> {
    stream::unfold(Some(listing), |listing| async {
        let mut listing = listing?;
        let field = listing.field();
        match listing.next().await {
            Some(Ok(names)) => Some((Ok(object_of(field, &names)), Some(listing))),
            Some(Err(error)) => {
                let error = Value::from(error.to_string());
                Some((Ok(Bytes::from(format!("{{\"error\":{error}}}"))), None))
            }
            None => Some((Ok(object_of(field, &[])), None)),
        }
    })
}

fn object_of(field: &'static str, names: &[Bytes]) -> Bytes {
    let mut object = format!("{{\"{field}\":[").into_bytes();
    let mut list = NameList::new(field);
    for name in names {
        list.push(&mut object, name);
    }
    list.end(&mut object);
    object.into()
}

enum Listing {
    Keys(KeyListing),
    Buckets(BucketListing),
}

impl Listing {
    fn field(&self) -> &'static str {
        match self {
            Self::Keys(_) => "keys",
            Self::Buckets(_) => "buckets",
        }
    }

    async fn next(&mut self) -> Option<Result<Vec<Bytes>, RequestError>> {
        Some(match self {
            Self::Keys(listing) => listing
                .next()
                .await?
                .map(|keys| keys.iter().map(Key::to_bytes).collect()),
            Self::Buckets(listing) => listing
                .next()
                .await?
                .map(|buckets| buckets.iter().map(Bucket::to_bytes).collect()),
        })
    }
}
