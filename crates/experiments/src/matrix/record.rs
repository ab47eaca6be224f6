//! The cells that are done: a file that is replaced whole after each.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use kvorum_report::write_atomically;
use serde::{Deserialize, Serialize};

use super::plan::Cell;

/// The format of the file.
const FORMAT: u32 = 1;

/// The cells that are done, each with the input of its run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    format: u32,
    done: BTreeMap<String, serde_json::Value>,
}

/// The input of a cell's run, with the contents of configuration files. If it changes, old results
/// are invalid.
pub(super) fn fingerprint(cell: &Cell) -> serde_json::Value {
    let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let texts: Vec<String> = cell.preload.iter().chain(&cell.files).map(read).collect();
    serde_json::json!({ "cell": cell, "texts": texts })
}

impl Record {
    /// Reads the record; an empty one when there is none.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        if !path.exists() {
            return Ok(Self {
                format: FORMAT,
                done: BTreeMap::new(),
            });
        }
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let record: Self = serde_json::from_str(&text)
            .with_context(|| format!("cannot understand {}", path.display()))?;
        ensure!(
            record.format == FORMAT,
            "{} has format {}; this version reads format {FORMAT}",
            path.display(),
            record.format
        );
        Ok(record)
    }

    /// True if a cell is done with its present plan.
    pub(super) fn has(&self, cell: &Cell) -> bool {
        self.done.get(&cell.name()) == Some(&fingerprint(cell))
    }

    /// Notes that a cell is done.
    pub(super) fn finish(&mut self, cell: &Cell) {
        self.done.insert(cell.name(), fingerprint(cell));
    }

    /// Replaces the file.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        write_atomically(path, &serde_json::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::plan::Plan;

    fn cells(directory: &Path, duration: &str) -> Vec<Cell> {
        let text = format!(
            "title = \"x\"\nbackends = [\"bitcask\", \"memory\"]\nduration = \"{duration}\"\n\
             [[tests]]\nname = \"one\"\nfiles = [\"one.config\"]\n"
        );
        Plan::parse(&text, directory).unwrap().cells
    }

    #[test]
    fn what_is_done_is_known_after_an_interruption() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("one.config"), "{mode, max}.").unwrap();
        let path = directory.path().join("matrix.json");
        let cells = cells(directory.path(), "3m");
        let mut record = Record::read(&path).unwrap();
        assert!(!record.has(&cells[0]));
        record.finish(&cells[0]);
        record.write(&path).unwrap();
        let record = Record::read(&path).unwrap();
        assert!(record.has(&cells[0]));
        assert!(!record.has(&cells[1]));
    }

    #[test]
    fn a_cell_that_is_planned_otherwise_now_is_not_done() {
        let directory = tempfile::tempdir().unwrap();
        let configuration = directory.path().join("one.config");
        std::fs::write(&configuration, "{mode, max}.").unwrap();
        let old = cells(directory.path(), "3m");
        let mut record = Record::read(&directory.path().join("matrix.json")).unwrap();
        record.finish(&old[0]);
        assert!(!record.has(&cells(directory.path(), "4m")[0]));
        std::fs::write(&configuration, "{mode, {rate, 5}}.").unwrap();
        assert!(!record.has(&old[0]));
    }
}
