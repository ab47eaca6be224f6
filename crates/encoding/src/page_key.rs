//! Keys of pages: entries that hold a part of the value of an object, beside the object.
//!
//! ```text
//! page key = 0x00 0x02
//!            storage key of the object
//!            number    u32     big-endian
//! ```
//!
//! No storage key begins with these two bytes: in its first part, a zero is followed by 0x01 or
//! 0xFF. So pages have a range of their own, outside the ranges of buckets and types.

use bytes::{BufMut as _, Bytes};

/// The beginning of all keys of pages.
pub(crate) const MARK: [u8; 2] = [0x00, 0x02];
const NUMBER_LEN: usize = 4;

/// The key of a page of the object with this storage key.
pub fn page_key(object: &[u8], number: u32) -> Bytes {
    let mut out = Vec::with_capacity(MARK.len() + object.len() + NUMBER_LEN);
    out.extend_from_slice(&MARK);
    out.extend_from_slice(object);
    out.put_u32(number);
    out.into()
}

/// The object's storage key and the page's number; `None` for a key that is not a page's.
pub fn page_of_key(key: &[u8]) -> Option<(&[u8], u32)> {
    let rest = key.strip_prefix(&MARK)?;
    let (object, number) = rest.split_last_chunk::<NUMBER_LEN>()?;
    Some((object, u32::from_be_bytes(*number)))
}

/// The common prefix of the page keys of all objects whose storage keys have this prefix.
pub fn pages_prefix(objects: &[u8]) -> Vec<u8> {
    [&MARK, objects].concat()
}

/// A page key without its mark, so that it begins with the object's storage key. Other keys are
/// returned unchanged.
pub fn without_page_mark(key: &[u8]) -> &[u8] {
    key.strip_prefix(&MARK).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bucket, BucketType, Key, StorageKey, bucket_prefix, prefix_lens, type_prefix};

    #[test]
    fn keys_of_pages_are_no_keys_of_objects() {
        for (bucket_type, key) in [("default", "k"), ("maps", "\0\u{2}"), ("\0\u{2}", "")] {
            let bucket_type = BucketType::new(bucket_type);
            let object = StorageKey::new(&bucket_type, &Bucket::new("b"), &Key::new(key));
            assert_eq!(page_of_key(object.as_bytes()), None);
            assert_eq!(without_page_mark(object.as_bytes()), object.as_bytes());
            let page = page_key(object.as_bytes(), 7);
            assert_eq!(page_of_key(&page), Some((object.as_bytes(), 7)));
            assert!(without_page_mark(&page).starts_with(object.as_bytes()));
            assert!(StorageKey::from_encoded(page).decode().is_err());
        }
    }

    #[test]
    fn pages_of_a_bucket_have_a_prefix_of_their_own() {
        for bucket_type in ["default", "maps", "\0\u{2}"] {
            let (bucket_type, bucket) = (BucketType::new(bucket_type), Bucket::new("b\0"));
            let object = StorageKey::new(&bucket_type, &bucket, &Key::new("k"));
            let page = page_key(object.as_bytes(), 7);
            let (type_len, bucket_len) = prefix_lens(&page).unwrap();
            let of_bucket = bucket_prefix(&bucket_type, &bucket);
            assert_eq!(page[..type_len], pages_prefix(&type_prefix(&bucket_type)));
            assert_eq!(page[..bucket_len], pages_prefix(&of_bucket));
            assert!(!page.starts_with(&of_bucket));
        }
    }
}
