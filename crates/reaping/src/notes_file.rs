//! The notes of a vnode for all its preference lists as a file.
//!
//! ```text
//! file     = magic         "KVTN"  4
//!            version       u8      1
//!            reserved      u8 * 3  0
//!            written at    identity of the store u64, its last durable sequence u64
//!            lists         u32     how many follow
//!            list*                 by strictly ascending partition and n_val
//!            checksum      u32     masked CRC-32C of all bytes before
//! list     = partition     u16
//!            n_val         u8
//!            flags         u8      1 has a mark, 2 the mark is confirmed, 4 receives, 8 hides something
//!            joined        u64     an epoch
//!            mark          round, extent    with flag 1
//!            watermark     round            with flag 4
//!            hidden        extent           with flag 8, which has 4 beside it
//! round    = number        u64
//!            nonce         u64
//! extent   = stores        u32     how many follow
//!            store*        identity u64, last sequence u64
//! ```
//!
//! All numbers are little-endian. A file that cannot be read is none: its vnode is a receiver of
//! all lists that have a watermark, which costs a repair and nothing else. Neither is a file that was
//! written at a batch that the store does not have: an older copy of the store was put back.

use std::collections::BTreeMap;

use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};

use crate::extent::{BatchName, Extent};
use crate::note::{Mark, Note, Receiving};
use crate::watermark::RoundName;

/// The first bytes of a file of notes.
pub const NOTES_MAGIC: [u8; 4] = *b"KVTN";
const VERSION: u8 = 1;
const WORDS_LEN: usize = 8;
const HEADER_LEN: usize = WORDS_LEN + 16;
const CHECKSUM_LEN: usize = 4;

/// Flags of a list: it has a mark, the mark is confirmed, the vnode receives, something is hidden.
pub const HAS_MARK: u8 = 1;
const IS_CONFIRMED: u8 = 2;
/// See [`HAS_MARK`].
pub const RECEIVES: u8 = 4;
/// See [`HAS_MARK`].
pub const HIDES: u8 = 8;

/// A preference list, by what its trees are named.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct ListName {
    /// The number of the partition that owns its keys.
    pub partition: u16,
    /// The n_val of their buckets.
    pub n_val: u8,
}

/// The reason why bytes are no notes. The vnode is repaired from the other replicas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotesFileError {
    /// They do not begin as notes do.
    #[error("no file of a vnode's notes of rounds: the vnode is repaired")]
    NotNotes,
    /// A later version wrote them.
    #[error(
        "notes of rounds of version {got}, supported is {VERSION}: start the version that wrote \
         them"
    )]
    Version {
        /// The version in the file.
        got: u8,
    },
    /// The checksum does not match.
    #[error(
        "damaged notes of rounds: checksum {got:08x}, expected {expected:08x}: the vnode is repaired"
    )]
    Checksum {
        /// The checksum of the bytes.
        got: u32,
        /// The checksum in the file.
        expected: u32,
    },
    /// The checksum matches and the layout does not.
    #[error("malformed notes of rounds at byte {offset}: the vnode is repaired")]
    Malformed {
        /// The offset at which reading stopped.
        offset: usize,
    },
}

impl From<Truncated> for NotesFileError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnodeNotes {
    /// The last batch of the store that was durable when the notes were written.
    pub written_at: BatchName,
    /// The note for each list.
    pub lists: BTreeMap<ListName, Note>,
}

/// The bytes of the file with these notes.
pub fn encode_notes(notes: &VnodeNotes) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&NOTES_MAGIC);
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    put_batch(&mut out, notes.written_at);
    put_count(&mut out, notes.lists.len());
    for (list, note) in &notes.lists {
        out.extend_from_slice(&list.partition.to_le_bytes());
        out.extend_from_slice(&[list.n_val, flags_of(note)]);
        put_note(&mut out, note);
    }
    let sum = mask_checksum(checksum(&out));
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Reads what [`encode_notes`] wrote.
///
/// # Errors
/// Any byte that is not as it was written, and bytes that are missing or too many.
pub fn decode_notes(bytes: &[u8]) -> Result<VnodeNotes, NotesFileError> {
    let mut reader = ByteReader::new(check_envelope(bytes)?);
    reader.take(WORDS_LEN)?;
    let written_at = take_batch(&mut reader)?;
    let mut lists: BTreeMap<ListName, Note> = BTreeMap::new();
    for _ in 0..reader.u32()? {
        let offset = reader.offset();
        let list = ListName {
            partition: reader.u16()?,
            n_val: reader.u8()?,
        };
        let is_next = lists.last_key_value().is_none_or(|(last, _)| *last < list);
        if !is_next {
            return Err(NotesFileError::Malformed { offset });
        }
        lists.insert(list, take_note(&mut reader)?);
    }
    match reader.is_empty() {
        true => Ok(VnodeNotes { written_at, lists }),
        false => Err(NotesFileError::Malformed {
            offset: reader.offset(),
        }),
    }
}

fn flags_of(note: &Note) -> u8 {
    let of_mark = match &note.mark {
        Some(mark) if mark.is_confirmed => HAS_MARK | IS_CONFIRMED,
        Some(_) => HAS_MARK,
        None => 0,
    };
    let of_receiving = match &note.receiving {
        Some(receiving) if receiving.hidden.is_some() => RECEIVES | HIDES,
        Some(_) => RECEIVES,
        None => 0,
    };
    of_mark | of_receiving
}

fn put_note(out: &mut Vec<u8>, note: &Note) {
    out.extend_from_slice(&note.joined.to_le_bytes());
    if let Some(mark) = &note.mark {
        put_round(out, mark.round);
        put_extent(out, &mark.extent);
    }
    if let Some(receiving) = &note.receiving {
        put_round(out, receiving.watermark);
        receiving.hidden.iter().for_each(|it| put_extent(out, it));
    }
}

fn put_round(out: &mut Vec<u8>, round: RoundName) {
    out.extend_from_slice(&round.number.to_le_bytes());
    out.extend_from_slice(&round.nonce.to_le_bytes());
}

fn put_extent(out: &mut Vec<u8>, extent: &Extent) {
    put_count(out, extent.lasts().len());
    for last in extent.lasts() {
        put_batch(out, *last);
    }
}

fn put_batch(out: &mut Vec<u8>, batch: BatchName) {
    out.extend_from_slice(&batch.store.to_le_bytes());
    out.extend_from_slice(&batch.sequence.to_le_bytes());
}

/// There are few of them.
fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
}

fn take_note(reader: &mut ByteReader<'_>) -> Result<Note, NotesFileError> {
    let offset = reader.offset();
    let flags = reader.u8()?;
    let has = |flag: u8| flags & flag == flag;
    let is_known = flags <= HAS_MARK | IS_CONFIRMED | RECEIVES | HIDES;
    let makes_sense = (has(HAS_MARK) || !has(IS_CONFIRMED)) && (has(RECEIVES) || !has(HIDES));
    if !is_known || !makes_sense {
        return Err(NotesFileError::Malformed { offset });
    }
    let joined = reader.u64()?;
    let mark = match has(HAS_MARK) {
        true => Some(Mark {
            round: take_round(reader)?,
            extent: take_extent(reader)?,
            is_confirmed: has(IS_CONFIRMED),
        }),
        false => None,
    };
    let receiving = match has(RECEIVES) {
        true => Some(Receiving {
            watermark: take_round(reader)?,
            hidden: match has(HIDES) {
                true => Some(take_extent(reader)?),
                false => None,
            },
        }),
        false => None,
    };
    Ok(Note {
        joined,
        mark,
        receiving,
    })
}

fn take_round(reader: &mut ByteReader<'_>) -> Result<RoundName, Truncated> {
    Ok(RoundName {
        number: reader.u64()?,
        nonce: reader.u64()?,
    })
}

fn take_extent(reader: &mut ByteReader<'_>) -> Result<Extent, Truncated> {
    let mut lasts = Vec::new();
    for _ in 0..reader.u32()? {
        lasts.push(take_batch(reader)?);
    }
    Ok(Extent::up_to(lasts))
}

fn take_batch(reader: &mut ByteReader<'_>) -> Result<BatchName, Truncated> {
    Ok(BatchName {
        store: reader.u64()?,
        sequence: reader.u64()?,
    })
}

/// The bytes that the checksum covers.
fn check_envelope(bytes: &[u8]) -> Result<&[u8], NotesFileError> {
    if !bytes.starts_with(&NOTES_MAGIC) || bytes.len() < HEADER_LEN + CHECKSUM_LEN {
        return Err(NotesFileError::NotNotes);
    }
    if bytes[NOTES_MAGIC.len()] != VERSION {
        let got = bytes[NOTES_MAGIC.len()];
        return Err(NotesFileError::Version { got });
    }
    let (covered, sum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    let expected = ByteReader::new(sum).u32()?;
    let got = mask_checksum(checksum(covered));
    match got == expected {
        true => Ok(covered),
        false => Err(NotesFileError::Checksum { got, expected }),
    }
}
