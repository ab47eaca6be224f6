//! A check of a log's directory without opening it: its files have to exist and to fit together.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, read_file};
use kvorum_ring::NodeId;

use crate::agreement::{LOG_NAME, MARK_NAME};
use crate::end_mark::{MarkFound, read_mark};
use crate::error::OpenError;
use crate::log_file::{self, durable_end, read_header};
use crate::snapshot_file::SnapshotFiles;

/// A file's defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFinding {
    /// The file.
    pub file: PathBuf,
    /// The defect, in words.
    pub what: String,
}

/// The durable length of a log file in bytes, from its header and the mark beside it. A torn record
/// after that was never acknowledged. `None` if neither names a length, as in a log of an earlier
/// version.
pub fn durable_bytes(disk: &dyn Disk, log: &Path) -> Option<u64> {
    let bytes = read_file(disk, log, log_file::FILE_BYTES_MAX).ok()?;
    let (writing, _) = read_header(log, &bytes).ok()?;
    let mark = log.with_file_name(MARK_NAME);
    let found = read_mark(disk, &mark);
    found.end()?;
    durable_end(log, writing.node, &writing, &[(mark, found)]).ok()
}

/// The node that a log's directory belongs to, if the log names it.
pub fn node_of(disk: &dyn Disk, directory: &Path) -> Option<NodeId> {
    let log = directory.join(LOG_NAME);
    let bytes = read_file(disk, &log, log_file::FILE_BYTES_MAX).ok()?;
    let (writing, _) = read_header(&log, &bytes).ok()?;
    (writing.generation > 0).then_some(writing.node)
}

/// Checks a log's directory, with the second mark if its place is known. Finds files that are
/// missing, older than the others, or of another log; the anatomy finds damaged bytes.
pub fn check_directory(
    disk: &dyn Disk,
    directory: &Path,
    second_mark: Option<&Path>,
) -> Vec<LogFinding> {
    let log = directory.join(LOG_NAME);
    let mut findings = Vec::new();
    let mut find = |file: &Path, what: String| {
        let file = file.to_owned();
        findings.push(LogFinding { file, what });
    };
    let bytes = match read_file(disk, &log, log_file::FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            find(&log, format!("the agreed log cannot be read: {error}"));
            return findings;
        }
    };
    let Ok((writing, header_bytes)) = read_header(&log, &bytes) else {
        return findings;
    };
    let beside = directory.join(MARK_NAME);
    let marks = [Some(&*beside), second_mark].into_iter().flatten();
    let marks: Vec<(PathBuf, MarkFound)> = marks
        .map(|path| (path.to_owned(), read_mark(disk, path)))
        .collect();
    for (path, found) in &marks {
        match found {
            // A log of an earlier version has no mark.
            MarkFound::Missing if writing.generation > 0 => {
                find(
                    path,
                    "missing: it marks the end of the agreed log".to_owned(),
                );
            }
            MarkFound::End { end, .. } if writing.generation > 0 && end.node != writing.node => {
                let (got, expected) = (end.node, writing.node);
                find(
                    path,
                    format!("it marks the log of node {got}, and this is node {expected}"),
                );
            }
            MarkFound::Missing | MarkFound::Damaged(_) | MarkFound::End { .. } => {}
        }
    }
    let contents = log_file::decode(&log, &bytes, header_bytes);
    match (durable_end(&log, writing.node, &writing, &marks), &contents) {
        (Err(error), _) => find(&log, error.to_string()),
        (Ok(durable), Ok((_, whole))) if (*whole as u64) < durable => {
            let error = OpenError::CutShort {
                file: log.clone(),
                whole: *whole as u64,
                len: bytes.len() as u64,
                durable,
                marks: marks.iter().map(|(path, _)| path.clone()).collect(),
            };
            find(&log, error.to_string());
        }
        _ => {}
    }
    let purged = contents.ok().and_then(|(contents, _)| contents.purged);
    for (file, what) in SnapshotFiles::check(disk, directory, purged) {
        find(&file, what);
    }
    findings
}
