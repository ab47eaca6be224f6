//! Index folds of a bucket that is in several children, merged in the order of (term, key).

use std::collections::VecDeque;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldEnd, IndexFolds, IndexRange, IndexVisitor, Lease, Result, Timestamp,
};
use kvorum_encoding::StorageKey;

/// The most entries of a part.
const ENTRIES_MAX: usize = 64;

/// A child's part of the fold.
pub(crate) struct IndexSource<'a> {
    indexes: &'a dyn IndexFolds,
    range: IndexRange,
    ready: VecDeque<(Bytes, StorageKey)>,
    is_read: bool,
    is_lease_over: bool,
}

impl<'a> IndexSource<'a> {
    pub(crate) fn new(indexes: &'a dyn IndexFolds, range: &IndexRange) -> Self {
        Self {
            indexes,
            range: range.clone(),
            ready: VecDeque::new(),
            is_read: false,
            is_lease_over: false,
        }
    }

    fn fill(&mut self, lease: Lease, now: Timestamp) -> Result<()> {
        if !self.ready.is_empty() || self.is_read || self.is_lease_over {
            return Ok(());
        }
        let ready = &mut self.ready;
        let visitor = &mut |term: &Bytes, key: &StorageKey| {
            ready.push_back((term.clone(), key.clone()));
            match ready.len() >= ENTRIES_MAX {
                true => Flow::Stop,
                false => Flow::Continue,
            }
        };
        let end = self.indexes.fold_index(&self.range, lease, now, visitor)?;
        if let Some(last) = self.ready.back() {
            self.range.after = Some(last.clone());
        }
        match end {
            FoldEnd::Complete => self.is_read = true,
            FoldEnd::Stopped(_) => {}
            FoldEnd::LeaseExpired(_) => self.is_lease_over = true,
        }
        Ok(())
    }

    fn is_stuck(&self) -> bool {
        self.is_lease_over && self.ready.is_empty()
    }
}

/// Visits the entries of all sources; the first source is the child of the route. An entry of another
/// source counts unless `is_superseded` is true for its key, since the child of the route has the key.
pub(crate) fn merge(
    mut sources: Vec<IndexSource<'_>>,
    lease: Lease,
    now: Timestamp,
    is_superseded: &dyn Fn(&StorageKey) -> Result<bool>,
    visitor: &mut IndexVisitor<'_>,
) -> Result<FoldEnd> {
    let mut last = StorageKey::from_encoded(Bytes::new());
    loop {
        for source in &mut sources {
            source.fill(lease, now)?;
        }
        if sources.iter().any(IndexSource::is_stuck) {
            return Ok(FoldEnd::LeaseExpired(last));
        }
        let fronts = sources.iter().enumerate();
        let fronts = fronts.filter_map(|(at, it)| it.ready.front().map(|front| (front, at)));
        // Of equal entries, that of the first source is the least.
        let Some((_, at)) = fronts.min() else {
            return Ok(FoldEnd::Complete);
        };
        let Some((term, key)) = sources[at].ready.pop_front() else {
            continue;
        };
        for source in &mut sources {
            let is_same = |it: &mut (Bytes, StorageKey)| it.0 == term && it.1 == key;
            let _same_entry = source.ready.pop_front_if(is_same);
        }
        let is_shown = at == 0 || !is_superseded(&key)?;
        if is_shown && visitor(&term, &key) == Flow::Stop {
            return Ok(FoldEnd::Stopped(key));
        }
        last = key;
    }
}
