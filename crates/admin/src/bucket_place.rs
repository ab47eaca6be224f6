//! A bucket as the command line names it.

use std::fmt;

use kvorum_encoding::{Bucket, BucketType};

use crate::request::AdminReply;

/// A bucket and its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketPlace {
    pub(crate) bucket_type: BucketType,
    pub(crate) bucket: Bucket,
}

impl BucketPlace {
    /// The bucket named TYPE/BUCKET; the type `default` means buckets without a type.
    pub(crate) fn named(name: &str) -> Result<Self, AdminReply> {
        let parts = name.split_once('/');
        let parts = parts.filter(|(of_type, bucket)| !of_type.is_empty() && !bucket.is_empty());
        let Some((of_type, bucket)) = parts else {
            return Err(AdminReply::refused(format!(
                "{name:?} is not of the form TYPE/BUCKET; a bucket without a type is default/BUCKET"
            )));
        };
        let bucket_type = match of_type {
            "default" => BucketType::default_type(),
            _ => BucketType::new(of_type.as_bytes().to_vec()),
        };
        let bucket = Bucket::new(bucket.as_bytes().to_vec());
        Ok(Self {
            bucket_type,
            bucket,
        })
    }
}

impl fmt::Display for BucketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bucket_type.is_default() {
            true => write!(f, "default/{}", self.bucket),
            false => write!(f, "{}/{}", self.bucket_type, self.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_with_its_type() {
        for name in ["maps/users", "default/a/b"] {
            assert_eq!(BucketPlace::named(name).unwrap().to_string(), name);
        }
        for name in ["users", "/users", "maps/", ""] {
            assert!(BucketPlace::named(name).is_err(), "{name}");
        }
    }
}
