//! The segmented append-only log below engines and the value log.
//!
//! A log is a directory of *segments*: files of records, written at their end only. A record has a
//! *front* (key, fields, head) and a *back* (body), each under its own checksum, so that the front
//! is read and trusted without the back. The writer of the log and the meaning of a front are not
//! known here.
//!
//! # What is promised
//!
//! 1. Every returned byte was checked against its checksum. Checksums are bound to the log, the
//!    segment and the offset: a block that ended up in the wrong place does not pass, and neither
//!    does a copy of a record inside a value.
//! 2. Nothing in a new segment counts before the file and its name are durable.
//! 3. After a failed sync a segment is suspect and takes nothing more.
//! 4. After a failed append nothing of it stays behind: the file is cut back before it goes on.
//! 5. [`Scan`] distinguishes a torn tail (the unpromised end) from corruption (damage to promised
//!    data): a sealed segment has no torn tail, and each record carries the synced length of its
//!    segment when it was written. Corruption costs the damaged records; the scan goes on behind
//!    them.

mod anatomy;
mod compression;
mod error;
mod file_header;
mod reader;
mod record;
mod scan;
mod seal;
mod sync;
mod torn_end;
mod writer;

pub use anatomy::{DissectFront, RecordFront, SEGMENT_MAGIC, SegmentAnatomy};
pub use compression::{Compressor, EncodedBack};
pub use error::{Part, Result, SegmentError};
pub use file_header::{FILE_HEADER_BYTES, SegmentId, file_name, list_segments, parse_file_name};
pub use kvorum_encoding::{Codec, Compression};
pub use reader::{SegmentReader, StoredBack, StoredFront, StoredRecord};
pub use record::{
    BACK_BYTES_MAX, BatchPlace, FRONT_BYTES_MAX, Location, RECORD_ALIGN_BYTES, RECORD_HEADER_BYTES,
    Record,
};
pub use scan::{Damage, Remains, Scan, ScanEnd, ScanOptions, Scanned, Tail};
pub use seal::Seal;
pub use sync::SegmentSync;
pub use writer::{ResumeAt, SEGMENT_BYTES_MAX, SegmentWriter};
