//! New files take the place of old ones: on disk first, then for readers.

use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_sst::{KnownTable, Table, WrittenTable};

use crate::blob::BlobFile;
use crate::error::IntoBackend;
use crate::files::{sync_directory, table_path};
use crate::manifest::{BlobRecord, Manifest, TableRecord};
use crate::policy::Pick;
use crate::store::Store;
use crate::version::{LevelTable, Version};

impl Store {
    /// Makes the names of new tables durable and opens them.
    pub(crate) fn publish(&self, written: &[WrittenTable]) -> Result<Vec<LevelTable>> {
        sync_directory(&*self.disk, &self.directory)
            .map_err(|error| self.fail_unless_full(error))?;
        written
            .iter()
            .map(|table| {
                let known = known(table);
                let path = table_path(&self.directory, table.id.number);
                let id = self.shared.cache.new_table();
                let sink = &self.read_side.tables;
                let opened = Table::open(&*self.disk, &path, known, id, sink).into_backend()?;
                Ok(LevelTable {
                    number: table.id.number,
                    file_len: table.file_len,
                    properties: Arc::new(table.properties.clone()),
                    table: Some(Arc::new(opened)),
                })
            })
            .collect()
    }

    pub(crate) fn open_blob(
        &self,
        written: &WrittenTable,
        file: u64,
        block_bytes: u64,
    ) -> Result<BlobFile> {
        let path = crate::blob::blob_path(&self.directory, written.id.number);
        let id = self.shared.cache.new_table();
        let sink = &self.read_side.blobs;
        let opened = Table::open(&*self.disk, &path, known(written), id, sink).into_backend()?;
        Ok(BlobFile {
            file,
            number: written.id.number,
            file_len: written.file_len,
            block_bytes,
            table: Some(Arc::new(opened)),
        })
    }

    /// New tables take the place of a merge's inputs, in the manifest and for readers. Blob files
    /// that nothing refers to any more go at the same time.
    pub(crate) fn exchange(&self, pick: &Pick, tables: &[LevelTable]) -> Result<()> {
        let change = |version: &mut Version| {
            let gone = |it: &LevelTable| pick.inputs.contains(&it.number);
            Arc::make_mut(&mut version.levels[pick.level]).retain(|it| !gone(it));
            let below = |it: &LevelTable| pick.below.contains(&it.number);
            let output = Arc::make_mut(&mut version.levels[pick.output]);
            output.retain(|it| !below(it));
            output.extend(tables.iter().cloned());
            output.sort_by(|a, b| a.properties.smallest.cmp(&b.properties.smallest));
            let used = version.blob_use();
            let mut blobs = (*version.blobs).clone();
            blobs.retain(|file, _| used.contains_key(file));
            version.blobs = Arc::new(blobs);
            version.keep_named_segments(&[]);
        };
        let mut after = Version::clone(&self.version.load());
        let blobs_before: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
        let segments_before = after.segments.len();
        let used_before = after.bytes_in_log();
        change(&mut after);
        self.change_manifest(|manifest| list_files(manifest, &after))?;
        self.change_version(change);
        let left: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
        let unused = blobs_before.iter().filter(|it| !left.contains(it));
        self.retire_files(unused.map(|it| crate::blob::blob_path(&self.directory, *it)));
        if let Some(log) = &self.log {
            if after.segments.len() < segments_before {
                log.usage_changed();
            }
            log.usage_fell(used_before.saturating_sub(after.bytes_in_log()));
        }
        Ok(())
    }
}

/// True when a job's files may go after a failure. Where the manifest was to list them, and nobody knows
/// whether it does, they have to stay.
pub(crate) fn are_unlisted(was_listing: bool, error: &BackendError) -> bool {
    !was_listing || matches!(error.kind(), ErrorKind::Full | ErrorKind::Corrupt)
}

/// Makes a manifest's lists those of a version.
pub(crate) fn list_files(manifest: &mut Manifest, version: &Version) {
    let levels = version.levels.iter().enumerate();
    manifest.tables = levels
        .flat_map(|(level, tables)| tables.iter().map(move |it| record(it, level)))
        .collect();
    manifest.blobs = version.blobs.values().map(|it| blob_record(it)).collect();
}

pub(crate) fn record(table: &LevelTable, level: usize) -> TableRecord {
    TableRecord {
        level: level as u64,
        number: table.number,
        file_len: table.file_len,
        properties: kvorum_sst::Properties::clone(&table.properties),
    }
}

pub(crate) fn blob_record(blob: &BlobFile) -> BlobRecord {
    BlobRecord {
        file: blob.file,
        number: blob.number,
        file_len: blob.file_len,
        block_bytes: blob.block_bytes,
    }
}

fn known(written: &WrittenTable) -> KnownTable {
    KnownTable {
        id: written.id,
        file_len: written.file_len,
        properties: written.properties.clone(),
    }
}
