//! Opening a store: the manifest lists its files, and the logs have the contents of memory.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kvorum_backend::{
    BackendError, ErrorKind, GroupSync, Intake, LostRange, Result, SUSPECT_NAME, mark_suspect,
    set_copy_aside,
};
use kvorum_disk::{Disk, DiskLock, EntryKind};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, Doubts};
use kvorum_segment::{
    Compression, Compressor, FILE_HEADER_BYTES, ResumeAt, ScanEnd, ScanOptions, Scanned,
    SegmentError, SegmentReader, SegmentWriter, StoredRecord, Tail, parse_file_name,
};
use kvorum_storage_errors::{IntoBackend, from_segment};
use kvorum_tiers::SlowSide;
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::expiry::Expiry;
use crate::files;
use crate::files::sync_directory;
use crate::log::{self, log_id, log_path};
use crate::log_backlog::LogBacklog;
use crate::logged::segment_of;
use crate::lost::LostLog;
use crate::manifest::{self, Manifest};
use crate::memtable::Memtable;
use crate::pins::Pins;
use crate::policy::Layout;
use crate::read_side::ReadSide;
use crate::replaced::Replaced;
use crate::store::{Store, WriteSide};
use crate::{CompressionPoint, DrawNumber, LsmSettings, Shared};

/// The state of an opening.
pub(crate) struct Recovery {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) slow: Option<SlowSide>,
    pub(crate) directory: PathBuf,
    /// The value log, for a store over it.
    pub(crate) log: Option<ValueLog>,
    pub(crate) settings: LsmSettings,
    pub(crate) shared: Shared,
    pub(crate) draw: DrawNumber,
    pub(crate) lost: Arc<LostLog>,
    pub(crate) doubts: Arc<Doubts>,
}

/// A log segment while it is being read.
struct FoundLog {
    number: u64,
    records: Vec<StoredRecord>,
    end: ScanEnd,
    is_sealed: bool,
    /// All of its records were certainly durable.
    is_proven: bool,
    /// Batches are missing that were durable.
    has_damage: bool,
}

/// The contents of the logs.
struct Replayed {
    memtable: Memtable,
    writer: Option<SegmentWriter>,
    unsynced: Vec<(u64, kvorum_segment::SegmentSync)>,
    last_sequence: u64,
    torn_bytes: u64,
}

impl Recovery {
    pub(crate) fn run(self, lock: Box<dyn DiskLock>) -> Result<Arc<Store>> {
        let (mut manifest, was_damaged) = self.read_manifest()?;
        self.check_kind(&manifest)?;
        self.settle_log_id(&mut manifest)?;
        if let Some(level) = manifest.overlapping_level() {
            let directory = self.directory.display();
            let detail = format!(
                "tables of level {level} in {directory} overlap: kvorum repair repairs \
                 that"
            );
            return Err(BackendError::new(ErrorKind::Corrupt, detail));
        }
        // The manifest that was read may not be durable yet, and unlisted files are removed next.
        sync_directory(&*self.disk, &self.directory)?;
        let next_number = self.tidy(&manifest, was_damaged)?;
        self.doubts.restore(&manifest.doubts);
        let cache = self.shared.cache.clone();
        let read_side = ReadSide::new(cache, self.lost.clone(), self.doubts.clone());
        let mut version = self.open_files(&manifest, &read_side)?;
        let replayed = self.replay(&manifest)?;
        self.shared.memory.add(replayed.memtable.held_bytes());
        version.memtable = Arc::new(replayed.memtable);
        let sequence = replayed.last_sequence;
        let store = Arc::new_cyclic(|this| {
            let sync = GroupSync::of_store(this.clone(), Store::sync_all);
            let group = GroupSync::retrying_when_full(sync);
            Store {
                expiry: Expiry::of(&self.settings),
                read_side,
                writer: Mutex::new(WriteSide {
                    // A store over the value log puts nothing to its own log any more.
                    log: replayed.writer.filter(|_| self.log.is_none()),
                    unsynced: replayed.unsynced,
                    last_sequence: sequence,
                    uncovered: LogBacklog::default(),
                    settled: BTreeSet::new(),
                }),
                version: ArcSwap::from_pointee(version),
                version_changes: AtomicU64::new(0),
                replaced: Replaced::default(),
                pins: Pins::default(),
                group,
                counted: Mutex::default(),
                counters: crate::store::Counters {
                    torn_bytes: AtomicU64::new(replayed.torn_bytes),
                    ..Default::default()
                },
                identity: AtomicU64::new(manifest.identity),
                next_number: AtomicU64::new(next_number),
                visible: AtomicU64::new(sequence),
                durable: AtomicU64::new(sequence),
                has_extras: AtomicBool::new(manifest.has_extras),
                manifest: Mutex::new(manifest),
                intake: Intake::new(
                    self.disk.clone(),
                    self.directory.clone(),
                    self.log.as_ref().map(|it| it.reserve().clone()),
                ),
                replays: OnceLock::new(),
                holds: Holds::default(),
                compressor: Compressor::new(self.settings.log_compression()),
                journal_compressor: Compressor::new(match self.settings.compression_point {
                    CompressionPoint::OnReceipt => Compression::None,
                    CompressionPoint::OnCompact => self.settings.blob_compression,
                }),
                log: self.log,
                lock: Mutex::new(Some(lock)),
                disk: self.disk,
                slow: self.slow,
                directory: self.directory,
                settings: self.settings,
                shared: self.shared,
                draw: self.draw,
            }
        });
        Ok(store)
    }

    pub(crate) fn note(&self, file: String, offset: u64, len: u64, held: impl Into<String>) {
        self.lost.note(LostRange {
            file,
            offset,
            len,
            held: held.into(),
        });
    }

    /// Notes a loss of writes with unknown keys.
    fn note_writes(&self, file: String, offset: u64, len: u64, held: impl Into<String>) {
        self.note(file, offset, len, held);
        self.doubts.open(DoubtKind::Lost, KeyRange::everything());
    }

    /// Checks that the value log is the one with the entries' bodies. The store notes a log with
    /// the first tables that refer to it; until then the log may not outlive a crash.
    fn settle_log_id(&self, manifest: &mut Manifest) -> Result<()> {
        let known = manifest.value_log;
        // A rebuilt manifest lacks the identity of its tables' log.
        let speaks_of_log = known != 0 || names_segments(manifest);
        let Some(log) = &self.log else {
            if !speaks_of_log {
                return Ok(());
            }
            let path = self.directory.display();
            let detail = format!("{path} has bodies in a value log, and was opened without it");
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        };
        if known != 0 && known != log.log_id() {
            let held = format!(
                "bodies in the value log {known:016x}, which is missing; there is another \
                 one"
            );
            self.note(format!("value_log/{known:016x}"), 0, 0, held);
        }
        if speaks_of_log {
            // Missing bodies are reported once. Tables still name the segments: a read fails if it
            // finds another record there.
            manifest.value_log = log.log_id();
        }
        Ok(())
    }

    /// A store keeps a journal from its first entry on, or never: half a journal would be useless.
    /// The meaning of its levels is fixed as well.
    fn check_kind(&self, manifest: &Manifest) -> Result<()> {
        let wants_journal = self.settings.journaled.is_some();
        let directory = self.directory.display();
        let refuse = |detail: String| Err(BackendError::new(ErrorKind::Misuse, detail));
        if wants_journal && (self.log.is_none() || self.slow.is_some()) {
            return refuse(format!(
                "{directory} keeps a journal, which needs a value log and one directory"
            ));
        }
        let wanted = (wants_journal, self.settings.compaction.layout());
        let there = (manifest.has_journal, manifest.layout);
        if there == wanted {
            return Ok(());
        }
        let kind = match there {
            (true, _) => "with a journal, of the engine leveled",
            (false, Layout::Doubling) => "with doubling levels, of the engine hanoidb",
            (false, Layout::Multiples) => "without a journal, of the engine leveldb",
        };
        let name = self.settings.name;
        refuse(format!(
            "{directory} has a store {kind}, and was opened as {name}"
        ))
    }

    /// The manifest, and true when one of its copies was unusable.
    fn read_manifest(&self) -> Result<(Manifest, bool)> {
        let belonging = &self.settings.belonging;
        let found = manifest::read(&*self.disk, &self.directory, belonging)?;
        let Some(mut manifest) = found.content else {
            let refusal = match found.foreign.is_empty() {
                true => found.refusal.as_deref().map(manifest::unless_repaired),
                false => found.refusal,
            };
            return Ok((self.first_manifest(refusal)?, false));
        };
        let was_damaged = !found.damaged.is_empty() || !found.foreign.is_empty();
        for name in found.damaged {
            let path = self.directory.join(name);
            let len = self.disk.info(&path).into_backend()?.map_or(0, |it| it.len);
            let held = "one of two copies of the manifest; nothing is lost";
            self.note(name.to_owned(), 0, len, held);
        }
        for foreign in found.foreign {
            set_copy_aside(&*self.disk, &self.directory, foreign.name)?;
            let held = format!(
                "a copy of the manifest that belongs to {} and was set aside; nothing is lost",
                foreign.of
            );
            self.note(foreign.name.to_owned(), 0, 0, held);
        }
        let is_unbound = manifest.label != belonging.label && !belonging.label.is_empty();
        if is_unbound {
            manifest.label.clone_from(&belonging.label);
        }
        if found.is_uneven || is_unbound {
            manifest.generation += 1;
            manifest::settle(&*self.disk, &self.directory, &manifest)?;
        }
        Ok((manifest, was_damaged))
    }

    /// The manifest of a new store; `refusal` is the reason why no existing copy is valid.
    fn first_manifest(&self, refusal: Option<String>) -> Result<Manifest> {
        let data = manifest::name_of_data(&*self.disk, &self.directory)?;
        let refusal = match (refusal, data) {
            (Some(refusal), _) => Some(refusal),
            (None, Some(name)) => Some(manifest::without_copies(&self.directory, &name)),
            (None, None) => None,
        };
        if let Some(refusal) = refusal {
            return Err(BackendError::new(ErrorKind::Corrupt, refusal));
        }
        let manifest = Manifest {
            generation: 1,
            identity: (self.draw)(),
            next_number: 1,
            has_journal: self.settings.journaled.is_some(),
            layout: self.settings.compaction.layout(),
            label: self.settings.belonging.label.clone(),
            ..Manifest::default()
        };
        manifest::write(&*self.disk, &self.directory, &manifest).both()?;
        Ok(manifest)
    }

    /// Removes files that the manifest does not list, and returns a number above all existing ones.
    /// If one copy of the manifest was damaged, the other may be older by a change, and unlisted
    /// files stay.
    fn tidy(&self, manifest: &Manifest, was_damaged: bool) -> Result<u64> {
        let mut next = manifest.next_number;
        for entry in self.disk.list(&self.directory).into_backend()? {
            if entry.kind != EntryKind::File {
                continue;
            }
            let path = self.directory.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                self.disk.remove_file(&path).into_backend()?;
                continue;
            }
            let Some((number, suffix)) = files::number_of(&entry.name) else {
                continue;
            };
            next = next.max(number + 1);
            let is_used = match suffix {
                "sst" => manifest.tables.iter().any(|it| it.number == number),
                "blob" => manifest.blobs.iter().any(|it| it.number == number),
                "journal" => manifest.journal.iter().any(|it| it.number == number),
                _ => number >= manifest.first_log,
            };
            if is_used || was_damaged {
                continue;
            }
            match manifest::store_of_file(&*self.disk, &self.directory, &entry.name)? {
                // The file may be the only copy of another store's data, so it stays.
                Some(store) if store != manifest.identity && store != manifest.erased => {
                    let held = format!("a file of another store ({store:#018x}), which stays");
                    self.note(entry.name, 0, 0, held);
                }
                _ => self.disk.remove_file(&path).into_backend()?,
            }
        }
        Ok(next)
    }

    fn replay(&self, manifest: &Manifest) -> Result<Replayed> {
        let mut logs = self.read_logs(manifest)?;
        self.cut_behind_gap(manifest, &mut logs)?;
        let suspect = self.directory.join(SUSPECT_NAME);
        let is_suspect = self.disk.info(&suspect).into_backend()?.is_some();
        let first_log = logs.first().map_or(manifest.first_log, |it| it.number);
        let mut replayed = Replayed {
            memtable: Memtable::new(first_log, self.settings.memtable_bytes),
            writer: None,
            unsynced: Vec::new(),
            last_sequence: manifest.sequence,
            torn_bytes: 0,
        };
        for found in logs {
            self.apply(&found, manifest, &mut replayed)?;
            if let Tail::Torn { len } = found.end.tail {
                replayed.torn_bytes += len;
            }
            if found.is_sealed {
                continue;
            }
            let rewrite_from = is_suspect.then_some(FILE_HEADER_BYTES);
            let writer = self
                .resume(manifest, &found, rewrite_from)
                // An earlier run may not have synced the pages that the page cache returns.
                .inspect_err(|_| mark_suspect(&*self.disk, &self.directory))?;
            replayed.unsynced.push((found.number, writer.sync_handle()));
            replayed.writer = Some(writer);
        }
        if is_suspect {
            self.disk.remove_file(&suspect).into_backend()?;
        }
        Ok(replayed)
    }

    /// Reads the logs from the newest to the oldest: proof that a newer log was synced proves the
    /// same of older logs. Returns the logs oldest first.
    fn read_logs(&self, manifest: &Manifest) -> Result<Vec<FoundLog>> {
        let entries = self.disk.list(&self.directory).into_backend()?;
        let numbers = entries.iter().filter_map(|it| parse_file_name(&it.name));
        let mut numbers: Vec<u64> = numbers.filter(|it| *it >= manifest.first_log).collect();
        numbers.sort_unstable();
        let mut logs = Vec::new();
        let mut is_proven = false;
        for number in numbers.into_iter().rev() {
            let Some(found) = self.read_log(manifest, number, is_proven)? else {
                continue;
            };
            is_proven |= found.is_proven || found.end.durable_to > FILE_HEADER_BYTES;
            logs.push(found);
        }
        logs.reverse();
        Ok(logs)
    }

    fn read_log(
        &self,
        manifest: &Manifest,
        number: u64,
        is_later_proven: bool,
    ) -> Result<Option<FoundLog>> {
        let path = log_path(&self.directory, number);
        let name = kvorum_segment::file_name(number);
        let id = log_id(manifest.identity, number);
        let reader = SegmentReader::open(&*self.disk, &path, id).into_backend()?;
        let has_header = match reader.check_header() {
            Ok(_) => true,
            Err(SegmentError::Damaged { .. }) => false,
            Err(SegmentError::Foreign { got_log, .. }) => {
                if got_log == manifest.erased {
                    self.disk.remove_file(&path).into_backend()?;
                } else {
                    let len = reader.file_len().into_backend()?;
                    self.note_writes(name, 0, len, "a log of another store");
                }
                return Ok(None);
            }
            Err(error) => return Err(from_segment(&error)),
        };
        let options = ScanOptions::durable_to(if is_later_proven { u64::MAX } else { 0 });
        let mut scan = reader.scan(options).into_backend()?;
        let is_sealed = scan.seal().is_some();
        let mut records = Vec::new();
        let mut has_damage = false;
        for scanned in scan.by_ref() {
            match scanned.into_backend()? {
                Scanned::Record(record) => records.push(record),
                Scanned::Damage(damage) => {
                    has_damage = true;
                    let held = format!("writes that were not in a table yet ({})", damage.found);
                    self.note_writes(name.clone(), damage.offset, damage.len, held);
                }
            }
        }
        let end = scan.end().unwrap_or(ScanEnd {
            clean_to: FILE_HEADER_BYTES,
            tail: Tail::Open,
            durable_to: 0,
        });
        if !has_header && records.is_empty() && !is_sealed {
            // Its creation was cut short.
            self.disk.remove_file(&path).into_backend()?;
            return Ok(None);
        }
        if !has_header {
            self.note(name, 0, FILE_HEADER_BYTES, "the header of the file");
        }
        Ok(Some(FoundLog {
            number,
            records,
            end,
            is_sealed,
            is_proven: is_later_proven || is_sealed,
            has_damage,
        }))
    }

    /// Cuts logs behind a gap. Unsealed logs may end anywhere after a crash. If a batch is missing
    /// between two logs, the later logs were not durable either: the store then has every batch up
    /// to the gap, and none behind it.
    fn cut_behind_gap(&self, manifest: &Manifest, logs: &mut Vec<FoundLog>) -> Result<()> {
        let mut last = manifest.sequence;
        let mut cut_from = None;
        let mut is_gap_possible = true;
        for (at, found) in logs.iter().enumerate() {
            let mut sequences = found.records.iter().map(|it| it.head.sequence);
            let first = sequences.next();
            let is_gap = first.is_some_and(|first| first > last + 1);
            let is_damaged = logs[..=at].iter().any(|it| it.has_damage);
            if is_gap_possible && is_gap && !found.is_proven && !is_damaged {
                cut_from = Some(at);
                break;
            }
            last = sequences.chain(first).fold(last, u64::max);
            is_gap_possible = !found.is_proven;
        }
        for found in logs.drain(cut_from.unwrap_or(logs.len())..) {
            let path = log_path(&self.directory, found.number);
            self.disk.remove_file(&path).into_backend()?;
            sync_directory(&*self.disk, &self.directory)?;
        }
        Ok(())
    }

    fn apply(&self, found: &FoundLog, manifest: &Manifest, replayed: &mut Replayed) -> Result<()> {
        for record in &found.records {
            let sequence = record.head.sequence;
            if sequence <= manifest.sequence {
                continue;
            }
            replayed.last_sequence = replayed.last_sequence.max(sequence);
            match log::decode(record) {
                Ok(None) => {}
                Ok(Some(op)) => {
                    let _bytes = replayed.memtable.apply(&op, sequence);
                }
                Err(error) => {
                    let name = kvorum_segment::file_name(found.number);
                    let at = record.head.location;
                    let held =
                        format!("a write with a good checksum that does not decode: {error}");
                    self.note_writes(name, at.offset, at.len, held);
                }
            }
        }
        Ok(())
    }

    fn resume(
        &self,
        manifest: &Manifest,
        found: &FoundLog,
        rewrite_from: Option<u64>,
    ) -> Result<SegmentWriter> {
        let sequences = || found.records.iter().map(|it| it.head.sequence);
        let at = ResumeAt {
            end: found.end.clean_to,
            records: found.records.len() as u64,
            sequence_min: sequences().min().unwrap_or(0),
            sequence_max: sequences().max().unwrap_or(0),
        };
        let id = log_id(manifest.identity, found.number);
        let path = log_path(&self.directory, found.number);
        SegmentWriter::resume(&*self.disk, &path, id, at, rewrite_from).into_backend()
    }
}

fn names_segments(manifest: &Manifest) -> bool {
    let mut uses = manifest.tables.iter().flat_map(|it| &it.properties.blobs);
    uses.any(|it| segment_of(it.file).is_some())
}
