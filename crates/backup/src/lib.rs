//! Backups of a running node, and starts on copied or restored directories.
//!
//! A node fills [`Parts`].

mod backup_list;
mod copied;
mod leases;
mod made;
mod names;
mod restored;

pub use copied::{BornAt, born_at, keep_others_noted, others_noted, settle_copied};
pub use made::{Backups, Made, Parts};
pub use names::{MARK_NAME, UNFINISHED_NAME};
pub use restored::settle_restored;
