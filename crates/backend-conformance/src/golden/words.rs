//! The words of a command: `name=value`, each taken once, so that a misspelt one is detected.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};

/// The words that were not taken yet.
pub(super) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text.split_whitespace().collect())
    }

    /// Takes the first word.
    pub(super) fn first(&mut self) -> Result<&'a str, String> {
        match self.0.is_empty() {
            true => Err("a word is missing".into()),
            false => Ok(self.0.remove(0)),
        }
    }

    /// Takes the value of a name.
    pub(super) fn value(&mut self, name: &str) -> Option<&'a str> {
        let is_named = |word: &&str| word.split_once('=').is_some_and(|(it, _)| it == name);
        let at = self.0.iter().position(is_named)?;
        self.0.remove(at).split_once('=').map(|(_, value)| value)
    }

    /// Takes the value of a name as a number.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.value(name).map(number).transpose()
    }

    /// Takes a bound by one of two names: the inclusive or the exclusive one.
    pub(super) fn bound<T>(
        &mut self,
        including: &str,
        excluding: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Bound<T>, String> {
        if let Some(value) = self.value(including) {
            return parse(value).map(Bound::Included);
        }
        match self.value(excluding) {
            Some(value) => parse(value).map(Bound::Excluded),
            None => Ok(Bound::Unbounded),
        }
    }

    /// Fails if words are left.
    pub(super) fn end(self) -> Result<(), String> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("no command has the words {:?}", self.0)),
        }
    }
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a number, got {text}"))
}

/// `bucket/key`, in the default bucket type.
pub(super) fn key(text: &str) -> Result<StorageKey, String> {
    let (bucket, key) = text
        .split_once('/')
        .ok_or_else(|| format!("expected bucket/key, got {text}"))?;
    Ok(StorageKey::new(
        &BucketType::from("default"),
        &Bucket::from(bucket.as_bytes().to_vec()),
        &Key::from(key.as_bytes().to_vec()),
    ))
}

/// The prefix of a bucket's keys.
pub(super) fn prefix(bucket: &str) -> Bytes {
    let bucket = Bucket::from(bucket.as_bytes().to_vec());
    bucket_prefix(&BucketType::from("default"), &bucket).into()
}

/// Text, or `text*times`.
pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    let Some((text, times)) = text.split_once('*') else {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    };
    let times = usize::try_from(number(times)?).map_err(|error| error.to_string())?;
    Ok(text.repeat(times).into())
}
