//! The segmented append-only log below engines and the value log.
//!
//! A log is a directory of *segments*: files of records, to which writers only append. A record has
//! a *front* (key, fields, head) and a *back* (body), each with its own checksum, so that the front
//! can be read and checked without the back. This crate depends neither on the writer of the log
//! nor on the meaning of a front.
//!
//! # What is promised
//!
//! 1. Every returned byte was checked against its checksum. Checksums are bound to the log, the
//!    segment and the offset: neither a block in the wrong place nor a copy of a record inside a
//!    value passes.
//! 2. A new segment takes no record before the file and its name are durable.
//! 3. After a failed sync a segment is suspect and refuses appends.
//! 4. A failed append leaves nothing behind: the file is cut back before the next append.
//! 5. [`Scan`] distinguishes a torn tail (the unpromised end) from corruption (damage to promised
//!    data): a sealed segment has no torn tail, and each record has the synced length of its
//!    segment at the time of its writing. Corruption costs the damaged records; the scan continues
//!    behind them.

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
