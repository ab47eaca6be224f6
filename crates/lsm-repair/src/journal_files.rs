//! Listing journal files without a manifest: the facts about each file follow from its records.

use std::collections::BTreeSet;

use kvorum_backend::Result;
use kvorum_lsm::journal::{JournalRecord, journal_path, place_named};
use kvorum_lsm::manifest::JournalFileRecord;
use kvorum_sst::{ScanItem, SstError};
use kvorum_storage_errors::{IntoBackend, from_sst};

use crate::listing::{FileKind, Listing, PresentFile};
use crate::salvage::{blob_source, context, scan_of};
use crate::work::Ground;

/// The files that can be opened, in the order of their numbers. Damaged files count with their
/// readable records.
pub(crate) fn journal_files(
    ground: &Ground<'_>,
    listing: &Listing,
) -> Result<Vec<JournalFileRecord>> {
    let files = listing.of_kind(FileKind::Journal);
    let listed = files.map(|it| journal_file(ground, it));
    listed.filter_map(Result::transpose).collect()
}

fn journal_file(ground: &Ground<'_>, file: &PresentFile) -> Result<Option<JournalFileRecord>> {
    let path = journal_path(ground.directory, file.number);
    let table = match ground.open(&path, &blob_source(file.number, file.len)) {
        Err(error @ SstError::Disk(_)) => return Err(from_sst(&error)),
        // A file of another store, or one that was never finished.
        Err(_) => return Ok(None),
        Ok(table) => table,
    };
    let (mut logged_bytes, mut segments) = (0, BTreeSet::new());
    let mut scan = scan_of(table);
    loop {
        match scan.advance(&context()).into_backend()? {
            ScanItem::Entry => {}
            ScanItem::Gap(_) => continue,
            ScanItem::End => break,
        }
        let place = place_named(scan.key());
        let record = JournalRecord::decode(&scan.value_bytes());
        if let (Some((segment, _)), Ok(record)) = (place, record) {
            segments.insert(segment);
            logged_bytes += record.logged_bytes;
        }
    }
    Ok(Some(JournalFileRecord {
        number: file.number,
        file_len: file.len,
        logged_bytes,
        // The value is unknown, and zero errs on the safe side.
        clean_to: 0,
        segments: segments.into_iter().collect(),
    }))
}
