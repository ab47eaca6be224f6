//! Replacement of old files by new ones: on disk first, then for readers.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_sst::{KnownTable, Table, TableWriter};
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::LogSegment;

use crate::Entry;
use crate::blob::{BlobFile, blob_path};
use crate::files::{sync_directory, table_path};
use crate::journal::{JournalFile, journal_path};
use crate::manifest::{BlobRecord, JournalFileRecord, Manifest, TableRecord};
use crate::policy::Pick;
use crate::store::Store;
use crate::version::{LevelTable, Version};
use crate::written_blob::WrittenBlob;
use crate::written_journal::WrittenJournal;

/// Makes the names of new tables durable and opens them.
pub(crate) fn publish(store: &Store, written: &[KnownTable]) -> Result<Vec<LevelTable>> {
    sync_directory(&*store.disk, &store.directory)
        .map_err(|error| store.fail_unless_full(error))?;
    written
        .iter()
        .map(|table| {
            let path = table_path(&store.directory, table.id.number);
            let id = store.shared.cache.new_table();
            let sink = &store.read_side.tables;
            let opened =
                Table::open(&*store.disk, &path, table.clone(), id, sink).into_backend()?;
            Ok(LevelTable {
                number: table.id.number,
                file_len: table.file_len,
                properties: Arc::new(table.properties.clone()),
                table: Some(Arc::new(opened)),
            })
        })
        .collect()
}

/// Opens a new blob file for the bodies that entries name by the number `file`.
pub(crate) fn open_blob(store: &Store, written: &WrittenBlob, file: u64) -> Result<BlobFile> {
    let path = blob_path(&store.directory, written.number());
    let id = store.shared.cache.new_table();
    let sink = &store.read_side.blobs;
    let opened =
        Table::open(&*store.disk, &path, written.table.clone(), id, sink).into_backend()?;
    Ok(BlobFile {
        file,
        number: written.number(),
        file_len: written.table.file_len,
        block_bytes: written.block_bytes,
        table: Some(Arc::new(opened)),
    })
}

/// Replaces a merge's inputs by new tables, in the manifest and for readers. Blob files without
/// references are removed at the same time.
pub(crate) fn exchange(store: &Store, pick: &Pick, tables: &[LevelTable]) -> Result<()> {
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
    let mut after = Version::clone(&store.version.load());
    let blobs_before: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
    let segments_before = after.segments.len();
    let used_before = after.bytes_in_log();
    change(&mut after);
    store.change_manifest(|manifest| list_files(manifest, &after))?;
    store.change_version(change);
    let left: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
    let unused = blobs_before.iter().filter(|it| !left.contains(it));
    store.retire_files(unused.map(|it| blob_path(&store.directory, *it)));
    if let Some(log) = &store.log {
        if after.segments.len() < segments_before {
            log.usage_changed();
        }
        log.usage_fell(used_before.saturating_sub(after.bytes_in_log()));
    }
    Ok(())
}

/// Puts new tables above all others, with the blob file of some of their entries' bodies. `list`
/// and `show` make the accompanying changes, on disk and for readers. After a failure the files are
/// removed, unless the manifest may list them.
pub(crate) fn put_on_top(
    store: &Store,
    written: &[KnownTable],
    blob: Option<&WrittenBlob>,
    list: impl FnOnce(&mut Manifest),
    show: impl FnOnce(&mut Version),
) -> Result<()> {
    let mut was_listing = false;
    let installed = publish(store, written).and_then(|tables| {
        let opened = blob.map(|it| open_blob(store, it, it.number()));
        let opened = opened.transpose()?;
        was_listing = true;
        store.change_manifest(|manifest| {
            list(manifest);
            let records = tables.iter().map(|it| record(it, 0));
            manifest.tables.splice(0..0, records);
            manifest.blobs.extend(opened.as_ref().map(blob_record));
        })?;
        store.change_version(|version| {
            Arc::make_mut(&mut version.levels[0]).splice(0..0, tables);
            version.add_blob(opened);
            show(version);
        });
        Ok(())
    });
    if let Err(error) = &installed
        && are_unlisted(was_listing, error)
    {
        remove_outputs(store, written.iter().map(|it| it.id.number), blob);
    }
    installed
}

fn remove_outputs(
    store: &Store,
    tables: impl IntoIterator<Item = u64>,
    blob: Option<&WrittenBlob>,
) {
    let directory = &store.directory;
    let tables = tables.into_iter().map(|it| table_path(directory, it));
    let blob = blob.map(|it| blob_path(directory, it.number()));
    store.remove_files(tables.chain(blob));
}

/// Puts a table with these entries, in key order, above all others, with the blob file of some of
/// their bodies. Returns the bytes of the table.
///
/// The caller holds upkeep's lock, and no flush is in progress.
pub(crate) fn install_below(
    store: &Store,
    entries: &[(Bytes, Entry)],
    blob: Option<&WrittenBlob>,
) -> Result<u64> {
    if entries.is_empty() {
        return Ok(0);
    }
    let number = store.take_number();
    let written = write_table(store, number, entries)
        .inspect_err(|_| remove_outputs(store, [number], blob))?;
    let bytes = written.file_len;
    store.count_written(bytes);
    let segments = segments_named(store, entries);
    put_on_top(
        store,
        &[written],
        blob,
        |_| {},
        |version| version.keep_segments(segments),
    )?;
    Ok(bytes)
}

/// The segments of the value log that entries name.
fn segments_named(store: &Store, entries: &[(Bytes, Entry)]) -> Vec<Arc<LogSegment>> {
    let places = entries.iter().filter_map(|(_, entry)| entry.logged_at());
    let numbers: BTreeSet<u32> = places.map(|at| at.segment).collect();
    let segments = numbers
        .into_iter()
        .filter_map(|it| store.log.as_ref()?.segment(it));
    segments.collect()
}

fn write_table(store: &Store, number: u64, entries: &[(Bytes, Entry)]) -> Result<KnownTable> {
    let path = table_path(&store.directory, number);
    let options = store.settings.table_options(0, false);
    let id = store.table_id(number);
    let writer = TableWriter::create(store.disk_of(0), &path, id, options);
    let mut writer = writer.into_backend()?;
    let mut value = Vec::new();
    for (key, entry) in entries {
        value.clear();
        entry.encode(&mut value);
        writer.add(key, &value, &entry.facts()).into_backend()?;
    }
    writer.finish().map_err(|error| store.fail_if_sync(&error))
}

/// True when a job's files may be removed after a failure: no change of the manifest may have
/// listed them.
pub(crate) fn are_unlisted(was_listing: bool, error: &BackendError) -> bool {
    !was_listing || matches!(error.kind(), ErrorKind::Full | ErrorKind::Corrupt)
}

/// Sets a manifest's lists from a version.
pub(crate) fn list_files(manifest: &mut Manifest, version: &Version) {
    let levels = version.levels.iter().enumerate();
    manifest.tables = levels
        .flat_map(|(level, tables)| tables.iter().map(move |it| record(it, level)))
        .collect();
    manifest.blobs = version.blobs.values().map(|it| blob_record(it)).collect();
    manifest.journal = version
        .journal
        .iter()
        .map(|it| journal_record(it))
        .collect();
}

fn record(table: &LevelTable, level: usize) -> TableRecord {
    TableRecord {
        level: level as u64,
        number: table.number,
        file_len: table.file_len,
        properties: kvorum_sst::Properties::clone(&table.properties),
    }
}

/// Replaces journal files by others, in the manifest and for readers. After a failure the new files
/// are removed, unless the manifest may list them.
pub(crate) fn exchange_journal(
    store: &Store,
    written: Vec<WrittenJournal>,
    replaced: &[u64],
) -> Result<()> {
    let numbers: Vec<u64> = written.iter().map(WrittenJournal::number).collect();
    let mut was_listing = false;
    let installed = publish_journal(store, written).and_then(|files| {
        was_listing = true;
        let change = |version: &mut Version| {
            let mut journal = (*version.journal).clone();
            journal.retain(|it| !replaced.contains(&it.number));
            journal.extend(files.iter().cloned());
            journal.sort_by(|a, b| a.segments.cmp(&b.segments));
            version.journal = Arc::new(journal);
        };
        let mut after = Version::clone(&store.version.load());
        change(&mut after);
        store.change_manifest(|manifest| list_files(manifest, &after))?;
        store.change_version(change);
        Ok(())
    });
    let path = |number: &u64| journal_path(&store.directory, *number);
    match &installed {
        Ok(()) => store.retire_files(replaced.iter().map(path)),
        Err(error) if are_unlisted(was_listing, error) => {
            store.remove_files(numbers.iter().map(path));
        }
        Err(_) => {}
    }
    installed
}

fn publish_journal(store: &Store, written: Vec<WrittenJournal>) -> Result<Vec<Arc<JournalFile>>> {
    sync_directory(&*store.disk, &store.directory)
        .map_err(|error| store.fail_unless_full(error))?;
    let open = |written: WrittenJournal| {
        let path = journal_path(&store.directory, written.number());
        let id = store.shared.cache.new_table();
        let sink = &store.read_side.journal;
        let table = Table::open(&*store.disk, &path, written.table.clone(), id, sink);
        Ok(Arc::new(written.opened(table.into_backend()?)))
    };
    written.into_iter().map(open).collect()
}

fn journal_record(file: &JournalFile) -> JournalFileRecord {
    JournalFileRecord {
        number: file.number,
        file_len: file.file_len,
        logged_bytes: file.logged_bytes,
        clean_to: file.clean_to,
        segments: file.segments.clone(),
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
