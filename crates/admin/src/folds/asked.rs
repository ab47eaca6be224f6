//! Parsing of the words of a fold.
//!
//! ```text
//! list-buckets [NVAL]
//! find-keys | count-keys              BUCKET KEYS MODIFIED sibling_count=N | object_size=BYTES
//! find-tombstones | count-tombstones  BUCKET KEYS SEGMENTS MODIFIED
//! reap-tombstones | erase-keys        BUCKET KEYS SEGMENTS MODIFIED METHOD
//! object-stats | repair-keys          BUCKET KEYS MODIFIED
//!
//! BUCKET   = name | TYPE/name
//! KEYS     = all | FROM,TO
//! SEGMENTS = all | S1,S2,...;SIZE of a tree
//! MODIFIED = all | FROM,TO            each a time as 2026-11-28T07:00:00Z, or seconds since 1970
//! METHOD   = count | local | job[,N]
//! ```
//!
//! A name of `0x` and hexadecimal digits stands for bytes.

use kvorum_coordinator::KeyChange;
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_key_folds::{EntryClass, FoldKind, FoldScope, LeafFilter};
use kvorum_tictac::TreeSize;

use super::time_of_day::seconds_of;

/// A requested fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoldAsked {
    Buckets,
    Stats(FoldScope),
    /// Keys, with their numbers of siblings or bytes, or with their clocks.
    Find(FoldScope, FoldKind),
    /// The number of such keys.
    CountFound(FoldScope, FoldKind),
    Count(FoldScope, EntryClass),
    Change(FoldScope, KeyChange),
}

impl FoldAsked {
    /// Reads the words behind `fold`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["list-buckets"] => Ok(Self::Buckets),
            ["list-buckets", n_val] => match n_val.parse::<u32>() {
                Ok(1..) => Ok(Self::Buckets),
                _ => Err(format!("NVAL {n_val:?} is no number above zero")),
            },
            ["object-stats", bucket, keys, modified] => {
                Ok(Self::Stats(scope(bucket, keys, "all", modified)?))
            }
            ["find-keys", bucket, keys, modified, limit] => {
                let scope = scope(bucket, keys, "all", modified)?;
                Ok(Self::Find(scope, finder(limit)?))
            }
            ["count-keys", bucket, keys, modified, limit] => {
                let scope = scope(bucket, keys, "all", modified)?;
                Ok(Self::CountFound(scope, finder(limit)?))
            }
            ["find-tombstones", bucket, keys, segments, modified] => {
                let kind = FoldKind::Clocks(EntryClass::Tombstones);
                Ok(Self::Find(scope(bucket, keys, segments, modified)?, kind))
            }
            ["count-tombstones", bucket, keys, segments, modified] => {
                let scope = scope(bucket, keys, segments, modified)?;
                Ok(Self::Count(scope, EntryClass::Tombstones))
            }
            ["reap-tombstones", bucket, keys, segments, modified, method] => {
                let scope = scope(bucket, keys, segments, modified)?;
                change(scope, KeyChange::Reap, method)
            }
            ["erase-keys", bucket, keys, segments, modified, method] => {
                let scope = scope(bucket, keys, segments, modified)?;
                change(scope, KeyChange::Erase, method)
            }
            ["repair-keys", bucket, keys, modified] => {
                let scope = scope(bucket, keys, "all", modified)?;
                Ok(Self::Change(scope, KeyChange::Repair))
            }
            _ => Err(format!("no fold is asked for by {:?}", words.join(" "))),
        }
    }
}

fn change(scope: FoldScope, change: KeyChange, method: &str) -> Result<FoldAsked, String> {
    let kind = method.split(',').next().unwrap_or_default();
    match kind {
        "count" => Ok(FoldAsked::Count(scope, change.entries())),
        "local" | "job" => Ok(FoldAsked::Change(scope, change)),
        _ => Err(format!("METHOD {method:?} is none of count, local and job")),
    }
}

fn scope(bucket: &str, keys: &str, segments: &str, modified: &str) -> Result<FoldScope, String> {
    let (bucket_type, bucket) = match bucket.split_once('/') {
        Some((bucket_type, bucket)) => (BucketType::new(name(bucket_type)), bucket),
        None => (BucketType::default_type(), bucket),
    };
    Ok(FoldScope {
        keys: key_range(keys)?,
        modified_seconds: times(modified)?,
        leaves: leaves(segments)?,
        ..FoldScope::bucket(&bucket_type, &Bucket::new(name(bucket)))
    })
}

/// The bytes of a name or a key.
fn name(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").map(str::as_bytes);
    let bytes = digits.and_then(hexadecimal);
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        let is_hexadecimal = pair.bytes().all(|it| it.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| is_hexadecimal)
    };
    digits.chunks(2).map(byte).collect()
}

fn key_range(text: &str) -> Result<Option<(Key, Key)>, String> {
    match text.split_once(',') {
        _ if text == "all" => Ok(None),
        Some((first, last)) => Ok(Some((Key::new(name(first)), Key::new(name(last))))),
        None => Err(format!("KEYS {text:?} is neither all nor FROM,TO")),
    }
}

fn times(text: &str) -> Result<Option<(u64, u64)>, String> {
    if text == "all" {
        return Ok(None);
    }
    let ends = text.split_once(',');
    let ends = ends.and_then(|(first, last)| Some((seconds(first)?, seconds(last)?)));
    match ends {
        Some((first, last)) if first <= last => Ok(Some((first, last))),
        _ => Err(format!(
            "MODIFIED {text:?} is neither all nor FROM,TO, each a time such as \
             2026-11-28T07:00:00Z, or seconds since 1970"
        )),
    }
}

fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| seconds_of(text))
}

fn leaves(text: &str) -> Result<Option<LeafFilter>, String> {
    if text == "all" {
        return Ok(None);
    }
    let unreadable = || {
        format!(
            "SEGMENTS {text:?} is neither all nor S1,S2,...;SIZE, where SIZE is one of xxsmall, \
             xsmall, small, medium, large and xlarge"
        )
    };
    let (numbers, size) = text.split_once(';').ok_or_else(unreadable)?;
    let size = TreeSize::from_name(size).ok_or_else(unreadable)?;
    let numbers = numbers.split(',').map(|it| it.parse::<u32>().ok());
    let numbers: Option<Vec<u32>> = numbers.collect();
    let numbers = numbers.ok_or_else(unreadable)?;
    Ok(LeafFilter::new(size.leaves(), numbers))
}

fn finder(text: &str) -> Result<FoldKind, String> {
    let (what, limit) = text.split_once('=').unwrap_or((text, ""));
    match (what, limit.parse::<u64>()) {
        ("sibling_count", Ok(limit)) => Ok(FoldKind::SiblingsAbove(limit)),
        ("object_size", Ok(limit)) => Ok(FoldKind::SizeAbove(limit)),
        _ => Err(format!(
            "{text:?} is neither sibling_count=COUNT nor object_size=BYTES"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FoldAsked, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        FoldAsked::parse(&words)
    }

    fn bucket(bucket_type: &'static str, bucket: &'static str) -> FoldScope {
        FoldScope::bucket(&BucketType::from(bucket_type), &Bucket::from(bucket))
    }

    #[test]
    fn every_verb_is_read() {
        let b = || bucket("default", "b");
        let tombstones = EntryClass::Tombstones;
        let cases = [
            ("list-buckets", FoldAsked::Buckets),
            ("list-buckets 3", FoldAsked::Buckets),
            ("object-stats b all all", FoldAsked::Stats(b())),
            (
                "find-keys t/b all all sibling_count=0",
                FoldAsked::Find(bucket("t", "b"), FoldKind::SiblingsAbove(0)),
            ),
            (
                "count-keys b all all object_size=9",
                FoldAsked::CountFound(b(), FoldKind::SizeAbove(9)),
            ),
            (
                "find-tombstones b all all all",
                FoldAsked::Find(b(), FoldKind::Clocks(tombstones)),
            ),
            (
                "count-tombstones b all all all",
                FoldAsked::Count(b(), tombstones),
            ),
            (
                "reap-tombstones b all all all local",
                FoldAsked::Change(b(), KeyChange::Reap),
            ),
            (
                "reap-tombstones b all all all count",
                FoldAsked::Count(b(), tombstones),
            ),
            (
                "erase-keys b all all all job,7",
                FoldAsked::Change(b(), KeyChange::Erase),
            ),
            (
                "erase-keys b all all all count",
                FoldAsked::Count(b(), EntryClass::Living),
            ),
            (
                "repair-keys b all all",
                FoldAsked::Change(b(), KeyChange::Repair),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_scope_has_ranges_leaves_and_names_in_hexadecimal() {
        let text = "count-tombstones 0x0304/0xff k1,k9 7,3;small 10,1970-01-01T00:01:00Z";
        let scope = FoldScope {
            bucket_type: BucketType::new(vec![3, 4]),
            bucket: Bucket::new(vec![0xff]),
            keys: Some((Key::from("k1"), Key::from("k9"))),
            modified_seconds: Some((10, 60)),
            leaves: LeafFilter::new(TreeSize::Small.leaves(), vec![3, 7]),
        };
        let expected = FoldAsked::Count(scope, EntryClass::Tombstones);
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(name("0x1"), b"0x1");
        assert_eq!(name("0x+1"), b"0x+1");
    }

    #[test]
    fn words_that_say_nothing_are_named() {
        for (text, named) in [
            ("list-buckets 0", "NVAL"),
            ("object-stats b some all", "KEYS"),
            ("object-stats b all some", "MODIFIED"),
            ("object-stats b all 9,3", "MODIFIED"),
            ("count-tombstones b all 1,2 all", "SEGMENTS"),
            ("count-tombstones b all 1;huge all", "SEGMENTS"),
            ("find-keys b all all siblings=1", "sibling_count=COUNT"),
            ("erase-keys b all all all now", "METHOD"),
            ("object-stats b", "object-stats b"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(named), "{text}: {refused}");
        }
    }
}
