//! Index queries, whole and streamed, and the listing of a bucket's objects.
//!
//! Only the last message of a stream is empty: it has the end mark and the start of the next page.

use std::num::NonZeroU32;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Continuation, GetOptions, IndexMatch, IndexOptions, IndexQuery, IndexResults, IndexSelection,
    IndexValues,
};
use kvorum_encoding::{Address, Bucket, BucketType};
use kvorum_protocol::pb;
use kvorum_protocol::pb::rpb_index_req::IndexQueryType;
use prost::Message as _;

use crate::connection::Connection;
use crate::content::object_message;
use crate::object_requests::type_of;
use crate::refusal::{Failure, Refusal};

/// A message of a stream is ended when its terms, keys and objects exceed this, in bytes.
const MESSAGE_BYTES: usize = 64 * 1024;

impl Connection {
    pub(crate) async fn query_index(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbIndexReq::decode(payload)?;
        let jobs = &self.shared.settings.jobs;
        if request.stream() {
            self.check_job(jobs.stream_secondary_index, "stream_secondary_index")?;
        } else {
            self.check_job(jobs.secondary_index, "secondary_index")?;
        }
        if request.cover_context.is_some() {
            return Err(no_coverage_plans().into());
        }
        let (is_streamed, wants_terms) = (request.stream(), request.return_terms());
        let wants_nothing = request.max_results == Some(0);
        let query = self.index_query(request)?;
        if wants_nothing {
            return self.reply(&pb::RpbIndexResp {
                done: is_streamed.then_some(true),
                ..pb::RpbIndexResp::default()
            });
        }
        let with_terms = wants_terms && query.selection.has_terms();
        let coordinator = &self.shared.coordinator;
        coordinator.until_opened(query.options.timeout).await;
        let results = coordinator.query_index(query)?;
        if is_streamed {
            self.stream_index(results, with_terms).await
        } else {
            self.send_index(results, with_terms).await
        }
    }

    fn index_query(&self, request: pb::RpbIndexReq) -> Result<IndexQuery, Refusal> {
        let values = values_of(&request)?;
        let selection = IndexSelection::new(&request.index, &values)?;
        let pattern = request.term_regex.as_ref();
        let pattern = pattern.map(|it| selection.pattern(it)).transpose()?;
        let after = request.continuation.as_deref();
        let options = IndexOptions {
            pattern,
            results_max: NonZeroU32::new(request.max_results()),
            after: after.map(Continuation::parse).transpose()?,
            is_sorted: request.pagination_sort(),
            timeout: self.index_timeout(request.timeout),
        };
        Ok(IndexQuery {
            bucket_type: self.known_type(request.r#type)?,
            bucket: Bucket::new(request.bucket),
            selection,
            options,
        })
    }

    /// The timeout of a request, given in milliseconds; 0 means none.
    fn index_timeout(&self, asked: Option<u32>) -> Option<Duration> {
        match asked {
            None => self.shared.settings.index_timeout,
            Some(0) => None,
            Some(milliseconds) => Some(Duration::from_millis(milliseconds.into())),
        }
    }

    fn known_type(&self, name: Option<Bytes>) -> Result<BucketType, Refusal> {
        let bucket_type = type_of(name)?;
        let state = self.shared.coordinator.state();
        state.type_properties(&bucket_type)?;
        Ok(bucket_type)
    }

    async fn send_index(
        &mut self,
        mut results: IndexResults,
        with_terms: bool,
    ) -> Result<(), Failure> {
        let mut whole = pb::RpbIndexResp::default();
        while let Some(found) = results.next().await {
            for found in found? {
                push(&mut whole, found, with_terms);
            }
        }
        whole.continuation = results.continuation().map(|it| it.to_text().into());
        self.reply(&whole)
    }

    async fn stream_index(
        &mut self,
        mut results: IndexResults,
        with_terms: bool,
    ) -> Result<(), Failure> {
        while let Some(found) = results.next().await {
            let mut found = found?.into_iter().peekable();
            while found.peek().is_some() {
                let (mut message, mut message_bytes) = (pb::RpbIndexResp::default(), 0);
                while message_bytes < MESSAGE_BYTES
                    && let Some(found) = found.next()
                {
                    message_bytes += found.value.len() + found.key.as_bytes().len();
                    push(&mut message, found, with_terms);
                }
                self.reply(&message)?;
                self.send().await.map_err(Failure::Lost)?;
            }
        }
        self.reply(&pb::RpbIndexResp {
            continuation: results.continuation().map(|it| it.to_text().into()),
            done: Some(true),
            ..pb::RpbIndexResp::default()
        })
    }

    /// A range of a bucket's keys with their objects, each read as by a get. Riak CS uses it for
    /// listings.
    pub(crate) async fn list_objects(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbCsBucketReq::decode(payload)?;
        let jobs = &self.shared.settings.jobs;
        self.check_job(jobs.stream_secondary_index, "stream_secondary_index")?;
        if request.cover_context.is_some() {
            return Err(no_coverage_plans().into());
        }
        let query = self.objects_query(&request)?;
        let address = |key| Address {
            bucket_type: query.bucket_type.clone(),
            bucket: query.bucket.clone(),
            key,
        };
        let coordinator = self.shared.coordinator.clone();
        coordinator.until_opened(query.options.timeout).await;
        let mut results = coordinator.query_index(query.clone())?;
        let (mut message, mut message_bytes) = (pb::RpbCsBucketResp::default(), 0);
        while let Some(found) = results.next().await {
            for IndexMatch { key, .. } in found? {
                let (address, options) = (address(key), GetOptions::default());
                let now = coordinator.runtime().now();
                let read = coordinator.get(&address, &options, now).await?;
                let Some(object) = read.filter(|it| !it.is_tombstone()) else {
                    continue;
                };
                let object = pb::RpbIndexObject {
                    key: address.key.to_bytes(),
                    object: object_message(&object),
                };
                message_bytes += object.encoded_len();
                message.objects.push(object);
                if message_bytes >= MESSAGE_BYTES {
                    message_bytes = 0;
                    self.reply(&std::mem::take(&mut message))?;
                    self.send().await.map_err(Failure::Lost)?;
                }
            }
        }
        if !message.objects.is_empty() {
            self.reply(&message)?;
        }
        self.reply(&pb::RpbCsBucketResp {
            continuation: results.continuation().map(|it| it.to_text().into()),
            done: Some(true),
            ..pb::RpbCsBucketResp::default()
        })
    }

    fn objects_query(&self, request: &pb::RpbCsBucketReq) -> Result<IndexQuery, Refusal> {
        let bound = |key: &Bytes, is_included| match is_included {
            true => Bound::Included(key.clone()),
            false => Bound::Excluded(key.clone()),
        };
        let from = bound(&request.start_key, request.start_incl());
        let to = request.end_key.as_ref();
        let to = to.map_or(Bound::Unbounded, |key| bound(key, request.end_incl()));
        let after = request.continuation.as_deref();
        Ok(IndexQuery {
            bucket_type: self.known_type(request.r#type.clone())?,
            bucket: Bucket::new(request.bucket.clone()),
            selection: IndexSelection::keys(from, to),
            options: IndexOptions {
                results_max: NonZeroU32::new(request.max_results()),
                after: after.map(Continuation::parse).transpose()?,
                is_sorted: true,
                timeout: self.index_timeout(request.timeout),
                ..IndexOptions::default()
            },
        })
    }
}

fn no_coverage_plans() -> Refusal {
    let what = "coverage plans are";
    Refusal::NotSupported { what }
}

fn values_of(request: &pb::RpbIndexReq) -> Result<IndexValues, Refusal> {
    match request.qtype() {
        IndexQueryType::Eq => match &request.key {
            Some(key) => Ok(IndexValues::Equal(key.clone())),
            None => Err(Refusal::InvalidEqualityQuery),
        },
        IndexQueryType::Range => match (&request.range_min, &request.range_max) {
            (Some(first), Some(last)) => Ok(IndexValues::Range(first.clone(), last.clone())),
            (first, last) => Err(Refusal::InvalidRangeQuery {
                first: term_of(first.as_deref()),
                last: term_of(last.as_deref()),
            }),
        },
    }
}

/// A value as Riak's texts show it.
fn term_of(value: Option<&[u8]>) -> String {
    match value {
        Some(value) => format!("<<\"{}\">>", String::from_utf8_lossy(value)),
        None => "undefined".to_owned(),
    }
}

fn push(message: &mut pb::RpbIndexResp, found: IndexMatch, with_terms: bool) {
    let key = found.key.to_bytes();
    if with_terms {
        message.results.push(pb::RpbPair {
            key: found.value,
            value: Some(key),
        });
    } else {
        message.keys.push(key);
    }
}
