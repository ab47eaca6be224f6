//! Objects by bucket and key, over protocol buffers or over HTTP, with the same answers.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use kvorum_protocol::pb::{RpbContent, RpbPair};
use kvorum_protocol::request::{DeleteOptions, GetOptions, PutOptions};
use percent_encoding::percent_encode;

use super::http_raw::{ACCEPTED, KEY_ESCAPED, VCLOCK};
use super::http_session::{HttpRequest, HttpSession};
use super::pb_session::{Bucket, Found, PbSession, Timeouts, timeouts};
use super::targets::Targets;
use crate::configuration::{Configuration, ConfigurationError};
use kvorum_erlang_terms::Term;

const INDEX_PREFIX: &str = "x-riak-index-";

/// The protocol of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Pb,
    Http,
}

/// A worker's connections over both protocols; the HTTP connection exists only if operations need
/// it.
#[derive(Debug)]
pub(super) struct ObjectAccess {
    pub(super) pb: PbSession,
    pub(super) http: Option<HttpSession>,
}

/// The configured place of a driver's objects.
#[derive(Debug, Clone)]
pub(super) struct AccessPlan {
    targets: Targets,
    pub(super) timeouts: Timeouts,
    /// `None` if no operation uses HTTP.
    http: Option<(Targets, Duration)>,
}

impl AccessPlan {
    /// Reads `pb_*`, and `http_*` if an operation uses HTTP.
    pub(super) fn read(
        configuration: &Configuration,
        needs_http: bool,
    ) -> Result<Self, ConfigurationError> {
        let http = || {
            let targets = Targets::read(configuration, "http_ips", "http_port", 8098)?;
            let timeout =
                configuration.integer("http_timeout_general", 1..=1_000_000_000, 30_000)?;
            Ok((targets, Duration::from_millis(timeout)))
        };
        let http = needs_http.then(http).transpose()?;
        Ok(Self {
            targets: Targets::read(configuration, "pb_ips", "pb_port", 8087)?,
            timeouts: timeouts(configuration, 30_000)?,
            http,
        })
    }

    /// The connections of the worker with this id.
    pub(super) fn of_worker(&self, id: u32) -> ObjectAccess {
        let http = self.http.as_ref();
        ObjectAccess {
            pb: PbSession::new(self.targets.of_worker(id), self.timeouts),
            http: http.map(|(targets, timeout)| HttpSession::new(targets.of_worker(id), *timeout)),
        }
    }
}

/// The reason why an HTTP key has no effect on a driver whose operations do not use HTTP.
pub(super) fn why_without_http(key: &str) -> Option<&'static str> {
    matches!(key, "http_ips" | "http_port" | "http_timeout_general")
        .then_some("no operation of this run goes over HTTP")
}

impl ObjectAccess {
    pub(super) async fn connect(&mut self) -> Result<(), String> {
        if let Some(http) = &mut self.http {
            http.connect().await?;
        }
        self.pb.connect().await
    }

    /// Reads an object. The error is the reason to count.
    pub(super) async fn get(
        &mut self,
        via: Via,
        bucket: &Bucket,
        key: &[u8],
    ) -> Result<Option<Found>, Term> {
        match via {
            Via::Pb => self.pb.get(bucket, key, &GetOptions::default()).await,
            Via::Http => self.get_over_http(bucket, key).await,
        }
    }

    /// Reads an object without its value: true if it exists.
    pub(super) async fn head(&mut self, bucket: &Bucket, key: &[u8]) -> Result<bool, Term> {
        let options = GetOptions {
            head: Some(true),
            ..GetOptions::default()
        };
        Ok(self.pb.get(bucket, key, &options).await?.is_some())
    }

    /// Writes an object. The error is the reason to count.
    pub(super) async fn put(
        &mut self,
        via: Via,
        bucket: &Bucket,
        key: &[u8],
        vclock: Option<&[u8]>,
        content: &RpbContent,
    ) -> Result<(), Term> {
        match via {
            Via::Pb => {
                let options = PutOptions::default();
                self.pb.put(bucket, key, vclock, content, &options).await
            }
            Via::Http => {
                let request = HttpRequest {
                    headers: put_headers(vclock, content)?,
                    body: content.value.clone(),
                };
                let answer = self
                    .http()?
                    .send(Method::PUT, &object_path(bucket, key), request)
                    .await?;
                answer
                    .accept(&[StatusCode::NO_CONTENT, StatusCode::OK])
                    .map(drop)
            }
        }
    }

    /// Deletes an object, present or not. The error is the reason to count.
    pub(super) async fn delete(
        &mut self,
        via: Via,
        bucket: &Bucket,
        key: &[u8],
    ) -> Result<(), Term> {
        match via {
            Via::Pb => self.pb.delete(bucket, key, &DeleteOptions::default()).await,
            Via::Http => {
                let path = object_path(bucket, key);
                let request = HttpRequest::default();
                let answer = self.http()?.send(Method::DELETE, &path, request).await?;
                answer
                    .accept(&[StatusCode::NO_CONTENT, StatusCode::NOT_FOUND])
                    .map(drop)
            }
        }
    }

    /// Fetches a path; anything but 200 is an error.
    pub(super) async fn fetch(&mut self, path: &str) -> Result<Bytes, Term> {
        let request = HttpRequest::default();
        let answer = self.http()?.send(Method::GET, path, request).await?;
        Ok(answer.accept(&[StatusCode::OK])?.body)
    }

    async fn get_over_http(&mut self, bucket: &Bucket, key: &[u8]) -> Result<Option<Found>, Term> {
        let request = HttpRequest {
            headers: vec![(ACCEPT, ACCEPTED)],
            body: Bytes::new(),
        };
        let answer = self
            .http()?
            .send(Method::GET, &object_path(bucket, key), request)
            .await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = answer.accept(&[StatusCode::OK, StatusCode::MULTIPLE_CHOICES])?;
        let indexes = answer.headers.iter().filter_map(|(name, value)| {
            let field = name.as_str().strip_prefix(INDEX_PREFIX)?;
            Some(RpbPair {
                key: Bytes::copy_from_slice(field.as_bytes()),
                value: Some(Bytes::copy_from_slice(value.as_bytes())),
            })
        });
        let mut content = RpbContent {
            content_type: answer.header("content-type"),
            indexes: indexes.collect(),
            ..RpbContent::default()
        };
        let mut siblings = answer.siblings().into_iter();
        content.value = siblings.next().unwrap_or_default();
        if answer.status == StatusCode::MULTIPLE_CHOICES {
            // The answer's own type describes all parts together.
            content.content_type = None;
        }
        let others = siblings.map(|value| RpbContent {
            value,
            ..RpbContent::default()
        });
        Ok(Some(Found {
            vclock: answer.header(VCLOCK.as_str()),
            content,
            others: others.collect(),
        }))
    }

    fn http(&mut self) -> Result<&mut HttpSession, Term> {
        self.http.as_mut().ok_or_else(|| Term::atom("disconnected"))
    }
}

/// Over HTTP the causal context is sent as the text that was received.
fn put_headers(
    vclock: Option<&[u8]>,
    content: &RpbContent,
) -> Result<Vec<(HeaderName, HeaderValue)>, Term> {
    let bad = |_| Term::atom("bad_header");
    let content_type = match &content.content_type {
        Some(content_type) => HeaderValue::from_bytes(content_type).map_err(bad)?,
        None => HeaderValue::from_static("application/octet-stream"),
    };
    let mut headers = vec![(CONTENT_TYPE, content_type)];
    if let Some(vclock) = vclock {
        headers.push((VCLOCK, HeaderValue::from_bytes(vclock).map_err(bad)?));
    }
    for pair in &content.indexes {
        let name = [INDEX_PREFIX.as_bytes(), &pair.key].concat();
        let name = HeaderName::from_bytes(&name).map_err(|_| Term::atom("bad_header"))?;
        let value = pair.value.as_deref().unwrap_or_default();
        headers.push((name, HeaderValue::from_bytes(value).map_err(bad)?));
    }
    Ok(headers)
}

/// `/buckets/B`, or `/types/T/buckets/B`.
pub(super) fn bucket_path(bucket: &Bucket) -> String {
    let name = percent_encode(&bucket.name, KEY_ESCAPED);
    match &bucket.bucket_type {
        Some(bucket_type) => {
            let bucket_type = percent_encode(bucket_type, KEY_ESCAPED);
            format!("/types/{bucket_type}/buckets/{name}")
        }
        None => format!("/buckets/{name}"),
    }
}

fn object_path(bucket: &Bucket, key: &[u8]) -> String {
    let key = percent_encode(key, KEY_ESCAPED);
    format!("{}/keys/{key}", bucket_path(bucket))
}
