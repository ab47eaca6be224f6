//! The work of a repair, a pure function of the listing and the findings.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::LostRange;
use kvorum_lsm::lost::shown;
use kvorum_lsm::manifest::{BlobRecord, Manifest, TableRecord};
use kvorum_sst::Properties;

use crate::examine::{Examined, Verdict};
use crate::listing::{FileKind, Listing};
use crate::work::{SourceTable, Unit};

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name.
    pub file: String,
    /// The problem as text.
    pub what: String,
}

/// The necessary work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) problems: Vec<Problem>,
    /// Ranges for the list of losses.
    pub(crate) lost: Vec<LostRange>,
    /// The reason to merge all tables again; `None` if each stays on its level.
    pub(crate) rebuild: Option<String>,
    /// Tables that stay listed, and that the next opening rebuilds from the journal.
    pub(crate) given_up: Vec<u64>,
    /// Units that each rewrite the contents of one file.
    pub(crate) mend: Vec<Unit>,
}

pub(crate) type AllExamined = BTreeMap<(FileKind, u64), Examined>;

impl Decision {
    pub(crate) fn new(listing: &Listing, examined: &AllExamined) -> Self {
        let mut decision = Self::default();
        for name in listing.damaged_manifest_names() {
            decision.problem(name, "a copy of the manifest is damaged");
            // Cut to the file's length later.
            let lost = LostRange::new(name, 0, u64::MAX, "a copy of the manifest");
            decision.lost.push(lost);
        }
        match &listing.manifest {
            Some(manifest) => decision.of_manifest(listing, manifest, examined),
            None => decision.of_files(listing, examined),
        }
        decision
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, file: impl Into<String>, what: impl Into<String>) {
        self.problems.push(Problem {
            file: file.into(),
            what: what.into(),
        });
    }

    fn of_manifest(&mut self, listing: &Listing, manifest: &Manifest, examined: &AllExamined) {
        if listing.is_uneven && listing.damaged_manifests == 0 {
            self.problem("manifest-1", "a copy of the manifest is missing or older");
        }
        if let Some(level) = manifest.overlapping_level() {
            let what = format!("tables of level {level} overlap");
            self.problem("manifest-0", &what);
            self.rebuild = Some(what);
        }
        for record in &manifest.tables {
            let number = record.number;
            if self.is_damaged(listing, examined, FileKind::Table, number, || {
                table_held(record)
            }) && self.rebuild.is_none()
            {
                match manifest.has_journal {
                    true => self.given_up.push(number),
                    false => self.mend.push(Unit::Table(number)),
                }
            }
        }
        for record in &manifest.blobs {
            let number = record.number;
            let held = || "bodies of large entries; their heads are in tables".to_owned();
            if self.is_damaged(listing, examined, FileKind::Blob, number, held) {
                self.mend.push(Unit::Blob(number));
            }
        }
    }

    fn of_files(&mut self, listing: &Listing, examined: &AllExamined) {
        let why = "no copy of the manifest can be read";
        if listing.damaged_manifests == 0 {
            self.problem("manifest-0", why);
        }
        self.rebuild = Some(why.to_owned());
        if listing.of_kind(FileKind::Log).next().is_some() {
            self.mend.push(Unit::Logs);
        }
        for file in &listing.files {
            if matches!(file.kind, FileKind::Log | FileKind::Journal) {
                continue;
            }
            let held = || match file.kind {
                FileKind::Table => "entries".to_owned(),
                _ => "bodies of large entries; their heads are in tables".to_owned(),
            };
            let is_damaged = self.is_damaged(listing, examined, file.kind, file.number, held);
            let found = examined.get(&(file.kind, file.number));
            if is_damaged && file.kind == FileKind::Table {
                self.unknown_of_table(&file.kind.name(file.number), found);
            }
            let is_ours = found.is_some_and(|it| it.verdict != Verdict::Foreign);
            if is_damaged && is_ours && file.kind == FileKind::Blob {
                self.mend.push(Unit::Blob(file.number));
            }
        }
    }

    /// Notes the unknown range of a damaged table that no manifest lists.
    fn unknown_of_table(&mut self, name: &str, found: Option<&Examined>) {
        let Some(found) = found.filter(|it| it.verdict != Verdict::Foreign) else {
            return;
        };
        if found.verdict == Verdict::Unfinished {
            let last = shown(&found.properties.largest);
            let what = format!(
                "keys behind {last} may be missing, and keys that it removed there may have come \
                 back"
            );
            self.problem(name, what);
        }
        if !found.has_properties {
            self.problem(
                name,
                "ranges of keys that it removed may have come back, and keys of damaged blocks \
                 may have older values",
            );
        }
    }

    fn is_damaged(
        &mut self,
        listing: &Listing,
        examined: &AllExamined,
        kind: FileKind,
        number: u64,
        held: impl Fn() -> String,
    ) -> bool {
        let name = kind.name(number);
        if !listing.has(kind, number) {
            self.problem(&name, "the file is missing");
            self.lost.push(LostRange::new(name, 0, 0, held()));
            return true;
        }
        let Some(examined) = examined.get(&(kind, number)) else {
            return false;
        };
        match examined.verdict {
            Verdict::Whole => return false,
            Verdict::Damaged => self.problem(&name, damage_shown(examined)),
            Verdict::Unfinished => {
                let what = format!(
                    "it was cut short or never finished: {}",
                    damage_shown(examined)
                );
                self.problem(&name, what);
            }
            Verdict::Foreign => self.problem(&name, "it is of another store"),
        }
        for bad in &examined.bad {
            let held = format!("{} ({})", held(), bad.found);
            self.lost
                .push(LostRange::new(&*name, bad.offset, bad.len, held));
        }
        true
    }
}

fn damage_shown(examined: &Examined) -> String {
    let first = examined.bad.first();
    let first = first.map_or(String::new(), |it| format!(": {}", it.found));
    format!("{} damaged ranges{first}", examined.bad.len())
}

fn table_held(record: &TableRecord) -> String {
    let it = &record.properties;
    format!(
        "a table of {} entries with the keys from {} to {}",
        it.entries,
        shown(&it.smallest),
        shown(&it.largest)
    )
}

/// The tables that a repair works with.
pub(crate) fn sources(listing: &Listing, examined: &AllExamined) -> Vec<SourceTable> {
    let found = |number| examined.get(&(FileKind::Table, number));
    if let Some(manifest) = &listing.manifest {
        let of_record = |record: &TableRecord| {
            let found = found(record.number);
            SourceTable {
                number: record.number,
                file_len: record.file_len,
                is_present: listing.has(FileKind::Table, record.number)
                    && found.is_some_and(|it| it.verdict != Verdict::Foreign),
                is_whole: found.is_some_and(|it| it.verdict == Verdict::Whole),
                properties: record.properties.clone(),
            }
        };
        return manifest.tables.iter().map(of_record).collect();
    }
    let tables = listing.of_kind(FileKind::Table);
    let tables = tables.filter_map(|file| {
        let it = found(file.number)?;
        // Properties include unreadable entries.
        let entries = it.entries.max(it.properties.entries);
        let is_empty = entries == 0 && it.properties.marks.is_empty() && !is_unbounded(it);
        (it.verdict != Verdict::Foreign && !is_empty).then(|| SourceTable {
            number: file.number,
            file_len: it.file_len,
            is_present: true,
            is_whole: it.verdict == Verdict::Whole,
            properties: match is_unbounded(it) {
                true => unbounded(&it.properties),
                false => it.properties.clone(),
            },
        })
    });
    tables.collect()
}

/// True if the table's properties are lost, so that the range of a lost block is unknown.
fn is_unbounded(found: &Examined) -> bool {
    found.verdict == Verdict::Damaged && !found.has_properties
}

/// The possible contents of a table with these readable ones: also newer entries, and keys before
/// the first.
fn unbounded(seen: &Properties) -> Properties {
    Properties {
        smallest: Bytes::new(),
        sequence_max: u64::MAX,
        ..seen.clone()
    }
}

/// The batch up to which tables are complete: a finished table has the whole flush.
pub(crate) fn reached_sequence(listing: &Listing, examined: &AllExamined) -> u64 {
    if let Some(manifest) = &listing.manifest {
        return manifest.sequence;
    }
    let finished = |it: &&Examined| matches!(it.verdict, Verdict::Whole | Verdict::Damaged);
    let tables = listing.of_kind(FileKind::Table);
    let tables = tables.filter_map(|it| examined.get(&(FileKind::Table, it.number)));
    let sequences = tables.filter(finished).map(|it| it.properties.sequence_max);
    sequences.max().unwrap_or(0)
}

/// A blob file as a manifest would list it.
pub(crate) fn blob_record(
    listing: &Listing,
    examined: &AllExamined,
    number: u64,
) -> Option<BlobRecord> {
    if let Some(manifest) = &listing.manifest {
        return manifest
            .blobs
            .iter()
            .find(|it| it.number == number)
            .copied();
    }
    let it = examined.get(&(FileKind::Blob, number))?;
    Some(BlobRecord {
        file: number,
        number,
        file_len: it.file_len,
        block_bytes: it.data_bytes,
    })
}
