//! Looking into Kvorum's files: one file as annotated bytes, and whole directories checked.
//!
//! What the bytes mean is said by the crates that write them; here is found out which of them wrote a
//! file, how it is shown, and in which order a directory is checked. Nothing is written and no thread
//! is started: [`Plan`] cuts the work of a check into units that a caller may run side by side.
//!
//! What this crate must not know: byte layouts.

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
