//! Matching blob files with the numbers in entries, without a manifest.
//!
//! A collected file has another number than the entries name. It has bodies with their old numbers
//! and their keys, so a few entries are enough to find it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_backend::Result;
use kvorum_lsm::blob::{blob_path, split_blob};
use kvorum_lsm::files::table_path;
use kvorum_lsm::manifest::BlobRecord;
use kvorum_lsm::segment_of;
use kvorum_lsm::{BlobPlace, Body, Entry};
use kvorum_sst::{ScanItem, Table, hash_key};
use kvorum_storage_errors::IntoBackend;

use crate::salvage::{blob_source, context, scan_of};
use crate::work::{Ground, SourceTable};

/// Entries by which a file is tested.
const SAMPLES: usize = 16;

/// Gives blob files the numbers in entries. `files` have their own numbers in both places; files
/// without references are left out.
pub(crate) fn name_blobs(
    ground: &Ground<'_>,
    tables: &[SourceTable],
    files: Vec<BlobRecord>,
) -> Result<Vec<BlobRecord>> {
    let uses = tables.iter().flat_map(|it| &it.properties.blobs);
    let files_used = uses.map(|it| it.file);
    // Segments of the value log are not files of the store.
    let used: BTreeSet<u64> = files_used.filter(|it| segment_of(*it).is_none()).collect();
    // The blob files of a table with damaged properties are unknown.
    let is_unknown = tables.iter().any(|it| !it.is_whole);
    let (mut named, spare): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|it| used.contains(&it.file));
    let missing: Vec<u64> = used
        .into_iter()
        .filter(|file| !named.iter().any(|it| it.file == *file))
        .collect();
    let mut taken = BTreeSet::new();
    for file in missing {
        let samples = samples(ground, tables, file)?;
        for record in &spare {
            // A collection's new file has a higher number than the old one.
            let is_newer = record.file > file && !taken.contains(&record.file);
            if is_newer && has_bodies(ground, record, &samples)? {
                taken.insert(record.file);
                named.push(BlobRecord { file, ..*record });
                break;
            }
        }
    }
    if is_unknown {
        named.extend(spare.into_iter().filter(|it| !taken.contains(&it.file)));
    }
    named.sort_by_key(|it| it.file);
    Ok(named)
}

fn samples(
    ground: &Ground<'_>,
    tables: &[SourceTable],
    file: u64,
) -> Result<BTreeMap<Bytes, BlobPlace>> {
    let mut samples = BTreeMap::new();
    let is_user = |it: &&SourceTable| it.properties.blobs.iter().any(|it| it.file == file);
    for table in tables.iter().filter(is_user).filter(|it| it.is_present) {
        let path = table_path(ground.directory, table.number);
        let mut scan = scan_of(ground.open(&path, table).into_backend()?);
        while samples.len() < SAMPLES {
            match scan.advance(&context()).into_backend()? {
                ScanItem::Entry => {}
                ScanItem::Gap(_) => continue,
                ScanItem::End => break,
            }
            let value = Entry::decode(&scan.value_bytes())
                .ok()
                .and_then(|it| it.value);
            if let Some(Body::Blob(place)) = value.map(|it| it.body)
                && place.file == file
            {
                samples.insert(Bytes::copy_from_slice(scan.key()), place);
            }
        }
    }
    Ok(samples)
}

/// True when the file has one of the bodies, with the key and the length in its entry.
fn has_bodies(
    ground: &Ground<'_>,
    record: &BlobRecord,
    samples: &BTreeMap<Bytes, BlobPlace>,
) -> Result<bool> {
    let path = blob_path(ground.directory, record.number);
    let source = blob_source(record.number, record.file_len);
    let table: Table = ground.open(&path, &source).into_backend()?;
    for (key, place) in samples {
        let ordinal = place.ordinal.to_be_bytes();
        let found = match table.get(&ordinal, hash_key(&ordinal), &context()) {
            Err(error) if error.is_damage() => continue,
            found => found.into_backend()?,
        };
        let parts = found.and_then(|it| split_blob(&it.value));
        if parts.is_some_and(|(at, body)| at == *key && body.len() as u64 == place.len) {
            return Ok(true);
        }
    }
    Ok(false)
}
