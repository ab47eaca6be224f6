//! Requests with several answers: listings and index queries.

use std::marker::PhantomData;

use bytes::Bytes;
use kvorum_protocol::{CodedMessage, pb};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::Connection;
use crate::error::Error;

/// A message that comes several times, with a mark in the last one.
pub trait StreamedAnswer: CodedMessage {
    /// True if no further message follows.
    fn is_last(&self) -> bool;
}

impl StreamedAnswer for pb::RpbListKeysResp {
    fn is_last(&self) -> bool {
        self.done()
    }
}

impl StreamedAnswer for pb::RpbListBucketsResp {
    fn is_last(&self) -> bool {
        self.done()
    }
}

impl StreamedAnswer for pb::RpbIndexResp {
    fn is_last(&self) -> bool {
        self.done()
    }
}

/// The answers to one request, as they arrive. If it is dropped before the last answer, the
/// connection refuses further requests.
#[derive(Debug)]
#[must_use = "answers that nobody reads leave the connection unusable"]
pub struct Answers<'a, S, M> {
    connection: &'a mut Connection<S>,
    /// There is one answer, without a mark that it is the last.
    is_single: bool,
    is_over: bool,
    message: PhantomData<M>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin, M: StreamedAnswer> Answers<'a, S, M> {
    pub(crate) fn new(connection: &'a mut Connection<S>, is_single: bool) -> Answers<'a, S, M> {
        Answers {
            connection,
            is_single,
            is_over: false,
            message: PhantomData,
        }
    }

    /// The next message, the last one included; `None` afterwards.
    ///
    /// # Errors
    /// Any [`Error`]; no message follows an error.
    pub async fn next(&mut self) -> Result<Option<M>, Error> {
        if self.is_over {
            return Ok(None);
        }
        self.is_over = true; // an error, or a drop while waiting, ends it
        let message: M = self.connection.next_answer().await?;
        if message.is_last() || self.is_single {
            self.connection.end();
        } else {
            self.is_over = false;
        }
        Ok(Some(message))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Answers<'_, S, pb::RpbListKeysResp> {
    /// Reads to the end: all keys, in the order in which they came.
    ///
    /// # Errors
    /// Any [`Error`]; the keys read until then are dropped.
    pub async fn collect(mut self) -> Result<Vec<Bytes>, Error> {
        let mut keys = Vec::new();
        while let Some(message) = self.next().await? {
            keys.extend(message.keys);
        }
        Ok(keys)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Answers<'_, S, pb::RpbListBucketsResp> {
    /// Reads to the end: all buckets, in the order in which they came.
    ///
    /// # Errors
    /// Any [`Error`]; the buckets read until then are dropped.
    pub async fn collect(mut self) -> Result<Vec<Bytes>, Error> {
        let mut buckets = Vec::new();
        while let Some(message) = self.next().await? {
            buckets.extend(message.buckets);
        }
        Ok(buckets)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Answers<'_, S, pb::RpbIndexResp> {
    /// Reads to the end and joins the messages into one.
    ///
    /// # Errors
    /// Any [`Error`]; the results read until then are dropped.
    pub async fn collect(mut self) -> Result<pb::RpbIndexResp, Error> {
        let mut whole = pb::RpbIndexResp::default();
        while let Some(message) = self.next().await? {
            whole.keys.extend(message.keys);
            whole.results.extend(message.results);
            whole.continuation = message.continuation.or(whole.continuation);
            whole.done = message.done.or(whole.done);
        }
        Ok(whole)
    }
}
