//! The store that is damaged: its contents, its end, its earlier files, and another store of the
//! same engine, whose files replace some of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, StepBudget, StoreId, Task, TaskKind, Timestamp, Urgency};
use kvorum_disk::MemoryDisk;
use rand::RngExt;
use rand::seq::IteratorRandom;
use rand_chacha::ChaCha8Rng;

use super::kind::{Damage, Files, collect_files};
use super::left_out::is_left_out;
use crate::disk_copy::copy_of;
use crate::history::History;
use crate::model::State;
use crate::recording::{Outcome, Recording, failed_without_cause};
use crate::script::{PlannedWrite, Script, Step};
use crate::violation::unexpected;
use crate::{Checked, EngineUnderTest, Opening, Plan, Violation, generate, names};

/// Steps of a script before and after the earlier time.
const STEPS: usize = 25;
/// Random choices of a quick run: files of a kind, flips in a file, and other damages to it.
const FILES_QUICK: usize = 3;
const FLIPS_QUICK: usize = 9;
const CUTS_QUICK: usize = 4;
/// A log file with fewer bytes than this has no records.
const LOG_HEADER_BYTES_MAX: usize = 64;
/// Steps of upkeep before the process dies.
const RESTS: usize = 8;
/// The first value of the other store, higher than all values of this one.
const OTHER_VALUES_FROM: u32 = 1 << 20;

/// A file's own content at the earlier time.
const EARLIER: &str = "its earlier content";

/// The end of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    /// The process died; its writes are in the page cache.
    Killed,
}

/// A store that has ended.
pub(super) struct Subject<'a> {
    pub(super) engine: &'a dyn EngineUnderTest,
    pub(super) opening: Opening,
    pub(super) end: End,
    pub(super) history: History,
    pub(super) state: State,
    pub(super) now: Timestamp,
    pub(super) identity: StoreId,
    disk: MemoryDisk,
    earlier: MemoryDisk,
    other: MemoryDisk,
    /// The active file of the engine's log, and the end of its content.
    appended: Option<(PathBuf, u64)>,
}

impl<'a> Subject<'a> {
    pub(super) fn make(
        engine: &'a dyn EngineUnderTest,
        variation: u32,
        end: End,
        rng: &mut ChaCha8Rng,
    ) -> Checked<Self> {
        let disk = MemoryDisk::new();
        let mut recording = open(engine, &disk, variation, rng)?;
        play(&mut recording, generate::changing_script(rng, STEPS), true)?;
        let earlier = copy_of(&disk);
        play(&mut recording, generate::changing_script(rng, STEPS), true)?;
        let tail = generate::changing_script(rng, STEPS / 5);
        play(&mut recording, tail, end == End::Closed)?;
        let trial = recording.trial();
        let store = trial.store()?;
        let identity = store.identity();
        match end {
            End::Closed => store.close().map_err(|error| unexpected("close", &error))?,
            End::Killed => rest(store)?,
        }
        let log = engine.log_directory();
        let appended = log.map(|log| appended_to(&disk, log)).transpose()?;
        Ok(Self {
            engine,
            appended: appended.flatten(),
            opening: recording.opening().clone(),
            end,
            identity,
            disk: copy_of(&disk),
            earlier,
            other: other_store(engine, variation, rng)?,
            history: recording.history.clone(),
            state: trial.state.clone(),
            now: trial.now,
        })
    }

    /// A copy of the disk as the store left it.
    pub(super) fn disk(&self) -> MemoryDisk {
        copy_of(&self.disk)
    }

    /// All damages, file by file and then to the directory.
    pub(super) fn damages(
        &self,
        plan: &Plan,
        rng: &mut ChaCha8Rng,
    ) -> Checked<Vec<(PathBuf, Damage)>> {
        let (files, earlier) = (self.files(&self.disk)?, self.files(&self.earlier)?);
        let other = match self.engine.names_its_files() {
            true => self.files(&self.other)?,
            false => Files::new(),
        };
        let mut damages = Vec::new();
        for (path, bytes) in self.drawn(&files, plan, rng) {
            let mut of_file = vec![Damage::Removed];
            of_file.extend(self.flips(bytes, plan, rng));
            let cuts_max = plan.share(self.engine, CUTS_QUICK, usize::MAX);
            of_file.extend(cuts_and_zeros(bytes, rng).into_iter().sample(rng, cuts_max));
            of_file.extend(replacements(path, bytes, &files, &earlier, &other, rng));
            damages.extend(of_file.into_iter().map(|damage| (path.clone(), damage)));
        }
        let whole = self.exchanges(earlier, other);
        let directory = &self.opening.directory;
        damages.extend(whole.into_iter().map(|damage| (directory.clone(), damage)));
        Ok(damages)
    }

    /// The files to damage: in a quick run some of each kind.
    fn drawn<'f>(
        &self,
        files: &'f Files,
        plan: &Plan,
        rng: &mut ChaCha8Rng,
    ) -> Vec<&'f (PathBuf, Vec<u8>)> {
        let mut by_kind: BTreeMap<(PathBuf, String), Vec<_>> = BTreeMap::new();
        for file in files {
            if self.end == End::Killed && is_left_out(self.engine, &file.0) {
                continue;
            }
            by_kind.entry(kind_of(&file.0)).or_default().push(file);
        }
        let most = plan.share(self.engine, FILES_QUICK, usize::MAX);
        let kinds = by_kind.into_values();
        kinds
            .flat_map(|files| files.into_iter().sample(rng, most))
            .collect()
    }

    /// True for damage that looks like the end of a log after a power cut: the active file is cut,
    /// or has its former content.
    pub(super) fn is_torn_end(&self, path: &Path, damage: &Damage) -> bool {
        let appended = self.appended.as_ref().filter(|(newest, _)| newest == path);
        let Some((_, end)) = appended.filter(|_| self.end == End::Killed) else {
            return false;
        };
        match damage {
            Damage::Cut { .. } => true,
            Damage::Zeros { offset, len } => offset + *len as u64 >= *end,
            Damage::Replaced { by, .. } => *by == EARLIER,
            _ => false,
        }
    }

    fn flips(&self, bytes: &[u8], plan: &Plan, rng: &mut ChaCha8Rng) -> Vec<Damage> {
        let stride = (bytes.len() / plan.share(self.engine, FLIPS_QUICK, usize::MAX)).max(1);
        let mut flips = Vec::new();
        let mut at = rng.random_range(0..stride);
        while at < bytes.len() {
            flips.push(Damage::Flip {
                offset: at as u64,
                bits: rng.random_range(1..=u8::MAX),
            });
            at += rng.random_range(1..=2 * stride - 1);
        }
        flips
    }

    /// Replacements of the whole directory: missing, an older one, or another store's.
    fn exchanges(&self, earlier: Files, other: Files) -> Vec<Damage> {
        let own = |files: Files| {
            let below = files.into_iter();
            below
                .filter(|(path, _)| path.starts_with(&self.opening.directory))
                .collect()
        };
        let exchanged = |by, files| Damage::Exchanged {
            by,
            files: own(files),
        };
        let mut whole = vec![
            Damage::Removed,
            exchanged("itself at an earlier time", earlier),
        ];
        if !other.is_empty() {
            whole.push(exchanged("another store", other));
        }
        whole
    }

    /// The files of the store, with their bytes.
    fn files(&self, disk: &MemoryDisk) -> Checked<Files> {
        let mut files = Files::new();
        for directory in self.engine.directories(&self.opening) {
            collect(disk, &directory, &mut files)?;
        }
        Ok(files)
    }
}

fn collect(disk: &MemoryDisk, directory: &Path, files: &mut Files) -> Checked {
    collect_files(disk, directory, files)
        .map_err(|error| Violation::of_method(format!("reading the disk failed: {error}")))
}

/// The newest segment of a log with records, and their end. A file that was made ahead has a header
/// and zeros.
fn appended_to(disk: &MemoryDisk, log: &Path) -> Checked<Option<(PathBuf, u64)>> {
    let mut files = Files::new();
    collect(disk, log, &mut files)?;
    files.retain(|(path, _)| path.extension().is_some_and(|it| it == "segment"));
    let newest_first = files.into_iter().rev();
    let mut ends = newest_first.filter_map(|(path, bytes)| {
        let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
        (end > LOG_HEADER_BYTES_MAX).then_some((path, end as u64))
    });
    Ok(ends.next())
}

/// An idle moment before the process dies: a log then marks its durable end, so that later damage
/// to it is not a torn end. Only tasks for which the engine has nothing to do are stepped.
fn rest(store: &dyn Backend) -> Checked {
    let nothing = Task {
        kind: TaskKind::Reclaim,
        subject: u64::MAX,
        urgency: Urgency::Idle,
        cost_bytes: 0,
    };
    for _ in 0..RESTS {
        let budget = StepBudget { bytes: 1 };
        let rested = store.maintenance_step(&nothing, budget, Timestamp(0));
        rested.map_err(|error| unexpected("upkeep", &error))?;
    }
    Ok(())
}

fn open<'a>(
    engine: &'a dyn EngineUnderTest,
    disk: &MemoryDisk,
    variation: u32,
    rng: &mut ChaCha8Rng,
) -> Checked<Recording<'a>> {
    let own = rand::SeedableRng::seed_from_u64(rng.random());
    let opened = Recording::open(engine, Arc::new(disk.clone()), variation, own)?;
    opened.ok_or_else(|| failed_without_cause("opening a new store"))
}

/// Another store of the engine, with values of its own under the same keys.
fn other_store(
    engine: &dyn EngineUnderTest,
    variation: u32,
    rng: &mut ChaCha8Rng,
) -> Checked<MemoryDisk> {
    let disk = MemoryDisk::new();
    let mut recording = open(engine, &disk, variation, rng)?;
    recording.number_values_from(OTHER_VALUES_FROM);
    play(
        &mut recording,
        generate::changing_script(rng, 2 * STEPS),
        true,
    )?;
    let closed = recording.trial().store()?.close();
    closed.map_err(|error| unexpected("close", &error))?;
    Ok(copy_of(&disk))
}

/// Plays a script, puts every key, and makes all of it durable.
fn play(recording: &mut Recording<'_>, mut script: Script, is_reopened: bool) -> Checked {
    let all = (0..names::KEYS).map(|key| {
        let mut write = PlannedWrite::put(key, 60 * key);
        if let Some(value) = &mut write.value {
            value.terms = vec![key, key + 1];
        }
        write
    });
    if is_reopened {
        let puts = all.map(|write| Step::put_buffered(vec![write]));
        script.steps.extend(puts);
        script.steps.push(Step::Reopen);
    } else {
        script.steps.push(Step::Sync);
        let puts = all.map(|write| Step::put_durably(vec![write]));
        script.steps.extend(puts);
    }
    match recording.play_until_failure(&script)? {
        Outcome::Failed => Err(failed_without_cause(recording.last_error())),
        Outcome::Done => Ok(()),
    }
}

/// Directory and name of a file, without the number in its name.
fn kind_of(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let letters = name.chars().filter(|it| !it.is_ascii_digit()).collect();
    (path.parent().unwrap_or(Path::new("")).to_owned(), letters)
}

fn cuts_and_zeros(bytes: &[u8], rng: &mut ChaCha8Rng) -> Vec<Damage> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let cuts = [
        0,
        1,
        bytes.len() / 2,
        bytes.len() - 1,
        rng.random_range(0..bytes.len()),
    ];
    let mut damages: Vec<_> = cuts
        .map(|len| Damage::Cut { len: len as u64 })
        .into_iter()
        .collect();
    damages.push(Damage::Zeros {
        offset: rng.random_range(0..bytes.len()) as u64,
        len: 512,
    });
    let garbage = (0..rng.random_range(1..90)).map(|_| rng.random());
    damages.push(Damage::Appended {
        bytes: garbage.collect(),
    });
    damages
}

/// Contents that replace a file's: its earlier one, others of the same kind, and another store's.
fn replacements(
    path: &Path,
    bytes: &[u8],
    files: &Files,
    earlier: &Files,
    other: &Files,
    rng: &mut ChaCha8Rng,
) -> Vec<Damage> {
    let is_alike = |it: &&(PathBuf, Vec<u8>)| it.0.extension() == path.extension();
    let same = |files: &Files| {
        let found = files.iter().find(|(there, _)| there == path);
        found.map(|(_, content)| content.clone())
    };
    let mut by: Vec<(&'static str, Vec<u8>)> = Vec::new();
    by.extend(same(earlier).map(|it| (EARLIER, it)));
    let alike = files.iter().filter(|it| it.0 != path).filter(is_alike);
    by.extend(alike.map(|it| ("another file of its kind", it.1.clone())));
    by.extend(same(other).map(|it| ("another store's file of its name", it)));
    let drawn = other.iter().filter(is_alike).choose(rng);
    by.extend(drawn.map(|it| ("another store's file of its kind", it.1.clone())));
    by.retain(|(_, content)| content != bytes);
    let replaced = |(by, bytes)| Damage::Replaced { by, bytes };
    by.into_iter().map(replaced).collect()
}
