//! Listings of buckets and keys, whole and streamed.
//!
//! A streamed listing is sent as it is found, a part at a time. So it needs the memory of one part
//! at any length, and a slow reader slows it down. Only the last message is empty, and marks the
//! end: the Erlang client accepts no other.

use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::BucketListing;
use kvorum_encoding::{Bucket, Key};
use kvorum_protocol::pb;
use prost::Message as _;

use crate::connection::Connection;
use crate::object_requests::{timeout_of, type_of};
use crate::refusal::{Failure, Refusal};

/// Timeout of a listing of keys that names none.
const KEYS_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a listing of buckets that names none.
const BUCKETS_TIMEOUT: Duration = Duration::from_secs(480);
/// A message of a stream is ended when its names exceed this, in bytes.
const MESSAGE_BYTES: usize = 64 * 1024;

impl Connection {
    pub(crate) async fn list_buckets(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbListBucketsReq::decode(payload)?;
        let jobs = &self.shared.settings.jobs;
        let (is_enabled, class) = match request.stream() {
            true => (jobs.stream_list_buckets, "stream_list_buckets"),
            false => (jobs.list_buckets, "list_buckets"),
        };
        self.check_job(is_enabled, class)?;
        let is_streamed = request.stream();
        let bucket_type = type_of(request.r#type)?;
        let coordinator = &self.shared.coordinator;
        coordinator
            .state()
            .type_properties(&bucket_type)
            .map_err(Refusal::from)?;
        let timeout = timeout_of(request.timeout).unwrap_or(BUCKETS_TIMEOUT);
        coordinator.until_opened(Some(timeout)).await;
        let listing = coordinator.list_buckets(&bucket_type, timeout)?;
        match is_streamed {
            true => self.stream_buckets(listing).await,
            false => self.send_buckets(listing).await,
        }
    }

    async fn send_buckets(&mut self, mut listing: BucketListing) -> Result<(), Failure> {
        let mut buckets = Vec::new();
        while let Some(found) = listing.next().await {
            buckets.extend(found?.iter().map(Bucket::to_bytes));
        }
        self.reply(&pb::RpbListBucketsResp {
            buckets,
            done: None,
        })
    }

    async fn stream_buckets(&mut self, mut listing: BucketListing) -> Result<(), Failure> {
        while let Some(found) = listing.next().await {
            let names = found?.into_iter().map(|bucket| bucket.to_bytes());
            for buckets in messages(names) {
                self.reply(&pb::RpbListBucketsResp {
                    buckets,
                    done: None,
                })?;
                self.send().await.map_err(Failure::Lost)?;
            }
        }
        let done = Some(true);
        self.reply(&pb::RpbListBucketsResp {
            buckets: Vec::new(),
            done,
        })
    }

    pub(crate) async fn list_keys(&mut self, payload: Bytes) -> Result<(), Failure> {
        let request = pb::RpbListKeysReq::decode(payload)?;
        self.check_job(
            self.shared.settings.jobs.stream_list_keys,
            "stream_list_keys",
        )?;
        let bucket_type = type_of(request.r#type)?;
        let coordinator = &self.shared.coordinator;
        coordinator
            .state()
            .type_properties(&bucket_type)
            .map_err(Refusal::from)?;
        let timeout = timeout_of(request.timeout).unwrap_or(KEYS_TIMEOUT);
        let bucket = Bucket::new(request.bucket);
        coordinator.until_opened(Some(timeout)).await;
        let mut listing = coordinator.list_keys(&bucket_type, &bucket, timeout)?;
        while let Some(found) = listing.next().await {
            let names = found?.into_iter().map(|key: Key| key.to_bytes());
            for keys in messages(names) {
                self.reply(&pb::RpbListKeysResp { keys, done: None })?;
                self.send().await.map_err(Failure::Lost)?;
            }
        }
        let done = Some(true);
        self.reply(&pb::RpbListKeysResp {
            keys: Vec::new(),
            done,
        })
    }
}

/// Cuts names into messages, none of them empty.
fn messages(names: impl Iterator<Item = Bytes>) -> impl Iterator<Item = Vec<Bytes>> {
    let mut names = names.peekable();
    std::iter::from_fn(move || {
        names.peek()?;
        let mut message_bytes = 0;
        let mut message = Vec::new();
        while message_bytes < MESSAGE_BYTES
            && let Some(name) = names.next()
        {
            message_bytes += name.len();
            message.push(name);
        }
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_spread_over_messages_and_none_is_empty() {
        let name = Bytes::from(vec![b'n'; MESSAGE_BYTES / 2]);
        let cut = |count| -> Vec<usize> {
            let names = std::iter::repeat_n(name.clone(), count);
            messages(names).map(|message| message.len()).collect()
        };
        assert!(cut(0).is_empty());
        assert_eq!(cut(2), [2]);
        assert_eq!(cut(5), [2, 2, 1]);
    }
}
