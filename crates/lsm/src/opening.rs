//! Opening the tables and blob files that a manifest lists. A file that is missing or cannot be
//! read degrades the store and does not fail the opening: its contents are reported as lost, by
//! their keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{Result, StoreId};
use kvorum_disk::{Disk, DiskError, OpenMode, Operation, Reading};
use kvorum_sst::{DamageSink, KnownTable, SstError, Table};
use kvorum_storage_errors::from_sst;
use kvorum_tiers::{CARD_OF_FAST, has_slow};
use kvorum_value_log::{LogSegment, Whereabouts};

use crate::blob::{BlobFile, blob_path};
use crate::files::table_path;
use crate::journal::{JournalFile, journal_path};
use crate::logged::{lost_name, segment_of};
use crate::lost::shown;
use crate::manifest::{self, BlobRecord, Manifest, TableRecord};
use crate::memtable::Memtable;
use crate::read_side::ReadSide;
use crate::recovery::Recovery;
use crate::version::{LevelTable, Version, gap_between};

impl Recovery {
    pub(crate) fn open_files(&self, manifest: &Manifest, read_side: &ReadSide) -> Result<Version> {
        let levels = self.settings.policy.levels;
        let deepest = manifest.tables.iter().map(|it| it.level).max().unwrap_or(0);
        let deepest = usize::try_from(deepest).unwrap_or(levels);
        // Replaced by the memtable that the replay of the logs fills.
        let memtable = Memtable::new(manifest.first_log, 0);
        let mut version = Version::empty(levels.max(deepest + 1), memtable);
        for record in &manifest.tables {
            let opened = self.open_table(manifest, record, read_side)?;
            let level = usize::try_from(record.level).unwrap_or(0);
            Arc::make_mut(&mut version.levels[level]).push(LevelTable {
                number: record.number,
                file_len: record.file_len,
                properties: Arc::new(record.properties.clone()),
                table: opened.map(Arc::new),
            });
        }
        let mut blobs = BTreeMap::new();
        for record in &manifest.blobs {
            let table = self.open_blob(manifest, record, read_side)?;
            let blob = BlobFile {
                file: record.file,
                number: record.number,
                file_len: record.file_len,
                block_bytes: record.block_bytes,
                table: table.map(Arc::new),
            };
            blobs.insert(record.file, Arc::new(blob));
        }
        version.blobs = Arc::new(blobs);
        version.journal = Arc::new(self.open_journal(manifest, read_side)?);
        version.segments = Arc::new(self.open_segments(manifest, &version));
        Ok(version)
    }

    /// The segments of the value log that tables name. A dropped segment had no live records: the
    /// entries that still name it are hidden.
    fn open_segments(
        &self,
        manifest: &Manifest,
        version: &Version,
    ) -> BTreeMap<u32, Arc<LogSegment>> {
        let mut segments = BTreeMap::new();
        let Some(log) = &self.log else {
            return segments;
        };
        for number in version.segment_use().into_keys() {
            match log.whereabouts(StoreId(manifest.identity), number) {
                Whereabouts::Here(segment) => _ = segments.insert(number, segment),
                Whereabouts::LetGo => {}
                // The records collected from the segment before its loss exist.
                Whereabouts::Missing if version.journal_of(number).next().is_some() => {}
                Whereabouts::Missing => self.note_missing(version, number),
            }
        }
        segments
    }

    fn note_missing(&self, version: &Version, segment: u32) {
        let uses = version.tables().flat_map(|it| &it.properties.blobs);
        let uses = uses.filter(|it| segment_of(it.file) == Some(segment));
        let (count, bytes) = uses.fold((0, 0), |(count, bytes), it| {
            (count + it.count, bytes + it.bytes)
        });
        let held = format!("bodies of at most {count} entries; their heads are in tables");
        self.note(lost_name(segment), 0, bytes, held);
    }

    /// `None` when the file is missing, is another file, or cannot be read.
    fn open_table(
        &self,
        manifest: &Manifest,
        record: &TableRecord,
        read_side: &ReadSide,
    ) -> Result<Option<Table>> {
        let path = table_path(&self.directory, record.number);
        let (known, sink) = (record.known(manifest.identity), &read_side.tables);
        self.open_unless_missing(&path, &known, sink, |why| {
            let (from, to) = (&record.properties.smallest, &record.properties.largest);
            let entries = record.properties.entries;
            let held = format!(
                "a table of {entries} entries with the keys from {} to {} ({why})",
                shown(from),
                shown(to)
            );
            let name = format!("{:010}.sst", record.number);
            self.note(name, 0, record.file_len, held);
            let gap = gap_between(from, to);
            self.doubts.open_for(record.number, 0, gap.range());
        })
    }

    fn open_blob(
        &self,
        manifest: &Manifest,
        record: &BlobRecord,
        read_side: &ReadSide,
    ) -> Result<Option<Table>> {
        let path = blob_path(&self.directory, record.number);
        let (known, sink) = (record.known(manifest.identity), &read_side.blobs);
        self.open_unless_missing(&path, &known, sink, |why| {
            let held = format!("bodies of large entries; their heads are in tables ({why})");
            let name = format!("{:010}.blob", record.number);
            self.note(name, 0, record.file_len, held);
        })
    }

    fn open_journal(
        &self,
        manifest: &Manifest,
        read_side: &ReadSide,
    ) -> Result<Vec<Arc<JournalFile>>> {
        let mut files = Vec::new();
        for record in &manifest.journal {
            let path = journal_path(&self.directory, record.number);
            let (known, sink) = (record.known(manifest.identity), &read_side.journal);
            let table = self.open_unless_missing(&path, &known, sink, |why| {
                let held = format!("bodies of entries; their heads are in tables ({why})");
                let name = format!("{:010}.journal", record.number);
                self.note(name, 0, record.file_len, held);
            })?;
            files.push(Arc::new(JournalFile {
                number: record.number,
                file_len: record.file_len,
                logged_bytes: record.logged_bytes,
                clean_to: record.clean_to,
                segments: record.segments.clone(),
                table: table.map(Arc::new),
            }));
        }
        Ok(files)
    }

    fn open_unless_missing(
        &self,
        path: &Path,
        known: &KnownTable,
        sink: &dyn DamageSink,
        report: impl Fn(&SstError),
    ) -> Result<Option<Table>> {
        let cache_id = self.shared.cache.new_table();
        let open = || Table::open(&*self.disk, path, known.clone(), cache_id, sink);
        let opened = match open() {
            // Without file handles, for example, every file fails like this, and the opening fails.
            Err(SstError::Disk(error)) if self.is_of_one_file(&error) => open(),
            opened => opened,
        };
        let error = match opened {
            Ok(table) => return Ok(Some(table)),
            Err(error) => error,
        };
        let is_lost = match &error {
            SstError::Disk(disk) => {
                disk.kind() == kvorum_disk::ErrorKind::NotFound || self.is_of_one_file(disk)
            }
            SstError::Foreign { .. } => true,
            _ => false,
        };
        if !is_lost {
            return Err(from_sst(&error));
        }
        report(&error);
        Ok(None)
    }

    /// True when the error concerns this file alone: the manifest can still be read.
    fn is_of_one_file(&self, error: &DiskError) -> bool {
        use kvorum_disk::ErrorKind::{Denied, Device};
        matches!(error.operation(), Operation::Open | Operation::Read)
            && matches!(error.kind(), Denied | Device)
            && is_manifest_readable(&*self.disk, &self.directory)
    }
}

/// True when a file can be read that every store, or every slow directory, has.
pub(crate) fn is_manifest_readable(disk: &dyn Disk, directory: &Path) -> bool {
    let is_readable = |name: &str| {
        let file = disk.open(&directory.join(name), OpenMode::Read);
        file.is_ok_and(|file| file.read_at(&mut [0], 0, Reading::MayBlock).is_ok())
    };
    let is_slow_readable = || match has_slow(disk, directory) {
        Ok(has_slow) => !has_slow || is_readable(CARD_OF_FAST),
        Err(_) => false,
    };
    manifest::NAMES.into_iter().any(is_readable) && is_slow_readable()
}
