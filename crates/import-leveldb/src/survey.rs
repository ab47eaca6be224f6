//! The steps before objects are read: sorting logs, and searching for bucket types.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, OpenMode};
use kvorum_import::{Batch, ImportError, StateDirectory};

use crate::internal_key::InternalKey;
use crate::log_file::{Logged, read_log};
use crate::losses::{KeyRange, lost, noted};
use crate::merge::{Merge, SortedFile, SortedForm};
use crate::record::Record;
use crate::riak_key::{StoredKey, behind_type, decode_key, first_typed};
use crate::run::{RunWriter, run_path};
use crate::source::StoreFiles;
use crate::write_batch::decode_batch;

/// Maximum number of bucket types checked beforehand on the server.
const BUCKET_TYPES_MAX: usize = 100;

/// Sorts the logs of one store, and returns the lengths of the runs.
pub(crate) fn sort_logs(
    disk: &dyn Disk,
    directory: &StateDirectory,
    store: usize,
    logs: &[(std::path::PathBuf, u64)],
    batch: &mut Batch,
) -> Result<Vec<u64>, ImportError> {
    let runs = directory.runs();
    let mut writer = RunWriter::new(disk, &runs, store);
    for (path, len) in logs {
        sort_log(disk, path, *len, &mut writer, batch)?;
    }
    writer.finish()
}

fn sort_log(
    disk: &dyn Disk,
    path: &Path,
    len: u64,
    writer: &mut RunWriter<'_>,
    batch: &mut Batch,
) -> Result<(), ImportError> {
    let anywhere = KeyRange {
        behind: None,
        to: None,
    };
    let mut failure = None;
    let read = disk.open(path, OpenMode::Read).and_then(|file| {
        read_log(&file, len, &mut |logged| match logged {
            Logged::Record { offset, bytes } => {
                if failure.is_none()
                    && let Err(error) = take_writes(path, offset, bytes, writer, batch)
                {
                    failure = Some(error);
                }
            }
            Logged::Damage { offset, len } => {
                let reason = "damaged; the writes that were here are lost";
                lost(batch, path, offset, Some(len), &anywhere, reason);
            }
            Logged::TornTail { offset, .. } => {
                batch.counts.torn_tails += 1;
                let reason = "the log ends within a record, as after a crash".to_owned();
                noted(batch, path, offset, reason);
            }
        })
    });
    if let Err(error) = read {
        let reason = format!("the rest of the log: {error}");
        lost(batch, path, 0, None, &anywhere, &reason);
    }
    failure.map_or(Ok(()), Err)
}

fn take_writes(
    path: &Path,
    offset: u64,
    bytes: &[u8],
    writer: &mut RunWriter<'_>,
    batch: &mut Batch,
) -> Result<(), ImportError> {
    let mut failure = None;
    let decoded = decode_batch(bytes, |write| {
        let key = InternalKey {
            user_key: Bytes::copy_from_slice(write.key),
            sequence: write.sequence,
            kind: write.kind,
        };
        let value = Bytes::copy_from_slice(write.value);
        if failure.is_none() {
            failure = writer.add(Record { key, value, offset }).err();
        }
    });
    if let Err(error) = decoded {
        let anywhere = KeyRange {
            behind: None,
            to: None,
        };
        let len = Some(bytes.len() as u64);
        lost(batch, path, offset, len, &anywhere, &error.to_string());
    }
    failure.map_or(Ok(()), Err)
}

/// All files of all stores for the merge; `runs` has the lengths of each store's runs.
pub(crate) fn sorted_files<'a>(
    directory: &StateDirectory,
    stores: &[StoreFiles],
    paths: impl Iterator<Item = &'a Path>,
    runs: impl Fn(usize) -> Vec<u64>,
) -> Vec<SortedFile> {
    let mut files = Vec::new();
    for ((store, tables), path) in stores.iter().enumerate().zip(paths) {
        files.extend(tables.tables.iter().cloned());
        // A run may come from several logs: findings name the last.
        let of = tables.logs.last().map_or(path, |(path, _)| path);
        for (number, len) in runs(store).into_iter().enumerate() {
            files.push(SortedFile {
                store,
                path: run_path(&directory.runs(), store, number),
                len,
                form: SortedForm::Run { of: of.to_owned() },
            });
        }
    }
    files
}

/// The bucket types of all objects. Objects are sorted by type, so each type takes one step.
pub(crate) fn bucket_types(
    disk: &Arc<dyn Disk>,
    files: &[SortedFile],
) -> Result<Vec<String>, ImportError> {
    let mut types = Vec::new();
    let mut after = first_typed();
    while types.len() < BUCKET_TYPES_MAX {
        // The transfer finds unreadable places again, and reports them.
        let mut unread = Batch::default();
        let mut merge = Merge::new(disk, files.to_vec(), Some(after.into()));
        let Some(group) = merge.next_key(&mut unread)? else {
            break;
        };
        match decode_key(&group.key) {
            Ok(StoredKey::Object(address)) if !address.bucket_type.is_default() => {
                let name = address.bucket_type.as_bytes();
                types.push(String::from_utf8_lossy(name).into_owned());
                after = behind_type(name);
            }
            Err(_) if group.key.starts_with(&first_typed()) => after = group.key.to_vec(),
            _ => break,
        }
    }
    Ok(types)
}
