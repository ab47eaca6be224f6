//! The trees of a vnode as a file, and the rule by which such a file is trusted.
//!
//! A file states the contents of its trees: every batch of the named store up to `complete`, and
//! none behind `reached`. Both batches were durable before the file was written. So the store of
//! the next run has them and perhaps later ones, with these exceptions:
//!
//! - another store, or one that was erased, has another identity;
//! - a store that was rolled back, restored or cut ends before `reached`;
//! - a store that was repaired, or lost data in another way, lists more losses;
//! - keys are in other trees when the properties of buckets have changed.
//!
//! In these cases the file is useless, and the trees are built anew. A file that is behind its
//! store is useful if the log has replayed all later batches (after a crash): the leaves of their
//! entries are counted again.
//!
//! A file that does not fit is removed before the first write of the run ([`crate::TreeFiles::sift`]):
//! later, the store may reach the same batch number with other contents.

use std::collections::BTreeMap;

use kvorum_backend::{Replayed, Sequence, StoreId};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};
use kvorum_planted_defects::is_planted;
use kvorum_ring::Partition;
use kvorum_tictac::{HASH_VERSION, Stamp, Tree, TreeFileError};

use crate::tree_name::TreeName;

/// The first bytes of the file.
pub(crate) const MAGIC: &[u8; 8] = b"kvortre1";
const CHECKSUM_BYTES: usize = 4;
/// The length of the stamp, in bytes.
pub(crate) const STAMP_BYTES: usize = 8 + 5 * 8 + 2 * 4 + CHECKSUM_BYTES;
/// The length of a tree's name, in bytes.
pub(crate) const NAME_BYTES: usize = 8;

/// The contents that the trees of a file cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptStamp {
    pub(crate) store: StoreId,
    /// The trees have every batch up to this one.
    pub(crate) complete: Sequence,
    /// They have no batch behind this one.
    pub(crate) reached: Sequence,
    /// Losses that the store listed then.
    pub(crate) lost: u64,
    /// The time at which their building began, in microseconds since the Unix epoch.
    pub(crate) built_at: u64,
    /// Identifies the properties of buckets by which keys are placed in trees.
    pub(crate) placements: u32,
}

/// A store as it was when its vnode was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedStore {
    pub(crate) store: StoreId,
    pub(crate) sequence: Sequence,
    /// The entries that the log replayed.
    pub(crate) replayed: Option<Replayed>,
}

/// The state of a vnode, apart from its batches, when trees could be taken from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    pub(crate) lost: u64,
    pub(crate) placements: u32,
}

/// The verdict on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The trees have every entry that was stored when the vnode was opened.
    Whole,
    /// They lack the changes of entries in these segments.
    Lacking(Vec<u32>),
    /// They are useless.
    Refused(Refusal),
}

/// The reason why trees of a file are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    OtherStore,
    OlderStore,
    OtherPlacements,
    Lossy,
    BatchesUnknown,
}

impl Refusal {
    /// The reason as text.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::OtherStore => "they are of another store",
            Self::OlderStore => {
                "the store ends before them: it was rolled back, or has lost its end"
            }
            Self::OtherPlacements => "properties of buckets have changed since",
            Self::Lossy => "the store has lost something since",
            Self::BatchesUnknown => "the value log has not replayed all batches since",
        }
    }
}

impl KeptStamp {
    /// The reason why the file does not belong to this store's past; `None` if it does.
    pub(crate) fn foreign_to(&self, store: StoreId, sequence: Sequence) -> Option<Refusal> {
        if self.store != store {
            return Some(Refusal::OtherStore);
        }
        let is_older = sequence < self.reached && !is_planted!(TreeKeptAcrossRollback);
        is_older.then_some(Refusal::OlderStore)
    }

    /// The verdict of the module's rule.
    pub(crate) fn judge(&self, opened: &OpenedStore, present: &Present) -> Trust {
        if let Some(refusal) = self.foreign_to(opened.store, opened.sequence) {
            return Trust::Refused(refusal);
        }
        if self.placements != present.placements {
            return Trust::Refused(Refusal::OtherPlacements);
        }
        if self.lost != present.lost {
            return Trust::Refused(Refusal::Lossy);
        }
        if opened.sequence <= self.complete {
            return Trust::Whole;
        }
        let covers = |it: &&Replayed| it.from <= self.complete && it.to >= opened.sequence;
        match opened.replayed.as_ref().filter(covers) {
            Some(replayed) => Trust::Lacking(replayed.segments.clone()),
            None => Trust::Refused(Refusal::BatchesUnknown),
        }
    }

    /// The stamp of each tree in the file.
    pub(crate) fn of_tree(&self) -> Stamp {
        Stamp {
            store: self.store.0,
            sequence: self.complete.0,
        }
    }
}

/// The reason why bytes are not a file of trees.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("it begins with \"{}\" where \"{}\" is expected", got.escape_ascii(), MAGIC.escape_ascii())]
    Magic { got: Vec<u8> },
    #[error("checksum {got:08x} where {expected:08x} is expected")]
    Checksum { got: u32, expected: u32 },
    #[error("cut short at byte {}", .0.offset)]
    Truncated(#[from] Truncated),
    #[error("malformed at byte {offset}")]
    Malformed { offset: usize },
    #[error("{0}")]
    Tree(#[from] TreeFileError),
}

/// Encodes a file:
///
/// ```text
/// trees of a vnode (file `hash_trees/N` of partition N, replaced atomically; little-endian)
///   stamp     60 bytes  magic "kvortre1", store identity u64, complete u64, reached u64, lost u64, built
///                       at u64, placements u32, number of trees u32, checksum u32
///   name      8 bytes   owner partition u16, n_val u8, zero u8, length of the tree u32; once for each
///                       tree, ascending
///   checksum  u32       of the names
///   tree                as kvorum-tictac draws it, with a checksum of its own; once for each name
/// checksum              masked CRC-32C of the bytes before, from the beginning of the part
/// ```
pub(crate) fn encode(stamp: &KeptStamp, trees: &[(TreeName, Vec<u8>)]) -> Vec<u8> {
    let trees_bytes: usize = trees.iter().map(|it| NAME_BYTES + it.1.len()).sum();
    let mut out = Vec::with_capacity(STAMP_BYTES + CHECKSUM_BYTES + trees_bytes);
    out.extend_from_slice(MAGIC);
    for number in [
        stamp.store.0,
        stamp.complete.0,
        stamp.reached.0,
        stamp.lost,
        stamp.built_at,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&stamp.placements.to_le_bytes());
    put_length(&mut out, trees.len());
    seal_part(&mut out, 0);
    let names_at = out.len();
    for (name, tree) in trees {
        out.extend_from_slice(&name.owner.number().to_le_bytes());
        out.extend_from_slice(&[name.n_val, 0]);
        put_length(&mut out, tree.len());
    }
    seal_part(&mut out, names_at);
    for (_, tree) in trees {
        out.extend_from_slice(tree);
    }
    out
}

/// Reads the stamp, and the number of trees that follow it.
///
/// # Errors
/// When a byte of the stamp is not as it was written.
pub(crate) fn decode_stamp(bytes: &[u8]) -> Result<(KeptStamp, u32), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let magic = reader.take(MAGIC.len())?;
    if magic != MAGIC {
        let got = magic.to_vec();
        return Err(DecodeError::Magic { got });
    }
    let stamp = KeptStamp {
        store: StoreId(reader.u64()?),
        complete: Sequence(reader.u64()?),
        reached: Sequence(reader.u64()?),
        lost: reader.u64()?,
        built_at: reader.u64()?,
        placements: reader.u32()?,
    };
    let trees = reader.u32()?;
    check_part(bytes, 0, &mut reader)?;
    Ok((stamp, trees))
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When a byte is not as it was written, bytes are missing or left over, or a tree has another
/// version of the hash or other contents than the stamp.
pub(crate) fn decode(bytes: &[u8]) -> Result<(KeptStamp, BTreeMap<TreeName, Tree>), DecodeError> {
    let (stamp, count) = decode_stamp(bytes)?;
    let mut reader = ByteReader::new(bytes);
    reader.take(STAMP_BYTES)?;
    let mut names: Vec<(TreeName, usize)> = Vec::new();
    for _ in 0..count {
        let name = decode_name(&mut reader)?;
        if names.last().is_some_and(|last| last.0 >= name.0) {
            return Err(malformed(&reader));
        }
        names.push(name);
    }
    check_part(bytes, STAMP_BYTES, &mut reader)?;
    let mut trees = BTreeMap::new();
    for (name, len) in names {
        let (tree, of_tree) = Tree::decode(reader.take(len)?)?;
        if of_tree != stamp.of_tree() || tree.hash_version() != HASH_VERSION {
            return Err(malformed(&reader));
        }
        trees.insert(name, tree);
    }
    match reader.is_empty() {
        true => Ok((stamp, trees)),
        false => Err(malformed(&reader)),
    }
}

fn decode_name(reader: &mut ByteReader<'_>) -> Result<(TreeName, usize), DecodeError> {
    let owner = Partition::of_number(reader.u16()?);
    let (n_val, zero, len) = (reader.u8()?, reader.u8()?, reader.u32()?);
    match (owner, usize::try_from(len)) {
        (Some(owner), Ok(len)) if zero == 0 => Ok((TreeName { owner, n_val }, len)),
        _ => Err(malformed(reader)),
    }
}

fn malformed(reader: &ByteReader<'_>) -> DecodeError {
    DecodeError::Malformed {
        offset: reader.offset(),
    }
}

/// Lengths and numbers of trees are small.
fn put_length(out: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
}

/// Ends a part that began at `from` with its checksum.
fn seal_part(out: &mut Vec<u8>, from: usize) {
    let sum = mask_checksum(checksum(&out[from..]));
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Reads the checksum of a part that began at `from`.
fn check_part(bytes: &[u8], from: usize, reader: &mut ByteReader<'_>) -> Result<(), DecodeError> {
    let got = mask_checksum(checksum(&bytes[from..reader.offset()]));
    let expected = reader.u32()?;
    match got == expected {
        true => Ok(()),
        false => Err(DecodeError::Checksum { got, expected }),
    }
}

#[cfg(test)]
#[path = "kept_trees_test.rs"]
mod tests;
