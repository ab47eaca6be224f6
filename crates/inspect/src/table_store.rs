//! The complete check of a store of an engine over merge trees. The store is not opened: nothing is
//! written, repaired or set aside.
//!
//! Every checksum of every file is computed; then every table is walked, and its contents are
//! compared with the manifest, and with the blob files and the segments of the value log that its
//! entries name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend_bitcask::check::{Checked, Finding};
use kvorum_disk::{Disk, ErrorKind};
use kvorum_index_entries::keyspace::key_shown;
use kvorum_lsm::segment_of;
use kvorum_lsm_repair::check::{
    Contents, ListedFile, ListedKind, contents, entry_summary, is_journal_record,
};
use kvorum_sst::{
    Gap, IgnoreDamage, ReadContext, ScanItem, ScanOptions, SstError, Table, TableScan,
};
use kvorum_tiers::{CARD_OF_FAST, is_table_name, whole_disk};

use crate::kind::{Kind, REPAIR_PROGRESS, open_pieces, recognise};
use crate::value_logs::Found;
use crate::{InspectError, Result, segment_directory, value_logs};

/// Checks a store except for its tables and blob files; with `is_live`, only its finished files.
/// One of the value logs may have the store's bodies.
pub(crate) fn check(
    node_disk: &dyn Disk,
    directory: &Path,
    value_logs: &BTreeSet<PathBuf>,
    is_live: bool,
    progress: &dyn Fn(u64),
) -> Result<Checked> {
    let disk = whole_disk(node_disk, directory)?;
    let disk: &dyn Disk = &disk;
    let mut check = Check {
        disk,
        directory,
        progress,
        found: Checked::default(),
    };
    let contents = contents(disk, directory)?;
    check.small_files(&contents)?;
    check.is_each_listed_once(&contents, is_live)?;
    if contents.has_manifest {
        let used = used_by_entries(&contents);
        check.blobs_are_there(&contents, &used);
        check.segments_are_there(&contents, &used, node_disk, value_logs)?;
    } else {
        let why = contents.refusal.as_deref().unwrap_or("none is there");
        let what =
            format!("no copy of the manifest counts ({why}): `kvorum repair` makes a new one");
        check.found.find("manifest-0", 0, 0, what);
    }
    let logs = segment_directory::check(disk, directory, is_live, progress)?;
    check.found.add(logs, "");
    Ok(check.found)
}

/// Checks a table or a blob file that the manifest lists.
pub(crate) fn check_file(
    disk: &dyn Disk,
    directory: &Path,
    file: &ListedFile,
    is_live: bool,
    progress: &dyn Fn(u64),
) -> Result<Checked> {
    let disk = whole_disk(disk, directory)?;
    let mut check = Check {
        disk: &disk,
        directory,
        progress,
        found: Checked::default(),
    };
    check.table(file, is_live)?;
    Ok(check.found)
}

/// Bytes that entries use, by blob file. Segments of the value log count as blob files.
type Used = BTreeMap<u64, u64>;

/// The bytes that all tables use, as the manifest records them.
fn used_by_entries(contents: &Contents) -> Used {
    let files = contents.files.iter();
    let mut used = Used::new();
    for blob in files.flat_map(|it| &it.known.properties.blobs) {
        *used.entry(blob.file).or_default() += blob.bytes;
    }
    used
}

struct Check<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    progress: &'a dyn Fn(u64),
    found: Checked,
}

impl Check<'_> {
    /// The copies of the manifest, and all files that are neither a table nor a log.
    fn small_files(&mut self, contents: &Contents) -> Result<()> {
        for entry in self.disk.list(self.directory)? {
            let path = self.directory.join(&entry.name);
            if is_table_name(&entry.name) || entry.kind != kvorum_disk::EntryKind::File {
                continue;
            }
            match recognise(self.disk, &path) {
                Ok(Kind::Lsm(_)) => self.pieces(&entry.name)?,
                Ok(_) | Err(InspectError::Unknown { .. } | InspectError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for foreign in &contents.foreign_manifests {
            let what = format!("the copy belongs to {}", foreign.of);
            self.found.find(foreign.name, 0, 0, what);
        }
        for name in &contents.missing_manifests {
            self.found.find(name, 0, 0, "the copy is missing");
        }
        let is_sound = contents.damaged_manifests.is_empty()
            && contents.foreign_manifests.is_empty()
            && contents.missing_manifests.is_empty();
        if contents.is_uneven && is_sound {
            let note = "one copy of the manifest is older; the next opening writes it again";
            self.found.notes.push(note.to_owned());
        }
        if self
            .disk
            .info(&self.directory.join(REPAIR_PROGRESS))?
            .is_some()
        {
            let note = "a repair was begun and not finished; `kvorum repair` goes on with it";
            self.found.notes.push(note.to_owned());
        }
        if !contents.lost.is_empty() {
            let count = contents.lost.len();
            let note = format!("lost/BLOCKS.bad lists {count} ranges that were lost before");
            self.found.notes.push(note);
        }
        if self
            .disk
            .info(&self.directory.join(CARD_OF_FAST))?
            .is_some()
        {
            self.pieces(CARD_OF_FAST)?;
        }
        if self.disk.info(&self.lost_index())?.is_some() {
            self.pieces("lost/BLOCKS.bad")?;
        }
        Ok(())
    }

    fn lost_index(&self) -> std::path::PathBuf {
        self.directory.join("lost/BLOCKS.bad")
    }

    /// Computes all checksums of a file.
    fn pieces(&mut self, name: &str) -> Result<()> {
        let path = self.directory.join(name);
        let kind = recognise(self.disk, &path)?;
        for piece in open_pieces(self.disk, &path, kind, 0)? {
            self.found.find_in(name, &piece?);
        }
        let len = self.disk.info(&path)?.map_or(0, |info| info.len);
        self.found.files += 1;
        self.found.bytes += len;
        (self.progress)(len);
        Ok(())
    }

    /// Tables that no manifest lists are removed by the next opening.
    fn is_each_listed_once(&mut self, contents: &Contents, is_live: bool) -> Result<()> {
        let mut listed = BTreeSet::new();
        for file in &contents.files {
            if !listed.insert(&file.name[..]) {
                let what = "the manifest lists the file twice";
                self.found.find(&file.name, 0, 0, what);
            }
        }
        for entry in self.disk.list(self.directory)? {
            if is_table_name(&entry.name) && !listed.contains(&entry.name[..]) && !is_live {
                let note = format!("{} is in no manifest that can be read", entry.name);
                self.found.notes.push(note);
            }
        }
        Ok(())
    }

    fn table(&mut self, file: &ListedFile, is_live: bool) -> Result<()> {
        let path = self.directory.join(&file.name);
        let Some(info) = self.disk.info(&path)? else {
            if is_live {
                let note = format!("{} was removed while the store was checked", file.name);
                self.found.notes.push(note);
            } else if file.known.file_len == 0 {
                let note = "the next opening rebuilds the ledger from the journal";
                self.found.notes.push(note.to_owned());
            } else {
                self.missing(file);
            }
            return Ok(());
        };
        if info.len != file.known.file_len {
            let (got, expected) = (info.len, file.known.file_len);
            let what = format!("the file has {got} bytes, expected {expected}");
            self.found
                .find(&file.name, got.min(expected), got.abs_diff(expected), what);
        }
        self.pieces(&file.name)?;
        let known = file.known.clone();
        match Table::open(self.disk, &path, known, 0, &IgnoreDamage) {
            Ok(table) => {
                let table = Arc::new(table);
                match file.kind {
                    ListedKind::Table => self.walk_entries(file, table),
                    ListedKind::Blob(_) => self.walk_records(file, table, |_, _| true),
                    ListedKind::Journal => self.walk_records(file, table, is_journal_record),
                }
            }
            Err(SstError::Disk(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(SstError::Disk(error)) => Err(error.into()),
            Err(error) => {
                self.found.find(&file.name, 0, 0, error.to_string());
                Ok(())
            }
        }
    }

    fn missing(&mut self, file: &ListedFile) {
        let properties = &file.known.properties;
        let mut finding = Finding {
            file: file.name.clone(),
            offset: 0,
            len: file.known.file_len,
            what: "the file is missing".to_owned(),
            keys: Vec::new(),
        };
        if file.kind == ListedKind::Table {
            finding.what = format!("the table is missing, with {} entries", properties.entries);
            finding.keys = vec![range_shown(&properties.smallest, &properties.largest)];
        }
        self.found.findings.push(finding);
    }

    /// Walks a table, and compares it with the manifest.
    fn walk_entries(&mut self, file: &ListedFile, table: Arc<Table>) -> Result<()> {
        let properties = &file.known.properties;
        let (mut entries, mut own) = (0, Used::new());
        let gaps = self.walk(table, |name, value, found| {
            entries += 1;
            match entry_summary(value) {
                Some(summary) => {
                    if let Some((file, bytes)) = summary.blob {
                        *own.entry(file).or_default() += bytes;
                    }
                }
                None => found
                    .findings
                    .push(not_understood(file, vec![key_shown(name)])),
            }
        })?;
        self.found.records += entries;
        if gaps.is_empty() && entries != properties.entries {
            let expected = properties.entries;
            let what = format!("{entries} entries, where the manifest has {expected}");
            self.found.find(&file.name, 0, 0, what);
        }
        let listed: Used = properties
            .blobs
            .iter()
            .map(|it| (it.file, it.bytes))
            .collect();
        if gaps.is_empty() && own != listed {
            let what = "its entries use other bodies than those of the manifest";
            self.found.find(&file.name, 0, 0, what);
        }
        self.name_gaps(file, gaps);
        Ok(())
    }

    /// Walks a blob file or a file of the journal.
    fn walk_records(
        &mut self,
        file: &ListedFile,
        table: Arc<Table>,
        is_understood: impl Fn(&[u8], &bytes::Bytes) -> bool,
    ) -> Result<()> {
        let mut records = 0;
        let gaps = self.walk(table, |name, value, found| {
            records += 1;
            if !is_understood(name, value) {
                found.findings.push(not_understood(file, Vec::new()));
            }
        })?;
        self.found.records += records;
        self.name_gaps(file, gaps);
        Ok(())
    }

    fn walk(
        &mut self,
        table: Arc<Table>,
        mut each: impl FnMut(&[u8], &bytes::Bytes, &mut Checked),
    ) -> Result<Vec<Gap>> {
        let context = ReadContext {
            fills_cache: false,
            ..ReadContext::default()
        };
        let path = table.path().to_owned();
        let mut scan = TableScan::new(table, ScanOptions::default());
        let mut gaps = Vec::new();
        loop {
            match scan.advance(&context) {
                Ok(ScanItem::Entry) => each(scan.key(), &scan.value_bytes(), &mut self.found),
                Ok(ScanItem::Gap(gap)) => gaps.push(gap),
                Ok(ScanItem::End) => return Ok(gaps),
                Err(SstError::Disk(error)) => return Err(error.into()),
                Err(error) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    self.found.find(&name, 0, 0, error.to_string());
                    return Ok(gaps);
                }
            }
        }
    }

    /// Adds the keys of damaged blocks. The wrong checksums are findings already.
    fn name_gaps(&mut self, file: &ListedFile, gaps: Vec<Gap>) {
        for gap in gaps {
            let keys = match file.kind {
                ListedKind::Table => vec![range_shown(&gap.from, &gap.to)],
                ListedKind::Blob(_) | ListedKind::Journal => Vec::new(),
            };
            let is_it = |it: &&mut Finding| it.file == file.name && it.offset == gap.block.offset;
            match self.found.findings.iter_mut().find(is_it) {
                Some(finding) => finding.keys = keys,
                None => self.found.findings.push(Finding {
                    file: file.name.clone(),
                    offset: gap.block.offset,
                    len: u64::from(gap.block.len),
                    what: "a block that cannot be read".to_owned(),
                    keys,
                }),
            }
        }
    }

    fn blobs_are_there(&mut self, contents: &Contents, used: &Used) {
        let files = contents.files.iter();
        let blob_file = |it: &ListedFile| match it.kind {
            ListedKind::Blob(file) => Some(file),
            ListedKind::Table | ListedKind::Journal => None,
        };
        let there: BTreeSet<u64> = files.filter_map(blob_file).collect();
        for (blob, bytes) in used {
            if segment_of(*blob).is_none() && !there.contains(blob) {
                let what = format!("no blob file {blob}, of which entries use {bytes} bytes");
                self.found.find("manifest-0", 0, 0, what);
            }
        }
    }

    /// Compares the entries' use of the value log with the log.
    fn segments_are_there(
        &mut self,
        contents: &Contents,
        used: &Used,
        node_disk: &dyn Disk,
        value_logs: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let segments = used.iter();
        let segments = segments.filter_map(|(file, bytes)| Some((segment_of(*file)?, *bytes)));
        // Records of dropped segments are in files of the journal.
        let segments = segments.filter(|(it, _)| !contents.journal_segments.contains(it));
        let segments: BTreeMap<u32, u64> = segments.collect();
        let log_id = contents.value_log;
        if segments.is_empty() {
            return Ok(());
        }
        let log = match value_logs::find(node_disk, value_logs, log_id)? {
            Found::Here(_, log) => log,
            found => {
                let bytes: u64 = segments.values().sum();
                let used = format!("entries use {bytes} bytes of the value log {log_id:#018x}");
                if matches!(found, Found::NotChecked) {
                    let note = format!("{used}, which was not among the checked files");
                    self.found.notes.push(note);
                } else {
                    let what = format!("{used}, and the one here is another");
                    self.found.find("manifest-0", 0, 0, what);
                }
                return Ok(());
            }
        };
        for (segment, bytes) in segments {
            if !log.is_accounted_for(segment) {
                let what = format!(
                    "segment {segment} of the value log is not there, of which entries use {bytes} bytes"
                );
                self.found.find("manifest-0", 0, 0, what);
            }
        }
        Ok(())
    }
}

fn not_understood(file: &ListedFile, keys: Vec<String>) -> Finding {
    Finding {
        file: file.name.clone(),
        offset: 0,
        len: 0,
        what: "an entry with a good checksum that cannot be understood".to_owned(),
        keys,
    }
}

/// The keys from one to another, as text.
fn range_shown(from: &[u8], to: &[u8]) -> String {
    format!("{} up to {}", key_shown(from), key_shown(to))
}
