//! One part of an index query to one vnode, on any node.
//!
//! A part has limits on its results and on the entries that it reads. So a query over any range holds a
//! thread and memory only briefly. The next part continues behind the end of this one, on another snapshot.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{Flow, FoldClock, FoldEnd, FoldRange, IndexRange, Lease};
use kvorum_encoding::{Key, StorageKey, bucket_prefix};
use kvorum_ring::position;

use crate::folding::FoldRequest;
use crate::index_page_request::{IndexPage, IndexPageRequest, IndexPosition, IndexScan};
use crate::page::PageFailure;
use crate::replica_request::ReplicaFailure;
use crate::vnode::Vnode;

/// The most entries that a part reads, wanted or not.
const LOOKED_AT_MAX: usize = 50_000;
/// The most bytes of terms and keys in a part; one entry may exceed it.
const PART_BYTES_MAX: usize = 1 << 20;

impl Vnode {
    /// Reads a part of an index query, on a snapshot of its own. Blocks.
    pub fn index_page(
        &self,
        request: &IndexPageRequest,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<IndexPage, PageFailure> {
        self.check_epoch(request.epoch)?;
        self.check_complete()?;
        let bucket = bucket_prefix(&request.bucket_type, &request.bucket);
        let Some(indexes) = self.backend.indexes_of(&bucket) else {
            let engine = self.backend.engine_of(&bucket).to_owned();
            return Err(ReplicaFailure::IndexesNotSupported(engine).into());
        };
        if request.after.is_none() {
            self.counts.index_reads.fetch_add(1, Ordering::Relaxed);
        }
        let mut part = Part::new(request);
        let end = match &request.scan {
            IndexScan::Keys { from, to } => {
                let fold = FoldRequest {
                    epoch: request.epoch,
                    range: request.key_range(from, to),
                    clock: clock.clone(),
                    lease,
                };
                let visitor = &mut |key: &StorageKey| part.take(&Bytes::new(), key);
                self.fold_keys(&fold, visitor)?
            }
            IndexScan::Terms { field, from, to } => {
                let range = request.term_range(field, from, to);
                let visitor = &mut |term: &Bytes, key: &StorageKey| part.take(term, key);
                let end = indexes.fold_index(&range, lease, clock.now(), visitor);
                end.map_err(ReplicaFailure::from)?
            }
        };
        part.finish(&end)
    }
}

impl IndexPageRequest {
    fn storage_key(&self, key: &Key) -> StorageKey {
        StorageKey::new(&self.bucket_type, &self.bucket, key)
    }

    fn key_range(&self, from: &Bound<Bytes>, to: &Bound<Bytes>) -> FoldRange {
        let whole = FoldRange::prefix(&bucket_prefix(&self.bucket_type, &self.bucket));
        let within = |bound: &Bound<Bytes>, open: Bound<Bytes>| {
            let key = |key: &Bytes| self.storage_key(&Key::new(key.clone())).to_bytes();
            match bound {
                Bound::Unbounded => open,
                bound => bound.as_ref().map(key),
            }
        };
        let from = match &self.after {
            Some(after) => Bound::Excluded(self.storage_key(&after.key).to_bytes()),
            None => within(from, whole.from),
        };
        FoldRange {
            from,
            to: within(to, whole.to),
        }
    }

    fn term_range(&self, field: &Bytes, from: &Bound<Bytes>, to: &Bound<Bytes>) -> IndexRange {
        let after = self.after.as_ref();
        IndexRange {
            bucket_prefix: bucket_prefix(&self.bucket_type, &self.bucket).into(),
            field: field.clone(),
            from: from.clone(),
            to: to.clone(),
            after: after.map(|it| (it.term.clone(), self.storage_key(&it.key))),
        }
    }

    fn is_wanted(&self, term: &[u8], key: &Key) -> bool {
        let matched = match &self.scan {
            IndexScan::Keys { .. } => key.as_bytes(),
            IndexScan::Terms { .. } => term,
        };
        if !self.pattern.as_ref().is_none_or(|it| it.matches(matched)) {
            return false;
        }
        self.owners.as_ref().is_none_or(|owners| {
            let place = position(&self.bucket_type, &self.bucket, key, self.hash);
            owners.contains(&place.owner(self.size))
        })
    }
}

/// The entries read for a part.
struct Part<'a> {
    request: &'a IndexPageRequest,
    entries_max: usize,
    entries: Vec<IndexPosition>,
    entries_bytes: usize,
    looked_at: usize,
    last: Option<IndexPosition>,
    malformed: Option<String>,
}

impl<'a> Part<'a> {
    fn new(request: &'a IndexPageRequest) -> Self {
        let entries_max = usize::try_from(request.entries_max).unwrap_or(usize::MAX);
        Self {
            request,
            entries_max: entries_max.max(1),
            entries: Vec::new(),
            entries_bytes: 0,
            looked_at: 0,
            last: None,
            malformed: None,
        }
    }

    fn take(&mut self, term: &Bytes, storage_key: &StorageKey) -> Flow {
        let key = match storage_key.decode() {
            Ok(address) => address.key,
            Err(error) => {
                self.malformed = Some(error.to_string());
                return Flow::Stop;
            }
        };
        self.looked_at += 1;
        let is_wanted = self.request.is_wanted(term, &key);
        let is_over = self.looked_at >= LOOKED_AT_MAX;
        if !is_wanted && !is_over {
            return Flow::Continue;
        }
        let position = IndexPosition {
            term: term.clone(),
            key,
        };
        if is_wanted {
            self.entries_bytes += position.term.len() + position.key.as_bytes().len();
            self.entries.push(position.clone());
        }
        let is_full = self.entries.len() >= self.entries_max;
        if is_full || is_over || self.entries_bytes >= PART_BYTES_MAX {
            self.last = Some(position);
            return Flow::Stop;
        }
        Flow::Continue
    }

    fn finish(self, end: &FoldEnd) -> Result<IndexPage, PageFailure> {
        if let Some(detail) = self.malformed {
            return Err(ReplicaFailure::Storage(detail).into());
        }
        match end {
            FoldEnd::LeaseExpired(_) => Err(PageFailure::OutOfTime),
            FoldEnd::Complete | FoldEnd::Stopped(_) => Ok(IndexPage {
                entries: self.entries,
                next: self.last,
            }),
        }
    }
}
