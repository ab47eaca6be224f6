//! The source of a job's inputs, a page of keys at a time; the next page is read while one is
//! processed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Coordinator, IndexOptions, IndexQuery, IndexResults, IndexSelection, IndexValues, KeyListing,
    RequestError,
};
use kvorum_encoding::{Bucket, Key};
use kvorum_map_reduce::{BucketName, IndexRange, Inputs};

use crate::objects::bucket_type_of;

/// A page of keys; none when there are no more.
pub(crate) type Page = Result<Option<Vec<Bytes>>, RequestError>;

type Reading = Pin<Box<dyn Future<Output = (Option<Source>, Page)> + Send>>;

/// The keys of a job, in pages.
pub(crate) struct KeySource {
    state: State,
    is_wanted: bool,
}

enum State {
    Reading(Reading),
    /// A page read ahead, and the source of the next.
    Ready(Option<Source>, Page),
    Ended,
}

enum Source {
    Listing(Box<KeyListing>),
    Index(Box<IndexResults>),
}

impl KeySource {
    /// The keys of these inputs. No page is read before the first one is requested.
    pub(crate) fn new(coordinator: &Arc<Coordinator>, inputs: &Inputs, patience: Duration) -> Self {
        let opening = Opening::of(inputs);
        let coordinator = coordinator.clone();
        let reading = async move {
            let Some(opening) = opening else {
                return (None, Ok(None));
            };
            coordinator.until_opened(Some(patience)).await;
            match opening.open(&coordinator, patience) {
                Ok(source) => source.read().await,
                Err(error) => (None, Err(error)),
            }
        };
        Self {
            state: State::Reading(Box::pin(reading)),
            is_wanted: false,
        }
    }

    /// Requests the next page.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The requested page, if it is ready; continues to read ahead in any case, once the first page
    /// was requested.
    pub(crate) fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Page> {
        if let State::Reading(reading) = &mut self.state
            && let Poll::Ready((source, page)) = reading.as_mut().poll(context)
        {
            self.state = State::Ready(source, page);
        }
        if !self.is_wanted {
            return Poll::Pending;
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ready(source, page) => {
                self.is_wanted = false;
                if let Some(source) = source {
                    let mut next: Reading = Box::pin(source.read());
                    self.state = match next.as_mut().poll(context) {
                        Poll::Ready((source, page)) => State::Ready(source, page),
                        Poll::Pending => State::Reading(next),
                    };
                }
                Poll::Ready(page)
            }
            State::Ended => Poll::Ready(Ok(None)),
            reading @ State::Reading(_) => {
                self.state = reading;
                Poll::Pending
            }
        }
    }
}

/// The kind of listing.
enum Opening {
    Bucket(BucketName),
    Index(IndexRange),
}

impl Opening {
    fn of(inputs: &Inputs) -> Option<Self> {
        match inputs {
            Inputs::Keys(_) => None,
            Inputs::Bucket(bucket) | Inputs::Filtered(bucket, _) => {
                Some(Self::Bucket(bucket.clone()))
            }
            Inputs::Index(range) => Some(Self::Index(range.clone())),
        }
    }

    fn open(self, coordinator: &Coordinator, patience: Duration) -> Result<Source, RequestError> {
        match self {
            Self::Bucket(name) => {
                let bucket = Bucket::new(name.bucket.clone());
                let listing = coordinator.list_keys(&bucket_type_of(&name), &bucket, patience)?;
                Ok(Source::Listing(Box::new(listing)))
            }
            Self::Index(range) => {
                let query = query_of(range, patience)?;
                Ok(Source::Index(Box::new(coordinator.query_index(query)?)))
            }
        }
    }
}

fn query_of(range: IndexRange, patience: Duration) -> Result<IndexQuery, RequestError> {
    let values = match range.start == range.end {
        true => IndexValues::Equal(range.start),
        false => IndexValues::Range(range.start, range.end),
    };
    // The reader of the job has checked index and values, so they are valid here.
    let selection = IndexSelection::new(range.index.as_bytes(), &values)
        .map_err(|error| RequestError::Internal(error.to_string()))?;
    Ok(IndexQuery {
        bucket_type: bucket_type_of(&range.bucket),
        bucket: Bucket::new(range.bucket.bucket),
        selection,
        options: IndexOptions {
            timeout: Some(patience),
            ..IndexOptions::default()
        },
    })
}

impl Source {
    /// The next page, and the remaining source.
    async fn read(mut self) -> (Option<Self>, Page) {
        let page = match &mut self {
            Self::Listing(listing) => listing
                .next()
                .await
                .map(|found| found.map(|keys| keys.iter().map(Key::to_bytes).collect())),
            Self::Index(results) => results.next().await.map(|found| {
                found.map(|matches| matches.iter().map(|it| it.key.to_bytes()).collect())
            }),
        };
        match page {
            Some(Ok(keys)) => (Some(self), Ok(Some(keys))),
            Some(Err(error)) => (None, Err(error)),
            None => (None, Ok(None)),
        }
    }
}
