//! Inspection of Kvorum's files: one file as annotated bytes, and whole directories checked.
//!
//! The crates that write the bytes define their meaning. This crate selects the crate for a file,
//! the form of display, and the order of checks in a directory. Nothing is written and no thread is
//! started: [`Plan`] cuts the work of a check into units that a caller may run side by side.
//!
//! This crate has no byte layouts of its own.

mod error;
mod kind;
mod page_store;
mod segment_directory;
mod show;
mod table_store;
mod value_logs;
mod verify;

pub use error::{InspectError, Result};
pub use kind::{Kind, open_pieces, recognise};
pub use kvorum_backend_bitcask::check::{Checked, Finding};
pub use show::{ShowOptions, Shown, show};
pub use verify::{Plan, Unit, VerifyOptions, is_node_directory};
