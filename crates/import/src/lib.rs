//! Common parts of the importers of Riak's backends: everything but the stores' formats.
//!
//! An importer finds objects in a store, with one copy for each partition that has the key. This
//! crate decodes the copies ([`riak_object`], [`metadata`], [`version_vector`]), merges differing
//! replicas by Riak's rules ([`reconcile()`]), and puts the result `asis` into a server
//! ([`Target`]), with common counts, findings and progress.
//!
//! Stores with records in the order of writing are imported through an index of the records:
//! [`import_records()`] does everything but the format, which is a [`RecordFormat`].
//!
//! An import preserves everything that the protocol carries: values, siblings, content types, user
//! metadata, links, index entries, last-modified times, tombstones, and the clocks' relations to
//! each other.
//!
//! Outside this crate: the formats of stores, and the order of reading.

mod content;
mod counts;
mod error;
mod file_window;
mod findings;
mod inflation;
mod intake;
mod item;
pub mod metadata;
mod open_files;
mod partition;
mod passed_over;
mod progress;
mod reconcile;
mod record_format;
mod record_import;
mod record_state;
pub mod riak_object;
mod scanned;
mod shared_options;
mod spread;
mod state_directory;
mod store_search;
mod summary;
mod system;
mod target;
pub mod version_vector;

pub use content::ObjectPuts;
pub use counts::Counts;
pub use error::ImportError;
pub use file_window::{FileWindow, WINDOW_BYTES};
pub use findings::{Finding, Findings};
pub use inflation::inflate_lz4;
pub use intake::Intake;
pub use item::{Batch, Item, Place};
pub use open_files::{NumberedFiles, OpenFiles};
pub use passed_over::PassedOver;
pub use progress::{Progress, ProgressView, WorkStage};
pub use reconcile::reconcile;
pub use record_format::{
    FoundSource, GroupReader, IndexPlace, RecordChoices, RecordFile, RecordFormat,
};
pub use record_import::import_records;
pub use record_state::Choices;
pub use scanned::Scanned;
pub use shared_options::SharedOptions;
pub use spread::{SpreadWriter, file_count, read_spread};
pub use state_directory::StateDirectory;
pub use store_search::{
    FoundStore, FoundStores, Judgement, StoreKind, find_stores, is_partition_name,
};
pub use summary::Summary;
pub use system::System;
pub use target::{ImportTarget, Outcome, Target};
