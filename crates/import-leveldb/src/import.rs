//! An import from beginning to end: survey, transfer, and summary.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_disk::DiskLock;
use kvorum_import::{
    Batch, Choices, Findings, ImportError, Outcome, PassedOver, Progress, SharedOptions,
    SpreadWriter, StateDirectory, Summary, System, Target, WorkStage, file_count,
};
use kvorum_runtime::{Moment, TaskHandle};

use crate::index_check;
use crate::merge::{Merge, SortedFile};
use crate::reading::{ReadBatch, ReadRules, read_batch};
use crate::source::{Source, StoreFiles};
use crate::state::{OwnChoices, Stage, State, key_from_text, key_to_text};
use crate::survey::{bucket_types, sort_logs, sorted_files};

/// The estimated bytes of a store for each index entry, which determine the size of the comparison.
const BYTES_A_CHECK: u64 = 256;
/// The most work to repeat after an interruption, in time.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Source and options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Options common to all importers.
    pub shared: SharedOptions,
    /// Directories of the higher levels of tiered stores: none, or one for each directory.
    pub slow_tiers: Vec<PathBuf>,
    /// Skip values that are older than this, if the store has the time of writing:
    /// leveldb.expiration.retention_time.
    pub retention: Option<Duration>,
    /// Import all existing tables and logs, regardless of manifests.
    pub ignore_manifests: bool,
}

/// Imports, or resumes an interrupted import.
///
/// # Errors
/// [`ImportError`]; except after damage to its own files, the same call resumes the import.
pub async fn import(
    system: System,
    options: ImportOptions,
    progress: Arc<Progress>,
) -> Result<Summary, ImportError> {
    let runtime = system.runtime.clone();
    let opening = {
        let (system, options) = (system.clone(), options.clone());
        runtime.blocking(move || Run::open(system, &options))
    };
    let mut run = opening.await?;
    run = run.survey(&progress).await?;
    if run.state.stage != Stage::Done {
        run = run.transfer(&options, &progress).await?;
    }
    Ok(run.summary())
}

/// Checks, without writing, that the source can be imported; for callers that have to start a
/// server.
///
/// # Errors
/// [`ImportError`], with which [`import()`] would fail at its beginning.
pub fn check_source(system: &System, options: &ImportOptions) -> Result<(), ImportError> {
    let (tiers, ignores) = (&options.slow_tiers, options.ignore_manifests);
    Source::find(system, &options.shared, tiers, ignores)?;
    Ok(())
}

/// An import under way.
struct Run {
    system: System,
    directory: StateDirectory,
    state: State,
    stores: Vec<StoreFiles>,
    findings: Findings,
    checks: SpreadWriter,
    passed_over: Vec<PassedOver>,
    saved: Moment,
    _lock: Box<dyn DiskLock>,
}

impl Run {
    fn open(system: System, options: &ImportOptions) -> Result<Self, ImportError> {
        let disk = &*system.disk;
        let (source, passed_over) = {
            let (tiers, ignores) = (&options.slow_tiers, options.ignore_manifests);
            Source::find(&system, &options.shared, tiers, ignores)?
        };
        let (directory, lock) = options.shared.take_directory(disk)?;
        let choices = Choices {
            target: options.shared.target_name(),
            leave_out_tombstones: options.shared.leave_out_tombstones,
            of_format: OwnChoices {
                began_micros: system.runtime.wall_time().micros(),
                retention_secs: options.retention.map(|retention| retention.as_secs()),
                ignore_manifests: options.ignore_manifests,
            },
        };
        let mut found = Batch::default();
        let stores = source.files(disk, options.ignore_manifests, &mut found);
        let earlier = directory.earlier(disk, &choices, |state: &State| {
            (state.is_known(), &state.choices, state.source == source)
        })?;
        let is_new = earlier.is_none();
        let mut state = earlier.unwrap_or_else(|| {
            let bytes: u64 = source.stores.iter().map(crate::source::Store::bytes).sum();
            State::begin(source, choices, file_count(bytes / BYTES_A_CHECK))
        });
        let mut findings = Findings::open(disk, &directory.findings(), state.findings_len)?;
        for path in [directory.index(), directory.runs()] {
            kvorum_disk::create_directory_durably(disk, &path)?;
        }
        if is_new {
            state.counts += found.counts;
            findings.add_all(found.findings)?;
            state.findings_len = findings.len();
        }
        directory.save(disk, &state)?;
        let index = directory.index();
        Ok(Self {
            saved: system.runtime.now(),
            checks: SpreadWriter::resume(system.disk.clone(), &index, &state.check_lens),
            system,
            directory,
            state,
            stores,
            findings,
            passed_over,
            _lock: lock,
        })
    }

    /// Sorts the logs, and finds the bucket types.
    async fn survey(mut self, progress: &Arc<Progress>) -> Result<Self, ImportError> {
        let Stage::Survey { stores: done } = self.state.stage else {
            return Ok(self);
        };
        let runtime = self.system.runtime.clone();
        let log_bytes = |stores: &[StoreFiles]| -> u64 {
            let logs = stores.iter().flat_map(|store| &store.logs);
            logs.map(|(_, len)| *len).sum()
        };
        let behind = log_bytes(self.stores.get(..done).unwrap_or_default());
        let total = log_bytes(&self.stores);
        progress.begin(WorkStage::Survey, runtime.now(), behind, total);
        let progress = progress.clone();
        let work = runtime.blocking(move || {
            for store in done..self.stores.len() {
                let mut batch = Batch::default();
                let logs = self.stores[store].logs.clone();
                let disk = self.system.disk.clone();
                let lens = sort_logs(&*disk, &self.directory, store, &logs, &mut batch)?;
                self.state.runs.insert(store, lens);
                self.note(&batch)?;
                self.state.stage = Stage::Survey { stores: store + 1 };
                self.save()?;
                let behind = log_bytes(&self.stores[..=store]);
                progress.set(behind, self.state.counts);
            }
            self.state.bucket_types = bucket_types(&self.system.disk, &self.sorted_files())?;
            self.state.stage = Stage::Transfer { after: None };
            self.save()?;
            Ok(self)
        });
        work.await
    }

    async fn transfer(
        mut self,
        options: &ImportOptions,
        progress: &Progress,
    ) -> Result<Self, ImportError> {
        let Stage::Transfer { after } = &self.state.stage else {
            return Ok(self);
        };
        let after = match after.as_deref().map(key_from_text) {
            None => None,
            Some(Some(key)) => Some(key),
            Some(None) => return Err(self.directory.damaged("its last key is none")),
        };
        let (runtime, types) = (&self.system.runtime, &self.state.bucket_types);
        let mut target = options.shared.reach_target(runtime, types).await?;
        let outcome = self.put_all(after, target.as_mut(), progress).await;
        if let Err(error) = outcome {
            self.save()?;
            return Err(error);
        }
        self.compare_indexes().await
    }

    /// Puts all objects. Reads the next batch while one is put.
    async fn put_all(
        &mut self,
        after: Option<Bytes>,
        mut target: Option<&mut Target>,
        progress: &Progress,
    ) -> Result<(), ImportError> {
        let runtime = self.system.runtime.clone();
        let files = self.sorted_files();
        let total = files.iter().map(|file| file.len).sum();
        let merge = Merge::new(&self.system.disk, files, after);
        progress.begin(
            WorkStage::Transfer,
            runtime.now(),
            merge.bytes_done(),
            total,
        );
        let mut reading = Some(self.read(merge));
        while let Some(task) = reading.take() {
            let returned = task.await.map_err(|error| ImportError::Unavailable {
                reason: error.to_string(),
            })?;
            let (merge, read) = returned?;
            let ReadBatch {
                batch,
                checks,
                last_key,
                bytes_done,
            } = read;
            if last_key.is_some() {
                reading = Some(self.read(merge));
            }
            let batch = Arc::new(batch);
            let outcome = Outcome::of(&batch, target.as_deref_mut()).await?;
            self.note(&batch)?;
            self.state.counts += outcome.counts;
            self.findings.add_all(outcome.findings)?;
            for check in checks {
                check.write(&mut self.checks)?;
            }
            if let Some(key) = last_key {
                self.state.stage = Stage::Transfer {
                    after: Some(key_to_text(&key)),
                };
            }
            progress.set(bytes_done, self.state.counts);
            if runtime.now().since(self.saved) >= SAVE_INTERVAL {
                self.save()?;
            }
        }
        Ok(())
    }

    fn read(&self, mut merge: Merge) -> TaskHandle<Result<(Merge, ReadBatch), ImportError>> {
        let choices = &self.state.choices;
        let rules = ReadRules {
            now_micros: choices.of_format.began_micros,
            retention: choices.of_format.retention_secs.map(Duration::from_secs),
            leave_out_tombstones: choices.leave_out_tombstones,
        };
        let runtime = &self.system.runtime;
        let work = runtime.blocking(move || {
            let read = read_batch(&mut merge, &rules)?;
            Ok((merge, read))
        });
        runtime.spawn("import reader", work)
    }

    async fn compare_indexes(mut self) -> Result<Self, ImportError> {
        let runtime = self.system.runtime.clone();
        let work = runtime.blocking(move || {
            self.save()?;
            let disk = self.system.disk.clone();
            let lens = &self.state.check_lens;
            index_check::compare(
                &*disk,
                &self.directory.index(),
                lens,
                &mut self.state.counts,
            )?;
            self.state.stage = Stage::Done;
            self.save()?;
            Ok(self)
        });
        work.await
    }

    fn note(&mut self, batch: &Batch) -> Result<(), ImportError> {
        self.state.counts += batch.counts;
        self.findings.add_all(batch.findings.iter().cloned())
    }

    fn save(&mut self) -> Result<(), ImportError> {
        self.state.check_lens = self.checks.flush()?;
        self.state.findings_len = self.findings.len();
        self.directory.save(&*self.system.disk, &self.state)?;
        self.saved = self.system.runtime.now();
        Ok(())
    }

    fn sorted_files(&self) -> Vec<SortedFile> {
        let paths = self.state.source.stores.iter();
        let paths = paths.map(|store| store.path.as_path());
        let runs = |store| self.state.runs.get(&store).cloned().unwrap_or_default();
        sorted_files(&self.directory, &self.stores, paths, runs)
    }

    fn summary(self) -> Summary {
        let stores = &self.state.source.stores;
        let tables = self.stores.iter().map(|store| store.tables.len());
        let logs = self.stores.iter().map(|store| store.logs.len());
        Summary {
            is_dry_run: self.state.choices.target.is_none(),
            partitions: stores.len(),
            files: tables.chain(logs).sum(),
            data_bytes: stores.iter().map(crate::source::Store::bytes).sum(),
            counts: self.state.counts,
            bucket_types: self.state.bucket_types,
            marked_for_deletion: Vec::new(),
            passed_over: self.passed_over,
            findings_file: self.findings.path().to_owned(),
            first_findings: self.findings.first().to_vec(),
        }
    }
}
