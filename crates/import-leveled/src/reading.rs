//! From groups of records to objects for puts: reading, checking, comparing, merging.

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_import::riak_object::RiakObject;
use kvorum_import::{Batch, GroupReader, NumberedFiles, Place, reconcile};

use crate::groups::KeyGroup;
use crate::index::{EntryKind, IndexEntry};
use crate::journal_key::{JournalKey, RecordKind, Subject, tag_of};
use crate::journal_value::JournalValue;
use crate::record::Record;

/// Maximum number of foreign keys reported one by one; the others are counted.
const OTHER_KEYS_REPORTED: u64 = 100;

/// Reads records.
pub(crate) struct ObjectReader {
    files: NumberedFiles,
    /// Objects that expired before this time are skipped, in seconds since the Unix epoch.
    now_secs: u64,
    leave_out_tombstones: bool,
    others_reported: u64,
}

/// The copies of a key that have been read.
#[derive(Default)]
struct Copies {
    address: Option<Address>,
    place: Option<Place>,
    /// Digests and bytes of the differing copies.
    read: Vec<(u64, Bytes)>,
    replicas: Vec<RiakObject>,
    has_expired: bool,
    /// The latest time of expiry, in seconds since the Unix epoch.
    expires_at_secs: Option<u64>,
}

impl GroupReader for ObjectReader {
    type Group = KeyGroup;

    fn read_group(&mut self, group: &KeyGroup, batch: &mut Batch) {
        let mut copies = Copies::default();
        for entry in &group.copies {
            let taken = match entry.kind {
                EntryKind::Other => self.read_other(entry, batch),
                _ => self.read_copy(entry, &mut copies, batch),
            };
            if let Err(reason) = taken {
                batch.unreadable(self.place(entry), None, reason);
            }
        }
        for entry in &group.replaced {
            if let Err(reason) = self.read_replaced(entry, &mut copies, batch) {
                batch.unreadable(self.place(entry), None, reason);
            }
        }
        batch.counts.merged_objects += u64::from(copies.replicas.len() > 1);
        let is_of_riak = |entry: &IndexEntry| entry.kind == EntryKind::Object;
        match copies.replicas.is_empty() && copies.has_expired {
            true => batch.counts.keys_expired += 1,
            false => batch.counts.keys += u64::from(group.copies.iter().any(is_of_riak)),
        }
        if let (Some(address), Some(object), Some(place)) =
            (copies.address, reconcile(copies.replicas), copies.place)
        {
            batch.counts.objects_to_expire += u64::from(copies.expires_at_secs.is_some());
            let expires_at = copies.expires_at_secs;
            let expires_at = expires_at.map(|secs| secs.saturating_mul(1_000_000));
            let leave_out_tombstones = self.leave_out_tombstones;
            batch.add(address, object, expires_at, place, leave_out_tombstones);
        }
    }
}

impl ObjectReader {
    pub(crate) fn new(files: NumberedFiles, now_secs: u64, leave_out_tombstones: bool) -> Self {
        Self {
            files,
            now_secs,
            leave_out_tombstones,
            others_reported: 0,
        }
    }

    /// Reads the copy of one partition, unless an equal copy was read.
    fn read_copy(
        &mut self,
        entry: &IndexEntry,
        copies: &mut Copies,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let digest = entry.value_digest;
        if copies.read.iter().any(|(known, _)| *known == digest) {
            batch.counts.equal_copies += 1;
            return Ok(());
        }
        let (key, value) = self.read_record(entry)?;
        let Subject::Object(address) = key.subject else {
            return Err("the record has another key than before".to_owned());
        };
        let expiry = value.expires_at_secs().map_err(|error| error.to_string())?;
        if expiry.is_some_and(|at| at <= self.now_secs) {
            copies.has_expired = true;
            return Ok(());
        }
        copies.expires_at_secs = copies.expires_at_secs.max(expiry);
        let name = Some(address.to_string());
        let object = match value.object() {
            Ok(object) => object,
            Err(error) => {
                batch.unreadable(self.place(entry), name, error.to_string());
                return Ok(());
            }
        };
        if copies.read.iter().any(|(_, known)| *known == object) {
            batch.counts.equal_copies += 1;
            return Ok(());
        }
        match RiakObject::decode(&object) {
            Ok(replica) => copies.replicas.push(replica),
            Err(error) => {
                batch.unreadable(self.place(entry), name, error.to_string());
                return Ok(());
            }
        }
        copies.read.push((digest, object));
        copies.address.get_or_insert(address);
        copies.place.get_or_insert_with(|| self.place(entry));
        Ok(())
    }

    /// Reports a version with only its index changes left, unless it has expired.
    fn read_replaced(
        &mut self,
        entry: &IndexEntry,
        copies: &mut Copies,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let (key, value) = self.read_record(entry)?;
        let expiry = value.expires_at_secs().map_err(|error| error.to_string())?;
        if expiry.is_some_and(|at| at <= self.now_secs) {
            copies.has_expired = true;
            return Ok(());
        }
        let name = match key.subject {
            Subject::Object(address) => Some(address.to_string()),
            Subject::Other(_) => None,
        };
        let reason = "a newer version than those that are left in this partition is missing";
        batch.unreadable(self.place(entry), name, reason.to_owned());
        Ok(())
    }

    /// Counts a record that is not in Riak's form.
    fn read_other(&mut self, entry: &IndexEntry, batch: &mut Batch) -> Result<(), String> {
        let (key, value) = self.read_record(entry)?;
        let (count, what) = match (key.kind, key.subject) {
            (RecordKind::Batch, _) => {
                let entries = value.batch_entries().map_err(|error| error.to_string())?;
                (
                    entries as u64,
                    format!("a batch of {entries} head-only entries"),
                )
            }
            (_, Subject::Other(term)) => (1, format!("an object of tag {}", tag_of(&term))),
            (_, Subject::Object(address)) => (1, format!("no object: {address}")),
        };
        batch.counts.other_keys += count;
        self.others_reported += 1;
        if self.others_reported <= OTHER_KEYS_REPORTED {
            let reason = format!("none of Riak's objects, {what}");
            batch.note(self.place(entry), None, reason);
        }
        Ok(())
    }

    /// Reads and checks one record.
    fn read_record(&mut self, entry: &IndexEntry) -> Result<(JournalKey, JournalValue), String> {
        let (file, len) = (entry.file, entry.total_len);
        let bytes = self.files.read(file, entry.offset.into(), len)?;
        let record = Record::decode(&bytes).map_err(|error| error.to_string())?;
        let key = JournalKey::decode(&bytes.slice_ref(record.key));
        let key = key.map_err(|error| format!("key: {error}"))?;
        let value = JournalValue::split(&bytes.slice_ref(record.value));
        Ok((key, value.map_err(|error| error.to_string())?))
    }

    fn place(&self, entry: &IndexEntry) -> Place {
        let (file, len) = (entry.file, entry.total_len);
        self.files.place(file, entry.offset.into(), len)
    }
}
