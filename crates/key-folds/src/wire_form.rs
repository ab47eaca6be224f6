//! Questions and findings as bytes, for vnodes on other machines.
//!
//! An impossible value is refused as [`Truncated`], with its offset.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{Bucket, BucketType, ByteReader, Key, Truncated, put_varint};

use crate::findings::{Findings, KeyClock, KeyNumber, ObjectStats};
use crate::key_fold::{EntryClass, FoldKind, FoldScope, KeyFold, LeafFilter};

const OBJECT_STATS: u8 = 0;
const SIBLINGS_ABOVE: u8 = 1;
const SIZE_ABOVE: u8 = 2;
const CLOCKS: u8 = 3;
const COUNT: u8 = 4;
const TREE: u8 = 5;

impl KeyFold {
    /// Appends the question.
    ///
    /// ```text
    /// type, bucket,
    /// has_keys u8, of 1 the first key and the last;
    /// has_times u8, of 1 the first second and the last, varints;
    /// has_leaves u8, of 1 the number of leaves u32, varint count, leaves u32 each;
    /// kind u8 (0 object stats, 1 siblings above, 2 size above, 3 clocks, 4 count, 5 tree), by kind:
    /// siblings above, size above = varint
    /// clocks, count              = class u8 (0 any, 1 living, 2 tombstones)
    /// tree                       = the number of leaves u32, has_seed u8, of 1 the seed u64
    /// type, bucket, key          = varint length, bytes
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_scope(out, &self.scope);
        match self.kind {
            FoldKind::ObjectStats => out.put_u8(OBJECT_STATS),
            FoldKind::SiblingsAbove(limit) => {
                out.put_u8(SIBLINGS_ABOVE);
                put_varint(out, limit);
            }
            FoldKind::SizeAbove(limit) => {
                out.put_u8(SIZE_ABOVE);
                put_varint(out, limit);
            }
            FoldKind::Clocks(class) => {
                out.put_u8(CLOCKS);
                out.put_u8(class_code(class));
            }
            FoldKind::Count(class) => {
                out.put_u8(COUNT);
                out.put_u8(class_code(class));
            }
            FoldKind::Tree { leaves, seed } => {
                out.put_u8(TREE);
                out.put_u32_le(leaves);
                out.put_u8(u8::from(seed.is_some()));
                if let Some(seed) = seed {
                    out.put_u64_le(seed);
                }
            }
        }
    }

    /// Reads what [`KeyFold::encode`] appended.
    ///
    /// # Errors
    /// [`Truncated`] for anything else.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            scope: scope(reader)?,
            kind: kind(reader)?,
        })
    }
}

impl Findings {
    /// Appends the findings.
    ///
    /// ```text
    /// count, bytes, histogram of sizes, histogram of siblings,      of the statistics
    /// numbers   = varint count, each a key and a varint
    /// clocks    = varint count, each a key and a clock
    /// count
    /// leaves    = varint count, each its number u32 and its hash u32
    /// histogram = varint count, each two varints
    /// count, bytes         = varint
    /// key, clock           = varint length, bytes
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.stats.count);
        put_varint(out, self.stats.bytes);
        put_histogram(out, &self.stats.sizes);
        put_histogram(out, &self.stats.siblings);
        put_varint(out, self.numbers.len() as u64);
        for KeyNumber { key, number } in &self.numbers {
            put_prefixed(out, key.as_bytes());
            put_varint(out, *number);
        }
        put_varint(out, self.clocks.len() as u64);
        for KeyClock { key, clock } in &self.clocks {
            put_prefixed(out, key.as_bytes());
            put_prefixed(out, clock);
        }
        put_varint(out, self.count);
        put_varint(out, self.leaves.len() as u64);
        for (leaf, hash) in &self.leaves {
            out.put_u32_le(*leaf);
            out.put_u32_le(*hash);
        }
    }

    /// Reads what [`Findings::encode`] appended.
    ///
    /// # Errors
    /// [`Truncated`] for anything else.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let mut findings = Self {
            stats: ObjectStats {
                count: reader.varint()?,
                bytes: reader.varint()?,
                sizes: histogram(reader)?,
                siblings: histogram(reader)?,
            },
            ..Self::default()
        };
        for _ in 0..reader.varint_len()? {
            findings.push_number(KeyNumber {
                key: Key::new(prefixed(reader)?),
                number: reader.varint()?,
            });
        }
        for _ in 0..reader.varint_len()? {
            findings.push_clock(KeyClock {
                key: Key::new(prefixed(reader)?),
                clock: prefixed(reader)?,
            });
        }
        findings.count = reader.varint()?;
        for _ in 0..reader.varint_len()? {
            let (leaf, hash) = (reader.u32()?, reader.u32()?);
            findings.leaves.insert(leaf, hash);
        }
        Ok(findings)
    }
}

fn put_scope(out: &mut Vec<u8>, scope: &FoldScope) {
    put_prefixed(out, scope.bucket_type.as_bytes());
    put_prefixed(out, scope.bucket.as_bytes());
    out.put_u8(u8::from(scope.keys.is_some()));
    if let Some((first, last)) = &scope.keys {
        put_prefixed(out, first.as_bytes());
        put_prefixed(out, last.as_bytes());
    }
    out.put_u8(u8::from(scope.modified_seconds.is_some()));
    if let Some((first, last)) = scope.modified_seconds {
        put_varint(out, first);
        put_varint(out, last);
    }
    out.put_u8(u8::from(scope.leaves.is_some()));
    if let Some(filter) = &scope.leaves {
        out.put_u32_le(filter.leaves());
        put_varint(out, filter.wanted().len() as u64);
        for leaf in filter.wanted() {
            out.put_u32_le(*leaf);
        }
    }
}

fn scope(reader: &mut ByteReader<'_>) -> Result<FoldScope, Truncated> {
    let bucket_type = BucketType::new(prefixed(reader)?);
    let bucket = Bucket::new(prefixed(reader)?);
    let keys = match is_there(reader)? {
        true => Some((Key::new(prefixed(reader)?), Key::new(prefixed(reader)?))),
        false => None,
    };
    let modified_seconds = match is_there(reader)? {
        true => Some((reader.varint()?, reader.varint()?)),
        false => None,
    };
    let leaves = match is_there(reader)? {
        true => Some(leaf_filter(reader)?),
        false => None,
    };
    Ok(FoldScope {
        bucket_type,
        bucket,
        keys,
        modified_seconds,
        leaves,
    })
}

fn leaf_filter(reader: &mut ByteReader<'_>) -> Result<LeafFilter, Truncated> {
    let leaves = reader.u32()?;
    let count = reader.varint_len()?;
    let wanted = (0..count).map(|_| reader.u32());
    let wanted = wanted.collect::<Result<_, _>>()?;
    LeafFilter::new(leaves, wanted).ok_or_else(|| refused(reader))
}

fn kind(reader: &mut ByteReader<'_>) -> Result<FoldKind, Truncated> {
    Ok(match reader.u8()? {
        OBJECT_STATS => FoldKind::ObjectStats,
        SIBLINGS_ABOVE => FoldKind::SiblingsAbove(reader.varint()?),
        SIZE_ABOVE => FoldKind::SizeAbove(reader.varint()?),
        CLOCKS => FoldKind::Clocks(class(reader)?),
        COUNT => FoldKind::Count(class(reader)?),
        TREE => {
            let leaves = reader.u32()?;
            if !leaves.is_power_of_two() {
                return Err(refused(reader));
            }
            let seed = match is_there(reader)? {
                true => Some(reader.u64()?),
                false => None,
            };
            FoldKind::Tree { leaves, seed }
        }
        _ => return Err(refused(reader)),
    })
}

fn class_code(class: EntryClass) -> u8 {
    match class {
        EntryClass::Any => 0,
        EntryClass::Living => 1,
        EntryClass::Tombstones => 2,
    }
}

fn class(reader: &mut ByteReader<'_>) -> Result<EntryClass, Truncated> {
    match reader.u8()? {
        0 => Ok(EntryClass::Any),
        1 => Ok(EntryClass::Living),
        2 => Ok(EntryClass::Tombstones),
        _ => Err(refused(reader)),
    }
}

fn put_histogram(out: &mut Vec<u8>, histogram: &BTreeMap<u64, u64>) {
    put_varint(out, histogram.len() as u64);
    for (of, count) in histogram {
        put_varint(out, *of);
        put_varint(out, *count);
    }
}

fn histogram(reader: &mut ByteReader<'_>) -> Result<BTreeMap<u64, u64>, Truncated> {
    let mut histogram = BTreeMap::new();
    for _ in 0..reader.varint_len()? {
        let (of, count) = (reader.varint()?, reader.varint()?);
        histogram.insert(of, count);
    }
    Ok(histogram)
}

fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn prefixed(reader: &mut ByteReader<'_>) -> Result<Bytes, Truncated> {
    Ok(Bytes::copy_from_slice(reader.take_prefixed()?))
}

fn is_there(reader: &mut ByteReader<'_>) -> Result<bool, Truncated> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(refused(reader)),
    }
}

fn refused(reader: &ByteReader<'_>) -> Truncated {
    Truncated {
        offset: reader.offset(),
    }
}
