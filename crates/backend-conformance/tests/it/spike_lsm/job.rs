//! Flushes and merges: one job that writes a table from layers, a few entries at a time.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{FoldRange, Result, TaskKind, Timestamp};
use kvorum_disk::{Disk, DiskFile, OpenMode};
use kvorum_encoding::put_varint;

use super::files::{Table, disk_error, entry_frame, table_path};
use super::{Layers, successor};
use crate::entry_encoding::framed;

/// A table under construction.
pub(crate) struct Job {
    pub(crate) kind: TaskKind,
    pub(crate) number: u64,
    source: Layers,
    /// The rest of the range.
    rest: FoldRange,
    file: Arc<dyn DiskFile>,
    offset: u64,
    entries: u64,
    /// Removals may be omitted: there is no older layer.
    drops_removals: bool,
}

impl Job {
    pub(crate) fn start(
        disk: &dyn Disk,
        directory: &Path,
        kind: TaskKind,
        number: u64,
        source: Layers,
        drops_removals: bool,
    ) -> Result<Self> {
        let temporary = kvorum_disk::temporary_name(&table_path(directory, number));
        let file = disk
            .open(&temporary, OpenMode::Create)
            .map_err(disk_error)?;
        file.truncate(0).map_err(disk_error)?;
        Ok(Self {
            kind,
            number,
            source,
            rest: FoldRange::all(),
            file,
            offset: 0,
            entries: 0,
            drops_removals,
        })
    }

    /// Writes entries until the budget is used up; true when all are written.
    pub(crate) fn step(&mut self, budget_bytes: u64, now: Timestamp) -> Result<(u64, bool)> {
        let mut cost_bytes = 0;
        while let Some(key) = self.source.first_key(&self.rest) {
            if cost_bytes >= budget_bytes {
                return Ok((cost_bytes, false));
            }
            let value = self.source.get(&key)?;
            let is_gone = value.as_ref().is_none_or(|it| it.fields.is_expired(now));
            if !(is_gone && self.drops_removals) {
                let frame = entry_frame(&key, value.as_ref().filter(|_| !is_gone));
                self.file
                    .write_at(&frame, self.offset)
                    .map_err(disk_error)?;
                self.offset += frame.len() as u64;
                self.entries += 1;
                cost_bytes += 2 * frame.len() as u64;
            }
            self.rest.from = Bound::Included(successor(key.as_bytes()));
        }
        Ok((cost_bytes, true))
    }

    /// Puts the finished table in its place.
    pub(crate) fn finish(&self, disk: &dyn Disk, directory: &Path) -> Result<Table> {
        let mut count = Vec::new();
        put_varint(&mut count, self.entries);
        self.file
            .write_at(&framed(&count), self.offset)
            .map_err(disk_error)?;
        self.file.sync().map_err(disk_error)?;
        let path = table_path(directory, self.number);
        disk.rename(&kvorum_disk::temporary_name(&path), &path)
            .map_err(disk_error)?;
        Table::open(disk, directory, self.number)
    }
}
