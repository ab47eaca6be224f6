//! Folds over several children, merged in the order of keys.
//!
//! A fold calls its visitor, so several folds cannot advance in turn. Each child is read in small
//! parts, always one without ready entries, and the smallest ready key is next.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{Fields, Flow, FoldEnd, FoldRange, Result, Sequence, Visited, Visitor};
use kvorum_encoding::{StorageKey, successor};

use crate::child::{ChildNumber, ChildSet};

/// The most entries of a part.
const ENTRIES_MAX: usize = 64;
/// The bytes with which a part ends.
const BYTES_MAX: usize = 256 << 10;

/// Reads a part of a child.
pub(crate) type ReadPart<'a> =
    dyn Fn(ChildNumber, &FoldRange, &mut Visitor<'_>) -> Result<FoldEnd> + 'a;

/// Chooses the child whose entry is shown for a key that several children have; `None` for no entry.
pub(crate) type Choose<'a> = dyn Fn(&StorageKey, ChildSet) -> Result<Option<ChildNumber>> + 'a;

/// The unit in which entries of children are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Key,
    Bucket,
}

impl Unit {
    fn of(self, key: &StorageKey) -> &[u8] {
        match self {
            Self::Key => key.as_bytes(),
            Self::Bucket => bucket_of_key(key),
        }
    }
}

/// The common prefix of all keys in the bucket of this key.
pub(crate) fn bucket_of_key(key: &StorageKey) -> &[u8] {
    let bytes = key.as_bytes();
    key.bucket_prefix_len().map_or(bytes, |len| &bytes[..len])
}

/// The ready entries of a child.
struct Source {
    child: ChildNumber,
    ready: VecDeque<Entry>,
    /// The range that was not read yet.
    rest: Option<FoldRange>,
    is_lease_over: bool,
}

struct Entry {
    key: StorageKey,
    sequence: Sequence,
    fields: Fields,
    head: Bytes,
    body: Bytes,
}

/// A merged fold.
pub(crate) struct KeyMerge<'a> {
    pub(crate) read: &'a ReadPart<'a>,
    pub(crate) choose: &'a Choose<'a>,
    pub(crate) unit: Unit,
}

impl KeyMerge<'_> {
    /// Visits the entries of a range in these children.
    pub(crate) fn run(
        &self,
        children: ChildSet,
        range: &FoldRange,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let mut sources: Vec<Source> = children
            .iter()
            .map(|child| Source::new(child, range))
            .collect();
        let mut next = first_key(range);
        loop {
            for source in &mut sources {
                self.fill(source)?;
            }
            if sources.iter().any(Source::is_stuck) {
                return Ok(FoldEnd::LeaseExpired(next));
            }
            let Some(unit) = self.smallest(&sources) else {
                return Ok(FoldEnd::Complete);
            };
            let shown = self.take(&mut sources, &unit)?;
            next = StorageKey::from_encoded(self.behind(&unit));
            if let Some(entry) = shown
                && visitor(entry.shown()) == Flow::Stop
            {
                return Ok(FoldEnd::Stopped(next));
            }
        }
    }

    fn fill(&self, source: &mut Source) -> Result<()> {
        while source.ready.is_empty()
            && !source.is_lease_over
            && let Some(range) = source.rest.take()
        {
            let (ready, mut bytes) = (&mut source.ready, 0);
            let end = (self.read)(source.child, &range, &mut |visited| {
                bytes += visited.key.as_bytes().len() + visited.head.len() + visited.body.len();
                ready.push_back(Entry::of(&visited));
                match ready.len() >= ENTRIES_MAX || bytes >= BYTES_MAX {
                    true => Flow::Stop,
                    false => Flow::Continue,
                }
            })?;
            match end {
                FoldEnd::Complete => {}
                FoldEnd::Stopped(at) => source.rest = Some(range.resumed_at(&at)),
                FoldEnd::LeaseExpired(_) => source.is_lease_over = true,
            }
        }
        Ok(())
    }

    fn smallest(&self, sources: &[Source]) -> Option<Bytes> {
        let units = sources.iter().filter_map(|it| it.ready.front());
        let least = units.map(|entry| self.unit.of(&entry.key)).min()?;
        Some(Bytes::copy_from_slice(least))
    }

    /// Takes the next entries of a key, or a bucket, from the children that have any; returns the
    /// one to show.
    fn take(&self, sources: &mut [Source], unit: &[u8]) -> Result<Option<Entry>> {
        let mut entries = Vec::new();
        let mut children = ChildSet::NONE;
        for source in sources {
            let is_it = |entry: &mut Entry| self.unit.of(&entry.key) == unit;
            if let Some(entry) = source.ready.pop_front_if(is_it) {
                children = children.with(source.child);
                entries.push((source.child, entry));
            }
        }
        let Some((_, first)) = entries.first() else {
            return Ok(None);
        };
        let chosen = (self.choose)(&first.key, children)?;
        let shown = entries
            .into_iter()
            .find(|(child, _)| Some(*child) == chosen);
        Ok(shown.map(|(_, entry)| entry))
    }

    /// The first key behind a key, or a bucket.
    fn behind(&self, unit: &Bytes) -> Bytes {
        let key = StorageKey::from_encoded(unit.clone());
        let is_bucket = key.bucket_prefix_len() == Ok(unit.len());
        match FoldRange::prefix(unit).to {
            Bound::Excluded(end) if is_bucket && self.unit == Unit::Bucket => end,
            _ => successor(unit),
        }
    }
}

impl Source {
    fn new(child: ChildNumber, range: &FoldRange) -> Self {
        Self {
            child,
            ready: VecDeque::new(),
            rest: Some(range.clone()),
            is_lease_over: false,
        }
    }

    /// True when the next key of the child is unknown.
    fn is_stuck(&self) -> bool {
        self.is_lease_over && self.ready.is_empty()
    }
}

impl Entry {
    fn of(visited: &Visited<'_>) -> Self {
        Self {
            key: visited.key.clone(),
            sequence: visited.sequence,
            fields: visited.fields,
            head: visited.head.clone(),
            body: visited.body.clone(),
        }
    }

    fn shown(&self) -> Visited<'_> {
        Visited {
            key: &self.key,
            sequence: self.sequence,
            fields: self.fields,
            head: self.head.clone(),
            body: self.body.clone(),
        }
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
