//! Snapshots of the B+tree: redb's read transactions.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, IndexRange, IndexVisitor, Lease, Result,
    Sequence, Snapshot, Timestamp, Visitor,
};
use kvorum_encoding::StorageKey;
use redb::ReadTransaction;

use super::{ENTRIES, INDEX, META, Row, tree_error};
use crate::entry_encoding::Value;
use crate::spike_lsm::{behind_bucket, successor, visited};

pub(crate) struct TreeSnapshot {
    pub(crate) transaction: ReadTransaction,
    pub(crate) lease: Lease,
    /// Erasing closes the database that the transaction reads.
    pub(crate) is_erased: Arc<AtomicBool>,
}

impl TreeSnapshot {
    fn walk(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        mut visit: impl FnMut(&StorageKey, &Value) -> (Flow, Bytes),
    ) -> Result<FoldEnd> {
        if self.is_erased.load(Ordering::Acquire) {
            return Ok(FoldEnd::LeaseExpired(first_key(range)));
        }
        let table = self.transaction.open_table(ENTRIES).map_err(tree_error)?;
        let mut rest = range.clone();
        loop {
            // A range that ends before it starts makes redb's iterator panic, so the ends are
            // checked here.
            let from = rest.from.as_ref().map(|it| &it[..]);
            let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (from, Bound::Unbounded);
            let Some(found) = table.range::<&[u8]>(bounds).map_err(tree_error)?.next() else {
                return Ok(FoldEnd::Complete);
            };
            let (key, bytes) = found.map_err(tree_error)?;
            if rest.is_past_end(key.value()) {
                return Ok(FoldEnd::Complete);
            }
            let row = Row::decode(key.value(), bytes.value())?;
            let key = StorageKey::from_encoded(Bytes::copy_from_slice(key.value()));
            if filter.is_over(self.lease) {
                return Ok(FoldEnd::LeaseExpired(key));
            }
            let mut next = successor(key.as_bytes());
            if filter.admits(&row.value.fields) {
                let (flow, go_on) = visit(&key, &row.value);
                next = go_on;
                if flow == Flow::Stop {
                    return Ok(FoldEnd::Stopped(StorageKey::from_encoded(next)));
                }
            }
            rest.from = Bound::Included(next);
        }
    }

    pub(crate) fn fold_index(
        &self,
        range: &IndexRange,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let index = self.transaction.open_table(INDEX).map_err(tree_error)?;
        let entries = self.transaction.open_table(ENTRIES).map_err(tree_error)?;
        let terms = FoldRange {
            from: range.from.clone(),
            to: range.to.clone(),
        };
        let (prefix, field) = (&range.bucket_prefix[..], &range.field[..]);
        let start = (prefix, field, &[][..], &[][..]);
        for found in index.range(start..).map_err(tree_error)? {
            let (position, ()) = {
                let (position, value) = found.map_err(tree_error)?;
                (position, value.value())
            };
            let (found_prefix, found_field, term, key) = position.value();
            if (found_prefix, found_field) != (prefix, field) || terms.is_past_end(term) {
                break;
            }
            let term = Bytes::copy_from_slice(term);
            let key = StorageKey::from_encoded(Bytes::copy_from_slice(key));
            let is_before = range
                .after
                .as_ref()
                .is_some_and(|after| (&term, &key) <= (&after.0, &after.1));
            if is_before || !terms.contains(&term) {
                continue;
            }
            if self.lease.is_over(now) {
                return Ok(FoldEnd::LeaseExpired(key));
            }
            let Some(bytes) = entries.get(key.as_bytes()).map_err(tree_error)? else {
                continue;
            };
            let row = Row::decode(key.as_bytes(), bytes.value())?;
            if !row.value.fields.is_expired(now) && visitor(&term, &key) == Flow::Stop {
                return Ok(FoldEnd::Stopped(key));
            }
        }
        Ok(FoldEnd::Complete)
    }
}

/// The first key that a range can hold.
fn first_key(range: &FoldRange) -> StorageKey {
    StorageKey::from_encoded(match &range.from {
        Bound::Included(from) => from.clone(),
        Bound::Excluded(from) => successor(from),
        Bound::Unbounded => Bytes::new(),
    })
}

impl Snapshot for TreeSnapshot {
    fn sequence(&self) -> Sequence {
        let table = self.transaction.open_table(META).ok();
        let sequence = table.and_then(|table| {
            let found = table.get("sequence").ok()?;
            found.map(|it| it.value())
        });
        Sequence(sequence.unwrap_or(0))
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk(range, filter, |key, value| {
            let flow = visitor(visited(key, value, detail));
            (flow, successor(key.as_bytes()))
        })
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk(range, filter, |key, value| {
            let flow = visitor(visited(key, value, FoldDetail::Keys));
            (flow, behind_bucket(key))
        })
    }
}
