//! From groups of records to objects for puts: reading, checking, comparing, merging.

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_import::riak_object::RiakObject;
use kvorum_import::{Batch, GroupReader, NumberedFiles, Place, reconcile};
use xxhash_rust::xxh3::xxh3_64;

use crate::groups::KeyGroup;
use crate::index::IndexEntry;
use crate::record::{Record, ValueKind};
use crate::riak_key::decode_key;

/// Reads records.
pub(crate) struct ObjectReader {
    pub(crate) files: NumberedFiles,
    pub(crate) leave_out_tombstones: bool,
}

/// A copy that was read.
struct Copy {
    address: Address,
    value: Bytes,
    digest: u64,
}

impl GroupReader for ObjectReader {
    type Group = KeyGroup;

    fn read_group(&mut self, group: &KeyGroup, batch: &mut Batch) {
        let mut read: Vec<Copy> = Vec::new();
        let mut replicas = Vec::new();
        for entry in &group.copies {
            let is_known = entry.value_digest != 0;
            if is_known && read.iter().any(|copy| copy.digest == entry.value_digest) {
                batch.counts.equal_copies += 1;
                continue;
            }
            let copy = match self.read_copy(entry) {
                Ok(Some(copy)) => copy,
                Ok(None) => continue,
                Err(reason) => {
                    batch.unreadable(self.place(entry), None, reason);
                    continue;
                }
            };
            if read.iter().any(|other| other.digest == copy.digest) {
                batch.counts.equal_copies += 1;
                continue;
            }
            match RiakObject::decode(&copy.value) {
                Ok(object) => replicas.push(object),
                Err(error) => {
                    let object = Some(copy.address.to_string());
                    batch.unreadable(self.place(entry), object, error.to_string());
                    continue;
                }
            }
            read.push(copy);
        }
        batch.counts.merged_objects += u64::from(replicas.len() > 1);
        let address = read.into_iter().next().map(|copy| copy.address);
        if let (Some(address), Some(object), Some(first)) =
            (address, reconcile(replicas), group.copies.first())
        {
            let place = self.place(first);
            batch.add(address, object, None, place, self.leave_out_tombstones);
        }
    }
}

impl ObjectReader {
    /// Reads and checks one record; `None` if it deletes its key, which old hint files do not show.
    fn read_copy(&mut self, entry: &IndexEntry) -> Result<Option<Copy>, String> {
        let (file, len) = (entry.file, entry.total_len);
        let bytes = self.files.read(file, entry.offset, len)?;
        let record = Record::decode(&bytes).map_err(|error| error.to_string())?;
        if record.header.total_len() != u64::from(entry.total_len) {
            return Err("the record is shorter than in its hint".to_owned());
        }
        if ValueKind::of(record.value.len() as u64, record.value) == ValueKind::Tombstone {
            return Ok(None);
        }
        let address = decode_key(&bytes.slice_ref(record.key));
        Ok(Some(Copy {
            address: address.map_err(|error| format!("key: {error}"))?,
            digest: xxh3_64(record.value).max(1),
            value: bytes.slice_ref(record.value),
        }))
    }

    fn place(&self, entry: &IndexEntry) -> Place {
        let (file, len) = (entry.file, entry.total_len);
        self.files.place(file, entry.offset, len)
    }
}
