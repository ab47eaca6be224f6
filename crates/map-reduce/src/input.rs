//! One input of a job: an object's place and the client's data with it, and its forms as a term.
//!
//! | form | input |
//! |---|---|
//! | `{B,K}` | an object in no type |
//! | `{{B,K},Data}` | the same with key data, or the finding of a link phase |
//! | `{{{T,B},K},Data}` | an object in a bucket type; no data is `undefined` |
//! | `[B,K]`, `[B,K,Data]`, `[B,K,Data,T]` | the same from functions and clients |

use bytes::Bytes;

use crate::object::BucketName;
use crate::term::Term;

/// An object's place, with key data.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The object's bucket.
    pub bucket: BucketName,
    /// Its key.
    pub key: Bytes,
    /// The client's data for it.
    pub data: Option<Term>,
}

impl BucketName {
    /// A bucket in a type; the type `default`, and an empty one, mean no type.
    pub fn new(bucket_type: Option<Bytes>, bucket: Bytes) -> Self {
        Self {
            bucket_type: bucket_type.filter(|it| !it.is_empty() && it.as_ref() != b"default"),
            bucket,
        }
    }

    /// `B` or `{T,B}`.
    pub(crate) fn term(&self) -> Term {
        let bucket = Term::Binary(self.bucket.clone());
        match &self.bucket_type {
            Some(name) => Term::pair(Term::Binary(name.clone()), bucket),
            None => bucket,
        }
    }
}

impl Input {
    /// The place without the data: `{B,K}` or `{{T,B},K}`.
    pub(crate) fn place(&self) -> Term {
        Term::pair(self.bucket.term(), Term::Binary(self.key.clone()))
    }

    /// The key data, or `undefined`.
    pub(crate) fn data_term(&self) -> Term {
        self.data.clone().unwrap_or(Term::atom("undefined"))
    }

    /// The form of inputs between phases.
    pub(crate) fn term(&self) -> Term {
        if self.data.is_none() && self.bucket.bucket_type.is_none() {
            return self.place();
        }
        Term::pair(self.place(), self.data_term())
    }

    /// An input in any of its forms.
    pub(crate) fn from_term(term: &Term) -> Option<Self> {
        match term {
            Term::Tuple(parts) => from_tuple(parts),
            Term::List(parts) => from_list(parts),
            _ => None,
        }
    }

    /// The form of inputs for clients: a list.
    pub(crate) fn listed(&self) -> Term {
        let mut parts = vec![
            Term::Binary(self.bucket.bucket.clone()),
            Term::Binary(self.key.clone()),
        ];
        if self.data.is_some() || self.bucket.bucket_type.is_some() {
            parts.push(self.data.clone().unwrap_or(Term::atom("null")));
        }
        parts.extend(self.bucket.bucket_type.clone().map(Term::Binary));
        Term::List(parts)
    }
}

fn from_tuple(parts: &[Term]) -> Option<Input> {
    let [first, second] = parts else {
        return None;
    };
    match first {
        Term::Binary(bucket) => Some(Input {
            bucket: BucketName::new(None, bucket.clone()),
            key: binary(second)?,
            data: None,
        }),
        Term::Tuple(place) => {
            let [bucket, key] = place.as_slice() else {
                return None;
            };
            Some(Input {
                bucket: bucket_of(bucket)?,
                key: binary(key)?,
                data: Some(second.clone()).filter(|it| !it.is_atom("undefined")),
            })
        }
        _ => None,
    }
}

fn bucket_of(term: &Term) -> Option<BucketName> {
    match term {
        Term::Binary(bucket) => Some(BucketName::new(None, bucket.clone())),
        Term::Tuple(parts) => match parts.as_slice() {
            [bucket_type, bucket] => {
                Some(BucketName::new(Some(binary(bucket_type)?), binary(bucket)?))
            }
            _ => None,
        },
        _ => None,
    }
}

fn from_list(parts: &[Term]) -> Option<Input> {
    let (bucket_type, data) = match parts.get(2..)? {
        [] => (None, None),
        [data] => (None, Some(data.clone())),
        [data, bucket_type] => (Some(binary(bucket_type)?), Some(data.clone())),
        _ => return None,
    };
    Some(Input {
        bucket: BucketName::new(bucket_type, binary(&parts[0])?),
        key: binary(&parts[1])?,
        data,
    })
}

fn binary(term: &Term) -> Option<Bytes> {
    match term {
        Term::Binary(bytes) => Some(bytes.clone()),
        _ => None,
    }
}
