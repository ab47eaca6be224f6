//! The state of the LSM spike, and the replacement of logs and tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, Sequence, TaskKind};
use kvorum_backend_conformance::{DrawNumber, Opening};
use kvorum_disk::{Disk, DiskFile, DiskLock};
use kvorum_planted_defects::is_planted;
use parking_lot::Mutex;

use super::Layers;
use super::files::{Manifest, disk_error, log_path, manifest_path, number_of, table_path};
use super::job::Job;
use super::recovery::{create_durably, create_log, recover, remove_if_there, write_manifest};

const MEMTABLE_BYTES_MAX: u64 = 3_000;
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// The most tables; more are merged.
pub(crate) const TABLES_MAX: usize = 2;

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) draw: DrawNumber,
    pub(crate) state: Mutex<State>,
    _lock: Box<dyn DiskLock>,
}

pub(crate) struct State {
    pub(crate) layers: Layers,
    pub(crate) manifest: Manifest,
    /// The log for puts; made by the first put, so that opening needs no space.
    pub(crate) log: Option<Arc<dyn DiskFile>>,
    /// The length of each log that is still needed.
    pub(crate) log_lens: BTreeMap<u64, u64>,
    /// The number of the next log or table.
    pub(crate) next_number: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) last_sequence: Sequence,
    pub(crate) synced_to: Sequence,
    pub(crate) job: Option<Job>,
    /// A failed sync or half a change of files: no more writes.
    pub(crate) failure: Option<BackendError>,
    pub(crate) is_closed: bool,
}

impl Shared {
    pub(crate) fn open(opening: &Opening) -> Result<Self> {
        let (disk, directory) = (opening.disk(), opening.directory.clone());
        create_durably(&*disk, &directory)?;
        let lock = disk
            .lock(&directory.join("lock"), "spike")
            .map_err(disk_error)?;
        let path = manifest_path(&directory);
        let manifest = match disk.info(&path).map_err(disk_error)? {
            None => {
                let manifest = Manifest {
                    identity: (opening.draw)(),
                    first_log: 0,
                    sequence: 0,
                    closed_log_bytes: 0,
                    tables: Vec::new(),
                };
                write_manifest(&*disk, &directory, &manifest)?;
                manifest
            }
            Some(_) => {
                let bytes = kvorum_disk::read_file(&*disk, &path, MANIFEST_BYTES_MAX);
                Manifest::decode(&bytes.map_err(disk_error)?)
                    .ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "manifest"))?
            }
        };
        let state = recover(&*disk, &directory, manifest)?;
        Ok(Self {
            disk,
            directory,
            draw: Arc::clone(&opening.draw),
            state: Mutex::new(state),
            _lock: lock,
        })
    }

    pub(crate) fn sync_log(&self) -> Result<Sequence> {
        let (log, sequence) = {
            let state = self.state.lock();
            state.check_writable()?;
            (state.log.clone(), state.last_sequence)
        };
        let synced = log.map_or(Ok(()), |log| log.sync()).map_err(disk_error);
        let mut state = self.state.lock();
        match synced {
            Ok(()) => state.synced_to = state.synced_to.max(sequence),
            Err(error) => {
                state.failure.get_or_insert(error.clone());
                return Err(error);
            }
        }
        Ok(sequence)
    }

    /// For changes on disk that a failure would leave incomplete: after one the store takes no more writes.
    pub(crate) fn or_fail<T>(state: &mut State, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            state.failure.get_or_insert(error.clone());
        }
        outcome
    }

    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        write_manifest(&*self.disk, &self.directory, manifest)
    }

    /// Leaves the memtable to a flush; the next put begins a new log.
    pub(crate) fn freeze(state: &mut State) -> Result<()> {
        let number = state.log_number();
        if let Some(log) = state.log.take() {
            // A failed put may have left a whole record behind the end, with the sequence of the
            // next put.
            let end = state.log_lens.get(&number).copied().unwrap_or_default();
            log.truncate(end).map_err(disk_error)?;
            log.sync().map_err(disk_error)?;
        }
        state.synced_to = state.last_sequence;
        state.memtable_bytes = 0;
        state.layers.frozen = Some(std::mem::take(&mut state.layers.memtable));
        Ok(())
    }

    /// The log for puts. A put that found no space changes nothing.
    pub(crate) fn log(&self, state: &mut State) -> Result<Arc<dyn DiskFile>> {
        if let Some(log) = &state.log {
            return Ok(Arc::clone(log));
        }
        if state.manifest.closed_log_bytes > 0 {
            let manifest = Manifest {
                closed_log_bytes: 0,
                ..state.manifest.clone()
            };
            self.write_manifest(&manifest)?;
            state.manifest = manifest;
        }
        let number = state.next_number;
        let log = create_log(&*self.disk, &self.directory, number)?;
        state.next_number += 1;
        state.log_lens.insert(number, 0);
        state.log = Some(Arc::clone(&log));
        Ok(log)
    }

    pub(crate) fn start_job(&self, state: &mut State, kind: TaskKind) -> Result<()> {
        let is_flush = kind == TaskKind::Flush;
        if is_flush && state.layers.frozen.is_none() {
            let frozen = Self::freeze(state);
            Self::or_fail(state, frozen)?;
        }
        let source = if is_flush {
            Layers {
                frozen: state.layers.frozen.clone(),
                ..Layers::default()
            }
        } else {
            Layers {
                tables: state.layers.tables.clone(),
                ..Layers::default()
            }
        };
        let is_last = !is_flush || state.layers.tables.is_empty();
        let drops = is_last || is_planted!(TombstoneDroppedTooEarly);
        let number = state.take_number();
        let job = Job::start(&*self.disk, &self.directory, kind, number, source, drops)?;
        state.job = Some(job);
        Ok(())
    }

    /// Replaces the job's sources by its table.
    pub(crate) fn finish_job(&self, state: &mut State, job: &Job) -> Result<()> {
        let table = job.finish(&*self.disk, &self.directory)?;
        let synced = self.disk.sync_directory(&self.directory);
        synced.map_err(disk_error)?;
        let mut tables = vec![Arc::new(table)];
        let old_logs = if job.kind == TaskKind::Flush {
            tables.extend(state.layers.tables.iter().cloned());
            state.manifest.first_log..state.log_number()
        } else {
            0..0
        };
        let replaced = std::mem::replace(&mut state.layers.tables, tables);
        if job.kind == TaskKind::Flush {
            state.layers.frozen = None;
            state.manifest.first_log = state.log_number();
            state.log_lens = state.log_lens.split_off(&state.manifest.first_log);
        }
        state.manifest.tables = state.layers.tables.iter().map(|it| it.number).collect();
        state.manifest.sequence = state.last_sequence.0.min(state.synced_to.0);
        state.manifest.closed_log_bytes = 0;
        let written = self.write_manifest(&state.manifest);
        Self::or_fail(state, written)?;
        for table in replaced {
            if !state.manifest.tables.contains(&table.number) {
                remove_if_there(&*self.disk, &table_path(&self.directory, table.number))?;
            }
        }
        for log in old_logs {
            remove_if_there(&*self.disk, &log_path(&self.directory, log))?;
        }
        Ok(())
    }
}

impl State {
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_closed {
            return Err(BackendError::new(ErrorKind::Closed, "lsm spike"));
        }
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(crate) fn log_number(&self) -> u64 {
        let path = self.log.as_ref().map(|log| log.path());
        let name = path.and_then(|it| it.file_name()?.to_str());
        name.and_then(number_of).unwrap_or(self.next_number)
    }

    pub(crate) fn has_flush(&self) -> bool {
        self.layers.frozen.is_some() || self.memtable_bytes > MEMTABLE_BYTES_MAX
    }
}
