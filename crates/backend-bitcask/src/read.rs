//! Reading an entry: one lookup under the lock of a shard, then one read of the disk without a
//! lock.

use bytes::Bytes;
use kvorum_backend::{
    BackendError, EntryPlace, ErrorKind, Lookup, LostRange, OldEntry, ReadAt, Reading, Result,
    Sequence, StoredEntry, StoredHead, Timestamp,
};
use kvorum_encoding::{StorageKey, Truncated};
use kvorum_segment::{SegmentError, StoredFront, StoredRecord};
use kvorum_storage_errors::from_segment;

use crate::entry::{Front, decode_front, key_of};
use crate::home::Counters;
use crate::places::{Place, is_unread};
use crate::slot::Slot;
use crate::store::Store;
use crate::unread::Verdict;

/// A record of which at least the front was read.
trait HasFront {
    fn front(&self) -> &Bytes;
}

impl HasFront for StoredFront {
    fn front(&self) -> &Bytes {
        &self.front
    }
}

impl HasFront for StoredRecord {
    fn front(&self) -> &Bytes {
        &self.head.front
    }
}

impl Store {
    pub(crate) fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        let fingerprint = self.contents.fingerprints.of(key.as_bytes());
        if let Some((_, entry)) = self.cached(key, fingerprint) {
            return Ok(match self.home.expiry.is_over(&entry.fields, at.now) {
                true => Lookup::Absent,
                false => Lookup::Found(entry),
            });
        }
        let reading = at.reading.into();
        let found = self.find(key, fingerprint, at.now, |place, slot| {
            place.read(slot.location(), reading)
        })?;
        let (place, front, record) = match found {
            Lookup::Found(found) => found,
            Lookup::WouldBlock => return Ok(Lookup::WouldBlock),
            Lookup::Absent => return Ok(Lookup::Absent),
        };
        if self.home.expiry.is_over(&front.fields, at.now) {
            return Ok(Lookup::Absent);
        }
        let body = place
            .restore(&record)
            .map_err(|error| self.home.count_corrupt(&error))?;
        let sequence = Sequence(record.head.sequence);
        if let Some(cache) = self.cache.get() {
            let (segment, offset) = (place.cached(), record.head.location.offset);
            cache.keep(segment, offset, sequence, &record.head.front, &body);
        }
        Ok(Lookup::Found(StoredEntry {
            sequence,
            fields: front.fields,
            head: front.head,
            body,
        }))
    }

    /// The entry of a key, if the cache has the record of the first slot with its fingerprint. Two
    /// keys rarely have one fingerprint, so the other slots are not tried.
    fn cached(&self, key: &StorageKey, fingerprint: u64) -> Option<(EntryPlace, StoredEntry)> {
        let cache = self.cache.get()?;
        let (place, entry) = self.contents.keydir.look(fingerprint, |slot, place| {
            let (segment, offset) = (place.cached(), slot.offset());
            Some((segment.entry_place(offset), cache.get(segment, offset)?))
        })?;
        if entry.key() != Some(key.as_bytes()) {
            return None;
        }
        Some((place, entry.into_stored()?))
    }

    pub(crate) fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        let fingerprint = self.contents.fingerprints.of(key.as_bytes());
        if let Some((place, entry)) = self.cached(key, fingerprint) {
            return Ok(match self.home.expiry.is_over(&entry.fields, at.now) {
                true => Lookup::Absent,
                false => Lookup::Found(StoredHead {
                    sequence: entry.sequence,
                    fields: entry.fields,
                    head: entry.head,
                    body_len: entry.body.len() as u64,
                    place: Some(place),
                }),
            });
        }
        let reading = at.reading.into();
        let found = self.find(key, fingerprint, at.now, |place, slot| {
            place.read_front(slot.location(), reading)
        })?;
        Ok(match found {
            Lookup::Found((_, front, _)) if self.home.expiry.is_over(&front.fields, at.now) => {
                Lookup::Absent
            }
            Lookup::Found((place, front, stored)) => Lookup::Found(StoredHead {
                sequence: Sequence(stored.sequence),
                fields: front.fields,
                head: front.head,
                body_len: stored.raw_back_len,
                place: Some(place.cached().entry_place(stored.location.offset)),
            }),
            Lookup::Absent => Lookup::Absent,
            Lookup::WouldBlock => Lookup::WouldBlock,
        })
    }

    /// Reads candidates until one has the key.
    fn find<T: HasFront>(
        &self,
        key: &StorageKey,
        fingerprint: u64,
        now: Timestamp,
        read: impl Fn(&Place, &Slot) -> std::result::Result<T, SegmentError>,
    ) -> Result<Lookup<(Place, Front, T)>> {
        let candidates = self.contents.keydir.candidates(fingerprint);
        let mut damage = None;
        for (slot, place) in candidates.first.into_iter().chain(candidates.others) {
            match read(&place, &slot) {
                Ok(read) => match key_of(read.front()) {
                    Some(found) if found == key.as_bytes() => {
                        self.unread.given((place.cached(), slot.offset()));
                        let front = decode_front(read.front())
                            .map_err(|error| self.count_undecodable(&place, &slot, error))?;
                        return Ok(Lookup::Found((place, front, read)));
                    }
                    Some(_) => {}
                    None => {
                        let error = Truncated { offset: 0 };
                        return Err(self.count_undecodable(&place, &slot, error));
                    }
                },
                Err(error) if error.would_block() => return Ok(Lookup::WouldBlock),
                Err(error) if error.is_damage() => damage = Some(self.home.count_corrupt(&error)),
                Err(error) if is_unread(&error) && self.is_given_up(key, &place, &slot, now) => {
                    damage = Some(self.home.count_corrupt(&error).of_kind(ErrorKind::Corrupt));
                }
                Err(error) => return Err(from_segment(&error)),
            }
        }
        damage.map_or(Ok(Lookup::Absent), Err)
    }

    /// Notes that the device failed to read a record; true when the record counts as damaged, which
    /// is reported the first time. The record has the key, or at least its fingerprint.
    #[cold]
    fn is_given_up(&self, key: &StorageKey, place: &Place, slot: &Slot, now: Timestamp) -> bool {
        let verdict = self.unread.failed((place.cached(), slot.offset()), now);
        if verdict == Verdict::GivenUpNow {
            let held = format!(
                "the entry of {key:?}, which the device has failed to read for \
             minutes"
            );
            let (offset, len) = (slot.offset(), slot.location().len);
            let range = LostRange::new(place.listed_name(), offset, len, held);
            self.home.note_lost(range);
        }
        verdict != Verdict::MayPass
    }

    /// The slot of a key. If it is still the slot in which a reader found the key, nothing is read;
    /// otherwise the fronts of records with the fingerprint are.
    pub(crate) fn slot_of(
        &self,
        key: &[u8],
        fingerprint: u64,
        known: OldEntry,
    ) -> Result<Option<Slot>> {
        let is_known = |slot: Slot, place: &Place| {
            Some(place.cached().entry_place(slot.offset())) == known.place
        };
        let look = |slot, place: &Place| is_known(slot, place).then_some(slot);
        if known.place.is_some()
            && let Some(slot) = self.contents.keydir.look(fingerprint, look)
        {
            return Ok(Some(slot));
        }
        let found = self.slot_and_sequence_of(key, fingerprint, known.reading)?;
        Ok(found.map(|(slot, _)| slot))
    }

    /// The slot of a key and the sequence of its record; 0 if the record is damaged.
    pub(crate) fn slot_and_sequence_of(
        &self,
        key: &[u8],
        fingerprint: u64,
        reading: Reading,
    ) -> Result<Option<(Slot, u64)>> {
        let reading = kvorum_disk::Reading::from(reading);
        let candidates = self.contents.keydir.candidates(fingerprint);
        let mut damaged = None;
        for (slot, place) in candidates.first.into_iter().chain(candidates.others) {
            match place.read_front(slot.location(), reading) {
                Ok(front) if key_of(&front.front) == Some(key) => {
                    return Ok(Some((slot, front.sequence)));
                }
                Ok(_) => {}
                Err(error) if error.would_block() => {
                    return Err(from_segment(&error).of_kind(ErrorKind::WouldBlock));
                }
                // The record's key is unreadable, and almost certainly this one.
                Err(error) if error.is_damage() => damaged = Some((slot, 0)),
                Err(error) if is_unread(&error) => {
                    let record = (place.cached(), slot.offset());
                    let cached = self.cache.get().and_then(|it| it.get(record.0, record.1));
                    match cached.filter(|it| it.key() == Some(key)) {
                        Some(entry) => return Ok(Some((slot, entry.sequence().0))),
                        None if self.unread.is_given_up(record) => damaged = Some((slot, 0)),
                        None => return Err(from_segment(&error)),
                    }
                }
                Err(error) => return Err(from_segment(&error)),
            }
        }
        Ok(damaged)
    }

    fn count_undecodable(&self, place: &Place, slot: &Slot, error: Truncated) -> BackendError {
        Counters::add(&self.home.counters.corrupt_reads, 1);
        let path = place.describe();
        let offset = slot.offset();
        let detail = format!("front in {path} at byte {offset} with a good checksum: {error}");
        BackendError::new(ErrorKind::Corrupt, detail)
    }
}
