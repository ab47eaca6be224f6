//! An import from beginning to end: survey, transfer, and what to tell about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::DiskLock;
use kvorum_import::{
    Batch, Counts, Findings, ImportError, ImportTarget, Outcome, Progress, StateDirectory, Summary,
    System, Target, WorkStage, file_count,
};
use kvorum_runtime::Moment;

use crate::groups::{self, KeyGroup};
use crate::index::{self, ENTRY_BYTES};
use crate::reading::ObjectReader;
use crate::source::{FilePlace, LeftOut, Source};
use crate::state::{Choices, Stage, State};
use crate::survey::Survey;

/// Bytes of hints a record has about; of data, where there are no hints.
const HINT_BYTES_A_RECORD: u64 = 48;
const DATA_BYTES_A_RECORD: u64 = 256;
/// How much may have to be put again after an interruption.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What to import, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Directories with bitcask files, or with directories that have them.
    pub directories: Vec<PathBuf>,
    /// Where the import's state is kept.
    pub state_directory: PathBuf,
    /// The server, and the name by which a later run knows it as the same.
    pub target: Option<ImportTarget>,
    /// Leave out records written longer ago than this: bitcask.expiry.
    pub expiry: Option<Duration>,
    /// Scan data files even where a hint file could be believed.
    pub ignore_hints: bool,
    /// Import though a lock file names a process that is running.
    pub ignore_locks: bool,
    /// Do not import tombstones. Sound where all replicas of all objects are imported at once.
    pub leave_out_tombstones: bool,
    /// Connections, each with one put at a time.
    pub connections: usize,
    /// How long the server may be away or refuse.
    pub patience: Duration,
    /// Forget the state of an earlier import.
    pub restart: bool,
}

/// Imports, or goes on with an import that was interrupted.
///
/// # Errors
/// [`ImportError`]; but for damage to its own files, the same call goes on from where it stopped.
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

/// Checks that there is something to import, and writes nothing. A caller that has to start a server
/// checks first.
///
/// # Errors
/// [`ImportError`], as [`import()`] would fail at its beginning.
pub fn check_source(system: &System, options: &ImportOptions) -> Result<(), ImportError> {
    Source::find(system, &options.directories, options.ignore_locks)?;
    Ok(())
}

/// An import under way.
struct Run {
    system: System,
    directory: StateDirectory,
    state: State,
    findings: Findings,
    left_out: LeftOut,
    saved: Moment,
    _lock: Box<dyn DiskLock>,
}

impl Run {
    fn open(system: System, options: &ImportOptions) -> Result<Self, ImportError> {
        let disk = &*system.disk;
        let (source, left_out) = Source::find(&system, &options.directories, options.ignore_locks)?;
        let path = match options.target {
            Some(_) => options.state_directory.clone(),
            None => StateDirectory::of_dry_run(&options.state_directory),
        };
        let (directory, lock) = StateDirectory::take(disk, &path)?;
        if options.restart {
            directory.forget(disk)?;
        }
        let now_secs = system.runtime.wall_time().seconds();
        let expiry_secs = options.expiry.map(|expiry| expiry.as_secs());
        let choices = Choices {
            target: options.target.as_ref().map(|target| target.name.clone()),
            expired_before: expiry_secs.map(|expiry| now_secs.saturating_sub(expiry)),
            expiry_secs,
            ignore_hints: options.ignore_hints,
            leave_out_tombstones: options.leave_out_tombstones,
        };
        let earlier = match directory.load::<State>(disk)? {
            Some(state) if !state.is_known() => {
                return Err(directory.damaged("another version of this program wrote it"));
            }
            Some(state) => match state.difference(&source, &choices) {
                None => Some(state),
                // A dry run has put nothing, so there is nothing to go on with.
                Some(_) if state.choices.target.is_none() => {
                    directory.forget(disk)?;
                    None
                }
                Some(difference) => {
                    let path = directory.path().to_owned();
                    return Err(ImportError::OtherImport { path, difference });
                }
            },
            None => None,
        };
        let state = earlier.unwrap_or_else(|| {
            let files = file_count(records_about(&source));
            State::begin(source, choices, files)
        });
        let findings = Findings::open(disk, &directory.findings(), state.findings_len)?;
        directory.save(disk, &state)?;
        Ok(Self {
            saved: system.runtime.now(),
            system,
            directory,
            state,
            findings,
            left_out,
            _lock: lock,
        })
    }

    async fn survey(mut self, progress: &Arc<Progress>) -> Result<Self, ImportError> {
        let Stage::Survey { stores: done } = self.state.stage else {
            return Ok(self);
        };
        let runtime = self.system.runtime.clone();
        let source = &self.state.source;
        let behind = source
            .stores
            .iter()
            .take(done)
            .flat_map(|store| &store.files);
        let behind: u64 = behind.map(|file| file.data_len).sum();
        progress.begin(
            WorkStage::Survey,
            runtime.now(),
            behind,
            source.data_bytes(),
        );
        let progress = progress.clone();
        let work = runtime.blocking(move || {
            Survey {
                system: &self.system,
                directory: &self.directory,
                state: &mut self.state,
                findings: &mut self.findings,
                progress: &progress,
            }
            .run()?;
            self.state.stage = Stage::Transfer {
                index_files: 0,
                keys: 0,
            };
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
        let runtime = self.system.runtime.clone();
        let mut target = options.target.as_ref().map(|target| {
            let connections = options.connections;
            Target::new(
                runtime.clone(),
                target.address,
                connections,
                options.patience,
            )
        });
        if let Some(target) = &target {
            let names = target.missing_types(&self.state.bucket_types).await?;
            if !names.is_empty() {
                return Err(ImportError::MissingTypes { names });
            }
        }
        let total = self.state.index_lens.iter().sum::<u64>() / ENTRY_BYTES as u64;
        let mut reader = Some(self.reader());
        let store_of: Arc<[usize]> = self.store_numbers().into();
        let mut has_begun = false;
        while let Stage::Transfer { index_files, keys } = self.state.stage {
            let Some(len) = self.state.index_lens.get(index_files).copied() else {
                self.state.stage = Stage::Done;
                break;
            };
            let behind = self.state.index_lens.iter().take(index_files).sum::<u64>();
            let behind = behind / ENTRY_BYTES as u64;
            let (groups, reduced) = self.load(index_files, len, &store_of).await?;
            let file = IndexFileWork {
                groups,
                first_key: keys,
                behind,
                entries: len / ENTRY_BYTES as u64,
            };
            if keys == 0 {
                self.state.counts.add(&reduced);
            }
            if !has_begun {
                // What an earlier run has done is no measure of the pace of this one.
                let done = file.records_done(keys);
                progress.begin(WorkStage::Transfer, runtime.now(), done, total);
                progress.set(done, self.state.counts);
                has_begun = true;
            }
            let outcome = self.transfer_file(file, &mut reader, target.as_mut(), progress);
            if let Err(error) = outcome.await {
                self.save()?;
                return Err(error);
            }
            self.state.stage = Stage::Transfer {
                index_files: index_files + 1,
                keys: 0,
            };
            self.save()?;
        }
        self.save()?;
        Ok(self)
    }

    /// Puts the objects of one index file. The next batch is read while one is being put.
    async fn transfer_file(
        &mut self,
        file: IndexFileWork,
        reader: &mut Option<ObjectReader>,
        mut target: Option<&mut Target>,
        progress: &Progress,
    ) -> Result<(), ImportError> {
        let runtime = self.system.runtime.clone();
        let read = |from: usize, mut reader: ObjectReader| {
            let groups = file.groups.clone();
            runtime.spawn(
                "import reader",
                runtime.blocking(move || {
                    let batch = reader.read_batch(groups.get(from..).unwrap_or_default());
                    (reader, Arc::new(batch))
                }),
            )
        };
        let mut done = file.first_key;
        let mut reading = reader.take().map(|reader| read(done, reader));
        while let Some(task) = reading.take() {
            let (returned, batch) = task.await.map_err(|error| ImportError::Unavailable {
                reason: error.to_string(),
            })?;
            if batch.keys == 0 {
                *reader = Some(returned);
                break;
            }
            reading = Some(read(done + batch.keys, returned));
            let outcome = match &mut target {
                Some(target) => target.put(&batch).await?,
                None => {
                    let mut outcome = Outcome::default();
                    batch.items.iter().for_each(|item| outcome.count(item));
                    outcome
                }
            };
            done += batch.keys;
            self.take_over(&batch, outcome)?;
            if let Stage::Transfer { keys, .. } = &mut self.state.stage {
                *keys = done;
            }
            progress.set(file.records_done(done), self.state.counts);
            if runtime.now().since(self.saved) >= SAVE_INTERVAL {
                self.save()?;
            }
        }
        Ok(())
    }

    fn take_over(&mut self, batch: &Batch, outcome: Outcome) -> Result<(), ImportError> {
        self.state.counts.add(&batch.counts);
        self.state.counts.add(&outcome.counts);
        for finding in batch.findings.iter().cloned().chain(outcome.findings) {
            self.findings.add(finding)?;
        }
        Ok(())
    }

    async fn load(
        &self,
        number: usize,
        len: u64,
        store_of: &Arc<[usize]>,
    ) -> Result<(Arc<[KeyGroup]>, Counts), ImportError> {
        let (disk, index) = (self.system.disk.clone(), self.directory.index());
        let (store_of, limit) = (store_of.clone(), self.state.choices.expired_before);
        let loading = self.system.runtime.blocking(move || {
            let entries = index::read(&*disk, &index, number, len)?;
            let mut counts = Counts::default();
            let groups = groups::reduce(entries, &store_of, limit, &mut counts);
            Ok((groups.into(), counts))
        });
        loading.await
    }

    fn save(&mut self) -> Result<(), ImportError> {
        self.state.findings_len = self.findings.len();
        self.directory.save(&*self.system.disk, &self.state)?;
        self.saved = self.system.runtime.now();
        Ok(())
    }

    fn reader(&self) -> ObjectReader {
        let files = self.state.source.files();
        let paths = files.iter().map(FilePlace::data_path).collect();
        let leave_out_tombstones = self.state.choices.leave_out_tombstones;
        ObjectReader::new(self.system.clone(), paths, leave_out_tombstones)
    }

    fn store_numbers(&self) -> Vec<usize> {
        let files = self.state.source.files();
        files.iter().map(|place| place.store_number).collect()
    }

    fn summary(self) -> Summary {
        let source = self.state.source;
        Summary {
            is_dry_run: self.state.choices.target.is_none(),
            partitions: source.stores.len(),
            files: source.stores.iter().map(|store| store.files.len()).sum(),
            data_bytes: source.data_bytes(),
            counts: self.state.counts,
            bucket_types: self.state.bucket_types,
            marked_for_deletion: self.left_out.marked_for_deletion,
            passed_over: self.left_out.directories,
            findings_file: self.findings.path().to_owned(),
            first_findings: self.findings.first().to_vec(),
        }
    }
}

/// The keys of one index file, and where they stand among all records.
struct IndexFileWork {
    groups: Arc<[KeyGroup]>,
    /// Keys that an earlier run has done.
    first_key: usize,
    /// Records of the index files before.
    behind: u64,
    /// Records of this one.
    entries: u64,
}

impl IndexFileWork {
    /// How many records have been done when so many keys of the file have, about.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count, for people to look at"
    )]
    fn records_done(&self, keys: usize) -> u64 {
        let share = keys as f64 / self.groups.len().max(1) as f64;
        self.behind + (self.entries as f64 * share) as u64
    }
}

/// A guess at the number of records, good enough to spread the index by.
fn records_about(source: &Source) -> u64 {
    let files = source.stores.iter().flat_map(|store| &store.files);
    let records = files.map(|file| match file.hint_len {
        Some(len) if len > 0 => len / HINT_BYTES_A_RECORD,
        _ => file.data_len / DATA_BYTES_A_RECORD,
    });
    records.sum()
}
