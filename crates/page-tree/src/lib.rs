//! A B+tree of pages that never change, in files that only grow.
//!
//! A [`Tree`] consists of the pages below one root. None of them is ever overwritten: a [`Rewrite`]
//! takes sorted changes, writes the touched leaves and the branches above them to the end of a
//! file, and ends with another root. Readers of the former tree go on. So no torn page counts, a
//! snapshot is a root, and a backup is second names for files.
//!
//! A rewrite is done in steps of a budget, and holds only its present path. Its user keeps
//! the puts since the last one in memory, with the value log behind it, and passes them in key
//! order.
//!
//! # Damage
//!
//! The place of a page has its checksum, so that a misplaced, an older or a torn page is found when
//! it is read. Branches are written twice. A leaf that cannot be read is an error to lookups of its
//! keys; walks skip it and report the keys that may be missing, as the branch above has them.
//!
//! # Modules
//!
//! `place`, `entry` and `page` are the bytes; `file` names files, `output` grows them, `cache`
//! keeps pages that were read; `tree` looks up, `walk` goes through a range, `file_scan` through a
//! file and `census` through all pages; `rewrite` makes the next tree, `reach` counts a tree's
//! bytes, `manifest` names the valid root, and `anatomy` takes files apart for display.
//!
//! This crate does not depend on objects, indexes or the log.

pub mod anatomy;
mod cache;
mod census;
mod entry;
mod failing;
mod file;
mod file_scan;
pub mod manifest;
mod output;
mod page;
mod place;
mod reach;
mod rewrite;
mod tree;
mod walk;

pub use cache::PageCache;
pub use census::{Census, Counted};
pub use entry::{Body, Entry};
pub use file::{FileRecord, PageFile, file_name, number_of, store_of_file};
pub use file_scan::{FileScan, ScannedPage};
pub use output::OutputSettings;
pub use place::PagePlace;
pub use reach::live_bytes;
pub use rewrite::{Change, Changes, Rewrite, RewriteSettings, Rewritten};
pub use tree::{Found, LostPage, Root, Tree};
pub use walk::{Walk, Walked};
