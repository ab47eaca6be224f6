//! Snapshots: walks over a store as it was at one moment.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{Fields, FoldFilter, Lease, LeaseWatch, Result, Sequence};
use kvorum_disk::Reading;
use kvorum_encoding::{KeyRange, successor};
use kvorum_ordered_tree::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
use kvorum_planted_defects::is_planted;
use kvorum_sst::ScanFilter;

use crate::blob::BlobsAhead;
use crate::merge::{MergeWalk, Merged};
use crate::pins::Pin;
use crate::store::Store;
use crate::version::Version;
use crate::walk_entry::{WalkEntry, WalkValue};

/// The part of an entry that a scan shows.
pub struct Shown<'a> {
    key: &'a [u8],
    sequence: u64,
    value: &'a WalkValue,
    store: &'a Store,
    version: &'a Version,
    ahead: &'a RefCell<BlobsAhead>,
}

impl TreeEntry for Shown<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn sequence(&self) -> Sequence {
        Sequence(self.sequence)
    }

    fn fields(&self) -> &Fields {
        self.value.fields()
    }

    fn extra(&self) -> Bytes {
        self.value.value().extra
    }

    fn head(&self) -> Bytes {
        self.value.head()
    }

    fn body(&self) -> Result<Bytes> {
        let mut ahead = self.ahead.borrow_mut();
        let entry = (self.key, self.sequence, self.value.body());
        let reading = Reading::MayBlock;
        match self
            .store
            .body(self.version, entry, Some(&mut ahead), reading)?
        {
            kvorum_backend::Lookup::Found(body) => Ok(body),
            _ => Ok(Bytes::new()),
        }
    }

    fn payload_bytes(&self) -> usize {
        self.value.value().payload_bytes()
    }
}

/// A consistent view of a store.
pub struct LsmSnapshot {
    pub(crate) store: Arc<Store>,
    pub(crate) pin: Arc<Pin>,
    pub(crate) sequence: u64,
    pub(crate) has_met_damage: AtomicBool,
}

impl TreeView for LsmSnapshot {
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
        let expired = || {
            let from = first_of(&range.from);
            Ok(ScanEnd::LeaseExpired(from))
        };
        if self.pin.lease.is_over(filter.now) {
            return expired();
        }
        let Some(version) = self.pin.version() else {
            return expired();
        };
        let (version, sequence) = match is_planted!(SnapshotSeesLaterWrites) {
            true => self.store.view(),
            false => (version, self.sequence),
        };
        self.scan_version(&version, sequence, range, filter, visit)
    }
}

impl LsmSnapshot {
    pub(crate) fn take(store: &Arc<Store>, lease: Lease) -> Self {
        let (version, sequence) = store.view();
        Self {
            pin: store.pins.add(version, lease),
            store: store.clone(),
            sequence,
            has_met_damage: AtomicBool::new(false),
        }
    }

    fn scan_version(
        &self,
        version: &Version,
        sequence: u64,
        range: &ScanRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&Shown<'_>) -> ScanStep,
    ) -> Result<ScanEnd> {
        let skipped = ScanFilter {
            last_modified: filter
                .last_modified
                .as_ref()
                .map(|it| it.start().0..=it.end().0),
            segments: filter.segments.clone(),
        };
        let start = |from: &Bound<Bytes>| MergeWalk::of_version(version, sequence, from, &skipped);
        let mut walk = start(&range.from);
        let mut from = first_of(&range.from);
        let mut lease = LeaseWatch::new(self.pin.lease, filter);
        let ahead = RefCell::default();
        loop {
            let entry = match walk.advance::<WalkEntry>(&self.store.read_side)? {
                Merged::End => {
                    self.note_damage(&walk, from, &range.to);
                    return Ok(ScanEnd::Complete);
                }
                Merged::Hidden => None,
                Merged::Entry(held) => held.value.map(|value| (held.sequence, value)),
            };
            if is_past(&range.to, walk.key()) {
                self.note_damage(&walk, from, &range.to);
                return Ok(ScanEnd::Complete);
            }
            if lease.passes_key() {
                return Ok(ScanEnd::LeaseExpired(Bytes::copy_from_slice(walk.key())));
            }
            let Some((sequence, value)) =
                entry.filter(|(_, value)| self.admits(value.fields(), filter))
            else {
                continue;
            };
            let shown = Shown {
                key: walk.key(),
                sequence,
                value: &value,
                store: &self.store,
                version,
                ahead: &ahead,
            };
            match visit(&shown) {
                ScanStep::Next => {}
                ScanStep::Stop => {
                    let last = Bytes::copy_from_slice(walk.key());
                    self.note_damage(&walk, from, &Bound::Included(last));
                    return Ok(ScanEnd::Stopped);
                }
                ScanStep::SkipTo(key) => {
                    let last = Bytes::copy_from_slice(walk.key());
                    self.note_damage(&walk, from, &Bound::Included(last));
                    if is_past(&range.to, &key) {
                        return Ok(ScanEnd::Complete);
                    }
                    from = key.clone();
                    walk = start(&Bound::Included(key));
                }
            }
        }
    }

    /// Notes damage that a walk from one key to another has met.
    fn note_damage(&self, walk: &MergeWalk, from: Bytes, to: &Bound<Bytes>) {
        let to = match to {
            Bound::Included(last) => Some(successor(last)),
            Bound::Excluded(behind) => Some(behind.clone()),
            Bound::Unbounded => None,
        };
        if walk.has_lost(&KeyRange { from, to }) {
            self.has_met_damage.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn admits(&self, fields: &Fields, filter: &FoldFilter) -> bool {
        filter.admits_of_any_age(fields) && !self.store.expiry.is_over(fields, filter.now)
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
