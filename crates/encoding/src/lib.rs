//! Bucket and key newtypes, the order-preserving storage key, varints, checksums and compression.
//!
//! Floor 0, without I/O. Every crate that names an object or writes bytes starts here, so that an
//! address is encoded in one way and a number is read with one set of bounds checks.

mod address;
mod bytes_reader;
mod checksum;
mod compression;
mod key_range;
mod page_key;
mod segment_filter;
mod storage_key;
mod tree_position;
mod varint;

pub use address::{Address, Bucket, BucketType, Key};
pub use bytes_reader::{ByteReader, Truncated};
pub use checksum::{checksum, checksum_append, mask_checksum};
pub use compression::{Codec, Compression};
pub use key_range::{KeyRange, successor};
pub use page_key::{page_key, page_of_key, pages_prefix, without_page_mark};
pub use segment_filter::{FoldedFilter, SegmentFilter};
pub use storage_key::{StorageKey, StorageKeyError, bucket_prefix, prefix_lens, type_prefix};
pub use tree_position::{POSITION_BITS, folded_segment, key_segment, tree_position};
pub use varint::{VARINT_BYTES_MAX, put_varint, varint_len};
