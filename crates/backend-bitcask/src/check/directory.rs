//! Compares the key directory of a checkpoint with one rebuilt from the segments.

use std::collections::HashMap;

use kvorum_backend::Result;
use kvorum_segment::{ScanOptions, Scanned};
use kvorum_storage_errors::IntoBackend;

use super::{Finding, KEYS_AT_ONCE, KEYS_SHOWN_MAX, StoreCheck};
use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, CheckpointError, PlaceNumber};
use crate::fingerprint::Fingerprints;
use crate::key_table::KeyEntry;
use crate::keydir::{Keydir, SHARDS};
use crate::meta::Meta;
use crate::slot::Slot;

/// The newest known record of a key.
struct Newest {
    check: u64,
    sequence: u64,
    removal: bool,
    /// Segments and offsets: several if a merge has copied the record.
    places: Vec<(u32, u64)>,
}

impl StoreCheck<'_> {
    pub(super) fn compare_directories(
        &mut self,
        meta: &Meta,
        checkpoint: &Checkpoint,
    ) -> Result<()> {
        let fingerprints = Fingerprints::new(meta.secret, None);
        let keydir = Keydir::new(&fingerprints);
        match checkpoint.load(&keydir, |_| true) {
            Ok(()) => {}
            Err(CheckpointError::Disk(error)) => return Err((&error).into()),
            Err(CheckpointError::Unusable(why)) => {
                self.found
                    .find(CHECKPOINT_NAME, 0, 0, format!("not usable: {why}"));
                return Ok(());
            }
            Err(_) => return Ok(()),
        }
        self.found.slots = keydir.len();
        let records: u64 = self.segments.values().map(|it| it.records).sum();
        let passes = usize::try_from(records.div_ceil(KEYS_AT_ONCE)).unwrap_or(SHARDS);
        let width = SHARDS.div_ceil(passes.clamp(1, SHARDS));
        let mut wrong = Vec::new();
        for first in (0..SHARDS).step_by(width) {
            let shards = first..(first + width).min(SHARDS);
            let rebuilt = self.rebuild(&fingerprints, &shards)?;
            self.found.keys += rebuilt.values().flatten().filter(|it| !it.removal).count() as u64;
            self.compare(checkpoint, &keydir, &rebuilt, shards, &mut wrong);
        }
        if !wrong.is_empty() {
            let what = format!("{} keys differ from the segments", wrong.len());
            wrong.truncate(KEYS_SHOWN_MAX);
            self.found.findings.push(Finding {
                file: CHECKPOINT_NAME.to_owned(),
                offset: 0,
                len: 0,
                what,
                keys: wrong,
            });
        }
        Ok(())
    }

    /// The newest records by fingerprint, of some shards, from hints that the check found right.
    fn rebuild(
        &self,
        fingerprints: &Fingerprints,
        shards: &std::ops::Range<usize>,
    ) -> Result<HashMap<u64, Vec<Newest>>> {
        let mut rebuilt: HashMap<u64, Vec<Newest>> = HashMap::new();
        for (number, segment) in &self.segments {
            let mut take = |entry: &KeyEntry| {
                let slot = Slot::new(fingerprints.of(&entry.key), 0, entry.at);
                if shards.contains(&slot.shard()) {
                    let known = rebuilt.entry(slot.fingerprint()).or_default();
                    take_newest(known, fingerprints.check_of(&entry.key), *number, entry);
                }
            };
            if let Some(hint) = &segment.hint {
                let mut scan = hint.scan();
                while let Ok(Some(entry)) = scan.next() {
                    take(&entry);
                }
                continue;
            }
            let options = ScanOptions::durable_to(segment.end);
            for scanned in segment.reader.scan(options).into_backend()? {
                if let Scanned::Record(record) = scanned.into_backend()?
                    && let Some(entry) = KeyEntry::of(&record.head)
                {
                    take(&entry);
                }
            }
        }
        Ok(rebuilt)
    }

    fn compare(
        &self,
        checkpoint: &Checkpoint,
        keydir: &Keydir,
        rebuilt: &HashMap<u64, Vec<Newest>>,
        shards: std::ops::Range<usize>,
        wrong: &mut Vec<String>,
    ) {
        // Records in the value log, which are not read, may supersede these.
        let place_of = |slot: &Slot| match checkpoint.places.get(&slot.place())? {
            PlaceNumber::Own(number) => Some((*number, slot.offset())),
            PlaceNumber::Shared(_) => None,
        };
        let is_alone = checkpoint.covered.log.log_id == 0;
        let covered = &checkpoint.covered.segments;
        let is_covered = |(number, offset): &(u32, u64)| {
            covered.get(number).is_some_and(|it| *offset < it.data_end)
        };
        // Each slot has the place of a newest record, or of the newest record before the tail.
        for shard in shards {
            for packed in keydir.shard(shard) {
                let slot = Slot::unpack(shard, packed);
                let Some(place) = place_of(&slot) else {
                    continue;
                };
                let is_readable = self
                    .segments
                    .get(&place.0)
                    .is_some_and(|it| !it.is_damaged_at(place.1));
                let known = rebuilt.get(&slot.fingerprint());
                let is_right = known.into_iter().flatten().any(|it| {
                    (!it.removal && it.places.contains(&place)) || !it.places.iter().any(is_covered)
                });
                if is_readable && !is_right {
                    let (number, offset) = place;
                    wrong.push(format!("the key at byte {offset} of segment {number}"));
                }
            }
        }
        for (fingerprint, newest) in rebuilt {
            let slots = keydir.slots_of(*fingerprint);
            for it in newest.iter().filter(|it| !it.removal) {
                let has_slot = slots.iter().any(|slot| {
                    place_of(slot).is_some_and(|place| {
                        let segment = self.segments.get(&place.0);
                        it.places.contains(&place)
                            || segment.is_none_or(|segment| segment.is_damaged_at(place.1))
                    })
                });
                if is_alone && it.places.iter().all(is_covered) && !has_slot {
                    let (number, offset) = it.places.first().copied().unwrap_or_default();
                    wrong.push(format!(
                        "no slot for the key at byte {offset} of segment {number}"
                    ));
                }
            }
        }
        wrong.sort_unstable();
    }
}

fn take_newest(known: &mut Vec<Newest>, check: u64, number: u32, entry: &KeyEntry) {
    let place = (number, entry.at.offset);
    match known.iter_mut().find(|it| it.check == check) {
        None => known.push(Newest {
            check,
            sequence: entry.sequence,
            removal: entry.removal,
            places: vec![place],
        }),
        Some(it) => {
            // As in an opening, of two records with one sequence the removal is the newer.
            let (old, new) = ((it.sequence, it.removal), (entry.sequence, entry.removal));
            if new > old {
                it.places.clear();
                (it.sequence, it.removal) = new;
            }
            if new >= old {
                it.places.push(place);
            }
        }
    }
}
