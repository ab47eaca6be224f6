//! An import through an index of records, from beginning to end: survey, transfer, and summary.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::DiskLock;
use kvorum_runtime::Moment;

use crate::counts::Counts;
use crate::error::ImportError;
use crate::findings::Findings;
use crate::intake::Intake;
use crate::item::Batch;
use crate::passed_over::PassedOver;
use crate::progress::{Progress, WorkStage};
use crate::record_format::{GroupReader as _, IndexPlace, RecordFile, RecordFormat};
use crate::record_state::{Choices, Stage, State};
use crate::shared_options::SharedOptions;
use crate::spread::{SpreadWriter, file_count};
use crate::state_directory::StateDirectory;
use crate::summary::Summary;
use crate::system::System;
use crate::target::{Outcome, Target};

/// The most work to repeat after an interruption, in time.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Imports, or resumes an interrupted import.
///
/// # Errors
/// [`ImportError`]; except after damage to its own files, the same call resumes the import.
pub async fn import_records<F: RecordFormat>(
    system: System,
    format: F,
    options: SharedOptions,
    progress: Arc<Progress>,
) -> Result<Summary, ImportError> {
    let runtime = system.runtime.clone();
    let opening = {
        let (system, options) = (system.clone(), options.clone());
        runtime.blocking(move || Run::open(system, &format, &options))
    };
    let mut run: Run<F> = opening.await?;
    run = run.survey(&progress).await?;
    if run.state.stage != Stage::Done {
        run = run.transfer(&options, &progress).await?;
    }
    Ok(run.summary())
}

/// An import under way.
struct Run<F: RecordFormat> {
    system: System,
    directory: StateDirectory,
    state: State<F::Source, F::Choices>,
    files: Vec<RecordFile>,
    findings: Findings,
    marked_for_deletion: Vec<PathBuf>,
    passed_over: Vec<PassedOver>,
    saved: Moment,
    _lock: Box<dyn DiskLock>,
}

impl<F: RecordFormat> Run<F> {
    fn open(system: System, format: &F, options: &SharedOptions) -> Result<Self, ImportError> {
        let disk = &*system.disk;
        let found = format.find(&system)?;
        let source = found.source;
        let (directory, lock) = options.take_directory(disk)?;
        let choices = Choices {
            target: options.target_name(),
            leave_out_tombstones: options.leave_out_tombstones,
            of_format: format.choices(system.runtime.wall_time().seconds()),
        };
        let earlier =
            directory.earlier(disk, &choices, |state: &State<F::Source, F::Choices>| {
                (state.is_known(), &state.choices, state.source == source)
            })?;
        let is_new = earlier.is_none();
        let state = earlier.unwrap_or_else(|| {
            let files = file_count(F::records_about(&source));
            State::begin(source, choices, files)
        });
        let findings = Findings::open(disk, &directory.findings(), state.findings_len)?;
        let mut run = Self {
            saved: system.runtime.now(),
            files: F::files(&state.source),
            system,
            directory,
            state,
            findings,
            marked_for_deletion: found.marked_for_deletion,
            passed_over: found.passed_over,
            _lock: lock,
        };
        if is_new {
            let mut batch = Batch::default();
            F::note_source(&run.state.source, &mut batch);
            run.take_over(&batch, Outcome::default())?;
        }
        run.save()?;
        Ok(run)
    }

    async fn survey(mut self, progress: &Arc<Progress>) -> Result<Self, ImportError> {
        let Stage::Survey { stores: done } = self.state.stage else {
            return Ok(self);
        };
        let runtime = self.system.runtime.clone();
        let behind = self.files.iter().filter(|file| file.store < done);
        let behind: u64 = behind.map(|file| file.len).sum();
        progress.begin(WorkStage::Survey, runtime.now(), behind, self.data_bytes());
        let progress = progress.clone();
        let work = runtime.blocking(move || {
            self.survey_files(done, &progress)?;
            self.state.stage = Stage::Transfer {
                index_files: 0,
                keys: 0,
            };
            self.save()?;
            Ok(self)
        });
        work.await
    }

    /// Surveys the remaining stores. Blocks.
    fn survey_files(&mut self, done: usize, progress: &Progress) -> Result<(), ImportError> {
        let index = self.directory.index();
        let disk = self.system.disk.clone();
        kvorum_disk::create_directory_durably(&*disk, &index)?;
        let mut writer = SpreadWriter::resume(disk, &index, &self.state.index_lens);
        let mut bucket_types: BTreeSet<String> = self.state.bucket_types.iter().cloned().collect();
        let files = self.files.clone();
        let mut bytes_before = 0;
        for (number, file) in files.iter().enumerate() {
            let next = files.get(number + 1).map(|next| next.store);
            if file.store >= done {
                let mut intake = Intake {
                    path: &file.path,
                    counts: &mut self.state.counts,
                    findings: &mut self.findings,
                    writer: &mut writer,
                    bucket_types: &mut bucket_types,
                    progress,
                    bytes_before,
                    failure: None,
                };
                let source = &self.state.source;
                let choices = &self.state.choices.of_format;
                let taken = F::survey(&self.system, source, choices, number, &mut intake);
                intake.conclude(taken)?;
            }
            bytes_before += file.len;
            progress.set(bytes_before, self.state.counts);
            if next != Some(file.store) && file.store >= done {
                self.state.index_lens = writer.flush()?;
                self.state.bucket_types = bucket_types.iter().cloned().collect();
                self.state.stage = Stage::Survey {
                    stores: file.store + 1,
                };
                self.save()?;
            }
        }
        writer.sync()
    }

    async fn transfer(
        mut self,
        options: &SharedOptions,
        progress: &Progress,
    ) -> Result<Self, ImportError> {
        let runtime = self.system.runtime.clone();
        let types = &self.state.bucket_types;
        let mut target = options.reach_target(&runtime, types).await?;
        let total = self.state.index_lens.iter().sum::<u64>() / F::ENTRY_BYTES;
        let mut reader = Some(self.reader());
        let mut has_begun = false;
        while let Stage::Transfer { index_files, keys } = self.state.stage {
            let Some(len) = self.state.index_lens.get(index_files).copied() else {
                self.state.stage = Stage::Done;
                break;
            };
            let behind = self.state.index_lens.iter().take(index_files).sum::<u64>();
            let (groups, reduced) = self.load(index_files, len).await?;
            let file = IndexFileWork {
                groups,
                first_key: keys,
                behind: behind / F::ENTRY_BYTES,
                entries: len / F::ENTRY_BYTES,
            };
            if keys == 0 {
                self.state.counts += reduced;
            }
            if !has_begun {
                // Work of an earlier run must not count in the pace of this one.
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

    /// Puts the objects of one index file. Reads the next batch while one is put.
    async fn transfer_file(
        &mut self,
        file: IndexFileWork<F::Group>,
        reader: &mut Option<F::Reader>,
        mut target: Option<&mut Target>,
        progress: &Progress,
    ) -> Result<(), ImportError> {
        let runtime = self.system.runtime.clone();
        let read = |from: usize, mut reader: F::Reader| {
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
            let outcome = Outcome::of(&batch, target.as_deref_mut()).await?;
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
        self.state.counts += batch.counts;
        self.state.counts += outcome.counts;
        let findings = batch.findings.iter().cloned();
        self.findings.add_all(findings.chain(outcome.findings))
    }

    async fn load(
        &self,
        number: usize,
        len: u64,
    ) -> Result<(Arc<[F::Group]>, Counts), ImportError> {
        let (disk, directory) = (self.system.disk.clone(), self.directory.index());
        let store_of: Vec<usize> = self.files.iter().map(|file| file.store).collect();
        let choices = self.state.choices.of_format.clone();
        let loading = self.system.runtime.blocking(move || {
            let place = IndexPlace {
                disk: &*disk,
                directory: &directory,
                number,
                len,
                store_of: &store_of,
            };
            let (groups, counts) = F::load(&place, &choices)?;
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

    fn reader(&self) -> F::Reader {
        let choices = &self.state.choices;
        F::reader(
            &self.system,
            self.files.clone(),
            &choices.of_format,
            choices.leave_out_tombstones,
        )
    }

    fn data_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    fn summary(self) -> Summary {
        let stores: BTreeSet<usize> = self.files.iter().map(|file| file.store).collect();
        Summary {
            is_dry_run: self.state.choices.target.is_none(),
            partitions: stores.len(),
            files: self.files.len(),
            data_bytes: self.data_bytes(),
            counts: self.state.counts,
            bucket_types: self.state.bucket_types,
            marked_for_deletion: self.marked_for_deletion,
            passed_over: self.passed_over,
            findings_file: self.findings.path().to_owned(),
            first_findings: self.findings.first().to_vec(),
        }
    }
}

/// Keys of one index file, and their position among all records.
struct IndexFileWork<G> {
    groups: Arc<[G]>,
    /// Number of keys that an earlier run has completed.
    first_key: usize,
    /// Number of records of the earlier index files.
    behind: u64,
    /// Number of records of this index file.
    entries: u64,
}

impl<G> IndexFileWork<G> {
    /// The approximate number of records finished with this many keys of the file.
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
