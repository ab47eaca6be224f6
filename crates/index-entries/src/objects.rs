//! Snapshots and folds over objects.

use bytes::Bytes;
use kvorum_backend::{
    BackendError, ErrorKind, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Result, Sequence,
    Snapshot, Timestamp, Visited, Visitor,
};
use kvorum_encoding::{StorageKey, successor};
use kvorum_ordered_tree::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};

use crate::keyspace::{all_objects, object_key, object_range, storage_key};

/// The objects in a view of a tree.
pub struct ObjectsView<V> {
    view: V,
}

impl<V: TreeView> ObjectsView<V> {
    /// The objects of this view.
    pub fn of(view: V) -> Self {
        Self { view }
    }

    /// True when there is no unexpired object.
    ///
    /// # Errors
    /// Those of [`TreeView::scan`].
    pub fn is_empty(&self, now: Timestamp) -> Result<bool> {
        let (from, to) = all_objects();
        let filter = FoldFilter::unexpired(now);
        let stop = &mut |_: &V::Entry<'_>| ScanStep::Stop;
        let end = self.view.scan(&ScanRange { from, to }, &filter, stop)?;
        Ok(end == ScanEnd::Complete)
    }

    /// Visits a range; `behind` returns the key to continue from after a key.
    fn walk(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        behind: &dyn Fn(&StorageKey) -> Option<Bytes>,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let (from, to) = object_range(range);
        let mut resume = None;
        let mut failure: Option<BackendError> = None;
        let end = self
            .view
            .scan(&ScanRange { from, to }, filter, &mut |shown| {
                let key = storage_key(shown.key());
                let body = match body_of(shown, detail) {
                    Ok(Some(body)) => body,
                    // Damage is reported in the status, and does not stop the walk.
                    Ok(None) => return ScanStep::Next,
                    Err(error) => {
                        failure = Some(error);
                        return ScanStep::Stop;
                    }
                };
                let head = match detail {
                    FoldDetail::Keys => Bytes::new(),
                    _ => shown.head(),
                };
                let flow = visitor(Visited {
                    key: &key,
                    sequence: shown.sequence(),
                    fields: *shown.fields(),
                    head,
                    body,
                });
                let next = behind(&key);
                match flow {
                    Flow::Stop => {
                        resume = Some(next.unwrap_or_else(|| successor(key.as_bytes())));
                        ScanStep::Stop
                    }
                    Flow::Continue => match next {
                        Some(next) => ScanStep::SkipTo(object_key(&next)),
                        None => ScanStep::Next,
                    },
                }
            })?;
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(match (end, resume) {
            (ScanEnd::Stopped, Some(resume)) => FoldEnd::Stopped(StorageKey::from_encoded(resume)),
            (ScanEnd::LeaseExpired(key), _) => FoldEnd::LeaseExpired(storage_key(&key)),
            _ => FoldEnd::Complete,
        })
    }
}

impl<V: TreeView> Snapshot for ObjectsView<V> {
    fn has_met_damage(&self) -> bool {
        self.view.has_met_damage()
    }

    fn sequence(&self) -> Sequence {
        self.view.sequence()
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk(detail, range, filter, &|_| None, visitor)
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let behind = |key: &StorageKey| Some(behind_bucket(key));
        self.walk(FoldDetail::Keys, range, filter, &behind, visitor)
    }
}

/// `Ok(None)` when the body is damaged.
fn body_of(shown: &impl TreeEntry, detail: FoldDetail) -> Result<Option<Bytes>> {
    if detail != FoldDetail::Entries {
        return Ok(Some(Bytes::new()));
    }
    match shown.body() {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first possible storage key behind a key's bucket.
fn behind_bucket(key: &StorageKey) -> Bytes {
    let prefix_len = key.bucket_prefix_len().unwrap_or(key.as_bytes().len());
    match FoldRange::prefix(&key.as_bytes()[..prefix_len]).to {
        std::ops::Bound::Excluded(behind) => behind,
        _ => successor(key.as_bytes()),
    }
}
