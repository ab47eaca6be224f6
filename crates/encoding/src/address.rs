//! The address of an object: (bucket type, bucket, key), each an arbitrary byte string.
//!
//! The three newtypes prevent passing a bucket in place of a key. They share one representation,
//! [`Bytes`], so that names cut out of a request frame are not copied.

use std::fmt;

use bytes::Bytes;

macro_rules! name_bytes {
    // One macro for three identical newtypes: a generic would let `Name<A>` unify where it must
    // not.
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(Bytes);

        impl $name {
            /// Wraps the bytes unchanged; the caller checks for emptiness.
            pub fn new(bytes: impl Into<Bytes>) -> Self {
                Self(bytes.into())
            }

            /// The bytes.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// The bytes as a shared handle, without a copy.
            pub fn to_bytes(&self) -> Bytes {
                self.0.clone()
            }

            /// True for an empty name.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(\"{}\")", stringify!($name), self.0.escape_ascii())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.escape_ascii())
            }
        }

        impl From<&'static str> for $name {
            fn from(text: &'static str) -> Self {
                Self(Bytes::from_static(text.as_bytes()))
            }
        }

        impl From<&'static [u8]> for $name {
            fn from(bytes: &'static [u8]) -> Self {
                Self(Bytes::from_static(bytes))
            }
        }

        impl From<Bytes> for $name {
            fn from(bytes: Bytes) -> Self {
                Self(bytes)
            }
        }

        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> Self {
                Self(bytes.into())
            }
        }
    };
}

name_bytes! {
    /// The name of a bucket type. Empty and `default` are the same: the untyped space.
    BucketType
}
name_bytes! {
    /// The name of a bucket within its type.
    Bucket
}
name_bytes! {
    /// The key of an object within its bucket.
    Key
}

impl BucketType {
    /// The untyped space that every cluster has.
    pub fn default_type() -> Self {
        Self::from("default")
    }

    /// True for the untyped space, under either of its spellings.
    pub fn is_default(&self) -> bool {
        self.is_empty() || self.as_bytes() == b"default"
    }
}

/// The address of an object, in the form that clients use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The bucket type; the default one for untyped buckets.
    pub bucket_type: BucketType,
    /// The bucket.
    pub bucket: Bucket,
    /// The key.
    pub key: Key,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.bucket_type, self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_default_name_the_same_type() {
        assert!(BucketType::new(Bytes::new()).is_default());
        assert!(BucketType::default_type().is_default());
        assert!(!BucketType::from("maps").is_default());
    }
}
