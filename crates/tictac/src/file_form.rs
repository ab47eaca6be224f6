//! A tree as a file.
//!
//! ```text
//! file    = magic         "KVTT"  4
//!           version       u8      1
//!           hash version  u8      of the leaves
//!           size          u8      0 (xxsmall) to 5 (xlarge)
//!           reserved      u8      0
//!           store         u64     identity of the contents that the tree covers
//!           sequence      u64     the last batch of the store that is in the tree
//!           keys          u64     an estimate
//!           branches      u32     how many follow
//!           branch*               by strictly ascending number; others are zero
//!           checksum      u32     masked CRC-32C of all bytes before
//! branch  = number        u32
//!           leaf*         u32     256 of them
//! ```
//!
//! All numbers are little-endian. The root is not in the file, since it follows from the leaves.

use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};

use crate::size::{LEAVES_A_BRANCH, TreeSize};
use crate::tree::Tree;

const MAGIC: [u8; 4] = *b"KVTT";
const VERSION: u8 = 1;
const HEADER_LEN: usize = 36;
const BRANCH_LEN: usize = 4 + 4 * LEAVES_A_BRANCH;
const CHECKSUM_LEN: usize = 4;

/// The contents that a tree covers. A store with other contents needs another tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The identity of the store.
    pub store: u64,
    /// The last batch that is in the tree.
    pub sequence: u64,
}

/// The reason why bytes are not a tree. The tree has to be built again; nothing else is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeFileError {
    /// The bytes do not begin like a tree.
    #[error("no file of an anti-entropy tree: build the tree again")]
    NotATree,
    /// A later version wrote the bytes.
    #[error("anti-entropy tree of version {got}, supported is {VERSION}: build the tree again")]
    Version {
        /// The version in the file.
        got: u8,
    },
    /// The checksum does not match.
    #[error(
        "damaged anti-entropy tree: checksum {got:08x}, expected {expected:08x}: build the tree again"
    )]
    Checksum {
        /// The checksum of the bytes.
        got: u32,
        /// The checksum in the file.
        expected: u32,
    },
    /// The checksum matches, but the layout is invalid.
    #[error("malformed anti-entropy tree at byte {offset}: build the tree again")]
    Malformed {
        /// The offset at which reading stopped, in bytes.
        offset: usize,
    },
}

impl From<Truncated> for TreeFileError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}

impl Tree {
    /// The bytes of the file.
    pub fn encode(&self, stamp: Stamp) -> Vec<u8> {
        let branches = self.touched().count();
        let mut out = Vec::with_capacity(HEADER_LEN + branches * BRANCH_LEN + CHECKSUM_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.hash_version(), self.size().number(), 0]);
        for number in [stamp.store, stamp.sequence, self.keys()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_number(&mut out, branches);
        for (number, leaves) in self.touched() {
            put_number(&mut out, number);
            leaves
                .iter()
                .for_each(|leaf| out.extend_from_slice(&leaf.to_le_bytes()));
        }
        let sum = mask_checksum(checksum(&out));
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the bytes of [`Tree::encode`]: the tree, and the contents that it covers.
    ///
    /// # Errors
    /// If any byte has changed since it was written, or bytes are missing or added.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Stamp), TreeFileError> {
        let covered = check_envelope(bytes)?;
        let mut reader = ByteReader::new(covered);
        let malformed = |reader: &ByteReader<'_>| TreeFileError::Malformed {
            offset: reader.offset(),
        };
        reader.take(MAGIC.len() + 1)?;
        let hash_version = reader.u8()?;
        let size = TreeSize::from_number(reader.u8()?).ok_or_else(|| malformed(&reader))?;
        if reader.u8()? != 0 {
            return Err(malformed(&reader));
        }
        let (store, sequence, keys) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut tree = Self::of_version(size, hash_version);
        let mut next = 0;
        for _ in 0..reader.u32()? {
            let number = reader.u32()? as usize;
            if number < next || number >= size.branches() {
                return Err(malformed(&reader));
            }
            let mut leaves = [0; LEAVES_A_BRANCH];
            for leaf in &mut leaves {
                *leaf = reader.u32()?;
            }
            tree.add_branch(number, &leaves);
            next = number + 1;
        }
        if !reader.is_empty() {
            return Err(malformed(&reader));
        }
        tree.set_keys(keys);
        Ok((tree, Stamp { store, sequence }))
    }
}

/// The bytes that the checksum covers.
fn check_envelope(bytes: &[u8]) -> Result<&[u8], TreeFileError> {
    if !bytes.starts_with(&MAGIC) || bytes.len() < HEADER_LEN + CHECKSUM_LEN {
        return Err(TreeFileError::NotATree);
    }
    if bytes[MAGIC.len()] != VERSION {
        let got = bytes[MAGIC.len()];
        return Err(TreeFileError::Version { got });
    }
    let (covered, sum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    let expected = ByteReader::new(sum).u32()?;
    let got = mask_checksum(checksum(covered));
    match got == expected {
        true => Ok(covered),
        false => Err(TreeFileError::Checksum { got, expected }),
    }
}

/// Numbers of branches are small.
fn put_number(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    out.extend_from_slice(&number.to_le_bytes());
}
