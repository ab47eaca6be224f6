//! The pieces of a repair's work and their results.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_disk::Disk;
use kvorum_encoding::successor;
use kvorum_lsm::LsmSettings;
use kvorum_sst::{KnownTable, Mark, MarkKind, Properties, Table, TableId};
use kvorum_storage_errors::IntoBackend;
use kvorum_tiers::TieredDisk;

/// A piece of work that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// The store's logs become a table.
    Logs,
    /// The rest of a blob file is rewritten.
    Blob(u64),
    /// The rest of a table is rewritten, on its level.
    Table(u64),
    /// A range of keys of all tables becomes tables of one level.
    Range(u64),
    /// A search for keys whose bodies a blob file has lost.
    Bodies(u64),
}

impl Unit {
    pub(crate) fn to_numbers(self) -> (u8, u64) {
        match self {
            Self::Logs => (0, 0),
            Self::Blob(number) => (1, number),
            Self::Table(number) => (2, number),
            Self::Range(number) => (3, number),
            Self::Bodies(file) => (4, file),
        }
    }

    pub(crate) fn of_numbers(kind: u8, number: u64) -> Option<Self> {
        match kind {
            0 => Some(Self::Logs),
            1 => Some(Self::Blob(number)),
            2 => Some(Self::Table(number)),
            3 => Some(Self::Range(number)),
            4 => Some(Self::Bodies(number)),
            _ => None,
        }
    }
}

/// A file that a unit has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) number: u64,
    pub(crate) file_len: u64,
    /// Bytes of the blocks, of a blob file.
    pub(crate) block_bytes: u64,
    /// The properties, of a table.
    pub(crate) properties: Properties,
}

/// A range of keys with unknown contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The first key.
    pub from: Bytes,
    /// The first key behind the range.
    pub to: Bytes,
    /// The reason.
    pub why: String,
}

/// The result of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) outputs: Vec<Output>,
    /// Entries that were written.
    pub(crate) entries: u64,
    /// Entries that were left out, since lost entries may have been newer.
    pub(crate) hidden: u64,
    pub(crate) lost_bodies: u64,
    pub(crate) doubts: Vec<Doubt>,
    /// Some of the keys with lost bodies.
    pub(crate) bodiless: Vec<Bytes>,
}

/// A table that a repair reads.
#[derive(Clone, Debug)]
pub(crate) struct SourceTable {
    pub(crate) number: u64,
    /// Its known original length.
    pub(crate) file_len: u64,
    pub(crate) is_present: bool,
    pub(crate) is_whole: bool,
    pub(crate) properties: Properties,
}

impl SourceTable {
    /// A table that is whole.
    pub(crate) fn whole(number: u64, file_len: u64, properties: Properties) -> Self {
        Self {
            number,
            file_len,
            is_present: true,
            is_whole: true,
            properties,
        }
    }
}

/// The data that all units share.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) disk: &'a dyn Disk,
    /// The disk that creates files in the slow directory, if there is one.
    pub(crate) slow: Option<&'a TieredDisk<Arc<dyn Disk>>>,
    pub(crate) directory: &'a Path,
    pub(crate) identity: u64,
    pub(crate) settings: &'a LsmSettings,
    /// Older entries below lost ones are served.
    pub(crate) keeps_doubtful: bool,
    /// The store keeps a journal, which may have older records of removed keys.
    pub(crate) has_journal: bool,
}

impl<'a> Ground<'a> {
    /// The disk for the rewritten rest of a file, which has the same device.
    pub(crate) fn disk_beside(&self, path: &Path) -> Result<&'a dyn Disk> {
        match self.slow {
            Some(slow) if slow.is_slow(path).into_backend()? => Ok(slow),
            _ => Ok(self.disk),
        }
    }

    /// The disk for all tables of a store without known levels, since most of them are old.
    pub(crate) fn disk_of_old(&self) -> &'a dyn Disk {
        self.slow.map_or(self.disk, |slow| slow)
    }

    /// The level of rebuilt tables: the last one, or the level above a table for a lost ledger.
    pub(crate) fn rebuilt_level(&self) -> usize {
        let last = self.settings.policy.levels.saturating_sub(1);
        last.saturating_sub(usize::from(self.has_journal))
    }

    pub(crate) fn table_id(&self, number: u64) -> TableId {
        TableId {
            store: self.identity,
            number,
        }
    }

    pub(crate) fn open(&self, path: &Path, source: &SourceTable) -> kvorum_sst::Result<Table> {
        let known = KnownTable {
            id: self.table_id(source.number),
            file_len: source.file_len,
            properties: source.properties.clone(),
        };
        let opened = Table::open(self.disk, path, known, 0, &kvorum_sst::IgnoreDamage);
        opened.map(Table::giving_up_bad_sectors)
    }
}

/// The first key behind a table.
pub(crate) fn end_of(properties: &Properties) -> Bytes {
    let is_behind = properties
        .marks
        .iter()
        .any(|it| it.to == properties.largest);
    match is_behind {
        // The end of a mark, where the next table of the level may begin.
        true => properties.largest.clone(),
        false => successor(&properties.largest),
    }
}

pub(crate) fn lost_mark(from: Bytes, to: Bytes, filter: Bytes) -> Mark {
    Mark {
        from,
        to,
        sequence: 0,
        kind: MarkKind::Lost,
        filter,
    }
}
