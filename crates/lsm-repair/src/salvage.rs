//! Rewriting the readable rest of a damaged table or blob file, or of the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_encoding::successor;
use kvorum_lsm::blob::{BlobWriter, blob_path, ordinal_of, split_blob};
use kvorum_lsm::files::table_path;
use kvorum_lsm::log::{self, log_id, log_path};
use kvorum_lsm::manifest::{BlobRecord, blob_properties};
use kvorum_lsm::{Body, Entry, Op};
use kvorum_segment::{
    FILE_HEADER_BYTES, ScanOptions, Scanned, SegmentError, SegmentReader, StoredRecord,
};
use kvorum_sst::{
    Mark, MarkKind, Properties, ReadContext, ScanItem, ScanOptions as TableScanOptions, Table,
    TableScan, TableWriter,
};
use kvorum_storage_errors::{IntoBackend, from_segment};

use crate::work::{Done, Doubt, Ground, Output, SourceTable, end_of, lost_mark};

/// Bytes of one read in a walk over a table.
pub(crate) const READ_AHEAD_BYTES: usize = 1 << 20;
/// The most keys without their bodies that are named.
const BODILESS_MAX: usize = 1_000;

pub(crate) fn context() -> ReadContext<'static> {
    ReadContext {
        fills_cache: false,
        ..ReadContext::default()
    }
}

pub(crate) fn scan_of(table: Table) -> TableScan {
    let options = TableScanOptions {
        read_ahead_bytes: READ_AHEAD_BYTES,
        ..TableScanOptions::default()
    };
    TableScan::new(Arc::new(table), options)
}

/// Writes the rest of a table, with marks over the lost ranges, since older entries there may be
/// out of date or removed. A missing table leaves only marks.
pub(crate) fn salvage_table(
    ground: &Ground<'_>,
    source: &SourceTable,
    level: usize,
    number: u64,
    progress: &dyn Fn(u64),
) -> Result<Done> {
    let path = table_path(ground.directory, number);
    let is_last = level + 1 >= ground.settings.policy.levels;
    let options = ground.settings.table_options(level, is_last);
    let id = ground.table_id(number);
    let disk = ground.disk_beside(&table_path(ground.directory, source.number))?;
    let mut writer = TableWriter::create(disk, &path, id, options).into_backend()?;
    let mut done = Done::default();
    let mut gaps = Vec::new();
    match source.is_present {
        true => copy_entries(ground, source, &mut writer, &mut gaps, progress, &mut done)?,
        false => gaps.push(all_of(source)),
    }
    for gap in gaps {
        done.doubts.push(doubt(source.number, &gap));
        if !ground.keeps_doubtful {
            writer.add_mark(gap);
        }
    }
    for mark in source.properties.marks.iter() {
        writer.add_mark(mark.clone());
    }
    finish(ground, writer, &mut done)?;
    Ok(done)
}

/// A mark over all keys of a table.
pub(crate) fn all_of(source: &SourceTable) -> Mark {
    let to = end_of(&source.properties);
    lost_mark(source.properties.smallest.clone(), to, Bytes::new())
}

pub(crate) fn doubt(number: u64, gap: &Mark) -> Doubt {
    Doubt {
        from: gap.from.clone(),
        to: gap.to.clone(),
        why: format!("table {number} lost them"),
    }
}

fn copy_entries(
    ground: &Ground<'_>,
    source: &SourceTable,
    writer: &mut TableWriter,
    gaps: &mut Vec<Mark>,
    progress: &dyn Fn(u64),
    done: &mut Done,
) -> Result<()> {
    let path = table_path(ground.directory, source.number);
    let mut scan = scan_of(ground.open(&path, source).into_backend()?);
    let end = end_of(&source.properties);
    let mut reported = 0;
    loop {
        match scan.advance(&context()).into_backend()? {
            ScanItem::Entry => {
                let key = scan.key();
                match Entry::facts_of(scan.value()) {
                    Ok(facts) => {
                        writer.add(key, scan.value(), &facts).into_backend()?;
                        done.entries += 1;
                    }
                    Err(_) => gaps.push(lost_mark(
                        Bytes::copy_from_slice(key),
                        successor(key),
                        Bytes::new(),
                    )),
                }
            }
            ScanItem::Gap(gap) => {
                let to = gap.to.min(end.clone());
                gaps.push(lost_mark(gap.from, to, gap.filter));
            }
            ScanItem::End => break,
        }
        progress(scan.bytes_read() - reported);
        reported = scan.bytes_read();
    }
    Ok(())
}

/// Finishes a table, or removes it if it is empty.
pub(crate) fn finish(ground: &Ground<'_>, writer: TableWriter, done: &mut Done) -> Result<()> {
    if writer.is_empty() {
        let path = table_path(ground.directory, writer.id().number);
        drop(writer);
        return ground.disk.remove_file(&path).into_backend();
    }
    let written = writer.finish().into_backend()?;
    done.outputs.push(Output {
        number: written.id.number,
        file_len: written.file_len,
        block_bytes: 0,
        properties: written.properties,
    });
    Ok(())
}

/// Writes the readable bodies of a blob file under their numbers, and searches `users` for keys
/// with lost bodies.
pub(crate) fn salvage_blob(
    ground: &Ground<'_>,
    record: &BlobRecord,
    is_present: bool,
    users: &[SourceTable],
    number: u64,
    progress: &dyn Fn(u64),
) -> Result<Done> {
    let mut done = Done::default();
    let mut good = BTreeSet::new();
    if is_present {
        copy_bodies(ground, record, number, &mut good, progress, &mut done)?;
    }
    find_bodiless(ground, record.file, &good, users, &mut done)?;
    Ok(done)
}

/// Searches for keys with bodies in a lost blob file, or in its lost part; `left` is the remaining
/// file.
pub(crate) fn bodiless_of(
    ground: &Ground<'_>,
    file: u64,
    left: Option<&BlobRecord>,
    users: &[SourceTable],
) -> Result<Done> {
    let mut done = Done::default();
    let mut good = BTreeSet::new();
    if let Some(record) = left {
        let source = blob_source(record.number, record.file_len);
        let path = blob_path(ground.directory, record.number);
        let mut scan = scan_of(ground.open(&path, &source).into_backend()?);
        while !matches!(scan.advance(&context()).into_backend()?, ScanItem::End) {
            good.extend(ordinal_of(scan.key()));
        }
    }
    find_bodiless(ground, file, &good, users, &mut done)?;
    Ok(done)
}

fn find_bodiless(
    ground: &Ground<'_>,
    file: u64,
    good: &BTreeSet<u64>,
    users: &[SourceTable],
    done: &mut Done,
) -> Result<()> {
    for table in users.iter().filter(|it| it.is_present) {
        let path = table_path(ground.directory, table.number);
        let mut scan = scan_of(ground.open(&path, table).into_backend()?);
        loop {
            match scan.advance(&context()).into_backend()? {
                ScanItem::Entry => {}
                ScanItem::Gap(_) => continue,
                ScanItem::End => break,
            }
            let place = place_of(&scan.value_bytes());
            if place.is_some_and(|it| it.0 == file && !good.contains(&it.1)) {
                done.lost_bodies += 1;
                if done.bodiless.len() < BODILESS_MAX {
                    done.bodiless.push(Bytes::copy_from_slice(scan.key()));
                }
            }
        }
    }
    Ok(())
}

/// The blob file and the number of the body, from an entry.
fn place_of(value: &Bytes) -> Option<(u64, u64)> {
    match Entry::decode(value).ok()?.value?.body {
        Body::Blob(place) => Some((place.file, place.ordinal)),
        Body::Inline(_) | Body::Logged(_) => None,
    }
}

/// A blob file as a table to open without a manifest.
pub(crate) fn blob_source(number: u64, file_len: u64) -> SourceTable {
    SourceTable::whole(number, file_len, blob_properties())
}

fn copy_bodies(
    ground: &Ground<'_>,
    record: &BlobRecord,
    number: u64,
    good: &mut BTreeSet<u64>,
    progress: &dyn Fn(u64),
    done: &mut Done,
) -> Result<()> {
    let directory = ground.directory;
    let source = blob_source(record.number, record.file_len);
    let path = blob_path(directory, record.number);
    let disk = ground.disk_beside(&path)?;
    let mut scan = scan_of(ground.open(&path, &source).into_backend()?);
    let id = ground.table_id(number);
    let options = ground.settings.blob_options();
    let mut writer = None;
    let mut reported = 0;
    loop {
        match scan.advance(&context()).into_backend()? {
            ScanItem::Entry => {}
            ScanItem::Gap(_) => continue,
            ScanItem::End => break,
        }
        let value = scan.value_bytes();
        if let Some((ordinal, (key, body))) = ordinal_of(scan.key()).zip(split_blob(&value)) {
            let writer = match &mut writer {
                Some(writer) => writer,
                None => writer.insert(BlobWriter::create(
                    disk,
                    directory,
                    id,
                    record.file,
                    options,
                )?),
            };
            writer.add_as(ordinal, &key, &body)?;
            good.insert(ordinal);
            done.entries += 1;
        }
        progress(scan.bytes_read() - reported);
        reported = scan.bytes_read();
    }
    if let Some(writer) = writer {
        let block_bytes = writer.block_bytes;
        let written = writer.finish().into_backend()?;
        done.outputs.push(Output {
            number,
            file_len: written.file_len,
            block_bytes,
            properties: Properties::default(),
        });
    }
    Ok(())
}

/// Writes the batches of the logs above `sequence` to a table, so that they need no manifest.
pub(crate) fn salvage_logs(
    ground: &Ground<'_>,
    numbers: &[u64],
    sequence: u64,
    number: u64,
    progress: &dyn Fn(u64),
) -> Result<Done> {
    let mut done = Done::default();
    let mut entries: BTreeMap<Bytes, Entry> = BTreeMap::new();
    let mut marks = Vec::new();
    for (log, records) in read_logs(ground, numbers, progress)? {
        for record in records.iter().filter(|it| it.head.sequence > sequence) {
            let at = record.head.sequence;
            match log::decode(record) {
                Ok(Some(op)) => take(&mut entries, &mut marks, op, at),
                Ok(None) => {}
                Err(_) => done.doubts.push(Doubt {
                    from: Bytes::new(),
                    to: Bytes::new(),
                    why: format!("log {log} has a write that does not decode"),
                }),
            }
        }
    }
    let path = table_path(ground.directory, number);
    let options = ground.settings.table_options(0, false);
    let id = ground.table_id(number);
    let mut writer = TableWriter::create(ground.disk, &path, id, options).into_backend()?;
    let mut value = Vec::new();
    for (key, entry) in &entries {
        value.clear();
        entry.encode(&mut value);
        writer.add(key, &value, &entry.facts()).into_backend()?;
        done.entries += 1;
    }
    marks.into_iter().for_each(|mark| writer.add_mark(mark));
    finish(ground, writer, &mut done)?;
    Ok(done)
}

fn take(entries: &mut BTreeMap<Bytes, Entry>, marks: &mut Vec<Mark>, op: Op, sequence: u64) {
    let (key, entry) = match op {
        Op::Put { key, value } => {
            let value = Some(value);
            (key, Entry::of(sequence, value))
        }
        Op::Remove { key } => (key, Entry::removal(sequence)),
        Op::RemoveRange { from, to } => {
            marks.push(Mark {
                from,
                to,
                sequence,
                kind: MarkKind::Removed,
                filter: Bytes::new(),
            });
            return;
        }
    };
    if entries.get(&key).is_none_or(|it| it.sequence <= sequence) {
        entries.insert(key, entry);
    }
}

/// Reads from the newest to the oldest, since a newer log may prove that an older one was durable.
/// Returns the logs oldest first.
fn read_logs(
    ground: &Ground<'_>,
    numbers: &[u64],
    progress: &dyn Fn(u64),
) -> Result<Vec<(u64, Vec<StoredRecord>)>> {
    let mut logs = Vec::new();
    let mut is_proven = false;
    for number in numbers.iter().rev() {
        let path = log_path(ground.directory, *number);
        let id = log_id(ground.identity, *number);
        let reader = SegmentReader::open(ground.disk, &path, id).into_backend()?;
        match reader.check_header() {
            Ok(_) | Err(SegmentError::Damaged { .. }) => {}
            // The file is left alone.
            Err(SegmentError::Foreign { .. }) => continue,
            Err(error) => return Err(from_segment(&error)),
        }
        let options = ScanOptions::durable_to(if is_proven { u64::MAX } else { 0 });
        let mut scan = reader.scan(options).into_backend()?;
        let is_sealed = scan.seal().is_some();
        let mut records = Vec::new();
        for scanned in scan.by_ref() {
            if let Scanned::Record(record) = scanned.into_backend()? {
                records.push(record);
            }
        }
        let durable_to = scan.end().map_or(0, |it| it.durable_to);
        is_proven |= is_sealed || durable_to > FILE_HEADER_BYTES;
        progress(reader.file_len().into_backend()?);
        logs.push((*number, records));
    }
    logs.reverse();
    Ok(logs)
}
