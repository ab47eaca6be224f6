//! Walks through a child's entries of some buckets, in parts.

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Result, Timestamp, Visited,
};
use kvorum_encoding::{StorageKey, prefix_lens, successor};

use crate::child::Child;

/// The sizes of one key in this many are read for an estimate.
const KEYS_PER_SAMPLE: u64 = 16;

/// The limits of a part, which has at least one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most keys, and buckets without any.
    pub(crate) keys: usize,
    /// The most bytes of keys, heads and bodies, as far as they are read.
    pub(crate) bytes: u64,
}

/// Visits a child's entries of these ordered buckets, behind a key. Returns the last key, or `None`
/// at the end of all buckets. Expired entries are visited too.
pub(crate) fn walk(
    child: &Child,
    buckets: &[Bytes],
    after: Option<&Bytes>,
    detail: FoldDetail,
    limits: Limits,
    visit: &mut dyn FnMut(Visited<'_>),
) -> Result<Option<Bytes>> {
    let snapshot = child.named(child.store.snapshot(Lease::Unlimited))?;
    let of_any_age = FoldFilter::unexpired(Timestamp(0));
    let (mut units, mut bytes, mut last) = (0, 0, None);
    for bucket in rest(buckets, after) {
        let range = FoldRange::prefix(bucket);
        let range = match after {
            Some(after) if after.starts_with(bucket) => {
                range.resumed_at(&StorageKey::from_encoded(successor(after)))
            }
            _ => range,
        };
        units += 1;
        let end = snapshot.fold(detail, &range, &of_any_age, &mut |visited| {
            units += 1;
            bytes +=
                (visited.key.as_bytes().len() + visited.head.len() + visited.body.len()) as u64;
            last = Some(visited.key.to_bytes());
            visit(visited);
            match units > limits.keys || bytes >= limits.bytes {
                true => Flow::Stop,
                false => Flow::Continue,
            }
        });
        let is_whole = child.named(end)? == FoldEnd::Complete;
        if !is_whole || (units > limits.keys && last.is_some()) {
            return Ok(last);
        }
    }
    Ok(None)
}

/// The buckets that may have keys behind this one.
fn rest<'a>(buckets: &'a [Bytes], after: Option<&Bytes>) -> &'a [Bytes] {
    let Some(after) = after else {
        return buckets;
    };
    let bucket = match prefix_lens(after) {
        Ok((_, bucket_len)) => &after[..bucket_len],
        Err(_) => &after[..],
    };
    &buckets[buckets.partition_point(|it| &it[..] < bucket)..]
}

/// Keys counted, and their estimated bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) keys: u64,
    sampled_keys: u64,
    sampled_bytes: u64,
}

impl Count {
    /// The estimated bytes of all keys.
    pub(crate) fn bytes(&self) -> u64 {
        let all = u128::from(self.keys) * u128::from(self.sampled_bytes);
        u64::try_from(all / u128::from(self.sampled_keys.max(1))).unwrap_or(u64::MAX)
    }

    /// Counts a part; returns its last key as [`walk`] does.
    pub(crate) fn add_part(
        &mut self,
        child: &Child,
        buckets: &[Bytes],
        after: Option<&Bytes>,
        keys_max: usize,
    ) -> Result<Option<Bytes>> {
        let limits = Limits {
            keys: keys_max,
            bytes: u64::MAX,
        };
        let (keys, mut sample) = (&mut self.keys, Vec::new());
        let last = walk(child, buckets, after, FoldDetail::Keys, limits, &mut |it| {
            if keys.is_multiple_of(KEYS_PER_SAMPLE) {
                sample.push(it.key.clone());
            }
            *keys += 1;
        })?;
        for key in sample {
            if let Some(head) = child.head_of_any_age(&key)? {
                self.sampled_keys += 1;
                let parts = (key.as_bytes().len() + head.head.len()) as u64;
                self.sampled_bytes += parts + head.body_len;
            }
        }
        Ok(last)
    }
}
