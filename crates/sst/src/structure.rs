//! Checks of the parts of a table that a scan does not read: filters, properties, and the two ends
//! of the file. A sound table rarely needs them, and a damaged one does.

use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_disk::Reading;

use crate::footer::{FILE_HEADER_BYTES, FOOTER_BYTES};
use crate::table::read_footer;
use crate::{BlockHandle, DamageSink, Part, Result, Table, TableDamage};

/// The result of reading a table's structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StructureCheck {
    /// Bytes that were read.
    pub bytes: u64,
    /// Parts that are damaged.
    pub damaged: u64,
}

struct Counting<'a> {
    sink: &'a dyn DamageSink,
    met: AtomicU64,
}

impl DamageSink for Counting<'_> {
    fn met(&self, damage: TableDamage) {
        self.met.fetch_add(1, Ordering::Relaxed);
        self.sink.met(damage);
    }
}

impl Table {
    /// Reads all parts but blocks of entries, past every cache. Damage is reported to `sink`.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn check_structure(&self, sink: &dyn DamageSink) -> Result<StructureCheck> {
        let sink = Counting {
            sink,
            met: AtomicU64::new(0),
        };
        let mut bytes = FILE_HEADER_BYTES + FOOTER_BYTES;
        self.check_header(&sink)?;
        match read_footer(&self.reader, &self.id()) {
            Ok(footer) => {
                bytes += self.check_part(footer.properties, Part::Properties, &sink)?;
                if let Some(note) = footer.note() {
                    bytes += self.check_part(note, Part::Note, &sink)?;
                }
                bytes += self.check_part(footer.top_index, Part::TopIndex, &sink)?;
            }
            Err(error) if error.is_damage() => self.report(&sink, &error, None),
            Err(error) => return Err(error),
        }
        for partition in &self.partitions {
            let parts = [
                (Some(partition.index), Part::Index),
                (partition.filter, Part::Filter),
                (partition.segment_sets, Part::SegmentSets),
            ];
            for (handle, part) in parts {
                if let Some(handle) = handle.filter(|it| it.len > 0) {
                    bytes += self.check_part(handle, part, &sink)?;
                }
            }
        }
        let damaged = sink.met.into_inner();
        Ok(StructureCheck { bytes, damaged })
    }

    fn check_part(&self, handle: BlockHandle, part: Part, sink: &dyn DamageSink) -> Result<u64> {
        match self.reader.read_block(handle, part, Reading::MayBlock) {
            Err(error) if error.is_damage() => self.report(sink, &error, None),
            checked => drop(checked?),
        }
        Ok(u64::from(handle.len))
    }
}
