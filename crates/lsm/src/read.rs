//! Point reads, from the newest layer to the oldest until one has the key.

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Lookup, LostRange, Result, Timestamp};
use kvorum_disk::Reading;
use kvorum_segment::StoredBack;
use kvorum_sst::hash_key;
use kvorum_storage_errors::{from_segment, from_sst};
use kvorum_value_log::LogSegment;

use crate::blob::BlobsAhead;
use crate::in_tables::{Unread, find_in_tables};
use crate::log::{key_of_entry, restored};
use crate::logged::lost_name;
use crate::lost::shown;
use crate::store::Store;
use crate::version::{Collected, Version};
use crate::{Body, Entry, LoggedPlace, Value};

impl Store {
    /// The value of a key, expired or not.
    ///
    /// The version is loaded before the sequence, so its tables have no entries of later sequences.
    pub(crate) fn find(
        &self,
        version: &Version,
        key: &Bytes,
        reading: Reading,
    ) -> Result<Lookup<Entry>> {
        self.find_at(version, key, self.visible_sequence(), reading)
    }

    /// The value at a sequence that was visible when the version was loaded, or later.
    pub(crate) fn find_at(
        &self,
        version: &Version,
        key: &Bytes,
        sequence: u64,
        reading: Reading,
    ) -> Result<Lookup<Entry>> {
        let hash = hash_key(key);
        for memtable in version.memtables() {
            let entry = memtable.get(key, hash, sequence);
            let removed_at = memtable.removed_at(key, sequence);
            match (entry, removed_at) {
                (Some(entry), removed_at) if removed_at.is_none_or(|it| it <= entry.sequence) => {
                    return Ok(found(entry));
                }
                (_, Some(_)) => return Ok(Lookup::Absent),
                _ => {}
            }
        }
        match find_in_tables(version, key, hash, &self.read_side.at(reading)) {
            Ok(Some(entry)) => Ok(found(entry)),
            Ok(None) => Ok(Lookup::Absent),
            Err(Unread::Sst(error)) if error.would_block() => Ok(Lookup::WouldBlock),
            Err(Unread::Sst(error)) => {
                if error.is_damage() {
                    self.count_corrupt_read();
                }
                Err(from_sst(&error))
            }
            Err(Unread::Lost(error) | Unread::GivenUp(error)) => {
                self.count_corrupt_read();
                Err(error)
            }
        }
    }

    /// The value of a key at `now`.
    pub(crate) fn find_unexpired(
        &self,
        version: &Version,
        key: &Bytes,
        reading: Reading,
        now: Timestamp,
    ) -> Result<Lookup<(u64, Value)>> {
        let found = self.find(version, key, reading)?;
        Ok(match found {
            Lookup::Found(Entry {
                sequence,
                value: Some(value),
                ..
            }) if !self.expiry.is_over(&value.fields, now) => Lookup::Found((sequence, value)),
            Lookup::WouldBlock => Lookup::WouldBlock,
            _ => Lookup::Absent,
        })
    }

    /// The body of an entry that was found in this version.
    pub(crate) fn body(
        &self,
        version: &Version,
        (key, sequence, body): (&[u8], u64, Body),
        ahead: Option<&mut BlobsAhead>,
        reading: Reading,
    ) -> Result<Lookup<Bytes>> {
        let place = match body {
            Body::Inline(body) => return Ok(Lookup::Found(body)),
            Body::Blob(place) => place,
            Body::Logged(place) => {
                let may_keep = ahead.is_none_or(|walk| walk.may_keep(place.len));
                return self.logged_body(version, (key, sequence, &place), reading, may_keep);
            }
        };
        let lost = || {
            let detail = format!("blob file {} is not there", place.file);
            BackendError::new(ErrorKind::Corrupt, detail)
        };
        let read = match version.blobs.get(&place.file) {
            Some(file) => {
                let ahead = ahead.map(|it| it.of(place.file));
                file.read(&place, ahead, &self.read_side.at_blobs(reading))
            }
            None => Err(lost()),
        };
        if let Err(error) = &read
            && error.kind() == ErrorKind::Corrupt
        {
            self.count_corrupt_read();
        }
        Ok(read?.map_or(Lookup::WouldBlock, Lookup::Found))
    }

    /// A body in the value log. The record must be from the entry's put: with another log, the
    /// place may have a record of another store.
    fn logged_body(
        &self,
        version: &Version,
        (key, sequence, place): (&[u8], u64, &LoggedPlace),
        reading: Reading,
        may_keep: bool,
    ) -> Result<Lookup<Bytes>> {
        let (cache, bodies) = (&self.read_side.cache, self.read_side.cached_bodies);
        if let Some(body) = cache.body(bodies, &place.at, sequence) {
            return Ok(Lookup::Found(body));
        }
        let entry = (key, sequence, place);
        let read = match version.segment(place.at.segment) {
            _ if place.len == 0 => return Ok(Lookup::Found(Bytes::new())),
            Some(segment) => match read_logged(&segment, entry, reading) {
                // A record of another log, or damage.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.read_collected(version, entry, reading, || error)
                }
                read => read,
            },
            None => self.read_collected(version, entry, reading, || {
                corrupt(place, "neither the segment nor a copy is there")
            }),
        };
        if let (Ok(Lookup::Found(body)), true) = (&read, may_keep) {
            cache.keep_body(bodies, &place.at, sequence, body);
        }
        if let Err(error) = &read
            && error.kind() == ErrorKind::Corrupt
        {
            self.count_corrupt_read();
            self.note_lost_body(key, place);
        }
        read
    }

    /// A body that is not in the log, from the journal files; `missing` is the error if these do
    /// not have it.
    fn read_collected(
        &self,
        version: &Version,
        (key, sequence, place): (&[u8], u64, &LoggedPlace),
        reading: Reading,
        missing: impl FnOnce() -> BackendError,
    ) -> Result<Lookup<Bytes>> {
        let context = self.read_side.at_journal(reading);
        match version.read_journal(&place.at, sequence, &context)? {
            Collected::WouldBlock => Ok(Lookup::WouldBlock),
            Collected::Nowhere => Err(missing()),
            Collected::Record(record) if record.key == key => checked(place, &record.back),
            Collected::Record(_) => Err(corrupt(place, "another record is in the journal")),
        }
    }

    /// Reports an unreadable body in the value log.
    pub(crate) fn note_lost_body(&self, key: &[u8], place: &LoggedPlace) {
        self.read_side.lost.note(LostRange {
            file: lost_name(place.at.segment),
            offset: place.at.record.offset,
            len: place.at.record.len,
            held: format!("the body of the key {}", shown(key)),
        });
    }
}

fn corrupt(place: &LoggedPlace, what: &str) -> BackendError {
    let (number, offset) = (place.at.segment, place.at.record.offset);
    let detail = format!("body at byte {offset} of segment {number} of the value log: {what}");
    BackendError::new(ErrorKind::Corrupt, detail)
}

/// The body of a record, if its length is that of the entry.
fn checked(place: &LoggedPlace, back: &StoredBack) -> Result<Lookup<Bytes>> {
    let body = restored(back);
    let body = body.ok_or_else(|| corrupt(place, "it was compressed in an unknown way"))?;
    match body.len() as u64 == place.len {
        true => Ok(Lookup::Found(body)),
        false => Err(corrupt(place, "it has another length")),
    }
}

fn read_logged(
    segment: &LogSegment,
    (key, sequence, place): (&[u8], u64, &LoggedPlace),
    reading: Reading,
) -> Result<Lookup<Bytes>> {
    let record = match segment.read(place.at.record, reading) {
        Ok(record) => record.stored,
        Err(error) if error.would_block() => return Ok(Lookup::WouldBlock),
        Err(error) => return Err(from_segment(&error)),
    };
    let found = key_of_entry(record.head.kind, &record.head.front);
    if record.head.sequence != sequence || found.is_none_or(|found| found != key) {
        return Err(corrupt(place, "another record is there"));
    }
    checked(place, &record.back)
}

fn found(entry: Entry) -> Lookup<Entry> {
    match entry.value {
        Some(_) => Lookup::Found(entry),
        None => Lookup::Absent,
    }
}
