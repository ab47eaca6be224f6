//! The value log among the checked directories, for the stores that refer to it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kvorum_backend::BackendError;
use kvorum_backend_bitcask::check::{FoundLog, LogInFiles};
use kvorum_disk::{Disk, ErrorKind};
use kvorum_segment::{SegmentError, SegmentId, SegmentReader, file_name, list_segments};
use kvorum_value_log::anatomy::{KnownSegments, VALUE_LOG_KIND};

use crate::{InspectError, Result};

/// The result of looking for the log of an id.
pub(crate) enum Found {
    /// The log is in this directory.
    Here(PathBuf, KnownSegments),
    /// The checked directories have another log.
    Another,
    /// The checked directories have no log.
    NotChecked,
}

/// The log's id in a manifest that a repair rebuilt: the next opening finds the log of its tables.
const UNKNOWN: u64 = 0;

/// Finds the log of an id. If the log is in use, the store's references to segments must be read
/// first.
pub(crate) fn find(disk: &dyn Disk, directories: &BTreeSet<PathBuf>, log_id: u64) -> Result<Found> {
    for directory in directories {
        let there = list_segments(disk, directory)?;
        let known = KnownSegments::read(disk, directory, &there)?;
        if log_id == UNKNOWN || known.may_be_of(disk, directory, log_id)? {
            return Ok(Found::Here(directory.clone(), known));
        }
    }
    Ok(match directories.is_empty() {
        true => Found::NotChecked,
        false => Found::Another,
    })
}

/// A log, for the check of a store of the bitcask engine.
struct LogFiles<'a> {
    disk: &'a dyn Disk,
    directory: PathBuf,
    log_id: u64,
    known: KnownSegments,
}

impl LogInFiles for LogFiles<'_> {
    fn is_accounted_for(&self, segment: u32) -> bool {
        self.known.is_accounted_for(segment)
    }

    fn segment(&self, number: u32) -> kvorum_backend::Result<Option<SegmentReader>> {
        let id = SegmentId {
            log_id: self.log_id,
            number: u64::from(number),
            kind: VALUE_LOG_KIND,
        };
        let path = self.directory.join(file_name(id.number));
        match SegmentReader::open(self.disk, &path, id) {
            Ok(reader) => Ok(Some(reader)),
            Err(SegmentError::Disk(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BackendError::new(
                kvorum_backend::ErrorKind::Failed,
                error.to_string(),
            )),
        }
    }
}

/// Finds the log of an id, for a store of the bitcask engine.
pub(crate) fn find_for_store<'a>(
    disk: &'a dyn Disk,
    directories: &BTreeSet<PathBuf>,
    log_id: u64,
) -> kvorum_backend::Result<FoundLog<'a>> {
    let found = find(disk, directories, log_id).map_err(into_backend)?;
    Ok(match found {
        Found::Here(directory, known) => FoundLog::Here(Box::new(LogFiles {
            disk,
            directory,
            log_id,
            known,
        })),
        Found::Another => FoundLog::Another,
        Found::NotChecked => FoundLog::NotChecked,
    })
}

fn into_backend(error: InspectError) -> BackendError {
    match error {
        InspectError::Disk(error) => (&error).into(),
        InspectError::Store(error) => error,
        error => BackendError::new(kvorum_backend::ErrorKind::Failed, error.to_string()),
    }
}
