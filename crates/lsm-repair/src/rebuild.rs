//! Merging all tables of a store to one level, by the sequences of their entries: the repair
//! without a record of the tables' levels.
//!
//! Sequences decide, and not the order of layers. So all files are merged, leftovers of earlier
//! merges included. Removals are dropped, unless a journal may have older records of their keys.
//! Tables that share no keys with others are kept. The others are cut into ranges of keys, each
//! with a unit of work.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_encoding::successor;
use kvorum_lsm::Entry;
use kvorum_lsm::files::table_path;
use kvorum_lsm::segment_of;
use kvorum_sst::{Facts, Mark, MarkKind, Marks, ScanItem, ScanOptions, TableScan, TableWriter};
use kvorum_storage_errors::IntoBackend;

use crate::salvage::{READ_AHEAD_BYTES, all_of, context, doubt, finish};
use crate::work::{Done, Ground, SourceTable, end_of, lost_mark};

/// The most possible cuts that are considered, in all tables together.
const CUTS_MAX: usize = 100_000;
/// Progress is reported each time this many keys were merged.
const PROGRESS_KEYS: u64 = 4_096;

/// A range of keys that becomes tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangePlan {
    pub(crate) from: Option<Bytes>,
    pub(crate) to: Option<Bytes>,
    /// Positions of the tables that may have keys in the range.
    pub(crate) sources: Vec<usize>,
}

/// The tables, and the ranges to merge.
#[derive(Clone, Debug, Default)]
pub(crate) struct RebuildPlan {
    pub(crate) sources: Vec<SourceTable>,
    /// Numbers of tables that stay unchanged.
    pub(crate) adopted: Vec<u64>,
    pub(crate) ranges: Vec<RangePlan>,
}

impl RebuildPlan {
    pub(crate) fn new(
        ground: &Ground<'_>,
        sources: Vec<SourceTable>,
        unit_bytes: u64,
    ) -> Result<Self> {
        let mut plan = Self {
            sources,
            ..Self::default()
        };
        for source in &mut plan.sources {
            reach_to_the_end(ground, source)?;
        }
        for group in groups(&plan.sources) {
            match &group[..] {
                [one] if plan.sources[*one].is_whole => {
                    plan.adopted.push(plan.sources[*one].number);
                }
                _ => plan.cut(ground, &group, unit_bytes)?,
            }
        }
        Ok(plan)
    }

    fn cut(&mut self, ground: &Ground<'_>, group: &[usize], unit_bytes: u64) -> Result<()> {
        let bytes: u64 = group.iter().map(|it| self.sources[*it].file_len).sum();
        let wanted = usize::try_from(bytes / unit_bytes.max(1)).unwrap_or(usize::MAX);
        let mut places = Vec::new();
        if wanted > 1 {
            for source in group.iter().map(|it| &self.sources[*it]) {
                let each = CUTS_MAX / group.len();
                places.extend(separators(ground, source, each.max(1))?);
            }
        }
        places.sort_unstable();
        places.dedup();
        let step = (places.len() / wanted.max(1)).max(1);
        let cuts: Vec<Bytes> = places
            .into_iter()
            .skip(step)
            .step_by(step)
            .take(wanted.saturating_sub(1))
            .collect();
        for at in 0..=cuts.len() {
            let from = at.checked_sub(1).map(|it| cuts[it].clone());
            let to = cuts.get(at).cloned();
            let is_in = |it: &SourceTable| {
                let is_behind = to.as_ref().is_some_and(|to| it.properties.smallest >= *to);
                let is_before = from
                    .as_ref()
                    .is_some_and(|from| it.properties.largest < *from);
                !is_behind && !is_before
            };
            let sources = group.iter().copied();
            let sources = sources.filter(|it| is_in(&self.sources[*it])).collect();
            self.ranges.push(RangePlan { from, to, sources });
        }
        Ok(())
    }
}

/// Extends the key range of a damaged table to the end of its index, since its properties and its
/// last block may be lost.
fn reach_to_the_end(ground: &Ground<'_>, source: &mut SourceTable) -> Result<()> {
    if source.is_whole || !source.is_present {
        return Ok(());
    }
    let path = table_path(ground.directory, source.number);
    let table = ground.open(&path, source).into_backend()?;
    if let Some(last) = table.separators().last() {
        let largest = &mut source.properties.largest;
        *largest = last.clone().max(std::mem::take(largest));
    }
    Ok(())
}

/// Groups of tables with common keys, directly or through other tables.
fn groups(sources: &[SourceTable]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|it| (&sources[*it].properties.smallest, sources[*it].number));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut reach: &[u8] = &[];
    for at in order {
        let properties = &sources[at].properties;
        match groups.last_mut() {
            Some(group) if properties.smallest[..] <= *reach => group.push(at),
            _ => groups.push(vec![at]),
        }
        reach = reach.max(&properties.largest);
    }
    groups.iter_mut().for_each(|it| it.sort_unstable());
    groups
}

fn separators(ground: &Ground<'_>, source: &SourceTable, most: usize) -> Result<Vec<Bytes>> {
    if !source.is_present {
        return Ok(Vec::new());
    }
    let path = table_path(ground.directory, source.number);
    let table = ground.open(&path, source).into_backend()?;
    let count = table.separators().count();
    let step = count.div_ceil(most).max(1);
    Ok(table.separators().step_by(step).cloned().collect())
}

/// A table in a merge.
struct Stream<'a> {
    source: &'a SourceTable,
    scan: Option<TableScan>,
    /// The facts of the current entry, once decoded.
    facts: Option<Facts>,
    /// Ranges lost before the present position.
    gaps: VecDeque<Mark>,
}

impl Stream<'_> {
    fn key(&self) -> &[u8] {
        self.scan.as_ref().map_or(&[], TableScan::key)
    }

    fn value(&self) -> &[u8] {
        self.scan.as_ref().map_or(&[], TableScan::value)
    }

    /// Advances to the next entry before `to`; false at the end. Gaps are added to `found`.
    fn advance(&mut self, to: Option<&Bytes>, found: &mut Vec<Mark>) -> Result<bool> {
        loop {
            let Some(scan) = &mut self.scan else {
                return Ok(false);
            };
            let gap = match scan.advance(&context()).into_backend()? {
                ScanItem::Entry => {
                    let key = scan.key();
                    if to.is_some_and(|to| *key >= **to) {
                        self.scan = None;
                        return Ok(false);
                    }
                    match Entry::facts_of(scan.value()) {
                        Ok(facts) => {
                            self.facts = Some(facts);
                            return Ok(true);
                        }
                        Err(_) => {
                            lost_mark(Bytes::copy_from_slice(key), successor(key), Bytes::new())
                        }
                    }
                }
                ScanItem::Gap(gap) => lost_mark(gap.from, gap.to, gap.filter),
                ScanItem::End => {
                    self.scan = None;
                    return Ok(false);
                }
            };
            // The end of a rebuilt index's last range is unknown.
            let end = end_of(&self.source.properties);
            if let Some(gap) = gap.clipped(None, Some(&end)) {
                found.push(gap.clone());
                self.gaps.push_back(gap);
            }
        }
    }

    /// True when the table may have lost a newer entry of a key.
    fn may_have_had_newer(&mut self, key: &[u8], sequence: u64) -> bool {
        while self.gaps.front().is_some_and(|it| &it.to[..] <= key) {
            self.gaps.pop_front();
        }
        sequence <= self.source.properties.sequence_max && self.gaps.iter().any(|it| it.covers(key))
    }
}

/// A merge of a range.
pub(crate) struct RangeMerge<'a> {
    ground: Ground<'a>,
    plan: &'a RangePlan,
    streams: Vec<Stream<'a>>,
    /// Streams with a current entry, by key.
    order: Vec<usize>,
    /// Removed ranges.
    removed: Marks,
    /// Lost ranges, for marks and for the report.
    gaps: Vec<Mark>,
    writer: Option<TableWriter>,
    range_from: Option<Bytes>,
    /// Numbers for tables: the first number, and the count.
    numbers: (u64, u64),
    done: Done,
}

impl<'a> RangeMerge<'a> {
    pub(crate) fn new(
        ground: Ground<'a>,
        rebuild: &'a RebuildPlan,
        plan: &'a RangePlan,
        numbers: (u64, u64),
    ) -> Result<Self> {
        let mut merge = Self {
            ground,
            plan,
            streams: Vec::new(),
            order: Vec::new(),
            removed: Marks::default(),
            gaps: Vec::new(),
            writer: None,
            range_from: plan.from.clone(),
            numbers,
            done: Done::default(),
        };
        let mut removed = Vec::new();
        for source in plan.sources.iter().map(|it| &rebuild.sources[*it]) {
            let marks = source.properties.marks.iter();
            removed.extend(marks.filter(|it| it.kind == MarkKind::Removed).cloned());
            merge.add(source)?;
        }
        merge.removed = Marks::new(removed);
        Ok(merge)
    }

    fn add(&mut self, source: &'a SourceTable) -> Result<()> {
        let mut stream = Stream {
            source,
            scan: None,
            facts: None,
            gaps: VecDeque::new(),
        };
        // The table's earlier losses.
        let marks = source.properties.marks.iter();
        for mark in marks.filter(|it| it.kind == MarkKind::Lost) {
            self.note_gap(source.number, mark);
            stream.gaps.push_back(mark.clone());
        }
        if source.is_present {
            let path = table_path(self.ground.directory, source.number);
            let table = self.ground.open(&path, source).into_backend()?;
            let options = ScanOptions {
                from: match &self.plan.from {
                    Some(from) => Bound::Included(from.clone()),
                    None => Bound::Unbounded,
                },
                read_ahead_bytes: READ_AHEAD_BYTES,
                ..ScanOptions::default()
            };
            stream.scan = Some(TableScan::new(Arc::new(table), options));
        } else {
            let gap = all_of(source);
            self.note_gap(source.number, &gap);
            stream.gaps.push_back(gap);
        }
        self.streams.push(stream);
        Ok(())
    }

    /// Notes the part of a gap within the range.
    fn note_gap(&mut self, number: u64, gap: &Mark) {
        let clipped = gap.clipped(self.plan.from.as_ref(), self.plan.to.as_ref());
        if let Some(gap) = clipped {
            self.done.doubts.push(doubt(number, &gap));
            self.gaps.push(gap);
        }
    }

    pub(crate) fn run(mut self, progress: &dyn Fn(u64)) -> Result<Done> {
        for at in 0..self.streams.len() {
            self.advance(at)?;
        }
        let mut key = Vec::new();
        let (mut reported, mut keys) = (0, 0_u64);
        while let Some(first) = self.order.first().copied() {
            key.clear();
            key.extend_from_slice(self.streams[first].key());
            if let Some((best, facts)) = self.newest(&key)
                && !self.is_removed(&key, &facts)
            {
                match self.is_doubtful(&key, best, &facts) {
                    true => self.done.hidden += 1,
                    false => self.put(&key, best, &facts)?,
                }
            }
            while let Some(at) = self.order.first().copied()
                && self.streams[at].key() == key
            {
                self.order.remove(0);
                self.advance(at)?;
            }
            keys += 1;
            if keys.is_multiple_of(PROGRESS_KEYS) {
                let scans = self.streams.iter().filter_map(|it| it.scan.as_ref());
                let read: u64 = scans.map(TableScan::bytes_read).sum();
                progress(read.saturating_sub(reported));
                reported = reported.max(read);
            }
        }
        self.end_output(self.plan.to.clone())?;
        Ok(self.done)
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        let mut found = Vec::new();
        let has_entry = self.streams[at].advance(self.plan.to.as_ref(), &mut found)?;
        let number = self.streams[at].source.number;
        for gap in found {
            self.note_gap(number, &gap);
        }
        if has_entry {
            let key = self.streams[at].key();
            let is_behind = |other: &usize| (self.streams[*other].key(), *other) > (key, at);
            let place = self.order.iter().position(is_behind);
            self.order.insert(place.unwrap_or(self.order.len()), at);
        }
        Ok(())
    }

    /// The facts of a key's entry with the highest sequence, and the entry's stream.
    fn newest(&mut self, key: &[u8]) -> Option<(usize, Facts)> {
        let mut newest: Option<(usize, Facts)> = None;
        for at in self.order.iter().copied() {
            if self.streams[at].key() != key {
                break;
            }
            let Some(facts) = self.streams[at].facts.take() else {
                continue;
            };
            // A copy out of the value log has the sequence of its original, whose body may be lost.
            let is_better = |(_, known): &(usize, Facts)| {
                (known.sequence, !is_logged(known)) < (facts.sequence, !is_logged(&facts))
            };
            if newest.as_ref().is_none_or(is_better) {
                newest = Some((at, facts));
            }
        }
        newest
    }

    fn is_removed(&self, key: &[u8], facts: &Facts) -> bool {
        let mark = self.removed.strongest(key);
        let is_over = facts.is_removal && !self.ground.has_journal;
        is_over || mark.is_some_and(|it| it.sequence > facts.sequence)
    }

    fn is_doubtful(&mut self, key: &[u8], from: usize, facts: &Facts) -> bool {
        let others = self.streams.iter_mut().enumerate();
        let mut others = others.filter(|(at, _)| *at != from).map(|(_, it)| it);
        !self.ground.keeps_doubtful && others.any(|it| it.may_have_had_newer(key, facts.sequence))
    }

    /// Writes the unchanged bytes of a stream's current entry.
    fn put(&mut self, key: &[u8], from: usize, facts: &Facts) -> Result<()> {
        let settings = self.ground.settings;
        let len_max = settings.policy.table_bytes_max;
        let is_full = self.writer.as_ref().is_some_and(|it| it.len() >= len_max);
        if is_full && self.numbers.1 > 1 {
            self.end_output(Some(Bytes::copy_from_slice(key)))?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(start(&self.ground, self.numbers.0)?),
        };
        self.done.entries += 1;
        writer
            .add(key, self.streams[from].value(), facts)
            .into_backend()
    }

    /// Finishes the present table, with marks over losses up to the next table's first key. The marks
    /// hide no entries, since no level is below, but make reads report keys as lost instead of
    /// absent.
    fn end_output(&mut self, next: Option<Bytes>) -> Result<()> {
        let gaps = self.gaps.iter();
        let marks = gaps.filter_map(|it| it.clipped(self.range_from.as_ref(), next.as_ref()));
        let marks: Vec<Mark> = marks.collect();
        if self.writer.is_none() && !marks.is_empty() {
            self.writer = Some(start(&self.ground, self.numbers.0)?);
        }
        self.range_from = next;
        if let Some(mut writer) = self.writer.take() {
            marks.into_iter().for_each(|mark| writer.add_mark(mark));
            finish(&self.ground, writer, &mut self.done)?;
            self.numbers = (self.numbers.0 + 1, self.numbers.1.saturating_sub(1));
        }
        Ok(())
    }
}

fn start(ground: &Ground<'_>, number: u64) -> Result<TableWriter> {
    let path = table_path(ground.directory, number);
    let level = ground.rebuilt_level();
    let options = ground.settings.table_options(level, true);
    let id = ground.table_id(number);
    TableWriter::create(ground.disk_of_old(), &path, id, options).into_backend()
}

/// True for an entry with its body in the value log.
fn is_logged(facts: &Facts) -> bool {
    facts
        .blob
        .is_some_and(|(file, _)| segment_of(file).is_some())
}
