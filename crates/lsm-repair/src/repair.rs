//! A repair in progress: its stages, their units, and the files that are installed at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::{Disk, DiskLock, remove_if_there};
use kvorum_encoding::KeyRange;
use kvorum_lsm::DoubtKind;
use kvorum_lsm::files::{LOCK_NAME, sync_directory};
use kvorum_lsm::manifest::{BlobRecord, Manifest, TableRecord};
use kvorum_lsm::segment_of;
use kvorum_sst::Properties;
use kvorum_storage_errors::IntoBackend;
use kvorum_tiers::{TieredDisk, whole_disk};
use parking_lot::Mutex;

use crate::decision::{AllExamined, Decision, blob_record, reached_sequence, sources};
use crate::examine::{self, examine_file};
use crate::journal::{self, Journal, Journaled};
use crate::journal_files::journal_files;
use crate::listing::{FileKind, Listing};
use crate::options::RepairOptions;
use crate::rebuild::{RangeMerge, RebuildPlan};
use crate::report::RepairReport;
use crate::work::{Done, Ground, Output, SourceTable, Unit};
use crate::{blobs, install, salvage};

/// The length of a key behind all keys of objects and index entries.
const LARGEST_KEY_BYTES: usize = 16;

/// A piece of work of the present stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairUnit(Step);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Examine(FileKind, u64),
    Write(Unit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Examine,
    Mend,
    Rebuild,
    /// Keys without their bodies are looked up for rebuilt tables.
    Bodies,
    /// Old names are removed.
    CleanUp,
    Ended,
}

/// A store that is being repaired. Its lock is held.
pub struct Repair {
    disk: Arc<dyn Disk>,
    /// The same disk, with new tables in the slow directory, if there is one.
    slow: Option<TieredDisk<Arc<dyn Disk>>>,
    directory: PathBuf,
    options: RepairOptions,
    listing: Listing,
    journal: Option<Journal>,
    state: Mutex<State>,
    _lock: Option<Box<dyn DiskLock>>,
}

struct State {
    stage: Stage,
    journaled: Journaled,
    decision: Arc<Decision>,
    rebuild: Arc<RebuildPlan>,
    /// Blob files that may have lost bodies, if no manifest lists them.
    bodies: Vec<u64>,
}

impl Repair {
    /// Locks a store and lists its files. A killed repair continues.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] when another process has it open, [`ErrorKind::Corrupt`] when no file
    /// names its store, [`ErrorKind::Denied`] when its slow directory has moved.
    pub fn begin(disk: Arc<dyn Disk>, directory: &Path, options: RepairOptions) -> Result<Self> {
        let tiered = whole_disk(disk, directory)?;
        let slow = tiered.has_slow().then(|| tiered.creating_slow());
        let disk: Arc<dyn Disk> = Arc::new(tiered);
        let path = directory.join(LOCK_NAME);
        let lock = match !options.is_dry_run || disk.info(&path).into_backend()?.is_some() {
            true => Some(disk.lock(&path, "kvorum repair\n").into_backend()?),
            false => None,
        };
        let earlier = journal::read(&*disk, directory)?;
        let (listing, journaled, resumed_at) =
            begin_or_resume(&*disk, directory, &options, earlier)?;
        let journal = match (options.is_dry_run, resumed_at) {
            (true, _) => None,
            (false, Some(end)) => Some(Journal::resume(&*disk, directory, end)?),
            (false, None) => Some(Journal::create(&*disk, directory, &journaled)?),
        };
        let is_installed = journaled.installing.is_some()
            && listing.manifest.as_ref().map(|it| it.generation)
                != kvorum_lsm::manifest::read_in(&*disk, directory)?
                    .content
                    .map(|it| it.generation);
        let repair = Self {
            disk,
            slow,
            directory: directory.to_owned(),
            options,
            listing,
            journal,
            state: Mutex::new(State {
                stage: Stage::Examine,
                journaled,
                decision: Arc::default(),
                rebuild: Arc::default(),
                bodies: Vec::new(),
            }),
            _lock: lock,
        };
        if is_installed {
            repair.go_on_after_install()?;
        } else if repair.journal.is_some() {
            repair.remove_unfinished()?;
        }
        Ok(repair)
    }

    /// The store's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Approximate bytes that the present stage has to read.
    pub fn stage_bytes(&self) -> u64 {
        let len_of = |kind, number| {
            let files = self.listing.files.iter();
            let mut found = files.filter(|it| (it.kind, it.number) == (kind, number));
            found.next().map_or(0, |it| it.len)
        };
        let bytes_of = |unit: &RepairUnit| match unit.0 {
            Step::Examine(kind, number) => len_of(kind, number),
            Step::Write(Unit::Blob(number)) => len_of(FileKind::Blob, number),
            Step::Write(Unit::Table(number)) => len_of(FileKind::Table, number),
            Step::Write(Unit::Logs) => self.listing.of_kind(FileKind::Log).map(|it| it.len).sum(),
            Step::Write(Unit::Bodies(_) | Unit::Range(_)) => 0,
        };
        let units = self.units();
        let of_files: u64 = units.iter().map(bytes_of).sum();
        let is_range = |it: &&RepairUnit| matches!(it.0, Step::Write(Unit::Range(_)));
        let ranges = units.iter().filter(is_range).count() as u64;
        let rebuild = self.state.lock().rebuild.clone();
        let merged = rebuild.sources.iter();
        let merged = merged.filter(|it| !rebuild.adopted.contains(&it.number));
        let merged: u64 = merged.map(|it| it.file_len).sum();
        of_files + merged * ranges / (rebuild.ranges.len() as u64).max(1)
    }

    /// The remaining work of the present stage.
    pub fn units(&self) -> Vec<RepairUnit> {
        let state = self.state.lock();
        let left = |units: &mut dyn Iterator<Item = Unit>| -> Vec<Step> {
            let left = units.filter(|it| !state.journaled.done.contains_key(it));
            left.map(Step::Write).collect()
        };
        let steps: Vec<Step> = match state.stage {
            Stage::Examine => {
                let files = self.listing.files.iter();
                let wanted = files.filter(|it| self.is_wanted(it.kind, it.number));
                wanted
                    .filter(|it| !state.journaled.examined.contains_key(&(it.kind, it.number)))
                    .map(|it| Step::Examine(it.kind, it.number))
                    .collect()
            }
            Stage::Mend => left(&mut state.decision.mend.iter().copied()),
            Stage::Rebuild => {
                let ranges = 0..state.rebuild.ranges.len() as u64;
                left(&mut ranges.map(Unit::Range))
            }
            Stage::Bodies => left(&mut state.bodies.iter().copied().map(Unit::Bodies)),
            Stage::CleanUp | Stage::Ended => Vec::new(),
        };
        steps.into_iter().map(RepairUnit).collect()
    }

    /// Does a unit; several may run at once. `progress` gets the number of bytes read.
    ///
    /// # Errors
    /// Those of the disk. The unit may be run again after a restart.
    pub fn run(&self, unit: RepairUnit, progress: &dyn Fn(u64)) -> Result<()> {
        match unit.0 {
            Step::Examine(kind, number) => self.examine(kind, number, progress),
            Step::Write(unit) => {
                let done = self.write(unit, progress)?;
                // Files in the journal have to be durable.
                sync_directory(&*self.disk, &self.directory)?;
                if let Some(journal) = &self.journal {
                    journal.done(unit, &done)?;
                }
                self.state.lock().journaled.done.insert(unit, done);
                Ok(())
            }
        }
    }

    /// Starts the next stage when all units are done; false at the end of the repair.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next_stage(&self) -> Result<bool> {
        let stage = self.state.lock().stage;
        let next = match stage {
            Stage::Examine => self.decide()?,
            Stage::Mend => self.plan_rebuild()?,
            Stage::Rebuild => self.plan_bodies()?,
            Stage::Bodies => {
                self.install()?;
                Stage::CleanUp
            }
            Stage::CleanUp => {
                self.clean_up()?;
                Stage::Ended
            }
            Stage::Ended => Stage::Ended,
        };
        self.state.lock().stage = next;
        Ok(next != Stage::Ended)
    }

    /// Findings and work; complete at the end of the repair.
    pub fn report(&self) -> RepairReport {
        let state = self.state.lock();
        RepairReport::new(
            &self.options,
            &self.listing,
            &state.journaled,
            &state.decision,
        )
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            disk: &*self.disk,
            slow: self.slow.as_ref(),
            directory: &self.directory,
            identity: self.listing.identity,
            settings: &self.options.settings,
            keeps_doubtful: self.options.keeps_doubtful,
            has_journal: self.has_journal(),
        }
    }

    /// True for a store with a journal. Without a manifest and a journal file, the caller's
    /// settings decide.
    fn has_journal(&self) -> bool {
        let is_unknown = self.listing.manifest.is_none();
        self.listing.has_journal() || (is_unknown && self.options.settings.journaled.is_some())
    }

    /// False for files that the manifest does not list: the next opening removes them.
    fn is_wanted(&self, kind: FileKind, number: u64) -> bool {
        match (&self.listing.manifest, kind) {
            // The repair does not change a journal.
            (_, FileKind::Log | FileKind::Journal) => false,
            (None, _) => true,
            (Some(it), FileKind::Table) => it.tables.iter().any(|it| it.number == number),
            (Some(it), FileKind::Blob) => it.blobs.iter().any(|it| it.number == number),
        }
    }

    fn examine(&self, kind: FileKind, number: u64, progress: &dyn Fn(u64)) -> Result<()> {
        let len_max = match (&self.listing.manifest, kind) {
            (Some(it), FileKind::Table) => {
                let record = it.tables.iter().find(|it| it.number == number);
                record.map_or(u64::MAX, |it| it.file_len)
            }
            (Some(it), FileKind::Blob) => {
                let record = it.blobs.iter().find(|it| it.number == number);
                record.map_or(u64::MAX, |it| it.file_len)
            }
            _ => u64::MAX,
        };
        let id = self.ground().table_id(number);
        let (disk, directory) = (&*self.disk, &self.directory);
        let examined = examine_file(disk, directory, kind, id, len_max, progress)?;
        if let Some(journal) = &self.journal {
            journal.examined(kind, number, &examined)?;
        }
        let mut state = self.state.lock();
        state.journaled.examined.insert((kind, number), examined);
        Ok(())
    }

    /// Removes unfinished files of a killed run.
    fn remove_unfinished(&self) -> Result<()> {
        let state = self.state.lock();
        let outputs = state.journaled.done.values().flat_map(|it| &it.outputs);
        let finished: Vec<u64> = outputs.map(|it| it.number).collect();
        for entry in self.disk.list(&self.directory).into_backend()? {
            if let Some((number, "sst" | "blob")) = kvorum_lsm::files::number_of(&entry.name)
                && number >= self.listing.base
                && !finished.contains(&number)
            {
                let path = self.directory.join(&entry.name);
                self.disk.remove_file(&path).into_backend()?;
            }
        }
        Ok(())
    }

    fn decide(&self) -> Result<Stage> {
        let mut state = self.state.lock();
        let decision = Decision::new(&self.listing, &state.journaled.examined);
        let is_sound = decision.is_sound();
        state.decision = Arc::new(decision);
        drop(state);
        if is_sound && self.journal.is_some() {
            install::remove_journal(&*self.disk, &self.directory)?;
        }
        Ok(match is_sound || self.options.is_dry_run {
            true => Stage::Ended,
            false => Stage::Mend,
        })
    }

    fn write(&self, unit: Unit, progress: &dyn Fn(u64)) -> Result<Done> {
        let (examined, decision, rebuild) = {
            let state = self.state.lock();
            (
                state.journaled.examined.clone(),
                state.decision.clone(),
                state.rebuild.clone(),
            )
        };
        let at = decision.mend.iter().position(|it| *it == unit).unwrap_or(0);
        let number = self.listing.base + at as u64;
        let ground = self.ground();
        match unit {
            Unit::Logs => {
                let logs = self.listing.of_kind(FileKind::Log).map(|it| it.number);
                let logs: Vec<u64> = logs.collect();
                let sequence = reached_sequence(&self.listing, &examined);
                salvage::salvage_logs(&ground, &logs, sequence, number, progress)
            }
            Unit::Table(table) => self.salvage_table(table, number, &examined, progress),
            Unit::Blob(blob) => self.salvage_blob(blob, number, &examined, progress),
            Unit::Range(range) => {
                let plan = usize::try_from(range)
                    .ok()
                    .and_then(|at| rebuild.ranges.get(at))
                    .ok_or_else(|| unknown("a range"))?;
                let stride = self.range_numbers();
                let first = self.listing.base + decision.mend.len() as u64 + range * stride;
                RangeMerge::new(ground, &rebuild, plan, (first, stride))?.run(progress)
            }
            Unit::Bodies(file) => {
                let manifest = self.planned_manifest()?;
                let left = manifest.blobs.iter().find(|it| it.file == file);
                let mut users = listed_sources(&manifest);
                users.retain(|it| it.properties.blobs.iter().any(|it| it.file == file));
                salvage::bodiless_of(&ground, file, left, &users)
            }
        }
    }

    /// The count of numbers reserved for the tables of a range; the last table grows without bound.
    fn range_numbers(&self) -> u64 {
        let table_bytes = self.options.settings.policy.table_bytes_max.max(1);
        2 * (self.options.unit_bytes / table_bytes) + 8
    }

    fn salvage_table(
        &self,
        table: u64,
        number: u64,
        examined: &AllExamined,
        progress: &dyn Fn(u64),
    ) -> Result<Done> {
        let sources = sources(&self.listing, examined);
        let source = sources.iter().find(|it| it.number == table);
        let source = source.ok_or_else(|| unknown("a table"))?;
        let tables = self.listing.manifest.iter().flat_map(|it| &it.tables);
        let level = tables
            .filter(|it| it.number == table)
            .find_map(|it| usize::try_from(it.level).ok());
        let level = level.unwrap_or(0);
        salvage::salvage_table(&self.ground(), source, level, number, progress)
    }

    fn salvage_blob(
        &self,
        blob: u64,
        number: u64,
        examined: &AllExamined,
        progress: &dyn Fn(u64),
    ) -> Result<Done> {
        let record = blob_record(&self.listing, examined, blob);
        let record = record.ok_or_else(|| unknown("a blob file"))?;
        let found = examined.get(&(FileKind::Blob, blob));
        let is_present = found.is_some_and(|it| it.verdict != examine::Verdict::Foreign);
        let mut users = sources(&self.listing, examined);
        let uses = |it: &SourceTable| it.properties.blobs.iter().any(|it| it.file == record.file);
        // Without a manifest, bodies are looked up after tables were merged.
        users.retain(|it| self.listing.manifest.is_some() && uses(it));
        let ground = self.ground();
        salvage::salvage_blob(&ground, &record, is_present, &users, number, progress)
    }

    fn plan_rebuild(&self) -> Result<Stage> {
        let (examined, decision, logs) = {
            let state = self.state.lock();
            let logs = state.journaled.done.get(&Unit::Logs).cloned();
            (
                state.journaled.examined.clone(),
                state.decision.clone(),
                logs,
            )
        };
        if decision.rebuild.is_some() {
            let mut sources = sources(&self.listing, &examined);
            let of_logs = logs.iter().flat_map(|it| &it.outputs);
            let written =
                |it: &Output| SourceTable::whole(it.number, it.file_len, it.properties.clone());
            sources.extend(of_logs.map(written));
            let plan = RebuildPlan::new(&self.ground(), sources, self.options.unit_bytes)?;
            self.state.lock().rebuild = Arc::new(plan);
        }
        Ok(Stage::Rebuild)
    }

    /// Without a manifest, a blob file may be missing that only entries name.
    fn plan_bodies(&self) -> Result<Stage> {
        if self.listing.manifest.is_none() {
            let manifest = self.planned_manifest()?;
            let tables = manifest.tables.iter();
            let uses = tables.flat_map(|it| &it.properties.blobs);
            let files = uses.map(|it| it.file);
            let mut files: Vec<u64> = files.filter(|it| segment_of(*it).is_none()).collect();
            files.sort_unstable();
            files.dedup();
            let is_as_it_was = |file: &u64| {
                let record = manifest.blobs.iter().find(|it| it.file == *file);
                record.is_some_and(|it| it.number < self.listing.base)
            };
            files.retain(|it| !is_as_it_was(it));
            self.state.lock().bodies = files;
        }
        Ok(Stage::Bodies)
    }

    fn planned_manifest(&self) -> Result<Manifest> {
        let (journaled, decision, rebuild) = self.snapshot();
        self.new_manifest(&journaled, &decision, &rebuild)
    }

    fn install(&self) -> Result<()> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let mut manifest = self.planned_manifest()?;
        if self.listing.manifest.is_none() && manifest.has_journal {
            manifest.journal = journal_files(&self.ground(), &self.listing)?;
            manifest.tables.push(self.lost_ledger(manifest.next_number));
            manifest.next_number += 1;
        }
        let decision = self.state.lock().decision.clone();
        let replaced = self.replaced(&manifest, &decision);
        install::set_aside(&*self.disk, &self.directory, &decision, &replaced)?;
        install::write_manifest(&*self.disk, &self.directory, journal, &manifest)
    }

    fn snapshot(&self) -> (Journaled, Arc<Decision>, Arc<RebuildPlan>) {
        let state = self.state.lock();
        let (decision, rebuild) = (state.decision.clone(), state.rebuild.clone());
        (state.journaled.clone(), decision, rebuild)
    }

    /// Finishes an earlier run that has written the manifest, and has to remove the old names.
    fn go_on_after_install(&self) -> Result<()> {
        let found = kvorum_lsm::manifest::read_in(&*self.disk, &self.directory)?;
        if let Some(manifest) = found.content.filter(|_| found.is_uneven)
            && let Some(journal) = &self.journal
        {
            install::write_manifest(&*self.disk, &self.directory, journal, &manifest)?;
        }
        let mut state = self.state.lock();
        let decision = Decision::new(&self.listing, &state.journaled.examined);
        state.decision = Arc::new(decision);
        state.stage = Stage::CleanUp;
        Ok(())
    }

    fn clean_up(&self) -> Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        let found = kvorum_lsm::manifest::read_in(&*self.disk, &self.directory)?;
        let manifest = found.content.ok_or_else(|| unknown("a manifest"))?;
        let decision = self.state.lock().decision.clone();
        let replaced = self.replaced(&manifest, &decision);
        // The table of the logs is no longer needed once it was merged.
        let state = self.state.lock();
        let of_logs = state.journaled.done.get(&Unit::Logs);
        for output in of_logs.iter().flat_map(|it| &it.outputs) {
            let path = self.directory.join(FileKind::Table.name(output.number));
            let is_listed = manifest.tables.iter().any(|it| it.number == output.number);
            if !is_listed {
                remove_if_there(&*self.disk, &path).into_backend()?;
            }
        }
        install::clean_up(&*self.disk, &self.directory, &replaced)
    }

    /// Files that the new manifest does not list. If the old manifest was whole, files that it did
    /// not list are left to the next opening.
    fn replaced(&self, manifest: &Manifest, decision: &Decision) -> Vec<String> {
        let takes_all = self.listing.manifest.is_none() || self.listing.damaged_manifests != 0;
        let keeps_logs = !decision.mend.contains(&Unit::Logs);
        let files = self.listing.files.iter().filter(|it| match it.kind {
            FileKind::Table => manifest.tables.iter().all(|to| to.number != it.number),
            FileKind::Blob => manifest.blobs.iter().all(|to| to.number != it.number),
            FileKind::Log => !keeps_logs,
            FileKind::Journal => manifest.journal.iter().all(|to| to.number != it.number),
        });
        // The journal has the entries of these damaged tables.
        let given_up = decision.given_up.iter().map(|it| FileKind::Table.name(*it));
        files
            .filter(|it| takes_all || self.is_wanted(it.kind, it.number))
            .map(|it| it.kind.name(it.number))
            .chain(given_up)
            .collect()
    }

    fn new_manifest(
        &self,
        journaled: &Journaled,
        decision: &Decision,
        rebuild: &RebuildPlan,
    ) -> Result<Manifest> {
        let mut manifest = self.listing.manifest.clone().unwrap_or(Manifest {
            identity: self.listing.identity,
            // The value is unknown, and true errs on the safe side.
            has_extras: true,
            has_journal: self.has_journal(),
            layout: self.options.settings.compaction.layout(),
            ..Manifest::default()
        });
        manifest.generation += 1;
        let outputs = |unit: Unit| {
            journaled
                .done
                .get(&unit)
                .map_or(&[][..], |it| &it.outputs[..])
        };
        if decision.rebuild.is_some() {
            manifest.tables = self.rebuilt_tables(journaled, rebuild);
        } else {
            let records = std::mem::take(&mut manifest.tables);
            for record in records {
                match decision.mend.contains(&Unit::Table(record.number)) {
                    false => manifest.tables.push(record),
                    true => {
                        let new = outputs(Unit::Table(record.number)).iter();
                        let new = new.map(|it| table_record(record.level, it));
                        manifest.tables.extend(new);
                    }
                }
            }
        }
        manifest.blobs = self.new_blobs(journaled, decision, rebuild)?;
        if self.listing.manifest.is_none() {
            let sequences = rebuild.sources.iter().map(|it| it.properties.sequence_max);
            manifest.sequence = sequences.max().unwrap_or(0);
            let logs = self.listing.of_kind(FileKind::Log).map(|it| it.number + 1);
            manifest.first_log = logs.max().unwrap_or(0);
        }
        let numbers = journaled
            .done
            .values()
            .flat_map(|it| &it.outputs)
            .map(|it| it.number + 1);
        manifest.next_number = numbers.fold(self.listing.base, u64::max);
        // Keys may be missing, and removed keys may be back: the owner of derived keys has to check
        // all.
        let takes_keys = |unit: &Unit| !matches!(unit, Unit::Blob(_));
        let has_lost = decision.rebuild.is_some() || !decision.given_up.is_empty();
        if has_lost || decision.mend.iter().any(takes_keys) {
            manifest.doubts.open = vec![(DoubtKind::Lost, KeyRange::everything())];
        }
        Ok(manifest)
    }

    /// A missing table of all keys: the lost keys are unknown, and the next opening rebuilds the
    /// ledger from the journal.
    fn lost_ledger(&self, number: u64) -> TableRecord {
        TableRecord {
            level: self.ground().rebuilt_level() as u64 + 1,
            number,
            file_len: 0,
            properties: Properties {
                largest: vec![0xff; LARGEST_KEY_BYTES].into(),
                ..Properties::default()
            },
        }
    }

    fn rebuilt_tables(&self, journaled: &Journaled, rebuild: &RebuildPlan) -> Vec<TableRecord> {
        let level = self.ground().rebuilt_level() as u64;
        let is_adopted = |it: &&SourceTable| rebuild.adopted.contains(&it.number);
        let mut tables: Vec<TableRecord> = rebuild
            .sources
            .iter()
            .filter(is_adopted)
            .map(|it| TableRecord {
                level,
                number: it.number,
                file_len: it.file_len,
                properties: it.properties.clone(),
            })
            .collect();
        for range in 0..rebuild.ranges.len() as u64 {
            let done = journaled.done.get(&Unit::Range(range));
            let outputs = done.iter().flat_map(|it| &it.outputs);
            tables.extend(outputs.map(|it| table_record(level, it)));
        }
        tables.sort_by(|a, b| a.properties.smallest.cmp(&b.properties.smallest));
        tables
    }

    fn new_blobs(
        &self,
        journaled: &Journaled,
        decision: &Decision,
        rebuild: &RebuildPlan,
    ) -> Result<Vec<BlobRecord>> {
        let listed: Vec<u64> = match &self.listing.manifest {
            Some(manifest) => manifest.blobs.iter().map(|it| it.number).collect(),
            None => self
                .listing
                .of_kind(FileKind::Blob)
                .map(|it| it.number)
                .collect(),
        };
        let mut records = Vec::new();
        for number in listed {
            let unit = Unit::Blob(number);
            let Some(record) = blob_record(&self.listing, &journaled.examined, number) else {
                continue;
            };
            let found = journaled.examined.get(&(FileKind::Blob, number));
            match journaled
                .done
                .get(&unit)
                .filter(|_| decision.mend.contains(&unit))
            {
                None if found.is_some_and(|it| it.verdict == examine::Verdict::Foreign) => {}
                None => records.push(record),
                Some(done) => records.extend(done.outputs.first().map(|it| BlobRecord {
                    file: record.file,
                    number: it.number,
                    file_len: it.file_len,
                    block_bytes: it.block_bytes,
                })),
            }
        }
        match &self.listing.manifest {
            Some(_) => Ok(records),
            None => blobs::name_blobs(&self.ground(), &rebuild.sources, records),
        }
    }
}

fn begin_or_resume(
    disk: &dyn Disk,
    directory: &Path,
    options: &RepairOptions,
    earlier: Option<(Journaled, u64)>,
) -> Result<(Listing, Journaled, Option<u64>)> {
    if let Some((journaled, end)) = earlier
        && let Some(begun) = journaled.listing.clone()
        && !options.is_dry_run
    {
        let is_same_wish = (journaled.keeps_doubtful, journaled.unit_bytes)
            == (options.keeps_doubtful, options.unit_bytes);
        let found = kvorum_lsm::manifest::read_in(disk, directory)?.content;
        let is_installed = journaled.installing.is_some()
            && found.map(|it| (it.identity, it.generation))
                == journaled.installing.map(|it| (begun.identity, it));
        if is_installed {
            return Ok((begun, journaled, Some(end)));
        }
        let now = Listing::read(disk, directory, Some(begun.base));
        if now.is_ok_and(|now| now == begun) {
            let is_usable = is_same_wish && has_outputs(disk, directory, &journaled)?;
            return Ok(match is_usable {
                true => (begun, journaled, Some(end)),
                // The finished work is unusable: the earlier run's own files are removed.
                false => (begun.clone(), fresh(begun, options), None),
            });
        }
    }
    let listing = Listing::read(disk, directory, None)?;
    Ok((listing.clone(), fresh(listing, options), None))
}

fn fresh(listing: Listing, options: &RepairOptions) -> Journaled {
    Journaled {
        listing: Some(listing),
        keeps_doubtful: options.keeps_doubtful,
        unit_bytes: options.unit_bytes,
        ..Journaled::default()
    }
}

/// True when all finished files exist; an opening meanwhile would have removed them.
fn has_outputs(disk: &dyn Disk, directory: &Path, journaled: &Journaled) -> Result<bool> {
    for (unit, done) in &journaled.done {
        let kind = match unit {
            Unit::Blob(_) => FileKind::Blob,
            _ => FileKind::Table,
        };
        for output in &done.outputs {
            let path = directory.join(kind.name(output.number));
            let info = disk.info(&path).into_backend()?;
            if info.is_none_or(|it| it.len != output.file_len) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn listed_sources(manifest: &Manifest) -> Vec<SourceTable> {
    let whole =
        |it: &TableRecord| SourceTable::whole(it.number, it.file_len, it.properties.clone());
    manifest.tables.iter().map(whole).collect()
}

fn table_record(level: u64, output: &Output) -> TableRecord {
    TableRecord {
        level,
        number: output.number,
        file_len: output.file_len,
        properties: output.properties.clone(),
    }
}

fn unknown(what: &str) -> BackendError {
    let detail = format!("{what} of this repair is not known");
    BackendError::new(ErrorKind::Failed, detail)
}
