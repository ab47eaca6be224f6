//! The address that a request names.

use kvorum_encoding::{Address, Key};

use crate::route::BucketPath;

/// The address of a key in the bucket that a path names.
pub(super) fn address(path: &BucketPath, key: Key) -> Address {
    Address {
        bucket_type: path.bucket_type.clone(),
        bucket: path.bucket.clone(),
        key,
    }
}
