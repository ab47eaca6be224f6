//! Collection of journal files: needed records are written to a new file under the same names, and
//! no table changes.
//!
//! A record, of a put or a removal, is needed when it is the newest of its key in tables. Newer
//! entries in memory may be lost in a crash, and the record would then be needed again.

use std::path::PathBuf;
use std::sync::Arc;

use kvorum_backend::{
    ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Unreadable, Urgency,
};
use kvorum_disk::Reading;
use kvorum_sst::{ReadContext, ScanItem, ScanOptions, TableScan};
use kvorum_storage_errors::IntoBackend;

use crate::in_tables::newest_in_tables;
use crate::install::exchange_journal;
use crate::journal::{JournalFile, JournalRecord, journal_path, place_named};
use crate::journal_policy::JournalFacts;
use crate::rebuilding::lost_tables;
use crate::scarcity::garbage_percent_where_scarce;
use crate::store::Store;
use crate::version::Version;
use crate::written_journal::{self, JOURNAL_FILE_BYTES_MAX, JournalWriter, WrittenJournal};

/// Inputs are read in pieces of this many bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// The collection in progress, and the files that are not collected.
#[derive(Default)]
pub(crate) struct JournalCollecting {
    job: Option<Job>,
    /// Files whose collections failed, and the files that are not tried again before the next
    /// opening.
    unreadable: Unreadable,
    given_up: Vec<u64>,
}

struct Job {
    /// The files to rewrite, in the order of their records. The first one identifies the task.
    inputs: Vec<u64>,
    /// A scan of each input that is not read to its end. A started scan is at a record.
    scans: Vec<TableScan>,
    is_started: bool,
    clean_to: u64,
    writer: Option<JournalWriter>,
    written: Vec<WrittenJournal>,
}

impl JournalCollecting {
    /// The collection in progress, or the next one.
    pub(crate) fn due(
        &self,
        store: &Store,
        version: &Version,
        now: Timestamp,
        urgency: Urgency,
    ) -> Option<Task> {
        let next = || self.next(store, version, now);
        let running = self.job.as_ref().map(|it| it.inputs.clone());
        let inputs = running.unwrap_or_else(next);
        let is_input = |it: &&Arc<JournalFile>| inputs.contains(&it.number);
        let bytes: u64 = version
            .journal
            .iter()
            .filter(is_input)
            .map(|it| it.file_len)
            .sum();
        Some(Task {
            kind: TaskKind::Collect,
            subject: *inputs.first()?,
            urgency,
            cost_bytes: 2 * bytes,
        })
    }

    fn next(&self, store: &Store, version: &Version, now: Timestamp) -> Vec<u64> {
        let policy = &store.settings.journal_policy;
        let headroom = store.intake.headroom();
        if !policy.hours.contain(now) && !headroom.is_exhausted() {
            return Vec::new();
        }
        // While tables are rebuilt from the journal, its files stay.
        if version.journal.is_empty() || lost_tables(store, version).next().is_some() {
            return Vec::new();
        }
        let used = version.segment_use();
        let facts = |it: &Arc<JournalFile>| JournalFacts {
            number: it.number,
            file_len: it.file_len,
            logged_bytes: it.logged_bytes,
            live_bytes: it.segments.iter().filter_map(|it| used.get(it)).sum(),
        };
        let is_readable =
            |it: &&Arc<JournalFile>| it.table.is_some() && !self.given_up.contains(&it.number);
        let has_room = |it: &JournalFacts| {
            !headroom.is_scarce() || it.live_bytes.min(it.logged_bytes) <= headroom.available
        };
        let files = version.journal.iter().filter(is_readable).map(facts);
        let files: Vec<JournalFacts> = files.filter(has_room).collect();
        policy.pick(&files, garbage_percent_where_scarce(&headroom))
    }

    /// True when the subject is a journal file, or identifies the collection in progress.
    pub(crate) fn is_for(&self, version: &Version, subject: u64) -> bool {
        let is_running = self
            .job
            .as_ref()
            .is_some_and(|it| it.inputs.first() == Some(&subject));
        is_running || version.journal.iter().any(|it| it.number == subject)
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        subject: u64,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if self.job.is_none() {
            let version = store.version.load_full();
            let inputs = self.next(store, &version, now);
            if inputs.first() != Some(&subject) {
                return Ok(StepOutcome::nothing_left());
            }
            self.job = Some(Job::start(store, &version, inputs));
        }
        let Some(job) = self
            .job
            .as_mut()
            .filter(|it| it.inputs.first() == Some(&subject))
        else {
            return Ok(StepOutcome::nothing_left());
        };
        let stepped = job.step(store, budget_bytes);
        let (cost_bytes, is_done) = match stepped {
            Ok(stepped) => stepped,
            Err(error) => {
                self.abandon(store);
                if self.unreadable.failed(subject, &error) {
                    self.given_up.push(subject);
                }
                return Err(error);
            }
        };
        if is_done && let Some(job) = self.job.take() {
            exchange_journal(store, job.written, &job.inputs)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Abandons the collection; its files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        if let Some(job) = self.job.take() {
            store.remove_files(job.output_paths(store));
        }
    }
}

impl Job {
    fn start(store: &Store, version: &Version, inputs: Vec<u64>) -> Self {
        let options = ScanOptions {
            read_ahead_bytes: READ_AHEAD_BYTES,
            ..ScanOptions::default()
        };
        let is_input = |it: &&Arc<JournalFile>| inputs.contains(&it.number);
        let tables = version.journal.iter().filter(is_input);
        let tables = tables.filter_map(|it| it.table.clone());
        let scans = tables.map(|it| TableScan::new(it, options.clone()));
        Self {
            scans: scans.collect(),
            inputs,
            is_started: false,
            // Everything up to this sequence is in tables.
            clean_to: store.manifest.lock().sequence,
            writer: None,
            written: Vec::new(),
        }
    }

    fn output_paths(&self, store: &Store) -> Vec<PathBuf> {
        let writing = self.writer.as_ref().map(JournalWriter::number);
        let written = self.written.iter().map(WrittenJournal::number);
        let numbers = written.chain(writing);
        numbers
            .map(|it| journal_path(&store.directory, it))
            .collect()
    }

    /// Reads and copies records until this many bytes were read and written.
    fn step(&mut self, store: &Store, budget_bytes: u64) -> Result<(u64, bool)> {
        if !self.is_started {
            self.is_started = true;
            for at in (0..self.scans.len()).rev() {
                self.advance(store, at)?;
            }
        }
        let mut cost_bytes = 0;
        while cost_bytes < budget_bytes.max(1) {
            let names = self.scans.iter().map(TableScan::key).enumerate();
            let Some((at, _)) = names.min_by_key(|(_, name)| *name) else {
                self.finish_output(store)?;
                return Ok((cost_bytes.max(1), true));
            };
            cost_bytes += self.take(store, at)?;
            self.advance(store, at)?;
        }
        Ok((cost_bytes, false))
    }

    /// Moves a scan to its next readable record; a scan at its end is removed. The contents of a
    /// damaged block are lost, and reported.
    fn advance(&mut self, store: &Store, at: usize) -> Result<()> {
        let context = ReadContext {
            sink: &store.read_side.journal,
            ..store.read_side.for_folds()
        };
        loop {
            match self.scans[at].advance(&context).into_backend()? {
                ScanItem::Entry => return Ok(()),
                ScanItem::Gap(_) => {}
                ScanItem::End => {
                    self.scans.remove(at);
                    return Ok(());
                }
            }
        }
    }

    /// Copies the record at a scan's position if it is needed, and returns the cost.
    fn take(&mut self, store: &Store, at: usize) -> Result<u64> {
        let (name, bytes) = (self.scans[at].key().to_vec(), self.scans[at].value_bytes());
        let cost = (name.len() + bytes.len()) as u64;
        let record = JournalRecord::decode(&bytes).ok();
        let Some((record, place)) = record.zip(place_named(&name)) else {
            return Ok(cost);
        };
        let version = store.version.load();
        let context = store.read_side.at(Reading::MayBlock);
        let is_needed = match newest_in_tables(&version, &record.key, &context) {
            Ok(newest) => newest.is_some_and(|it| it.is_record(record.sequence, place)),
            // The record stays if its use is unknown, and the new file is no cleaner than the old
            // one.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.clean_to = 0;
                true
            }
            Err(error) => return Err(error),
        };
        if !is_needed {
            return Ok(cost);
        }
        if self
            .writer
            .as_ref()
            .is_some_and(|it| it.len() >= JOURNAL_FILE_BYTES_MAX)
        {
            self.finish_output(store)?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(written_journal::begin(store, 0)?),
        };
        writer.add_encoded(&name, &bytes, record.logged_bytes)?;
        Ok(2 * cost)
    }

    fn finish_output(&mut self, store: &Store) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.set_clean_to(self.clean_to);
            self.written.push(written_journal::finish(store, writer)?);
        }
        Ok(())
    }
}
