//! Repairing a damaged store from the files of its directory, without opening it.
//!
//! A store with a readable manifest keeps its shape: damaged tables and blob files are rewritten
//! without their damaged parts, missing ones are given up, and everything stays on its level.
//! Without a manifest, or if tables of a level overlap, all tables and logs are merged to one level
//! by the sequences of their entries.
//!
//! # Entries that may come back
//!
//! A lost table may have held removals, and newer values. Older entries of its keys are therefore
//! in doubt. By default they are not served: marks over the lost ranges hide them, as in an open
//! store, and a get reports that the key is lost. Filters of the table exclude most keys that were
//! not in a lost block. With [`RepairOptions::keeps_doubtful`] older entries are served, which may
//! bring back removed or overwritten ones. Either way the ranges are reported.
//!
//! If the manifest and the end of a table are both lost, the table's keys there are unknown; that
//! is reported, and nothing is hidden.
//!
//! # Journals
//!
//! The journal of a store has all of its tables' entries of objects. A damaged or missing table is
//! therefore not repaired: it is set aside and stays listed, and the next opening rebuilds it.
//! Without a manifest a missing table of all keys is listed, to the same end. Journal files are not
//! changed.
//!
//! # Stages
//!
//! A repair works in stages of units that are independent of each other, so that a caller may run
//! as many at once as it has cores: [`Repair::units`], [`Repair::run`], [`Repair::next_stage`].
//! Files are read once, in order and in large pieces; only damaged ones are read again. A journal
//! records finished work, and a killed repair continues from it. Nothing is deleted: replaced files
//! move to `lost/`.
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
