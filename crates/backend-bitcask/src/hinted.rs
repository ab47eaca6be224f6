//! The catalog's methods for records with and without log hints.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{LostRange, Result};
use kvorum_disk::Disk;
use kvorum_segment::RECORD_ALIGN_BYTES;
use kvorum_storage_errors::IntoBackend;

use crate::hint_table::HintError;
use crate::key_table::OWN;
use crate::key_walk::Parts;
use crate::log_hint::{BoundTo, HintedPart, LogHint, log_hint_number, log_hint_path};
use crate::lost::LostLog;
use crate::places::Place;
use crate::segments::Catalog;
use crate::shared::Standing;

impl Catalog {
    /// Opens the existing log hints of this store's records. Without a value log and a checkpoint
    /// over it, they are removed: all records are then replayed, and if a superseding record has
    /// become unreadable, the older one, which no log hint has, is the newest again.
    pub(crate) fn open_log_hints(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        lost: &mut LostLog,
        bound: Option<BoundTo>,
    ) -> Result<()> {
        let mut numbers: Vec<u32> = disk
            .list(directory)
            .into_backend()?
            .iter()
            .filter_map(|entry| log_hint_number(&entry.name))
            .collect();
        numbers.sort_unstable();
        let Some(last) = numbers.last() else {
            return Ok(());
        };
        self.next_log_hint = last.saturating_add(1);
        for number in numbers {
            let path = log_hint_path(directory, number);
            let Some(bound) = bound else {
                remove(disk, &path)?;
                continue;
            };
            match LogHint::open(disk, directory, number, bound) {
                // It refers to records that were cut off.
                Ok(Some(hint)) if !self.is_all_there(&hint) => remove(disk, &path)?,
                Ok(Some(hint)) => self.change_log_hints(Some(hint), |_| true),
                // An erasure or an earlier version left it.
                Ok(None) => remove(disk, &path)?,
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(HintError::Newer) => {}
                Err(why) => {
                    let len = disk.info(&path).into_backend()?.map_or(0, |it| it.len);
                    let name = log_hint_path(Path::new(""), number);
                    let held = format!(
                        "a copy of keys in the value log ({why}); nothing is lost, it is written \
                         again"
                    );
                    let range = LostRange::new(name.to_string_lossy(), 0, len, held);
                    lost.add(disk, range);
                    remove(disk, &path)?;
                }
            }
        }
        for hint in self.log_hints.clone().iter() {
            let own = hint.parts.iter().filter(|part| part.number & OWN != 0);
            let records = own.map(|part| part.entries).sum();
            self.count_unhinted(&hint.parts, records);
        }
        Ok(())
    }

    /// False when a log hint refers to records beyond the end of a segment of the store's own.
    fn is_all_there(&self, hint: &LogHint) -> bool {
        let mut own = hint.parts.iter().filter(|part| part.number & OWN != 0);
        own.all(|part| {
            let entry = self.segments.get(&(part.number & !OWN));
            entry.is_none_or(|entry| {
                let end = entry.stats.data_end.next_multiple_of(RECORD_ALIGN_BYTES);
                part.to <= end
            })
        })
    }

    pub(crate) fn is_useless(&self, hint: &LogHint) -> bool {
        let mut parts = hint.parts.iter();
        hint.is_wrong() || !parts.any(|part| self.is_spoken_of(part))
    }

    /// True for a part of an existing segment without a hint of its own.
    pub(crate) fn is_spoken_of(&self, part: &HintedPart) -> bool {
        if part.number & OWN == 0 {
            return self.shared.contains_key(&part.number);
        }
        let entry = self.segments.get(&(part.number & !OWN));
        entry.is_some_and(|entry| entry.segment.hint.read().is_none())
    }

    /// Entries of a log hint with existing segments.
    pub(crate) fn entries_there(&self, hint: &LogHint) -> u64 {
        let parts = hint.parts.iter();
        let there = parts.filter(|part| self.is_spoken_of(part));
        there.map(|part| part.entries).sum()
    }

    /// At most this many records without a log hint, the oldest first, and the ranges that they
    /// fill.
    pub(crate) fn unhinted_records(
        &self,
        count_max: usize,
    ) -> (Vec<HintedPart>, VecDeque<(Place, Standing)>) {
        let mut parts: Vec<HintedPart> = Vec::new();
        let mut found = VecDeque::new();
        let readable = self.shared.iter();
        for (number, entry) in readable.filter(|(_, it)| !it.is_damaged && it.unhinted > 0) {
            let hinted = Parts::of(&self.log_hints, *number);
            let mut standings: Vec<Standing> = entry.records.lock().iter().collect();
            standings.sort_unstable_by_key(|standing| standing.offset());
            let mut is_within = false;
            for standing in standings {
                if found.len() >= count_max {
                    return (parts, found);
                }
                let begins = !is_within;
                is_within = !hinted.hold(standing);
                if !is_within {
                    continue;
                }
                // No two records begin in the same unit.
                let to = standing.offset() + RECORD_ALIGN_BYTES;
                match parts.last_mut() {
                    Some(part) if !begins => part.to = to,
                    _ => parts.push(HintedPart {
                        number: *number,
                        from: standing.offset(),
                        to,
                        entries: 0,
                    }),
                }
                found.push_back((Place::Shared(entry.place.clone()), standing));
            }
        }
        (parts, found)
    }

    pub(crate) fn change_log_hints(
        &mut self,
        new: Option<LogHint>,
        keep: impl Fn(&LogHint) -> bool,
    ) {
        let kept = self.log_hints.iter().filter(|it| keep(it)).cloned();
        self.log_hints = Arc::new(kept.chain(new.map(Arc::new)).collect());
    }

    /// Counts the records without a log hint again in the segments of these parts; `scanned` is the
    /// number of new records in a segment of the store's own.
    pub(crate) fn count_unhinted(&mut self, parts: &[HintedPart], scanned: u64) {
        let numbers: BTreeSet<u32> = parts.iter().map(|part| part.number).collect();
        for number in numbers {
            if let Some(entry) = self.segments.get_mut(&(number & !OWN))
                && number & OWN != 0
            {
                entry.hinted_to = Parts::of(&self.log_hints, number).reach();
                entry.hinted_records = match entry.hinted_to {
                    0 => 0,
                    _ => entry.hinted_records + scanned,
                };
                continue;
            }
            if let Some(entry) = self.shared.get_mut(&number) {
                let hinted = Parts::of(&self.log_hints, number);
                let records = entry.records.lock();
                entry.unhinted = records.iter().filter(|it| !hinted.hold(*it)).count();
            }
        }
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    let removed = kvorum_disk::remove_if_there(disk, path);
    removed.into_backend().map(drop)
}
