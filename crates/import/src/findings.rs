//! Findings about the source, line by line, for people and programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode};
use serde::Serialize;

use crate::error::ImportError;

/// Maximum number of findings in the summary.
const FIRST_FINDINGS: usize = 20;

/// One place or object that could not be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// The object, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The defect.
    pub reason: String,
}

/// The file of findings: one JSON object on each line.
pub struct Findings {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
    first: Vec<Finding>,
}

impl Findings {
    /// Opens the file and truncates it to `len`.
    ///
    /// # Errors
    /// If the disk fails, or the file is shorter than `len`.
    pub fn open(disk: &dyn Disk, path: &Path, len: u64) -> Result<Self, ImportError> {
        let file = disk.open(path, OpenMode::Create)?;
        if file.len()? < len {
            return Err(ImportError::StateDamaged {
                what: "list of findings",
                path: path.to_owned(),
                reason: "it is shorter than it was".to_owned(),
            });
        }
        file.truncate(len)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            len,
            first: Vec::new(),
        })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn add(&mut self, finding: Finding) -> Result<(), ImportError> {
        let mut line = serde_json::to_vec(&finding).unwrap_or_default();
        line.push(b'\n');
        self.file.write_at(&line, self.len)?;
        self.len += line.len() as u64;
        if self.first.len() < FIRST_FINDINGS {
            self.first.push(finding);
        }
        Ok(())
    }

    /// Adds several findings.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn add_all(
        &mut self,
        findings: impl IntoIterator<Item = Finding>,
    ) -> Result<(), ImportError> {
        findings
            .into_iter()
            .try_for_each(|finding| self.add(finding))
    }

    /// The length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if there are no findings yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first findings of this run.
    pub fn first(&self) -> &[Finding] {
        &self.first
    }
}
