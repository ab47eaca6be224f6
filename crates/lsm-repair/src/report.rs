//! The report of a repair.

use bytes::Bytes;

use crate::decision::{Decision, Problem};
use crate::journal::Journaled;
use crate::listing::Listing;
use crate::options::RepairOptions;
use crate::work::{Doubt, Unit};

/// Results of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairVerdict {
    /// No repair was necessary.
    Sound,
    /// The store was repaired.
    Repaired,
    /// A repair is necessary, and was not done.
    WouldRepair,
}

/// The report of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The result.
    pub verdict: RepairVerdict,
    /// The problems found.
    pub problems: Vec<Problem>,
    /// The reason for merging all tables again, if they were.
    pub rebuilt: Option<String>,
    /// Files that were read.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
    /// Files that were written.
    pub written_files: u64,
    /// The bytes of these files.
    pub written_bytes: u64,
    /// Entries and bodies that were saved to these files.
    pub saved: u64,
    /// Entries that were left out, since lost entries may have been newer.
    pub hidden: u64,
    /// Keys with unknown contents.
    pub doubts: Vec<Doubt>,
    /// Keys with lost bodies, whose heads are readable.
    pub lost_bodies: u64,
    /// Some of these keys.
    pub bodiless: Vec<Bytes>,
}

impl RepairReport {
    pub(crate) fn new(
        options: &RepairOptions,
        listing: &Listing,
        journaled: &Journaled,
        decision: &Decision,
    ) -> Self {
        let done = || journaled.done.values();
        let outputs = || done().flat_map(|it| &it.outputs);
        // The table of the logs may be merged with others afterwards, and counted there.
        let saved = journaled.done.iter().filter(|(unit, _)| match unit {
            Unit::Logs => decision.rebuild.is_none(),
            _ => true,
        });
        Self {
            verdict: match (decision.is_sound(), options.is_dry_run) {
                (true, _) => RepairVerdict::Sound,
                (false, true) => RepairVerdict::WouldRepair,
                (false, false) => RepairVerdict::Repaired,
            },
            problems: decision.problems.clone(),
            rebuilt: decision.rebuild.clone(),
            files: listing.files.len() as u64,
            bytes: listing.files.iter().map(|it| it.len).sum(),
            written_files: outputs().count() as u64,
            written_bytes: outputs().map(|it| it.file_len).sum(),
            saved: saved.map(|(_, it)| it.entries).sum(),
            hidden: done().map(|it| it.hidden).sum(),
            doubts: done().flat_map(|it| it.doubts.iter().cloned()).collect(),
            lost_bodies: done().map(|it| it.lost_bodies).sum(),
            bodiless: done().flat_map(|it| it.bodiless.iter().cloned()).collect(),
        }
    }
}
