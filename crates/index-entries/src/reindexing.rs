//! Settling the tree's doubts: rebuilding index entries from their objects, and removing entries
//! without an object.
//!
//! A round handles all doubts that are open at its beginning. For doubts about index entries, it
//! reads the objects, and puts entries that are in an object's list and missing. For doubts about
//! objects, it reads the index, and removes entries that are not in their object's list: a put over
//! an unreadable object did not have the old list. These changes go below everything in memory, so
//! that they undo no put; see [`OrderedTree::put_below`].
//!
//! Entries of an unreadable object stay in doubt. The next round begins when the object has been
//! put again, or when everything in doubt is readable. A destroyed object keeps its entries, since
//! replicas have the object. Only the object stays in doubt, until it is put or removed.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{
    ErrorKind, FoldFilter, Lease, Lookup, Result, Sequence, StepBudget, StepOutcome, Task,
    TaskKind, Timestamp, Urgency,
};
use kvorum_encoding::{KeyRange, StorageKey, successor};
use kvorum_ordered_tree::{
    Doubt, DoubtKind, OrderedTree, PutBelow, ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView,
};
use parking_lot::Mutex;

use crate::keyspace::{
    all_entries, entry_and_key, index_key, object_key, object_range_of, objects,
    objects_of_entries, storage_key,
};
use crate::listing::decode;
use crate::stored::{OF_ANY_AGE, Stored, read_stored};

/// The usual maximum cost of a lookup: a block.
const LOOKUP_BYTES: u64 = 4096;
/// The most unreadable objects that are listed one by one.
const UNREAD_MAX: usize = 1_000;
/// The most lost objects with entries that are kept. When further lost objects are put again, their
/// old entries may stay.
const GONE_MAX: usize = 500;

/// The rounds of a tree.
#[derive(Default)]
pub struct Reindexing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    round: Option<Round>,
    waiting: Option<Waiting>,
}

/// The unsettled rest of the last round.
struct Waiting {
    /// The number of doubts opened by its beginning.
    opened: u64,
    /// Objects that were unreadable.
    unread: Vec<KeyRange>,
}

/// One pass over everything in doubt.
struct Round {
    opened: u64,
    doubts: Vec<Doubt>,
    stage: Stage,
    /// Damage was found among the objects that were read for their entries.
    lacks_objects: bool,
    /// Unreadable objects in doubt that have entries.
    unread: Vec<KeyRange>,
    /// Lost objects with entries.
    gone: BTreeSet<StorageKey>,
}

enum Stage {
    /// Memory has batches that a log replayed in parts, up to this one; entries put below them
    /// would have no effect.
    Flushing {
        up_to: Sequence,
    },
    /// Reading objects, from this key on.
    Objects {
        from: Bytes,
    },
    /// Reading index entries, from this key on.
    Entries {
        from: Bytes,
    },
    Over,
}

/// A part of a stage.
struct Part {
    next: Option<Bytes>,
    bytes: u64,
    has_met_damage: bool,
    unread: Vec<KeyRange>,
    gone: Vec<StorageKey>,
}

impl Reindexing {
    /// The due task, if there are doubts to settle.
    pub fn due<T: OrderedTree>(&self, tree: &T) -> Option<Task> {
        // During a step of another thread, no task is listed.
        let state = self.state.try_lock()?;
        (tree.is_writable() && state.is_due(tree)).then(|| Task {
            kind: TaskKind::Reindex,
            subject: 0,
            urgency: Urgency::Idle,
            cost_bytes: tree.walked_bytes(),
        })
    }

    /// Does a part of a round, or begins one.
    ///
    /// # Errors
    /// Those of reading and writing the tree.
    pub fn step<T: OrderedTree>(
        &self,
        tree: &T,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let mut state = self.state.lock();
        if state.round.is_none() {
            if !state.is_due(tree) {
                return Ok(StepOutcome::nothing_left());
            }
            state.waiting = None;
            state.round = Some(Round::begin(tree));
        }
        let Some(round) = &mut state.round else {
            return Ok(StepOutcome::nothing_left());
        };
        let cost_bytes = round.step(tree, budget.bytes.max(1), now)?;
        let is_done = matches!(round.stage, Stage::Over);
        if is_done && let Some(round) = state.round.take() {
            state.waiting = round.finish(tree)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }
}

impl State {
    fn is_due<T: OrderedTree>(&self, tree: &T) -> bool {
        let is_waiting = self.waiting.as_ref().is_some_and(|waiting| {
            let is_unread = || waiting.unread.iter().any(|range| tree.is_lost(range));
            let is_news = waiting.opened != tree.doubts().opened();
            !is_news && (waiting.unread.is_empty() || is_unread())
        });
        self.round.is_some() || (!is_waiting && !tree.doubts().all().is_empty())
    }
}

impl Round {
    fn begin<T: OrderedTree>(tree: &T) -> Self {
        Self {
            opened: tree.doubts().opened(),
            doubts: tree.doubts().all(),
            stage: match tree.has_extras() {
                true => Stage::Flushing {
                    up_to: tree.view(Lease::Unlimited).sequence(),
                },
                // The tree never had an entry.
                false => Stage::Over,
            },
            lacks_objects: false,
            unread: Vec::new(),
            gone: BTreeSet::new(),
        }
    }

    fn step<T: OrderedTree>(&mut self, tree: &T, budget_bytes: u64, now: Timestamp) -> Result<u64> {
        let (from, is_of_objects) = match &self.stage {
            Stage::Flushing { up_to } => {
                let outcome = tree.flush_part(budget_bytes, now)?;
                let is_empty = outcome == StepOutcome::nothing_left();
                if is_empty || (outcome.is_done && tree.flushed() >= *up_to) {
                    self.stage = self.objects_stage();
                }
                return Ok(outcome.cost_bytes);
            }
            Stage::Objects { from } => (from.clone(), true),
            Stage::Entries { from } => (from.clone(), false),
            Stage::Over => return Ok(0),
        };
        let put = tree.put_below(budget_bytes, now, || match is_of_objects {
            true => self.missing_entries(tree, from, budget_bytes),
            false => self.left_over_entries(tree, from, budget_bytes),
        })?;
        let (part, written) = match put {
            PutBelow::Flushing(outcome) => return Ok(outcome.cost_bytes),
            PutBelow::Done(part, written) => (part, written),
        };
        self.lacks_objects |= part.has_met_damage && is_of_objects;
        self.unread.extend(part.unread);
        if self.unread.len() > UNREAD_MAX {
            self.unread = vec![objects()];
        }
        let room = GONE_MAX.saturating_sub(self.gone.len());
        self.gone.extend(part.gone.into_iter().take(room));
        self.stage = match (part.next, is_of_objects) {
            (Some(from), true) => Stage::Objects { from },
            (Some(from), false) => Stage::Entries { from },
            (None, true) => self.entries_stage(),
            (None, false) => Stage::Over,
        };
        Ok(part.bytes + written)
    }

    fn about<'a>(&'a self, keys: &'a KeyRange) -> impl Iterator<Item = &'a Doubt> {
        self.doubts.iter().filter(|it| it.range.overlaps(keys))
    }

    /// The range of objects that may have entries in doubt.
    fn objects_in_question(&self) -> Option<KeyRange> {
        let entries = all_entries();
        let ranges = self.about(&entries).map(|it| objects_of_entries(&it.range));
        ranges.reduce(|all, one| all.with(&one))
    }

    fn objects_stage(&self) -> Stage {
        match self.objects_in_question() {
            Some(range) => Stage::Objects { from: range.from },
            None => self.entries_stage(),
        }
    }

    fn entries_stage(&self) -> Stage {
        match self.about(&objects()).next() {
            Some(_) => Stage::Entries {
                from: all_entries().from,
            },
            None => Stage::Over,
        }
    }

    /// Entries in doubt that their objects list and the tree lacks.
    fn missing_entries<T: OrderedTree>(
        &self,
        tree: &T,
        from: Bytes,
        budget_bytes: u64,
    ) -> Result<(Vec<T::Op>, Part)> {
        let range = self.objects_in_question().unwrap_or_else(objects);
        let doubts = self.doubts.iter();
        let doubts: Vec<&KeyRange> = doubts.map(|it| &it.range).collect();
        let mut listed = Vec::new();
        let part = read_part(tree, from, range.to, budget_bytes, &mut |shown| {
            let (key, before) = (storage_key(shown.key()), listed.len());
            for entry in decode(&shown.extra()).unwrap_or_default() {
                let at = index_key(&key, &entry);
                if doubts.iter().any(|it| it.contains(&at)) {
                    listed.push((at.clone(), tree.bare_op(at, *shown.fields())));
                }
            }
            listed.len() - before
        })?;
        let mut ops = Vec::new();
        for (at, op) in listed {
            let is_there = match tree.extra(&at, OF_ANY_AGE) {
                Err(error) if error.kind() == ErrorKind::Corrupt => false,
                found => matches!(found?, Lookup::Found(_)),
            };
            if !is_there {
                ops.push(op);
            }
        }
        Ok((ops, part))
    }

    /// Entries that their objects, which are in doubt, do not list.
    fn left_over_entries<T: OrderedTree>(
        &self,
        tree: &T,
        from: Bytes,
        budget_bytes: u64,
    ) -> Result<(Vec<T::Op>, Part)> {
        let objects = objects();
        let doubts: Vec<&KeyRange> = self.about(&objects).map(|it| &it.range).collect();
        let mut found = Vec::new();
        let to = all_entries().to;
        let mut part = read_part(tree, from, to, budget_bytes, &mut |shown| {
            let Some((entry, key)) = entry_and_key(shown.key()) else {
                return 0;
            };
            let object = object_key(key.as_bytes());
            let is_in_doubt = doubts.iter().any(|it| it.contains(&object));
            if is_in_doubt {
                found.push((Bytes::copy_from_slice(shown.key()), entry, key));
            }
            usize::from(is_in_doubt)
        })?;
        let mut ops = Vec::new();
        for (at, entry, key) in found {
            match read_stored(tree, &key, OF_ANY_AGE.reading)? {
                Stored::Found(_, listed) => {
                    let lists_it = |entries: BTreeSet<_>| entries.contains(&entry);
                    // A list that does not decode proves nothing.
                    if !decode(&listed).map_or(true, lists_it) {
                        ops.push(tree.remove_op(at));
                    }
                }
                Stored::Absent if self.is_replaced(&key) => ops.push(tree.remove_op(at)),
                Stored::Absent => part.gone.push(key),
                Stored::Damaged => part.unread.push(object_range_of(&key)),
            }
        }
        Ok((ops, part))
    }

    /// True when the object was written or removed, and not only lost.
    fn is_replaced(&self, key: &StorageKey) -> bool {
        let object = object_key(key.as_bytes());
        let mut replaced = self
            .doubts
            .iter()
            .filter(|it| it.kind == DoubtKind::Replaced);
        replaced.any(|it| it.range.contains(&object))
    }

    /// Closes the settled doubts, and returns the waiting ones.
    fn finish<T: OrderedTree>(self, tree: &T) -> Result<Option<Waiting>> {
        let mut unread = self.unread.clone();
        let questioned = self.objects_in_question().filter(|_| self.lacks_objects);
        let entries = all_entries();
        let is_settled = |doubt: &&Doubt| {
            let lacks_objects = self.lacks_objects && doubt.range.overlaps(&entries);
            !lacks_objects && !unread.iter().any(|it| it.overlaps(&doubt.range))
        };
        let settled = self.doubts.iter().filter(is_settled);
        let settled: Vec<u64> = settled.map(|it| it.id).collect();
        let gone: Vec<KeyRange> = self.gone.iter().map(object_range_of).collect();
        tree.settle_doubts(&settled, &gone)?;
        unread.extend(questioned);
        Ok(Some(Waiting {
            // The doubts opened just now are included.
            opened: self.opened + gone.len() as u64,
            unread,
        }))
    }
}

/// Visits a part of a range, entries of any age. The visitor returns the number of lookups for an
/// entry.
fn read_part<T: OrderedTree>(
    tree: &T,
    from: Bytes,
    to: Option<Bytes>,
    budget_bytes: u64,
    show: &mut dyn FnMut(&<T::View as TreeView>::Entry<'_>) -> usize,
) -> Result<Part> {
    let view = tree.view(Lease::Unlimited);
    let range = ScanRange {
        from: Bound::Included(from),
        to: to.map_or(Bound::Unbounded, Bound::Excluded),
    };
    let mut bytes = 0;
    let mut last = Bytes::new();
    let filter = FoldFilter::unexpired(OF_ANY_AGE.now);
    let end = view.scan(&range, &filter, &mut |shown| {
        let read = shown.key().len() + shown.payload_bytes();
        let lookups = show(shown) as u64;
        bytes += read as u64 + lookups * LOOKUP_BYTES;
        if bytes < budget_bytes {
            return ScanStep::Next;
        }
        last = Bytes::copy_from_slice(shown.key());
        ScanStep::Stop
    })?;
    let next = (end == ScanEnd::Stopped).then(|| successor(&last));
    Ok(Part {
        next,
        bytes,
        has_met_damage: view.has_met_damage(),
        unread: Vec::new(),
        gone: Vec::new(),
    })
}
