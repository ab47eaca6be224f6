//! Link walking: from an object along its links, and from those objects along theirs.
//!
//! The answer has a part for each kept step, with an inner part for each object. An object with
//! siblings is shown by the first one, with the tags of the others. A walk that takes too much
//! memory or time ends with an error.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::{EXPIRES, HeaderValue};
use http::{Method, StatusCode};
use kvorum_coordinator::{GetOptions, RequestError};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Link, Object, Timestamp};
use kvorum_properties::Quorum;
use kvorum_protocol::http_fields::{MultipartWriter, PartHead, format_http_date};
use kvorum_runtime::Taken;

use super::representation::{stored, vclock};
use crate::body::Body;
use crate::exchange::Exchange;
use crate::reply::{Outcome, Refusal, empty, in_pieces, page, text, with_body};
use crate::route::{BucketPath, Form, LinkStep};
use crate::{failure, origin};

/// Maximum bytes that a walk holds: its links, the objects of a step, and the answer so far.
const WALK_BYTES_MAX: usize = 64 << 20;

/// Time limit of a walk: Riak's default for MapReduce jobs.
const WALK_TIME_MAX: Duration = Duration::from_secs(60);

/// Objects that are read at a time.
const OBJECTS_AT_A_TIME: usize = 64;

/// Bytes that a link takes without its texts.
const LINK_OVERHEAD_BYTES: usize = 160;

/// Seconds for which caches may keep the answer.
const EXPIRES_AFTER_SECONDS: u64 = 600;

/// Walks links, starting at an object.
pub(crate) async fn walk(
    exchange: &Exchange<'_>,
    path: &BucketPath,
    key: Key,
    steps: &[LinkStep],
) -> Outcome {
    origin::check(exchange)?;
    if path.form == Form::Typed {
        let message = "Link-walking is not allowed on keys stored in bucket-types.";
        return Ok(text(StatusCode::FORBIDDEN, message));
    }
    if exchange.choose_type(&["multipart/mixed"]).is_none() {
        return Err(page(StatusCode::NOT_ACCEPTABLE).into());
    }
    let start = read(exchange, path.address(key), &GetOptions::default()).await?;
    let Some(start) = start else {
        return Ok(page(StatusCode::NOT_FOUND));
    };
    match *exchange.method() {
        // Clients use POST to prevent caches from storing the answer.
        Method::POST => Ok(empty(StatusCode::NO_CONTENT)),
        Method::HEAD => {
            let content_type = content_type(&MultipartWriter::new(boundary(exchange)));
            Ok(expiring(exchange, in_pieces(content_type, stream::empty())))
        }
        _ => {
            let mut walk = Walk::new(exchange, path.form);
            let runtime = exchange.coordinator().runtime();
            match runtime
                .timeout(WALK_TIME_MAX, walk.take_steps(start, steps))
                .await
            {
                Ok(walked) => walked?,
                Err(_) => {
                    return Err(failure::of_request(
                        &RequestError::Timeout,
                        &path.bucket_type,
                    ));
                }
            }
            let content_type = content_type(&walk.answer);
            let body = Body::Whole(walk.answer.finish());
            Ok(expiring(
                exchange,
                with_body(StatusCode::OK, content_type, body),
            ))
        }
    }
}

/// A walk in progress.
struct Walk<'a> {
    exchange: &'a Exchange<'a>,
    form: Form,
    answer: MultipartWriter,
    room: Taken,
}

/// An object, with the names by which it was found.
struct Found {
    link: Link,
    object: Arc<Object>,
}

impl<'a> Walk<'a> {
    fn new(exchange: &'a Exchange<'a>, form: Form) -> Self {
        Self {
            exchange,
            form,
            answer: MultipartWriter::new(boundary(exchange)),
            room: exchange.service.room.take_anyway(0),
        }
    }

    async fn take_steps(&mut self, start: Arc<Object>, steps: &[LinkStep]) -> Result<(), Refusal> {
        let mut links = BTreeSet::new();
        if let Some(first) = steps.first() {
            put_links(&mut links, &start, first);
        }
        for (at, step) in steps.iter().enumerate() {
            let objects = self.read_all(std::mem::take(&mut links)).await?;
            if step.is_kept {
                self.put_step(&objects);
            }
            if let Some(next) = steps.get(at + 1) {
                for found in &objects {
                    put_links(&mut links, &found.object, next);
                    self.hold(links_bytes(&links))?;
                }
            }
        }
        Ok(())
    }

    /// The existing objects that links lead to, in the order of the links.
    async fn read_all(&mut self, links: BTreeSet<Link>) -> Result<Vec<Found>, Refusal> {
        let links_bytes = links_bytes(&links);
        self.hold(links_bytes)?;
        let exchange = self.exchange;
        let reads = links.into_iter().map(|link| async move {
            let options = GetOptions {
                r: Some(Quorum::One),
                notfound_ok: Some(false),
                ..GetOptions::default()
            };
            let object = read(exchange, address_of(&link), &options).await;
            object.map(|found| found.map(|object| Found { link, object }))
        });
        let mut reads = stream::iter(reads).buffered(OBJECTS_AT_A_TIME);
        let (mut objects, mut bytes) = (Vec::new(), links_bytes);
        while let Some(found) = reads.next().await {
            if let Some(found) = found? {
                bytes += object_bytes(&found.object);
                self.hold(bytes)?;
                objects.push(found);
            }
        }
        Ok(objects)
    }

    /// Counts bytes that are held beside the answer.
    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes + self.answer.bytes();
        if bytes > WALK_BYTES_MAX {
            let message = format!(
                "the link walk would hold more than {WALK_BYTES_MAX} bytes; walk fewer steps at a time\n"
            );
            return Err(text(StatusCode::INTERNAL_SERVER_ERROR, message).into());
        }
        let missing = (bytes as u64).saturating_sub(self.room.bytes());
        match self
            .room
            .grow(usize::try_from(missing).unwrap_or(usize::MAX))
        {
            true => Ok(()),
            false => Err(failure::retry_later(&RequestError::Overload.to_string()).into()),
        }
    }

    fn put_step(&mut self, objects: &[Found]) {
        let mut inner = MultipartWriter::new(boundary(self.exchange));
        for found in objects {
            put_object(&mut inner, self.form, found);
        }
        self.answer.push_nested(inner);
    }
}

/// Reads an object; `None` if it is missing or a tombstone.
async fn read(
    exchange: &Exchange<'_>,
    address: Address,
    options: &GetOptions,
) -> Result<Option<Arc<Object>>, Refusal> {
    let arrived = exchange.coordinator().runtime().now();
    let found = exchange
        .coordinator()
        .get(&address, options, arrived)
        .await
        .map_err(|error| failure::of_request(&error, &address.bucket_type))?;
    Ok(found.filter(|object| !object.is_tombstone()))
}

/// Links lead only to objects without a type.
fn address_of(link: &Link) -> Address {
    Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(link.bucket.clone()),
        key: Key::new(link.key.clone()),
    }
}

/// Adds the links of all siblings that the step follows.
fn put_links(links: &mut BTreeSet<Link>, object: &Object, step: &LinkStep) {
    let fits = |pattern: &Option<Bytes>, name: &Bytes| pattern.as_ref().is_none_or(|it| it == name);
    let all = object.siblings().iter().flat_map(|it| &it.metadata.links);
    let followed = all.filter(|it| fits(&step.bucket, &it.bucket) && fits(&step.tag, &it.tag));
    links.extend(followed.cloned());
}

fn links_bytes(links: &BTreeSet<Link>) -> usize {
    let bytes = |it: &Link| it.bucket.len() + it.key.len() + it.tag.len() + LINK_OVERHEAD_BYTES;
    links.iter().map(bytes).sum()
}

fn object_bytes(object: &Object) -> usize {
    let siblings = object.siblings().iter();
    siblings
        .map(|it| it.value.len() + it.metadata.links.len() * LINK_OVERHEAD_BYTES)
        .sum()
}

fn put_object(parts: &mut MultipartWriter, form: Form, found: &Found) {
    let siblings = found.object.siblings_by_value();
    let Some((first, others)) = siblings.split_first() else {
        return;
    };
    let path = BucketPath {
        form,
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(found.link.bucket.clone()),
    };
    let tags: Vec<String> = siblings.iter().map(|it| tag_text(&it.etag())).collect();
    let mut location = path.location(&Key::new(found.link.key.clone()));
    if !others.is_empty() {
        location = format!("{location}?vtag={}", tags[0]);
    }
    let clock = vclock(&found.object);
    let other_tags = tags[1..].join(",");
    let mut above = vec![
        ("X-Riak-Vclock", clock.as_bytes()),
        ("Location", location.as_bytes()),
    ];
    if !others.is_empty() {
        above.push(("X-Riak-Sibling-VTags", other_tags.as_bytes()));
    }
    let metadata = &first.metadata;
    let head = PartHead {
        stored: stored(&path, metadata),
        vtag: tags[0].as_bytes(),
        last_modified_seconds: metadata.last_modified.as_secs(),
        is_deleted: metadata.deleted,
        expires_at_seconds: metadata.expires_at.map(Timestamp::as_secs),
    };
    parts.push_below(&above, &head, &first.value);
}

fn tag_text(tag: &kvorum_object::Etag) -> String {
    String::from_utf8_lossy(tag.as_bytes()).into_owned()
}

fn boundary(exchange: &Exchange<'_>) -> String {
    let runtime = exchange.coordinator().runtime();
    format!("{:016x}{:016x}", runtime.random_u64(), runtime.random_u64())
}

fn content_type(parts: &MultipartWriter) -> HeaderValue {
    HeaderValue::from_str(&parts.content_type())
        .unwrap_or(HeaderValue::from_static("multipart/mixed"))
}

fn expiring(exchange: &Exchange<'_>, mut answer: crate::reply::Answer) -> crate::reply::Answer {
    let now = exchange.coordinator().runtime().wall_time().seconds();
    let date = format_http_date(now + EXPIRES_AFTER_SECONDS);
    if let Ok(date) = HeaderValue::from_str(&date.to_string()) {
        answer.headers_mut().insert(EXPIRES, date);
    }
    answer
}
