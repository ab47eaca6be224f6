//! Objects: reading, storing and deleting them.

mod content;
mod context;
mod delete;
mod expiry;
mod get;
mod parameters;
mod representation;
mod store;

pub(crate) use delete::delete;
pub(crate) use get::get;
pub(crate) use store::store;

use kvorum_encoding::{Address, Key};

use crate::route::BucketPath;

fn address(path: &BucketPath, key: Key) -> Address {
    Address {
        bucket_type: path.bucket_type.clone(),
        bucket: path.bucket.clone(),
        key,
    }
}
