//! Making a damaged store whole again from what its directory holds, without opening it.
//!
//! A store whose manifest can be read keeps its shape: damaged tables and blob files are written anew
//! without what is damaged, missing ones are given up, and everything stays on its level. Without a
//! manifest, or where tables overlap that must not, all tables and logs are merged to one level by the
//! sequences of their entries.
//!
//! # What may come back
//!
//! A table that is lost may have held removals, and newer values. What older tables have of its keys is
//! therefore in doubt. By default it is not served: marks over the lost ranges hide it, as they do in a
//! store that is open, and a get says that the key is lost. Filters of the table tell most keys that
//! were not in a lost block. With [`RepairOptions::keeps_doubtful`] older entries are served, which may
//! bring back what was removed or overwritten. Either way the ranges are told.
//!
//! Where manifest and the end of a table are both lost, nobody knows what keys the table had there; that
//! is told, and nothing is hidden.
//!
//! # Journals
//!
//! A store that keeps a journal has everything there that its tables say of objects. A damaged or missing table
//! is therefore not mended: it is set aside and stays listed, and the store makes it again when it is opened.
//! Without a manifest a table of all keys is listed that is not there, to the same end. Journal files are left
//! as they are.
//!
//! # How it is done
//!
//! In stages of units that are independent of each other, so that a caller may run as many at once as
//! it has cores: [`Repair::units`], [`Repair::run`], [`Repair::next_stage`]. Files are read once, in
//! order and in large pieces; only damaged ones are read again. A journal says what is done, and a
//! repair that was killed goes on there. Nothing is deleted: what is replaced moves to `lost/`.
//!
//! [`check`] says what a store is made of, for whoever reads its files and mends nothing.

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
