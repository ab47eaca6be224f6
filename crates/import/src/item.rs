//! Objects on their way into the server, and the batches in which they go.

use std::path::PathBuf;

use kvorum_encoding::Address;

use crate::content::{self, ObjectPuts};
use crate::counts::Counts;
use crate::findings::Finding;
use crate::riak_object::RiakObject;

/// Objects of one batch: what may have to be done again after an interruption.
const BATCH_OBJECTS_MAX: usize = 1024;
/// Values of one batch, in bytes; one larger object makes a batch by itself.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// Where something lies in the source, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes from there, where that is known.
    pub len: Option<u64>,
}

/// An object to be put.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub address: Address,
    /// What is to be put.
    pub puts: ObjectPuts,
    /// Where the first copy is.
    pub place: Place,
    /// Bytes of its values.
    pub value_bytes: u64,
}

/// Objects that are put together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The objects.
    pub items: Vec<Item>,
    /// What could not be taken over.
    pub findings: Vec<Finding>,
    /// What reading has counted; what is put is counted when it is put.
    pub counts: Counts,
    /// Keys done with this batch.
    pub keys: usize,
    value_bytes: u64,
}

impl Batch {
    /// Whether it is time to put what there is.
    pub fn is_full(&self) -> bool {
        self.items.len() >= BATCH_OBJECTS_MAX || self.value_bytes >= BATCH_BYTES_MAX
    }

    /// Notes something that cannot be read or understood.
    pub fn unreadable(&mut self, place: Place, object: Option<String>, reason: String) {
        self.counts.unreadable += 1;
        self.note(place, object, reason);
    }

    /// Notes something that is to be told and no loss.
    pub fn note(&mut self, place: Place, object: Option<String>, reason: String) {
        self.findings.push(Finding {
            file: place.file,
            offset: place.offset,
            len: place.len,
            object,
            reason,
        });
    }

    /// Adds an object, unless it is one that is not imported, and counts what it cannot carry.
    /// `expires_at` is in microseconds since the Unix epoch.
    pub fn add(
        &mut self,
        address: Address,
        object: RiakObject,
        expires_at: Option<u64>,
        place: Place,
        leave_out_tombstones: bool,
    ) {
        if let Some(reason) = content::unreadable_data_type(&object) {
            self.counts.data_types_left_out += 1;
            let reason = format!("not imported: {reason}");
            return self.note(place, Some(address.to_string()), reason);
        }
        self.counts.data_types += u64::from(content::data_types(&object).next().is_some());
        if content::is_tombstone(&object) {
            if leave_out_tombstones {
                self.counts.tombstones_left_out += 1;
                return;
            }
            self.counts.tombstones += 1;
        }
        let before = self.counts.metadata_left_out;
        let puts = content::puts_of(object, expires_at, &mut self.counts);
        if self.counts.metadata_left_out > before {
            let reason = "imported without metadata that is not understood".to_owned();
            self.note(place.clone(), Some(address.to_string()), reason);
        }
        let values = puts.contents.iter();
        let value_bytes = values.map(|content| content.value.len() as u64).sum();
        self.value_bytes += value_bytes;
        self.items.push(Item {
            address,
            puts,
            place,
            value_bytes,
        });
    }
}
