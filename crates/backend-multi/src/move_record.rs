//! The record of a store's move, in two copies beside its card.

use std::path::PathBuf;

use kvorum_backend::{Result, write_two_copies};
use kvorum_backend_migration::{Migration, Record};
use kvorum_disk::read_file;

use crate::opening::CardFiles;

/// The files of the record in the store's directory.
pub(crate) const RECORD_NAMES: [&str; 2] = ["move-0", "move-1"];
/// Room for the longest names, a scope and a key.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Reads the newest whole record of the store with this identity. A damaged record or that of
/// another store counts as missing: the required moves are found without it.
pub(crate) fn read(files: &CardFiles, identity: u64) -> Result<Option<Record>> {
    let mut newest: Option<Record> = None;
    for path in paths(files) {
        if files.disk.info(&path)?.is_none() {
            continue;
        }
        let bytes = read_file(&*files.disk, &path, BYTES_MAX)?;
        let record = Record::decode(&bytes, &path)?.filter(|it| it.identity == identity);
        let is_newer = |it: &Record| {
            let before = newest.as_ref();
            before.is_none_or(|before| before.generation < it.generation)
        };
        if let Some(record) = record.filter(is_newer) {
            newest = Some(record);
        }
    }
    Ok(newest)
}

/// Writes the record.
pub(crate) fn write(
    files: &CardFiles,
    identity: u64,
    generation: u64,
    migration: &Migration,
) -> Result<()> {
    let record = Record {
        generation,
        identity,
        migration: migration.clone(),
    };
    write_two_copies(
        &*files.disk,
        &files.directory,
        RECORD_NAMES,
        &record.encode(),
    )
    .both()
}

fn paths(files: &CardFiles) -> [PathBuf; 2] {
    RECORD_NAMES.map(|name| files.directory.join(name))
}
