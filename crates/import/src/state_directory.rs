//! The directory of an import's state, with which the import can be resumed.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, DiskLock};
use kvorum_encoding::{checksum, mask_checksum};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ImportError;
use crate::record_format::RecordChoices;
use crate::record_state::Choices;

const STATE_BYTES_MAX: u64 = 256 << 20;

/// The directory with state, index and findings.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Locks the directory until the lock is dropped; creates it if it is missing.
    ///
    /// # Errors
    /// If the disk fails, or another import has locked the directory.
    pub fn take(disk: &dyn Disk, path: &Path) -> Result<(Self, Box<dyn DiskLock>), ImportError> {
        kvorum_disk::create_directory_durably(disk, path)?;
        let lock = disk.lock(&path.join("LOCK"), "kvorum import\n")?;
        let path = path.to_owned();
        Ok((Self { path }, lock))
    }

    /// The place of a dry run's state within the directory of the import that may follow. Neither
    /// uses the other's state.
    pub fn of_dry_run(path: &Path) -> PathBuf {
        path.join("dry-run")
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with the state.
    pub fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// The directory of an index.
    pub fn index(&self) -> PathBuf {
        self.path.join("index")
    }

    /// The directory of sorted logs.
    pub fn runs(&self) -> PathBuf {
        self.path.join("runs")
    }

    /// The file with one line for each finding.
    pub fn findings(&self) -> PathBuf {
        self.path.join("findings.jsonl")
    }

    /// Removes the state of an earlier import.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn forget(&self, disk: &dyn Disk) -> Result<(), ImportError> {
        for file in [self.state_file(), self.findings()] {
            kvorum_disk::remove_if_there(disk, &file)?;
        }
        for directory in [self.index(), self.runs()] {
            if disk.info(&directory)?.is_some() {
                disk.remove_directory(&directory)?;
            }
        }
        Ok(())
    }

    /// Writes the state in one step, as two lines: the state in JSON, and the masked CRC-32C of
    /// that line in hexadecimal.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn save(&self, disk: &dyn Disk, state: &impl Serialize) -> Result<(), ImportError> {
        let text = serde_json::to_string(state);
        let mut text = text.map_err(|error| self.damaged(&error.to_string()))?;
        let sum = mask_checksum(checksum(text.as_bytes()));
        text.push_str(&format!("\n{sum:08x}\n"));
        let path = self.state_file();
        Ok(kvorum_disk::replace_file(disk, &path, text.as_bytes())?)
    }

    /// Reads the state, if there is one.
    ///
    /// # Errors
    /// A disk that fails, or a damaged state.
    pub fn load<S: DeserializeOwned>(&self, disk: &dyn Disk) -> Result<Option<S>, ImportError> {
        let path = self.state_file();
        if disk.info(&path)?.is_none() {
            return Ok(None);
        }
        let bytes = kvorum_disk::read_file(disk, &path, STATE_BYTES_MAX)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| self.damaged("it is no text"))?;
        let mut lines = text.lines();
        let (json, sum) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        if sum != format!("{:08x}", mask_checksum(checksum(json.as_bytes()))) {
            return Err(self.damaged("wrong checksum"));
        }
        let state = serde_json::from_str(json);
        state.map(Some).map_err(|error| {
            let reason = format!("another version of this program wrote it: {error}");
            self.damaged(&reason)
        })
    }

    /// The state of an earlier import to resume with these choices. A dry run's state with other
    /// choices is removed. `look` returns for a state whether this version can read it, its
    /// choices, and whether its source is unchanged.
    ///
    /// # Errors
    /// [`ImportError::OtherImport`], and [`ImportError::StateDamaged`] for an unusable state.
    pub fn earlier<S: DeserializeOwned, C: RecordChoices>(
        &self,
        disk: &dyn Disk,
        choices: &Choices<C>,
        look: impl Fn(&S) -> (bool, &Choices<C>, bool),
    ) -> Result<Option<S>, ImportError> {
        let Some(state) = self.load::<S>(disk)? else {
            return Ok(None);
        };
        let (is_known, mine, is_same_source) = look(&state);
        if !is_known {
            return Err(self.damaged("another version of this program wrote it"));
        }
        match mine.difference(choices, is_same_source) {
            None => Ok(Some(state)),
            Some(_) if mine.target.is_none() => self.forget(disk).map(|()| None),
            Some(difference) => {
                let path = self.path.clone();
                Err(ImportError::OtherImport { path, difference })
            }
        }
    }

    /// The error for a state that cannot be used.
    pub fn damaged(&self, reason: &str) -> ImportError {
        ImportError::StateDamaged {
            what: "state",
            path: self.state_file(),
            reason: reason.to_owned(),
        }
    }
}
