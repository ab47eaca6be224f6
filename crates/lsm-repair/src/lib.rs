//! Repair of a damaged store from the files of its directory, without opening it.
//!
//! A store with a readable manifest keeps its shape: damaged tables and blob files are rewritten
//! without their damaged parts, missing files are given up, and all tables stay on their levels.
//! Without a manifest, or if tables of a level overlap, all tables and logs are merged to one level
//! by the sequences of their entries.
//!
//! # Entries that may come back
//!
//! A lost table may have had removals and newer values. So older entries of its keys are in doubt.
//! By default they are not served: marks over the lost ranges hide them, as in an open store, and a
//! get reports that the key is lost. The table's filters exclude most keys that were not in a lost
//! block. With [`RepairOptions::keeps_doubtful`] older entries are served, which may bring back
//! removed or overwritten ones. In both cases the ranges are reported.
//!
//! If the manifest and the end of a table are both lost, the table's keys there are unknown. The
//! report shows this, and no entry is hidden.
//!
//! # Journals
//!
//! The journal of a store has all entries of objects in its tables. So a damaged or missing table
//! is not repaired: it is set aside and stays listed, and the next opening rebuilds it. Without a
//! manifest, a missing table of all keys is listed, with the same effect. Journal files are not
//! changed.
//!
//! # Stages
//!
//! A repair works in stages of independent units, which a caller may run at the same time on all
//! cores: [`Repair::units`], [`Repair::run`], [`Repair::next_stage`]. Files are read once, in order
//! and in large pieces; only damaged files are read again. A journal records finished work, from
//! which a killed repair continues. Nothing is deleted: replaced files move to `lost/`.
//!
//! [`check`] lists the parts of a store, for programs that read its files and repair nothing.

mod blobs;
pub mod check;
mod decision;
mod examine;
mod install;
mod journal;
mod journal_files;
mod listing;
mod options;
#[cfg(test)]
mod overlap_test;
mod rebuild;
mod repair;
mod report;
mod salvage;
mod work;

pub use decision::Problem;
pub use options::RepairOptions;
pub use repair::{Repair, RepairUnit};
pub use report::{RepairReport, RepairVerdict};
pub use work::Doubt;
