//! Snapshots: walks over a store as it was at one moment.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{Fields, FoldFilter, Lease, LeaseWatch, Lookup, Result, Sequence};
use kvorum_disk::Reading;
use kvorum_encoding::successor;
use kvorum_ordered_tree::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
use kvorum_page_tree::{Entry, LostPage, Walk, Walked};
use kvorum_planted_defects::is_planted;

use crate::overlay::{Cursor, Held};
use crate::pins::Pin;
use crate::store::Store;
use crate::version::Version;

/// The part of an entry that a scan shows.
pub(crate) struct Shown<'a> {
    key: &'a Bytes,
    entry: &'a Entry,
    store: &'a Store,
    version: &'a Version,
}

impl TreeEntry for Shown<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn sequence(&self) -> Sequence {
        Sequence(self.entry.sequence)
    }

    fn fields(&self) -> &Fields {
        &self.entry.fields
    }

    fn extra(&self) -> Bytes {
        self.entry.extra.clone()
    }

    fn head(&self) -> Bytes {
        self.entry.head.clone()
    }

    fn body(&self) -> Result<Bytes> {
        let (store, reading) = (self.store, Reading::MayBlock);
        match store.body(self.version, self.key, self.entry, reading)? {
            Lookup::Found(body) => Ok(body),
            Lookup::Absent | Lookup::WouldBlock => Ok(Bytes::new()),
        }
    }

    fn payload_bytes(&self) -> usize {
        let body = match &self.entry.body {
            kvorum_page_tree::Body::Inline(body) => body.len(),
            kvorum_page_tree::Body::Apart { .. } | kvorum_page_tree::Body::Lost => 0,
        };
        self.entry.extra.len() + self.entry.head.len() + body
    }
}

/// A consistent view of a store.
pub(crate) struct View {
    store: Arc<Store>,
    pin: Arc<Pin>,
    sequence: u64,
    has_met_damage: AtomicBool,
}

impl View {
    pub(crate) fn take(store: &Arc<Store>, lease: Lease) -> Self {
        let (version, sequence) = store.view();
        Self {
            pin: store.pins.add(Version::clone(&version), lease),
            store: store.clone(),
            sequence,
            has_met_damage: AtomicBool::new(false),
        }
    }

    fn scan_version(
        &self,
        version: &Version,
        range: &ScanRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&Shown<'_>) -> ScanStep,
    ) -> Result<ScanEnd> {
        let mut walk = Merged::new(version, self.sequence, &first_of(&range.from));
        let mut lease = LeaseWatch::new(self.pin.lease, filter);
        loop {
            let (key, held) = match walk.advance()? {
                Step::Entry(key, held) => (key, held),
                Step::Lost(lost) => {
                    self.note_damage(&lost, range);
                    continue;
                }
                Step::End => return Ok(ScanEnd::Complete),
            };
            if is_past(&range.to, &key) {
                return Ok(ScanEnd::Complete);
            }
            if lease.passes_key() {
                return Ok(ScanEnd::LeaseExpired(key));
            }
            let Some(entry) = held.filter(|it| self.admits(&it.fields, filter)) else {
                continue;
            };
            let shown = Shown {
                key: &key,
                entry: &entry,
                store: &self.store,
                version,
            };
            match visit(&shown) {
                ScanStep::Next => {}
                ScanStep::Stop => return Ok(ScanEnd::Stopped),
                ScanStep::SkipTo(next) => {
                    if is_past(&range.to, &next) {
                        return Ok(ScanEnd::Complete);
                    }
                    walk = Merged::new(version, self.sequence, &next);
                }
            }
        }
    }

    fn note_damage(&self, lost: &LostPage, range: &ScanRange) {
        if !is_past(&range.to, &lost.range.from) {
            let _reported_by_the_view = self.store.corrupt(lost);
            self.has_met_damage.store(true, Ordering::Relaxed);
        }
    }

    fn admits(&self, fields: &Fields, filter: &FoldFilter) -> bool {
        filter.admits_of_any_age(fields) && !self.store.expiry.is_over(fields, filter.now)
    }
}

impl TreeView for View {
    type Entry<'a> = Shown<'a>;

    fn sequence(&self) -> Sequence {
        Sequence(self.sequence)
    }

    fn has_met_damage(&self) -> bool {
        self.has_met_damage.load(Ordering::Relaxed)
    }

    fn scan(
        &self,
        range: &ScanRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&Shown<'_>) -> ScanStep,
    ) -> Result<ScanEnd> {
        let held = self
            .pin
            .version()
            .filter(|_| !self.pin.lease.is_over(filter.now));
        let Some(version) = held else {
            return Ok(ScanEnd::LeaseExpired(first_of(&range.from)));
        };
        if is_planted!(SnapshotSeesLaterWrites) {
            let (version, sequence) = self.store.view();
            let later = Self {
                store: self.store.clone(),
                pin: self.pin.clone(),
                sequence,
                has_met_damage: AtomicBool::new(false),
            };
            return later.scan_version(&version, range, filter, visit);
        }
        self.scan_version(&version, range, filter, visit)
    }
}

/// A walk over the overlays and the tree as one.
struct Merged {
    /// Newest first.
    cursors: Vec<Cursor>,
    walk: Walk,
    /// The next entry of the tree.
    ahead: Option<(Bytes, Entry)>,
    is_ended: bool,
}

enum Step {
    /// A key, and its entry.
    Entry(Bytes, Held),
    Lost(LostPage),
    End,
}

impl Merged {
    fn new(version: &Version, sequence: u64, from: &Bytes) -> Self {
        let cursor = |it: &Arc<_>| Cursor::new(Arc::clone(it), sequence, from.clone());
        Self {
            cursors: version.overlays().map(cursor).collect(),
            walk: Walk::new(version.tree.clone(), from.clone()),
            ahead: None,
            is_ended: false,
        }
    }

    fn advance(&mut self) -> Result<Step> {
        if self.ahead.is_none() && !self.is_ended {
            match self.walk.advance()? {
                Walked::Entry(key, entry) => self.ahead = Some((key, entry)),
                Walked::Lost(lost) => return Ok(Step::Lost(lost)),
                Walked::End => self.is_ended = true,
            }
        }
        let in_memory = self.cursors.iter_mut().filter_map(|it| it.peek().cloned());
        let in_tree = self.ahead.as_ref().map(|(key, _)| key.clone());
        let Some(key) = in_memory.chain(in_tree).min() else {
            return Ok(Step::End);
        };
        let held = self.take(&key);
        Ok(held.map_or(Step::End, |held| Step::Entry(key, held)))
    }

    /// Returns the newest entry of a key, and skips older ones.
    fn take(&mut self, key: &Bytes) -> Option<Held> {
        let mut newest = None;
        for cursor in &mut self.cursors {
            if cursor.peek() == Some(key) {
                let taken = cursor.next().map(|(_, held)| held);
                newest = newest.or(taken);
            }
        }
        let below = self.ahead.take_if(|(ahead, _)| ahead == key);
        newest.or_else(|| below.map(|(_, entry)| Some(entry)))
    }
}

/// The first key that may be in a range with this beginning.
fn first_of(from: &Bound<Bytes>) -> Bytes {
    match from {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Bytes::new(),
    }
}

fn is_past(to: &Bound<Bytes>, key: &[u8]) -> bool {
    match to {
        Bound::Included(to) => key > &to[..],
        Bound::Excluded(to) => key >= &to[..],
        Bound::Unbounded => false,
    }
}
