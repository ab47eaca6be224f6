//! Index queries: coverage as for listings, with the entries of all vnodes in one order if requested.
//!
//! Each vnode is read in parts of bounded length, each on a snapshot of its own. The vnodes of this node
//! are read in one go on one thread, those of other nodes at the same time. Where order matters, the parts
//! are merged, and vnodes are read only for the next result; otherwise, parts are passed on as they come.
//!
//! An object whose entry moves while the query runs may be found at both terms, or at neither, as in
//! Riak. An entry that is there throughout is found once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use kvorum_backend::FoldClock;
use kvorum_encoding::Key;
use kvorum_ring::CoverageVnode;
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{IndexPage, IndexPageRequest, IndexPosition, PageFailure, ReplicaReply};

use crate::coverage::{Coverage, CoverageRun, PageError, in_place_of, instead_of, owners_of};
use crate::error::RequestError;
use crate::gate::{Gate, OwnPass};
use crate::index_query::{Continuation, IndexQuery};
use crate::peers::PeerFailure;
use crate::replicas::no_reply;
use crate::request::BucketOrType;
use crate::trace::RequestKind;

/// The most results that one call of `next` returns.
const RESULTS_PER_CHUNK: usize = 1_000;
/// Entries that a vnode reads for one part.
const ENTRIES_PER_PART: u32 = 1_000;
/// Vnodes that are read at once when order does not matter.
const VNODES_AT_ONCE: usize = 8;
/// Entries of a part in addition to its share of a query's limit: keys are not spread evenly.
const ENTRIES_BEYOND_SHARE: u32 = 16;
/// The time limit of a query without a timeout.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMatch {
    /// The value by which the object was found; empty in a query over keys.
    pub value: Bytes,
    /// The object's key.
    pub key: Key,
}

/// The results of an index query, in chunks.
pub struct IndexResults {
    run: CoverageRun,
    query: IndexQuery,
    sources: Vec<Source>,
    entries_max: u32,
    /// The most results that may still come.
    left: Option<u32>,
    /// The last result, in a query with a limit.
    last: Option<IndexPosition>,
    _counted: OwnPass,
}

/// One vnode's entries.
struct Source {
    vnode: CoverageVnode,
    /// Entries that were read and not passed on yet.
    ready: VecDeque<IndexPosition>,
    /// The position up to which the vnode was read.
    after: Option<IndexPosition>,
    is_done: bool,
}

impl Source {
    fn is_to_be_read(&self) -> bool {
        self.ready.is_empty() && !self.is_done
    }

    fn take(&mut self, page: IndexPage) {
        self.is_done = page.next.is_none();
        self.after = page.next;
        self.ready = page.entries.into();
    }
}

/// Twice the share of the results that each vnode has on average, as some vnodes have more.
fn entries_per_part(results_max: Option<u32>, vnodes: usize) -> u32 {
    let Some(results_max) = results_max else {
        return ENTRIES_PER_PART;
    };
    let vnodes = u32::try_from(vnodes).unwrap_or(u32::MAX).max(1);
    let share = (results_max / vnodes).saturating_mul(2) + ENTRIES_BEYOND_SHARE;
    share.min(results_max).min(ENTRIES_PER_PART)
}

impl IndexResults {
    /// Begins an index query.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        query: IndexQuery,
    ) -> Result<Self, RequestError> {
        let timeout = query.options.timeout.unwrap_or(FOR_EVER).min(FOR_EVER);
        let place = BucketOrType::new(&query.bucket_type, Some(&query.bucket));
        let kind = RequestKind::IndexQuery;
        let (run, counted, cover) = CoverageRun::begin(coverage, gate, kind, place, timeout)?;
        let left = query.options.results_max.map(std::num::NonZeroU32::get);
        let after = query.options.after.as_ref().map(|after| after.0.clone());
        let source = |vnode| Source {
            vnode,
            ready: VecDeque::new(),
            after: after.clone(),
            is_done: query.selection.is_empty(),
        };
        let sources: Vec<Source> = cover.into_iter().map(source).collect();
        Ok(Self {
            run,
            entries_max: entries_per_part(left, sources.len()),
            sources,
            left,
            last: None,
            query,
            _counted: counted,
        })
    }

    /// The next results, never an empty chunk; `None` when there are no more.
    pub async fn next(&mut self) -> Option<Result<Vec<IndexMatch>, RequestError>> {
        let found = match self.read().await {
            Ok(found) => found,
            Err(error) => {
                self.sources.clear();
                self.left = None;
                self.run.error = Some(error.clone());
                return Some(Err(error));
            }
        };
        let selection = &self.query.selection;
        let result = |IndexPosition { term, key }| IndexMatch {
            value: selection.value_of(&term),
            key,
        };
        let results: Vec<_> = found.into_iter().map(result).collect();
        self.run.results += results.len() as u64;
        (!results.is_empty()).then_some(Ok(results))
    }

    /// The beginning of the next page, after the last result of this one. Only a page with as many
    /// results as requested may have a next one.
    pub fn continuation(&self) -> Option<Continuation> {
        let last = self.last.as_ref().filter(|_| self.left == Some(0));
        last.cloned().map(Continuation)
    }

    async fn read(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        let options = &self.query.options;
        if options.is_sorted || options.results_max.is_some() || options.after.is_some() {
            self.read_sorted().await
        } else {
            self.read_unsorted().await
        }
    }

    async fn read_unsorted(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        loop {
            let ready = self.sources.iter_mut().find(|it| !it.ready.is_empty());
            if let Some(source) = ready {
                let count = source.ready.len().min(RESULTS_PER_CHUNK);
                return Ok(source.ready.drain(..count).collect());
            }
            self.sources.retain(|it| !it.is_done);
            let some: Vec<usize> = (0..self.sources.len().min(VNODES_AT_ONCE)).collect();
            if some.is_empty() {
                return Ok(Vec::new());
            }
            self.fetch(&some).await?;
        }
    }

    async fn read_sorted(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        let wanted = match self.left {
            Some(left) => RESULTS_PER_CHUNK.min(usize::try_from(left).unwrap_or(usize::MAX)),
            None => RESULTS_PER_CHUNK,
        };
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let mut merged = Vec::new();
        // An empty part may have a next one.
        while merged.is_empty() {
            self.fetch_what_is_missing().await?;
            self.merge(wanted, &mut merged);
            if self
                .sources
                .iter()
                .all(|it| it.ready.is_empty() && it.is_done)
            {
                break;
            }
        }
        if let Some(left) = &mut self.left {
            *left -= u32::try_from(merged.len()).unwrap_or(*left);
            self.last = merged.last().cloned().or_else(|| self.last.take());
        }
        Ok(merged)
    }

    async fn fetch_what_is_missing(&mut self) -> Result<(), RequestError> {
        loop {
            let missing = self.sources.iter().enumerate();
            let missing = missing.filter(|(_, source)| source.is_to_be_read());
            let missing: Vec<usize> = missing.map(|(index, _)| index).collect();
            if missing.is_empty() {
                return Ok(());
            }
            self.fetch(&missing).await?;
        }
    }

    /// Passes on the least entries, until a vnode has to be read again.
    fn merge(&mut self, wanted: usize, merged: &mut Vec<IndexPosition>) {
        let mut first = BinaryHeap::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            first.extend(source.ready.pop_front().map(|it| Reverse((it, index))));
        }
        while merged.len() < wanted
            && let Some(Reverse((least, index))) = first.pop()
        {
            merged.push(least);
            let source = &mut self.sources[index];
            match source.ready.pop_front() {
                Some(next) => first.push(Reverse((next, index))),
                None if source.is_done => {}
                None => break,
            }
        }
        for Reverse((position, index)) in first {
            self.sources[index].ready.push_front(position);
        }
    }

    /// Reads the next part of some of the vnodes.
    async fn fetch(&mut self, sources: &[usize]) -> Result<(), RequestError> {
        let (coverage, remaining) = (&self.run.coverage, self.run.remaining()?);
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for index in sources {
            let source = &self.sources[*index];
            let request = self.request(source);
            if coverage.is_here(&source.vnode) {
                here.push((*index, request));
            } else {
                there.push((*index, source.vnode.node, request));
            }
        }
        let deadline = self.run.progress.deadline;
        let there = join_all(there.into_iter().map(|(index, node, request)| {
            let asked = PeerRequest::IndexPage(request);
            let asked = coverage.replicas.ask_peer(node, asked, deadline);
            async move { (index, page_of(asked.await)) }
        }));
        let (here, there) = join(pages_here(coverage, here, remaining), there).await;
        let (here, queued) = here?;
        self.run.progress.trace.queue += queued;
        self.take_pages(here?.into_iter().chain(there)).await
    }

    async fn take_pages(
        &mut self,
        pages: impl Iterator<Item = (usize, Result<IndexPage, PageError>)>,
    ) -> Result<(), RequestError> {
        let (mut elsewhere, mut unopened) = (Vec::new(), None);
        for (index, page) in pages {
            match page {
                Ok(page) => self.sources[index].take(page),
                Err(error) => {
                    unopened = self.note(index, error)?.or(unopened);
                    elsewhere.push(index);
                }
            }
        }
        let covered = self.cover_anew(elsewhere).await;
        covered.map_err(|other| match unopened {
            Some(error) => instead_of(other, error),
            None => other,
        })
    }

    /// Notes the reason for asking other vnodes, and returns the error of a vnode that is not open.
    fn note(
        &mut self,
        index: usize,
        error: PageError,
    ) -> Result<Option<RequestError>, RequestError> {
        let vnode = &self.sources[index].vnode;
        let coverage = &self.run.coverage;
        match error {
            PageError::OtherRing => {}
            PageError::Incomplete => coverage.leave_out(vnode.node),
            PageError::NotOpen(error) => {
                let unopened = &coverage.replicas.unopened;
                unopened.pass_over(vnode.node, vnode.partition);
                return Ok(Some(error));
            }
            PageError::Damaged(error) => self.run.note_damaged(vnode, error),
            PageError::Failed(error) => return Err(error),
        }
        Ok(None)
    }

    fn request(&self, source: &Source) -> IndexPageRequest {
        let (run, vnode) = (&self.run, &source.vnode);
        IndexPageRequest {
            partition: vnode.partition,
            epoch: vnode.epoch,
            hash: run.hash,
            size: run.size,
            owners: owners_of(vnode),
            bucket_type: self.query.bucket_type.clone(),
            bucket: self.query.bucket.clone(),
            scan: self.query.selection.scan.clone(),
            pattern: self.query.options.pattern.clone(),
            after: source.after.clone(),
            entries_max: self.entries_max,
        }
    }

    /// Covers the rest of vnodes that have moved: the same owner partitions behind the same
    /// position, by the present ring.
    async fn cover_anew(&mut self, mut elsewhere: Vec<usize>) -> Result<(), RequestError> {
        if elsewhere.is_empty() {
            self.run.note_answered();
            return Ok(());
        }
        let cover = self.run.cover_after_pause().await?;
        elsewhere.sort_unstable();
        for index in elsewhere.into_iter().rev() {
            let gone = self.sources.swap_remove(index);
            let source = |vnode| Source {
                vnode,
                ready: VecDeque::new(),
                after: gone.after.clone(),
                is_done: false,
            };
            let anew = in_place_of(&gone.vnode, cover.clone());
            self.sources.extend(anew.map(source));
        }
        Ok(())
    }
}

type Pages = Vec<(usize, Result<IndexPage, PageError>)>;

/// Parts of vnodes of this node, and the time that they waited for a thread.
async fn pages_here(
    coverage: &Coverage,
    requests: Vec<(usize, IndexPageRequest)>,
    remaining: Duration,
) -> Result<(Result<Pages, RequestError>, Duration), RequestError> {
    if requests.is_empty() {
        return Ok((Ok(Pages::new()), Duration::ZERO));
    }
    let (mut work, mut pages) = (Vec::with_capacity(requests.len()), Pages::new());
    for (index, request) in requests {
        match coverage.vnode(request.partition) {
            Ok(vnode) => work.push((index, vnode, request)),
            Err(error) => pages.push((index, Err(error))),
        }
    }
    let read = move |clock: &FoldClock, lease| {
        for (index, vnode, request) in work {
            match vnode.index_page(&request, clock, lease) {
                Err(PageFailure::OutOfTime) => return Err(RequestError::Timeout),
                page => pages.push((index, page.map_err(PageError::from))),
            }
        }
        Ok(pages)
    };
    coverage.read_here(remaining, read).await
}

fn page_of(answer: Result<ReplicaReply, PeerFailure>) -> Result<IndexPage, PageError> {
    match answer? {
        ReplicaReply::IndexListed(page) => Ok(page),
        ReplicaReply::Failed(failure) => Err(failure.into()),
        _ => Err(no_reply().into()),
    }
}
