//! Reading one file of a store from end to end, and its state.

use std::path::Path;

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_disk::Disk;
use kvorum_lsm::Entry;
use kvorum_sst::{BadRange, Properties, SstError, TableId, examine};
use kvorum_storage_errors::{IntoBackend, from_sst};

use crate::listing::FileKind;

/// Results of examining a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every byte is correct.
    Whole,
    /// Parts are damaged, and the writer had finished.
    Damaged,
    /// The end is missing: the file was cut, or never finished.
    Unfinished,
    /// The file belongs to another store, or has another number.
    Foreign,
}

impl Verdict {
    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        [Self::Whole, Self::Damaged, Self::Unfinished, Self::Foreign]
            .into_iter()
            .nth(usize::from(byte))
    }
}

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Examined {
    pub(crate) verdict: Verdict,
    pub(crate) file_len: u64,
    /// Bytes of whole data blocks.
    pub(crate) data_bytes: u64,
    pub(crate) entries: u64,
    /// The properties are from the file, and not derived from its whole blocks.
    pub(crate) has_properties: bool,
    pub(crate) properties: Properties,
    pub(crate) bad: Vec<BadRange>,
}

/// Reads a table or a blob file. `len_max` is its known length.
pub(crate) fn examine_file(
    disk: &dyn Disk,
    directory: &Path,
    kind: FileKind,
    id: TableId,
    len_max: u64,
    progress: &dyn Fn(u64),
) -> Result<Examined> {
    let path = directory.join(kind.name(id.number));
    let mut seen = Properties::default();
    let mut largest = Vec::new();
    let mut undecodable = 0_u64;
    let mut each = |key: &[u8], value: &[u8]| match Entry::facts_of(value) {
        Ok(facts) => {
            count(&mut seen, key, facts.sequence);
            // Tables are read in key order.
            largest.clear();
            largest.extend_from_slice(key);
        }
        Err(_) => undecodable += 1,
    };
    let examined = match kind {
        FileKind::Table => examine(disk, &path, id, len_max, Some(&mut each), progress),
        _ => examine(disk, &path, id, len_max, None, progress),
    };
    let mut examined = match examined {
        Ok(examined) => examined,
        Err(error @ SstError::Foreign { .. }) => {
            let len = disk.info(&path).into_backend()?.map_or(0, |it| it.len);
            return Ok(Examined {
                verdict: Verdict::Foreign,
                file_len: len,
                data_bytes: 0,
                entries: 0,
                has_properties: false,
                properties: Properties::default(),
                bad: vec![bad(0, len, error.to_string())],
            });
        }
        Err(error) => return Err(from_sst(&error)),
    };
    seen.largest = largest.into();
    if undecodable > 0 {
        let found = format!("{undecodable} entries with good checksums that do not decode");
        examined.bad.push(bad(0, 0, found));
    }
    if let Some(properties) = &examined.properties
        && kind == FileKind::Table
        && examined.bad.is_empty()
        && properties.entries != examined.entries
    {
        let (got, expected) = (examined.entries, properties.entries);
        let found = format!("{got} entries where its properties have {expected}");
        examined.bad.push(bad(0, 0, found));
    }
    Ok(Examined {
        verdict: match (examined.bad.is_empty(), examined.is_finished) {
            (true, _) => Verdict::Whole,
            (false, true) => Verdict::Damaged,
            (false, false) => Verdict::Unfinished,
        },
        file_len: examined.file_len,
        data_bytes: examined.data_bytes,
        entries: examined.entries,
        has_properties: examined.properties.is_some(),
        properties: examined.properties.unwrap_or(seen),
        bad: examined.bad,
    })
}

fn bad(offset: u64, len: u64, found: String) -> BadRange {
    BadRange { offset, len, found }
}

fn count(seen: &mut Properties, key: &[u8], sequence: u64) {
    if seen.entries == 0 {
        seen.smallest = Bytes::copy_from_slice(key);
        seen.sequence_min = sequence;
    }
    seen.entries += 1;
    seen.sequence_min = seen.sequence_min.min(sequence);
    seen.sequence_max = seen.sequence_max.max(sequence);
}
