//! Work of one request that waits for devices, all at once. Most requests have no such work, and
//! pay nothing.

use std::future::Future;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Futures of one kind, polled together.
pub(crate) struct Waiting<F>(Option<FuturesUnordered<F>>);

impl<F: Future> Waiting<F> {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    pub(crate) fn push(&mut self, future: F) {
        self.0
            .get_or_insert_with(FuturesUnordered::new)
            .push(future);
    }

    /// True when none is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// The next finished result, if there is one; `Ready(None)` when no work is left.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        match &mut self.0 {
            Some(futures) => futures.poll_next_unpin(context),
            None => Poll::Ready(None),
        }
    }

    /// The next finished result; `None` when no work is left.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        match &mut self.0 {
            Some(futures) => futures.next().await,
            None => None,
        }
    }
}
