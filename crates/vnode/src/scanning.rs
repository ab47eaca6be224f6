//! All objects of a vnode, page by page: keys, heads or whole objects, tombstones among them.
//!
//! The pages of large sets, which are entries of their own, are passed over. A scan of whole objects reads
//! such a set once more at the end of its page, since the set's parts are elsewhere in key order.
//!
//! For work on a vnode rather than on a bucket: transfers, hints, exports, comparisons of replicas. A page
//! is read on a snapshot of its own, ends at its limits or with its lease, and names the beginning of the
//! next one. Listings differ: they leave out tombstones and follow the ring ([`Vnode::page`]).
//!
//! A scan shows the present entries of a vnode of any epoch, complete or not: the caller decides if
//! they are of use.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    ErrorKind, Flow, FoldClock, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Lookup, ReadAt,
    Reading, Tag, Timestamp, Visited,
};
use kvorum_encoding::StorageKey;
use kvorum_object::{DecodeError, Encoded, Head, Object};

use crate::page::PageFailure;
use crate::replica_request::ReplicaFailure;
use crate::stored_form::{head_of, in_pages, parts_of};
use crate::vnode::{Interrupted, Vnode};

/// A request for a page.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The keys of the scan. The next page begins at [`ScanPage::next`] or behind [`ScanPage::through`].
    pub range: FoldRange,
    /// Gives the time for expiry, read once at the beginning, and measures the lease.
    pub clock: FoldClock,
    /// Time for the page.
    pub lease: Lease,
    /// Limits that may end the page earlier.
    pub limits: ScanLimits,
}

/// Limits of a page. An entry's bytes are those of its key and of the parts that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Entries.
    pub entries_max: usize,
    /// Bytes of its entries; one entry is always taken.
    pub bytes_max: u64,
    /// An entry with a longer body is alone on its page. Bytes.
    pub shared_body_bytes_max: u64,
    /// Bytes of unwanted entries that are passed over.
    pub passed_over_bytes_max: u64,
}

impl ScanLimits {
    /// No limits.
    pub const NONE: Self = Self {
        entries_max: usize::MAX,
        bytes_max: u64::MAX,
        shared_body_bytes_max: u64::MAX,
        passed_over_bytes_max: u64::MAX,
    };
}

/// A page that was read.
#[derive(Clone, Debug)]
pub struct ScanPage<T> {
    /// The wanted entries, in the order of keys.
    pub entries: Vec<T>,
    /// Bytes of `entries`.
    pub bytes: u64,
    /// Bytes of entries that were not wanted.
    pub passed_over_bytes: u64,
    /// Wanted entries that are left out: their heads cannot be decoded.
    pub undecodable: u64,
    /// The last key of the page, wanted or not; `None` when it has read none.
    pub through: Option<StorageKey>,
    /// The beginning of the next page; `None` when this was the last.
    pub next: Option<StorageKey>,
}

/// The form in which a scan shows each entry: a key alone, a key with its head, or a [`StoredObject`].
pub trait Scanned: Sized {
    /// The part of each entry that is read.
    const DETAIL: FoldDetail;

    /// Pages of large sets are shown as well.
    const SHOWS_PAGES: bool = false;

    /// The form of an entry.
    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError>;

    /// The key, if the form lacks the part of the value that is in pages.
    fn lacks_pages(&self) -> Option<&StorageKey> {
        None
    }

    /// The form with the whole object.
    fn with_pages(self, _whole: &Object) -> Result<Self, DecodeError> {
        Ok(self)
    }
}

impl Scanned for StorageKey {
    const DETAIL: FoldDetail = FoldDetail::Keys;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        Ok(visited.key.clone())
    }
}

impl Scanned for (StorageKey, Head) {
    const DETAIL: FoldDetail = FoldDetail::Heads;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        let head = head_of(visited.fields.tag, &visited.head)?;
        Ok((visited.key.clone(), head))
    }
}

/// An object of any kind as it is stored: replicas exchange this form.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Its key.
    pub key: StorageKey,
    /// Its head.
    pub head: Head,
    /// The head's bytes.
    pub head_bytes: Bytes,
    /// The body's bytes; they have not been compared with the head yet.
    pub body_bytes: Bytes,
    /// The value is the head of a set in pages.
    lacks_pages: bool,
}

impl StoredObject {
    fn of_parts(key: &StorageKey, parts: Encoded) -> Result<Self, DecodeError> {
        Ok(Self {
            key: key.clone(),
            head: Head::from_engine(&parts.head)?,
            head_bytes: parts.head,
            body_bytes: parts.body,
            lacks_pages: false,
        })
    }

    /// The object, once its body fits its head.
    pub fn decode(&self) -> Result<Arc<Object>, DecodeError> {
        Object::from_engine(&self.head_bytes, self.body_bytes.clone())
    }
}

impl Scanned for StoredObject {
    const DETAIL: FoldDetail = FoldDetail::Entries;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        let (tag, body) = (visited.fields.tag, visited.body.clone());
        let stored = Self::of_parts(visited.key, parts_of(tag, &visited.head, body)?)?;
        Ok(Self {
            lacks_pages: tag.is_in_pages(),
            ..stored
        })
    }

    fn lacks_pages(&self) -> Option<&StorageKey> {
        self.lacks_pages.then_some(&self.key)
    }

    fn with_pages(self, whole: &Object) -> Result<Self, DecodeError> {
        Self::of_parts(&self.key, whole.encode())
    }
}

impl Vnode {
    /// Reads a page of the entries whose keys `is_wanted` admits. It is called once for each key,
    /// in order. The end of the lease ends the page. Blocks.
    ///
    /// # Errors
    /// [`PageFailure::OutOfTime`] when the lease ended before the first key.
    pub fn scan<T: Scanned>(
        &self,
        request: &ScanRequest,
        is_wanted: &mut dyn FnMut(&StorageKey) -> bool,
    ) -> Result<ScanPage<T>, PageFailure> {
        self.scan_admitted(request, |_| {}, is_wanted)
    }

    /// Like [`Vnode::scan`], of those entries that the narrowed filter admits as well.
    pub(crate) fn scan_admitted<T: Scanned>(
        &self,
        request: &ScanRequest,
        narrow: impl FnOnce(&mut FoldFilter),
        is_wanted: &mut dyn FnMut(&StorageKey) -> bool,
    ) -> Result<ScanPage<T>, PageFailure> {
        self.scan_visited(request, narrow, &mut |visited| {
            !self.hides(visited.sequence) && is_wanted(visited.key)
        })
    }

    /// As [`Vnode::scan_admitted`], hidden entries among them.
    pub(crate) fn scan_visited<T: Scanned>(
        &self,
        request: &ScanRequest,
        narrow: impl FnOnce(&mut FoldFilter),
        is_wanted: &mut dyn FnMut(&Visited<'_>) -> bool,
    ) -> Result<ScanPage<T>, PageFailure> {
        let snapshot = self.backend.snapshot(request.lease);
        let snapshot = snapshot.map_err(ReplicaFailure::from)?;
        let mut reading = PageReading::new(request.limits);
        let visitor = &mut |visited: Visited<'_>| {
            let is_page = visited.fields.tag == Tag::PAGE;
            let is_wanted = (!is_page || T::SHOWS_PAGES) && is_wanted(&visited);
            reading.visit(&visited, is_wanted)
        };
        let mut filter = FoldFilter::unexpired_by(&request.clock);
        narrow(&mut filter);
        let end = snapshot.fold(T::DETAIL, &request.range, &filter, visitor);
        let mut page = reading.end(end.map_err(ReplicaFailure::from)?)?;
        if page.entries.iter().any(|it: &T| it.lacks_pages().is_some()) {
            self.complete(&mut page, request.clock.now())?;
        }
        Ok(page)
    }

    /// Adds to the entries of a page the parts of their values that are in pages. An entry removed
    /// meanwhile is left out.
    fn complete<T: Scanned>(
        &self,
        page: &mut ScanPage<T>,
        now: Timestamp,
    ) -> Result<(), ReplicaFailure> {
        for entry in std::mem::take(&mut page.entries) {
            let Some(key) = entry.lacks_pages() else {
                page.entries.push(entry);
                continue;
            };
            let whole = match self.read_unlocked(key, ReadAt::may_block(now)) {
                Ok(Some(whole)) => entry.with_pages(&whole).ok(),
                Ok(None) => continue,
                Err(Interrupted::Failed(ReplicaFailure::Damaged(_))) => None,
                Err(interrupted) => return Err(interrupted.into_failure()),
            };
            match whole {
                Some(whole) => page.entries.push(whole),
                None => page.undecodable += 1,
            }
        }
        Ok(())
    }

    /// The entry under one key, as a scan shows it; `None` also if it is unreadable. Blocks.
    pub fn stored_object(
        &self,
        key: &StorageKey,
        now: Timestamp,
    ) -> Result<Option<StoredObject>, ReplicaFailure> {
        let reading = Reading::MayBlock;
        let entry = match self.backend.get(key, ReadAt { reading, now }) {
            Ok(Lookup::Found(entry)) if self.hides(entry.sequence) => return Ok(None),
            Ok(Lookup::Found(entry)) => entry,
            Ok(Lookup::Absent | Lookup::WouldBlock) => return Ok(None),
            // A damaged entry stays where it is: the node's scrub reports it.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let parts = match entry.fields.tag.is_in_pages() {
            false => parts_of(entry.fields.tag, &entry.head, entry.body),
            true => match self.read_unlocked(key, ReadAt { reading, now }) {
                Ok(Some(whole)) => Ok(whole.encode()),
                Ok(None) | Err(Interrupted::Failed(ReplicaFailure::Damaged(_))) => return Ok(None),
                Err(interrupted) => return Err(interrupted.into_failure()),
            },
        };
        let object = parts.and_then(|parts| StoredObject::of_parts(key, parts));
        Ok(object.ok())
    }
}

/// A page while it is read.
struct PageReading<T> {
    limits: ScanLimits,
    page: ScanPage<T>,
    /// The first key that did not fit.
    cut: Option<StorageKey>,
}

impl<T: Scanned> PageReading<T> {
    fn new(limits: ScanLimits) -> Self {
        let page = ScanPage {
            entries: Vec::new(),
            bytes: 0,
            passed_over_bytes: 0,
            undecodable: 0,
            through: None,
            next: None,
        };
        Self {
            limits,
            page,
            cut: None,
        }
    }

    fn visit(&mut self, visited: &Visited<'_>, is_wanted: bool) -> Flow {
        let flow = match is_wanted {
            true => self.take(visited),
            false => self.pass_over(visited),
        };
        if self.cut.is_none() {
            self.page.through = Some(visited.key.clone());
        }
        flow
    }

    fn pass_over(&mut self, visited: &Visited<'_>) -> Flow {
        let bytes = &mut self.page.passed_over_bytes;
        *bytes = bytes.saturating_add(len_of(visited));
        stop_if(*bytes >= self.limits.passed_over_bytes_max)
    }

    /// Takes an entry into the page; the page is cut before it when it does not fit.
    fn take(&mut self, visited: &Visited<'_>) -> Flow {
        let (limits, page) = (&self.limits, &mut self.page);
        let Ok(entry) = T::of(visited) else {
            page.undecodable += 1;
            return Flow::Continue;
        };
        let bytes = page.bytes.saturating_add(len_of(visited));
        let in_pages_bytes = match entry.lacks_pages() {
            None => 0,
            Some(_) => {
                let pages = in_pages(visited.fields.tag, &visited.head);
                pages.unwrap_or_default().bytes
            }
        };
        let bytes = bytes.saturating_add(in_pages_bytes);
        let body_len = (visited.body.len() as u64).saturating_add(in_pages_bytes);
        let is_alone = body_len > limits.shared_body_bytes_max;
        let fits = !is_alone && bytes <= limits.bytes_max;
        if !fits && !page.entries.is_empty() {
            self.cut = Some(visited.key.clone());
            return Flow::Stop;
        }
        page.bytes = bytes;
        page.entries.push(entry);
        let has_all = page.entries.len() >= limits.entries_max;
        stop_if(is_alone || has_all || bytes >= limits.bytes_max)
    }

    fn end(self, end: FoldEnd) -> Result<ScanPage<T>, PageFailure> {
        let Self { mut page, cut, .. } = self;
        let next = match end {
            FoldEnd::Complete => None,
            FoldEnd::Stopped(next) => Some(next),
            FoldEnd::LeaseExpired(_) if page.through.is_none() => {
                return Err(PageFailure::OutOfTime);
            }
            FoldEnd::LeaseExpired(next) => Some(next),
        };
        page.next = cut.or(next);
        Ok(page)
    }
}

fn len_of(visited: &Visited<'_>) -> u64 {
    let len = visited.key.as_bytes().len() + visited.head.len() + visited.body.len();
    len as u64
}

fn stop_if(is_over: bool) -> Flow {
    if is_over { Flow::Stop } else { Flow::Continue }
}
