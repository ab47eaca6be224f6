//! The parts of a store, for a check that does not open it.

use std::collections::BTreeSet;
use std::path::Path;

use kvorum_backend::{ForeignCopy, LostRange, Result};
use kvorum_disk::Disk;
use kvorum_lsm::Entry;
use kvorum_lsm::journal::{JournalRecord, place_named};
use kvorum_lsm::lost::LostLog;
use kvorum_lsm::manifest;
use kvorum_segment::SegmentAnatomy;
use kvorum_sst::KnownTable;
use kvorum_tiers::is_table_name;

/// Kinds of listed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A table.
    Table,
    /// A blob file, with its number in entries.
    Blob(u64),
    /// A file of the journal.
    Journal,
}

/// A file that the manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The file's name in the store's directory.
    pub name: String,
    /// The file's kind.
    pub kind: ListedKind,
    /// Its known facts; only tables have properties.
    pub known: KnownTable,
}

/// The parts of a store.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Names of damaged copies of the manifest.
    pub damaged_manifests: Vec<&'static str>,
    /// Copies of the manifest that belong to other stores.
    pub foreign_manifests: Vec<ForeignCopy>,
    /// Names of missing copies of the manifest.
    pub missing_manifests: Vec<&'static str>,
    /// The reason why no copy is valid, if there are copies.
    pub refusal: Option<String>,
    /// The copies of the manifest differ; the next opening makes them equal.
    pub is_uneven: bool,
    /// A copy of the manifest is readable.
    pub has_manifest: bool,
    /// Tables, blob files and journal files; empty if no copy of the manifest is readable.
    pub files: Vec<ListedFile>,
    /// The value log in which entries have bodies; 0 for none.
    pub value_log: u64,
    /// Segments of the value log with records in journal files.
    pub journal_segments: BTreeSet<u32>,
    /// Earlier losses, as listed in `lost/BLOCKS.bad`.
    pub lost: Vec<LostRange>,
}

/// The contents of an entry that a check can compare with other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// The entry's batch.
    pub sequence: u64,
    /// The blob file with its body, and the bytes that the body takes there. A segment of the value
    /// log counts as a blob file, with a number for [`kvorum_lsm::segment_of`].
    pub blob: Option<(u64, u64)>,
}

/// True when a directory holds a store.
pub fn is_store(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<bool> {
    for name in manifest::NAMES {
        if disk.info(&directory.join(name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True when a directory holds a store, with or without its manifest.
pub fn has_store_files(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<bool> {
    if is_store(disk, directory)? {
        return Ok(true);
    }
    for entry in disk.list(directory)? {
        if is_table_name(&entry.name) {
            return Ok(true);
        }
        if kvorum_segment::parse_file_name(&entry.name).is_some() {
            let id = SegmentAnatomy::header_id(disk, &directory.join(&entry.name))?;
            if id.is_some_and(|it| it.kind == kvorum_lsm::log::KIND_LOG) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Reads the manifest and the list of losses. Nothing is written.
///
/// # Errors
/// Those of the disk, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn contents(disk: &dyn Disk, directory: &Path) -> Result<Contents> {
    let found = manifest::read_in(disk, directory)?;
    // A creation that was cut short has left only the first copy ever written.
    let is_first = found.content.as_ref().is_some_and(|it| it.generation == 1);
    let is_begun = !is_first || manifest::name_of_data(disk, directory)?.is_some();
    let mut contents = Contents {
        damaged_manifests: found.damaged,
        foreign_manifests: found.foreign,
        missing_manifests: match is_begun {
            true => found.missing,
            false => Vec::new(),
        },
        refusal: found.refusal,
        is_uneven: found.is_uneven,
        has_manifest: found.content.is_some(),
        files: Vec::new(),
        value_log: 0,
        journal_segments: BTreeSet::new(),
        lost: LostLog::open(disk, directory).ranges(),
    };
    let Some(manifest) = found.content else {
        return Ok(contents);
    };
    contents.value_log = manifest.value_log;
    for it in &manifest.tables {
        contents.files.push(ListedFile {
            name: format!("{:010}.sst", it.number),
            kind: ListedKind::Table,
            known: it.known(manifest.identity),
        });
    }
    for it in &manifest.blobs {
        contents.files.push(ListedFile {
            name: format!("{:010}.blob", it.number),
            kind: ListedKind::Blob(it.file),
            known: it.known(manifest.identity),
        });
    }
    for it in &manifest.journal {
        contents.files.push(ListedFile {
            name: format!("{:010}.journal", it.number),
            kind: ListedKind::Journal,
            known: it.known(manifest.identity),
        });
        let segments = it.segments.iter().copied();
        contents.journal_segments.extend(segments);
    }
    Ok(contents)
}

/// True for a record of a journal file that decodes.
pub fn is_journal_record(name: &[u8], value: &bytes::Bytes) -> bool {
    place_named(name).is_some() && JournalRecord::decode(value).is_ok()
}

/// The summary of a table's entry; `None` for other bytes.
pub fn entry_summary(value: &bytes::Bytes) -> Option<EntrySummary> {
    let facts = Entry::facts_of(value).ok()?;
    Some(EntrySummary {
        sequence: facts.sequence,
        blob: facts.blob,
    })
}
