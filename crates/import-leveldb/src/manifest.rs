//! Manifests: the tables of a store, and the logs whose writes are not in tables yet.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated};

use crate::internal_key::InternalKey;

/// The name of the only order of keys that Riak uses.
const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

/// The entry of a table in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTable {
    /// Its length, in bytes.
    pub len: u64,
    /// Its first key, in the user's form.
    pub smallest: Bytes,
    /// Its last key, in the user's form.
    pub largest: Bytes,
}

/// The result of a manifest's edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Tables by level and number.
    pub tables: BTreeMap<(u32, u64), ListedTable>,
    /// The number of the first log that is not in tables. Only the previous log may have a smaller
    /// number.
    pub log_number: u64,
    /// Number of the previous log; 0 for none.
    pub previous_log_number: u64,
}

/// Failure to decode an edit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The edit ends within a field.
    #[error("edit is cut off at byte {offset}")]
    Cut {
        /// Offset of the missing bytes.
        offset: usize,
    },
    /// A field is unknown to Basho's LevelDB.
    #[error("unknown field {tag}")]
    Tag {
        /// The field's number.
        tag: u64,
    },
    /// The keys of a table cannot be decoded.
    #[error("table {number} with keys that are none")]
    Keys {
        /// The table.
        number: u64,
    },
    /// Keys are in an order that Riak does not use.
    #[error("keys in the order of {name}")]
    Comparator {
        /// The order's name.
        name: String,
    },
}

impl From<Truncated> for ManifestError {
    fn from(truncated: Truncated) -> Self {
        let offset = truncated.offset;
        Self::Cut { offset }
    }
}

impl Manifest {
    /// Applies one edit, which is a list of numbered fields:
    ///
    /// ```text
    ///  1  text                                   comparator
    ///  2  varint                                 log number
    ///  3  varint                                 next file number
    ///  4  varint                                 last sequence
    ///  5  varint level  text                     compaction pointer
    ///  6  varint level  varint number            table removed
    ///  7  varint level  varint number  varint length  text smallest  text largest   table added
    ///  9  varint                                 previous log number
    /// 10  varint level  varint number  varint length       Basho: a hint for caches
    /// 11  as 7, then three varints               Basho: table added, with its times of expiry
    /// text = varint length  bytes
    /// ```
    ///
    /// # Errors
    /// [`ManifestError`]; the manifest is then unusable.
    pub fn apply(&mut self, edit: &[u8]) -> Result<(), ManifestError> {
        let mut reader = ByteReader::new(edit);
        let mut added = Vec::new();
        while !reader.is_empty() {
            match reader.varint()? {
                1 => match reader.take_prefixed()? {
                    COMPARATOR => {}
                    other => {
                        let name = String::from_utf8_lossy(other).into_owned();
                        return Err(ManifestError::Comparator { name });
                    }
                },
                2 => self.log_number = reader.varint()?,
                3 | 4 => drop(reader.varint()?),
                5 => {
                    reader.varint()?;
                    reader.take_prefixed()?;
                }
                6 => {
                    let place = (level(&mut reader)?, reader.varint()?);
                    self.tables.remove(&place);
                }
                7 => added.push(table(&mut reader)?),
                9 => self.previous_log_number = reader.varint()?,
                10 => {
                    reader.varint()?;
                    reader.varint()?;
                    reader.varint()?;
                }
                11 => {
                    added.push(table(&mut reader)?);
                    for _ in 0..3 {
                        reader.varint()?;
                    }
                }
                tag => return Err(ManifestError::Tag { tag }),
            }
        }
        // An edit that moves a table removes and adds it, in any order.
        self.tables.extend(added);
        Ok(())
    }

    /// True if the log with this number is needed.
    pub fn needs_log(&self, number: u64) -> bool {
        number >= self.log_number || number == self.previous_log_number
    }
}

fn level(reader: &mut ByteReader<'_>) -> Result<u32, ManifestError> {
    let offset = reader.offset();
    u32::try_from(reader.varint()?).map_err(|_| ManifestError::Cut { offset })
}

fn table(reader: &mut ByteReader<'_>) -> Result<((u32, u64), ListedTable), ManifestError> {
    let level = level(reader)?;
    let number = reader.varint()?;
    let len = reader.varint()?;
    let mut user_key = || -> Result<Bytes, ManifestError> {
        let key = InternalKey::decode(&Bytes::copy_from_slice(reader.take_prefixed()?));
        Ok(key.ok_or(ManifestError::Keys { number })?.user_key)
    };
    let (smallest, largest) = (user_key()?, user_key()?);
    let table = ListedTable {
        len,
        smallest,
        largest,
    };
    Ok(((level, number), table))
}
