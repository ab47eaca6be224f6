//! Names of page entries in a store.
//!
//! ```text
//! page key = 0x00 0x02
//!            storage key of the object
//!            number    u32     big-endian
//! ```
//!
//! No storage key begins with these two bytes: behind a zero its first part has 0x01, where it ends, or
//! 0xFF. So pages are in a range of their own, and in no range of a bucket.

use bytes::{BufMut as _, Bytes};

const PREFIX: [u8; 2] = [0x00, 0x02];
const NUMBER_LEN: usize = 4;

/// The key of a page of the object with this storage key.
pub fn page_key(object: &[u8], number: u32) -> Bytes {
    let mut out = Vec::with_capacity(PREFIX.len() + object.len() + NUMBER_LEN);
    out.extend_from_slice(&PREFIX);
    out.extend_from_slice(object);
    out.put_u32(number);
    out.into()
}

/// The object's storage key and the page's number; `None` for a key that is not a page's.
pub fn page_of_key(key: &[u8]) -> Option<(&[u8], u32)> {
    let rest = key.strip_prefix(&PREFIX)?;
    let (object, number) = rest.split_last_chunk::<NUMBER_LEN>()?;
    Some((object, u32::from_be_bytes(*number)))
}
