//! The node's value log: it keeps and acknowledges the puts of the stores.
//!
//! A node has dozens of stores. If each synced its own file before acknowledging a put, the device
//! would see dozens of syncs where one could serve them all
//! (`docs/decisions/0001-one-commit-log-per-node.md`). So all put to one log. Their entries stay
//! where they were logged and are not written twice
//! (`docs/decisions/0005-values-stay-in-the-commit-log.md`): a store points into the log's
//! segments, and a segment lives for as long as a store needs it. The live rest of a segment that
//! is mostly garbage is copied to the stores' own files, and the segment is removed.
//!
//! The log lives in one directory and goes on from run to run: segments are numbered through, a
//! number is never used twice, and a run begins with a new segment. A store names a segment by its
//! number.
//!
//! Files: `log` has the calls of stores and the node; `tenant` has the log's calls to stores;
//! `queue` and `group` decide which records are committed together, and wake waiting callers;
//! `files` hands out places and writes; `log_segment` reads; `opening` finds the end after a crash;
//! `dropped` distinguishes dropped segments from lost ones; `keeper` has the files and the tenants;
//! `admission` brings stores up to date; `upkeep` decides which segments are removed, and `policy`
//! which one is collected; `backup` links segments for copies of stores.
//!
//! This crate does not depend on an engine, nor on the meaning of fronts and backs.

mod admission;
pub mod anatomy;
mod backup;
mod contents;
mod dropped;
mod error;
mod files;
mod group;
mod identity;
mod item;
mod keeper;
mod log;
mod log_segment;
mod losses;
mod opening;
mod policy;
mod promise;
mod queue;
mod record;
mod records;
mod scrub;
mod settings;
mod small_file;
mod task_driver;
mod tenant;
mod upkeep;

pub use admission::Admission;
pub use log::{Appended, ValueLog, ValueLogStatus, Whereabouts};
pub use log_segment::LogSegment;
pub use opening::{ValueLogOpening, find_log_id};
pub use promise::LogPromise;
pub use record::{LogPlace, LogRecord, LoggedFront, LoggedRecord};
pub use records::{Records, RecordsItem};
pub use settings::ValueLogSettings;
pub use task_driver::TaskDriver;
pub use tenant::{HeldSegments, Holds, SegmentUse, Tenant, UNKNOWN_SEQUENCES};
pub use upkeep::CollectionDue;
