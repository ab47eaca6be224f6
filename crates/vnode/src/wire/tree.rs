//! Questions about trees, and their answers, as bytes.

use std::sync::Arc;

use bytes::BufMut as _;
use kvorum_encoding::put_varint;
use kvorum_ring::{Epoch, Partition};
use kvorum_tictac::TreeSize;

use super::message::{KEY_BYTES_MAX, Reader, WireError, put_prefixed};
use crate::tree_name::TreeName;
use crate::tree_request::{LeafKeys, SeenEntry, TreeAnswer, TreeQuestion, TreeRequest};

const ROOT: u8 = 0;
const BRANCHES: u8 = 1;
const KEYS: u8 = 2;
const RECOUNT: u8 = 3;
const UNKNOWN: u8 = 4;

/// The rest of a request, behind its common beginning.
///
/// ```text
/// owner u16, n_val u8, question u8 (0 root, 1 branches, 2 keys, 3 recount), by question:
/// branches, recount = size u8, numbers
/// keys              = size u8, numbers, has_prefix u8, of 1 bytes; has_times u8, of 1 first and last u64;
///                     has_after u8, of 1 a key; keys_max u32
/// numbers           = varint count, u32 each
/// bytes, key        = varint length, bytes
/// ```
pub(super) fn put_tree_request(out: &mut Vec<u8>, request: &TreeRequest) {
    out.put_u16_le(request.tree.owner.number());
    out.put_u8(request.tree.n_val);
    match &request.question {
        TreeQuestion::Root => out.put_u8(ROOT),
        TreeQuestion::Branches { size, branches } => {
            out.put_u8(BRANCHES);
            out.put_u8(size.number());
            put_numbers(out, branches);
        }
        TreeQuestion::Keys(keys) => {
            out.put_u8(KEYS);
            put_leaf_keys(out, keys);
        }
        TreeQuestion::Recount { size, leaves } => {
            out.put_u8(RECOUNT);
            out.put_u8(size.number());
            put_numbers(out, leaves);
        }
    }
}

fn put_leaf_keys(out: &mut Vec<u8>, keys: &LeafKeys) {
    out.put_u8(keys.size.number());
    put_numbers(out, &keys.leaves);
    out.put_u8(u8::from(keys.bucket_prefix.is_some()));
    if let Some(prefix) = &keys.bucket_prefix {
        put_prefixed(out, prefix);
    }
    out.put_u8(u8::from(keys.modified.is_some()));
    if let Some((first, last)) = keys.modified {
        out.put_u64_le(first);
        out.put_u64_le(last);
    }
    out.put_u8(u8::from(keys.after.is_some()));
    if let Some(after) = &keys.after {
        put_prefixed(out, after.as_bytes());
    }
    out.put_u32_le(keys.keys_max);
}

/// The rest of an answer, behind its common beginning.
///
/// ```text
/// answer u8 (0 root, 1 branches, 2 keys, 3 recounted, 4 unknown), by answer:
/// root     = size u8, hash_version u8, is_building u8, numbers
/// branches = is_building u8, varint count, numbers each
/// keys     = is_cut u8, now u64, varint count, each key, segment u32, version u64, modified u64,
///            expires u8, of 1 when u64
/// ```
pub(super) fn put_tree_answer(out: &mut Vec<u8>, answer: &TreeAnswer) {
    match answer {
        TreeAnswer::Root {
            size,
            hash_version,
            root,
            is_building,
        } => {
            out.put_slice(&[ROOT, size.number(), *hash_version, u8::from(*is_building)]);
            put_numbers(out, root);
        }
        TreeAnswer::Branches {
            branches,
            is_building,
        } => {
            out.put_slice(&[BRANCHES, u8::from(*is_building)]);
            put_varint(out, branches.len() as u64);
            branches.iter().for_each(|branch| put_numbers(out, branch));
        }
        TreeAnswer::Keys {
            entries,
            is_cut,
            now,
        } => {
            out.put_slice(&[KEYS, u8::from(*is_cut)]);
            out.put_u64_le(*now);
            put_varint(out, entries.len() as u64);
            entries.iter().for_each(|entry| put_seen(out, entry));
        }
        TreeAnswer::Recounted => out.put_u8(RECOUNT),
        TreeAnswer::Unknown => out.put_u8(UNKNOWN),
    }
}

/// The approximate length of an answer, in bytes.
pub(super) fn tree_answer_bytes(answer: &TreeAnswer) -> usize {
    16 + match answer {
        TreeAnswer::Root { root, .. } => 4 * root.len(),
        TreeAnswer::Branches { branches, .. } => {
            let of_branch = |branch: &Vec<u32>| 4 * branch.len() + 4;
            branches.iter().map(of_branch).sum()
        }
        TreeAnswer::Keys { entries, .. } => {
            let of_entry = |entry: &SeenEntry| entry.key.as_bytes().len() + 32;
            entries.iter().map(of_entry).sum()
        }
        TreeAnswer::Recounted | TreeAnswer::Unknown => 0,
    }
}

fn put_seen(out: &mut Vec<u8>, entry: &SeenEntry) {
    put_prefixed(out, entry.key.as_bytes());
    out.put_u32_le(entry.segment);
    out.put_u64_le(entry.version);
    out.put_u64_le(entry.modified);
    out.put_u8(u8::from(entry.expiry.is_some()));
    if let Some(expiry) = entry.expiry {
        out.put_u64_le(expiry);
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    put_varint(out, numbers.len() as u64);
    for number in numbers {
        out.put_u32_le(*number);
    }
}

impl Reader<'_> {
    pub(super) fn tree_request(
        &mut self,
        partition: Partition,
        epoch: Epoch,
    ) -> Result<TreeRequest, WireError> {
        let tree = TreeName {
            owner: self.partition()?,
            n_val: self.bytes.u8()?,
        };
        let question = match self.bytes.u8()? {
            ROOT => TreeQuestion::Root,
            BRANCHES => TreeQuestion::Branches {
                size: self.tree_size()?,
                branches: self.numbers()?,
            },
            KEYS => TreeQuestion::Keys(self.leaf_keys()?),
            RECOUNT => TreeQuestion::Recount {
                size: self.tree_size()?,
                leaves: self.numbers()?,
            },
            _ => return Err(self.malformed()),
        };
        Ok(TreeRequest {
            partition,
            epoch,
            tree,
            question,
        })
    }

    fn leaf_keys(&mut self) -> Result<LeafKeys, WireError> {
        Ok(LeafKeys {
            size: self.tree_size()?,
            leaves: self.numbers()?,
            bucket_prefix: match self.flag()? {
                true => Some(self.prefixed(KEY_BYTES_MAX)?),
                false => None,
            },
            modified: match self.flag()? {
                true => Some((self.bytes.u64()?, self.bytes.u64()?)),
                false => None,
            },
            after: match self.flag()? {
                true => Some(self.listed_key()?),
                false => None,
            },
            keys_max: self.bytes.u32()?,
        })
    }

    pub(super) fn tree_answer(&mut self) -> Result<TreeAnswer, WireError> {
        match self.bytes.u8()? {
            ROOT => {
                let (size, hash_version) = (self.tree_size()?, self.bytes.u8()?);
                let is_building = self.flag()?;
                Ok(TreeAnswer::Root {
                    size,
                    hash_version,
                    root: self.numbers()?.to_vec(),
                    is_building,
                })
            }
            BRANCHES => {
                let is_building = self.flag()?;
                let count = self.counted(1)?;
                let branches = (0..count).map(|_| Ok(self.numbers()?.to_vec()));
                let branches = branches.collect::<Result<_, WireError>>()?;
                Ok(TreeAnswer::Branches {
                    branches,
                    is_building,
                })
            }
            KEYS => {
                let (is_cut, now) = (self.flag()?, self.bytes.u64()?);
                let count = self.counted(22)?;
                let entries = (0..count).map(|_| self.seen());
                let entries = entries.collect::<Result<_, WireError>>()?;
                Ok(TreeAnswer::Keys {
                    entries,
                    is_cut,
                    now,
                })
            }
            RECOUNT => Ok(TreeAnswer::Recounted),
            UNKNOWN => Ok(TreeAnswer::Unknown),
            _ => Err(self.malformed()),
        }
    }

    fn seen(&mut self) -> Result<SeenEntry, WireError> {
        Ok(SeenEntry {
            key: self.listed_key()?,
            segment: self.bytes.u32()?,
            version: self.bytes.u64()?,
            modified: self.bytes.u64()?,
            expiry: match self.flag()? {
                true => Some(self.bytes.u64()?),
                false => None,
            },
        })
    }

    fn tree_size(&mut self) -> Result<TreeSize, WireError> {
        TreeSize::from_number(self.bytes.u8()?).ok_or_else(|| self.malformed())
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.bytes.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// Reads the number of items that take at least this many bytes each.
    fn counted(&mut self, bytes_each: usize) -> Result<usize, WireError> {
        let count = self.bytes.varint_len()?;
        match count > self.bytes.remaining() / bytes_each {
            true => Err(self.malformed()),
            false => Ok(count),
        }
    }

    fn numbers(&mut self) -> Result<Arc<[u32]>, WireError> {
        let count = self.counted(4)?;
        let numbers = (0..count).map(|_| self.bytes.u32());
        Ok(numbers.collect::<Result<_, _>>()?)
    }
}
