//! Golden files: text in the repository that a test prints again and compares line by line.
//!
//! | function | file | content |
//! |---|---|---|
//! | [`assert_bytes`] | `NAME.hex` | the bytes that an encoder writes, field by field of its drawing |
//! | [`play_scripts`] | `*.txt` of a folder | commands, and below each its replies |
//!
//! A golden file is beside the source file whose test compares it. With `KVORUM_RENEW_GOLDEN` set,
//! the test writes the file instead, and the change is reviewed like any other. A changed `.hex`
//! file is a changed format: `docs/formats.md` lists the necessary steps.

mod bytes;
mod golden_file;
mod script;

pub use bytes::assert_bytes;
pub use golden_file::is_renewing;
pub use script::{Script, Stage, play_scripts, read_scripts};
