//! The newest entry of a key in tables; memtables are not read.

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_sst::{MarkKind, ReadContext, SstError, hash_key};
use kvorum_storage_errors::from_sst;

use crate::entry::Entry;
use crate::version::{LevelTable, Version};

/// Failure of a read.
pub(crate) enum Unread {
    /// A failure of the disk, or damage found by this read.
    Sst(SstError),
    /// Damage found before, in a file that may be readable again later.
    Lost(BackendError),
    /// A merge gave up blocks with this key; all entries below count as lost too.
    GivenUp(BackendError),
}

impl From<SstError> for Unread {
    fn from(error: SstError) -> Self {
        Self::Sst(error)
    }
}

/// A layer's answer for a key.
enum TableAnswer {
    Nothing,
    Entry(Entry),
    Removed,
}

/// The newest entry of a key in tables, or its removal.
pub(crate) fn newest_in_tables(
    version: &Version,
    key: &[u8],
    context: &ReadContext<'_>,
) -> Result<Option<Entry>> {
    match find_in_tables(version, key, hash_key(key), context) {
        Ok(found) => Ok(found),
        Err(Unread::Sst(error)) => Err(from_sst(&error)),
        Err(Unread::Lost(error) | Unread::GivenUp(error)) => Err(error),
    }
}

/// The same, with the hash of the key.
pub(crate) fn find_in_tables(
    version: &Version,
    key: &[u8],
    hash: u64,
    context: &ReadContext<'_>,
) -> std::result::Result<Option<Entry>, Unread> {
    for table in version.levels[0].iter() {
        match ask(table, key, hash, context)? {
            TableAnswer::Entry(entry) => return Ok(Some(entry)),
            TableAnswer::Removed => return Ok(None),
            TableAnswer::Nothing => {}
        }
    }
    for level in 1..version.levels.len() {
        for table in version.tables_for(level, key) {
            match ask(table, key, hash, context)? {
                TableAnswer::Entry(entry) => return Ok(Some(entry)),
                TableAnswer::Removed => return Ok(None),
                TableAnswer::Nothing => {}
            }
        }
    }
    Ok(None)
}

fn ask(
    table: &LevelTable,
    key: &[u8],
    hash: u64,
    context: &ReadContext<'_>,
) -> std::result::Result<TableAnswer, Unread> {
    let properties = &table.properties;
    if key < &properties.smallest[..] || key > &properties.largest[..] {
        return Ok(TableAnswer::Nothing);
    }
    let corrupt = |what: &str| {
        let detail = format!("{what} of table {} was lost", table.number);
        BackendError::new(ErrorKind::Corrupt, detail)
    };
    let lost = |what: &str| Unread::Lost(corrupt(what));
    let opened = table.table.as_ref().ok_or_else(|| lost("the file"))?;
    let mark = properties.marks.strongest(key);
    let entry = match opened.get(key, hash, context)? {
        Some(found) => {
            Some(Entry::decode(&found.value).map_err(|_| lost("an entry with a good checksum"))?)
        }
        None => None,
    };
    Ok(match (entry, mark) {
        (Some(entry), Some(mark))
            if mark.kind == MarkKind::Removed && mark.sequence > entry.sequence =>
        {
            TableAnswer::Removed
        }
        (Some(entry), _) => TableAnswer::Entry(entry),
        (None, Some(mark)) if mark.kind == MarkKind::Removed => TableAnswer::Removed,
        (None, Some(_)) => return Err(Unread::GivenUp(corrupt("a range with the key"))),
        (None, None) => TableAnswer::Nothing,
    })
}
