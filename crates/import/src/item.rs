//! Objects on their way to the server, and their batches.

use std::path::PathBuf;

use kvorum_encoding::Address;

use crate::content::{self, ObjectPuts};
use crate::counts::Counts;
use crate::findings::Finding;
use crate::riak_object::RiakObject;

/// Maximum number of objects in a batch, and so of repeated puts after an interruption.
const BATCH_OBJECTS_MAX: usize = 1024;
/// Maximum bytes of the values of a batch; a larger object makes a batch by itself.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// Place in the source, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes, if known.
    pub len: Option<u64>,
}

/// An object to be put.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub address: Address,
    /// Puts of the object.
    pub puts: ObjectPuts,
    /// Place of the first copy.
    pub place: Place,
    /// Bytes of its values.
    pub value_bytes: u64,
}

/// Objects that are put as one batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// The objects.
    pub items: Vec<Item>,
    /// Findings about parts left out.
    pub findings: Vec<Finding>,
    /// Counts of the reading; puts are counted when they happen.
    pub counts: Counts,
    /// Number of keys that the batch completes.
    pub keys: usize,
    value_bytes: u64,
}

impl Batch {
    /// True if the batch is large enough to be put.
    pub fn is_full(&self) -> bool {
        self.items.len() >= BATCH_OBJECTS_MAX || self.value_bytes >= BATCH_BYTES_MAX
    }

    /// Notes an unreadable or unknown part, which is a loss.
    pub fn unreadable(&mut self, place: Place, object: Option<String>, reason: String) {
        self.counts.unreadable += 1;
        self.note(place, object, reason);
    }

    /// Notes a finding that is not a loss.
    pub fn note(&mut self, place: Place, object: Option<String>, reason: String) {
        self.findings.push(Finding {
            file: place.file,
            offset: place.offset,
            len: place.len,
            object,
            reason,
        });
    }

    /// Adds an object, unless objects of its kind are left out, and counts the properties that puts
    /// cannot carry. `expires_at` is in microseconds since the Unix epoch.
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
            let reason = "imported without unreadable metadata".to_owned();
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
