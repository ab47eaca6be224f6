//! Group Damage: files of a closed store are damaged, and it is opened again.
//!
//! Whatever is shown then was put once under that key. What is not the latest is told: as an error of
//! the read, or as a lost range in the status.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, BackendError, ErrorKind, StepBudget, Timestamp};
use kvorum_disk::{Disk, EntryKind, MemoryDisk, OpenMode};
use kvorum_encoding::StorageKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::crash::copy_of;
use crate::history::{History, Observation, index_ranges};
use crate::model::State;
use crate::observe::observe;
use crate::recording::{Outcome, Recording, failed_without_cause};
use crate::script::{PlannedWrite, Script, Step};
use crate::violation::{ensure, unexpected};
use crate::{Checked, EngineUnderTest, Opening, Plan, Violation, generate, names};

/// Where this group's randomness starts.
const STREAM: u64 = 4 << 32;
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Steps of a task on a damaged store, after which it counts as endless.
const STEPS_MAX: usize = 3_000;

/// One damage to one file.
#[derive(Clone, Debug)]
enum Damage {
    /// These bits of the byte at the offset are inverted.
    Flip { offset: u64, bits: u8 },
    /// The file ends here.
    Cut { len: u64 },
    /// Zeros from the offset on.
    Zeros { offset: u64, len: usize },
    /// Bytes that nobody wrote follow the end.
    Appended { bytes: Vec<u8> },
    /// The content of another file, or of this one at an earlier time.
    Replaced { by: &'static str, bytes: Vec<u8> },
    /// The file is gone.
    Removed,
}

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    if !engine.capabilities().persistent {
        return Ok(());
    }
    for number in 0..plan.share(engine, 3, 12) as u64 {
        let mut rng = plan.rng(STREAM + number);
        let variation = rng.random_range(0..engine.variations().max(1));
        let closed = Closed::make(engine, variation, &mut rng)?;
        closed
            .check_undamaged()
            .map_err(|violation| violation.after("nothing was damaged"))?;
        for (path, bytes) in closed.files(&closed.disk)? {
            for damage in closed.damages(&path, &bytes, plan, &mut rng)? {
                closed.check(&path, &damage).map_err(|violation| {
                    let brief = brief(&damage);
                    let path = path.display();
                    violation.after(format!(
                        "{brief} in {path} of {} bytes, variation {variation}",
                        bytes.len()
                    ))
                })?;
            }
        }
    }
    Ok(())
}

fn brief(damage: &Damage) -> String {
    match damage {
        Damage::Replaced { by, .. } => format!("replaced by {by}"),
        damage => format!("{damage:?}"),
    }
}

/// A store that was closed, what it held, and its files at an earlier time.
struct Closed<'a> {
    engine: &'a dyn EngineUnderTest,
    opening: Opening,
    disk: MemoryDisk,
    earlier: MemoryDisk,
    history: History,
    state: State,
    now: Timestamp,
}

impl<'a> Closed<'a> {
    fn make(
        engine: &'a dyn EngineUnderTest,
        variation: u32,
        rng: &mut ChaCha8Rng,
    ) -> Checked<Self> {
        let disk = MemoryDisk::new();
        let opened = Recording::open(engine, Arc::new(disk.clone()), variation, rng.clone())?;
        let mut recording = opened.ok_or_else(|| failed_without_cause("opening a new store"))?;
        let play = |recording: &mut Recording<'_>, mut script: Script| -> Checked<MemoryDisk> {
            let all = (0..names::KEYS).map(|key| {
                let mut write = PlannedWrite::put(key, 60 * key);
                if let Some(value) = &mut write.value {
                    value.terms = vec![key, key + 1];
                }
                write
            });
            script
                .steps
                .extend(all.map(|write| Step::put_buffered(vec![write])));
            script.steps.push(Step::Reopen);
            match recording.play_until_failure(&script)? {
                Outcome::Failed => Err(failed_without_cause(recording.last_error())),
                Outcome::Done => Ok(copy_of(&disk)),
            }
        };
        let earlier = play(&mut recording, generate::changing_script(rng, 25))?;
        play(&mut recording, generate::changing_script(rng, 25))?;
        let trial = recording.trial();
        trial
            .store()?
            .close()
            .map_err(|error| unexpected("close", &error))?;
        Ok(Self {
            engine,
            opening: recording.opening().clone(),
            disk: copy_of(&disk),
            earlier,
            history: recording.history.clone(),
            state: trial.state.clone(),
            now: trial.now,
        })
    }

    /// The files of the store, with their bytes.
    fn files(&self, disk: &MemoryDisk) -> Checked<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        for directory in self.engine.directories(&self.opening) {
            collect_files(disk, &directory, &mut files).map_err(|error| {
                Violation::of_method(format!("reading the disk failed: {error}"))
            })?;
        }
        Ok(files)
    }

    fn damages(
        &self,
        path: &Path,
        bytes: &[u8],
        plan: &Plan,
        rng: &mut ChaCha8Rng,
    ) -> Checked<Vec<Damage>> {
        let mut damages = vec![Damage::Removed];
        let stride = (bytes.len() / plan.share(self.engine, 60, usize::MAX)).max(1);
        let mut at = rng.random_range(0..stride);
        while at < bytes.len() {
            damages.push(Damage::Flip {
                offset: at as u64,
                bits: rng.random_range(1..=u8::MAX),
            });
            at += rng.random_range(1..=2 * stride - 1);
        }
        if bytes.is_empty() {
            return Ok(damages);
        }
        let cuts = [
            0,
            1,
            bytes.len() / 2,
            bytes.len() - 1,
            rng.random_range(0..bytes.len()),
        ];
        damages.extend(cuts.map(|len| Damage::Cut { len: len as u64 }));
        damages.push(Damage::Zeros {
            offset: rng.random_range(0..bytes.len()) as u64,
            len: 512,
        });
        let garbage = (0..rng.random_range(1..90)).map(|_| rng.random());
        damages.push(Damage::Appended {
            bytes: garbage.collect(),
        });
        let before = self.files(&self.earlier)?;
        for (there, content) in before {
            if there == path && content != bytes {
                let by = "its earlier content";
                damages.push(Damage::Replaced { by, bytes: content });
            }
        }
        for (other, content) in self.files(&self.disk)? {
            if other != path && other.extension() == path.extension() {
                let by = "another file of its kind";
                damages.push(Damage::Replaced { by, bytes: content });
            }
        }
        Ok(damages)
    }

    fn open(&self, disk: &MemoryDisk) -> kvorum_backend::Result<Box<dyn Backend>> {
        self.engine.open(&Opening {
            disk: Arc::new(disk.clone()),
            ..self.opening.clone()
        })
    }

    fn check_undamaged(&self) -> Checked {
        let store = self.open(&copy_of(&self.disk));
        let store = store.map_err(|error| unexpected("opening again", &error))?;
        self.check_store(&*store, Some(0), true)
    }

    fn check(&self, path: &Path, damage: &Damage) -> Checked {
        let disk = copy_of(&self.disk);
        apply(&disk, path, damage)
            .map_err(|error| Violation::of_method(format!("damaging a file failed: {error}")))?;
        let flip_max = self.engine.keys_lost_per_flip_max();
        let keys_lost_max = match damage {
            Damage::Flip { .. } => Some(flip_max),
            // Nothing that was written is gone.
            Damage::Appended { .. } => Some(flip_max.saturating_sub(1)),
            _ => None,
        };
        let must_tell = match damage {
            Damage::Flip { .. } | Damage::Zeros { .. } => true,
            _ => self.engine.reports_truncation(),
        };
        let store = match self.open(&disk) {
            Ok(store) => store,
            Err(error) => {
                let is_clear = match error.kind() {
                    ErrorKind::Corrupt | ErrorKind::NewerFormat => true,
                    // Without the file that says where others lie, these may be another store's.
                    ErrorKind::Denied => matches!(damage, Damage::Removed),
                    _ => false,
                };
                let may_refuse = keys_lost_max.is_none_or(|most| most > names::KEYS);
                return ensure(is_clear && may_refuse, 15, || {
                    format!("opening failed: {error}")
                });
            }
        };
        self.check_store(&*store, keys_lost_max, must_tell)?;
        self.check_upkeep_ends(&*store)?;
        self.check_store(&*store, keys_lost_max, must_tell)
            .map_err(|violation| violation.after("upkeep"))
    }

    /// What is shown was put under its key; what is not the latest is told, and is not too much.
    fn check_store(
        &self,
        store: &dyn Backend,
        keys_lost_max: Option<usize>,
        must_tell: bool,
    ) -> Checked {
        let is_whole_at_stake = keys_lost_max.is_none_or(|most| most > names::KEYS);
        let forgive = |call: &str, error: &BackendError| {
            // A fold of an index says what it lacks; one of objects leaves it to gets.
            let is_fold = call == "fold";
            ensure(
                error.kind() == ErrorKind::Corrupt && (!is_fold || is_whole_at_stake),
                15,
                || format!("{call} failed: {error}"),
            )
        };
        let observed = observe(store, self.now, &forgive)?;
        let mut lost = names::KEYS - observed.present.len() - observed.absent.len();
        let mut untold = Vec::new();
        for seen in observed.present.values() {
            ensure(self.history.has_put(seen), 15, || {
                format!("{seen:?} was never put")
            })?;
            if !self.is_latest(&observed, &seen.key) {
                untold.push(&seen.key);
            }
        }
        self.check_indexes(&observed)?;
        let absent = observed.absent.iter();
        untold.extend(absent.filter(|key| self.state.get(key, self.now).is_some()));
        lost += untold.len();
        let status = store.status();
        let is_told = !status.lost.is_empty();
        ensure(untold.is_empty() || is_told || !must_tell, 15, || {
            format!("{untold:?} are gone or old and nothing says so")
        })?;
        ensure(keys_lost_max.is_none_or(|most| lost <= most), 15, || {
            format!(
                "{lost} keys are lost instead of {keys_lost_max:?}: {untold:?} and those that cannot be read; lost ranges: {:?}",
                status.lost
            )
        })
    }

    /// A fold of an index that does not fail has every entry of the objects that can be read.
    fn check_indexes(&self, observed: &Observation) -> Checked {
        let folds = observed.index.iter().flatten();
        for (range, fold) in index_ranges().zip(folds) {
            let Some(seen) = fold else { continue };
            let mut expected = self.state.fold_index(&range, self.now);
            expected.retain(|entry| !seen.contains(entry) && self.is_latest(observed, &entry.1));
            ensure(expected.is_empty(), 15, || {
                format!("a fold of an index lacks {expected:?} and does not say so")
            })?;
        }
        Ok(())
    }

    fn is_latest(&self, observed: &Observation, key: &StorageKey) -> bool {
        let (seen, latest) = (observed.present.get(key), self.state.get(key, self.now));
        seen.zip(latest)
            .is_some_and(|(seen, latest)| (&latest.head, &latest.body) == (&seen.head, &seen.body))
    }

    /// No upkeep works at a damaged place for ever, and none panics.
    fn check_upkeep_ends(&self, store: &dyn Backend) -> Checked {
        for task in store.maintenance_due(self.now) {
            let mut steps = 0;
            let budget = StepBudget { bytes: 50_000 };
            while let Ok(outcome) = store.maintenance_step(&task, budget, self.now)
                && !outcome.is_done
            {
                steps += 1;
                ensure(steps < STEPS_MAX, 17, || format!("{task:?} never ends"))?;
            }
        }
        Ok(())
    }
}

fn collect_files(
    disk: &MemoryDisk,
    directory: &Path,
    files: &mut Vec<(PathBuf, Vec<u8>)>,
) -> kvorum_disk::Result<()> {
    if disk.info(directory)?.is_none() {
        return Ok(());
    }
    for entry in disk.list(directory)? {
        let path = directory.join(&entry.name);
        match entry.kind {
            EntryKind::Directory => collect_files(disk, &path, files)?,
            EntryKind::File => {
                let bytes = kvorum_disk::read_file(disk, &path, FILE_BYTES_MAX)?;
                files.push((path, bytes));
            }
        }
    }
    Ok(())
}

fn apply(disk: &MemoryDisk, path: &Path, damage: &Damage) -> kvorum_disk::Result<()> {
    if matches!(damage, Damage::Removed) {
        disk.remove_file(path)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        return disk.sync_directory(parent);
    }
    let file = disk.open(path, OpenMode::ReadWrite)?;
    match damage {
        Damage::Removed => {}
        Damage::Flip { offset, bits } => {
            let mut byte = [0];
            file.read_at(&mut byte, *offset, kvorum_disk::Reading::MayBlock)?;
            file.write_at(&[byte[0] ^ bits], *offset)?;
        }
        Damage::Cut { len } => file.truncate(*len)?,
        Damage::Zeros { offset, len } => {
            let rest = usize::try_from(file.len()? - offset).unwrap_or(usize::MAX);
            file.write_at(&vec![0; rest.min(*len)], *offset)?;
        }
        Damage::Appended { bytes } => file.write_at(bytes, file.len()?)?,
        Damage::Replaced { bytes, .. } => {
            file.truncate(0)?;
            file.write_at(bytes, 0)?;
        }
    }
    file.sync()
}
