//! The framing of logs and manifests: records cut into pieces that do not cross blocks of 32 KiB.

use std::sync::Arc;

use kvorum_disk::{DiskError, DiskFile, Reading};
use kvorum_encoding::{checksum, mask_checksum};

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;

/// The content of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged<'a> {
    /// A complete record.
    Record {
        /// Offset of its first piece.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// Bytes that are not a record, between records: their content is lost.
    Damage {
        /// Offset of the first byte.
        offset: u64,
        /// Their number, up to the next possible start of a record.
        len: u64,
    },
    /// The end of a log without further records, as after a crash.
    TornTail {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes up to the end.
        len: u64,
        /// True if all these bytes fit a record whose end was not written.
        is_cut: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Full,
    First,
    Middle,
    Last,
}

/// Reads a log of `len` bytes from its beginning to its end:
///
/// ```text
/// block = piece*  fewer than 7 bytes of zeros             32768 bytes, the last one fewer
/// piece = u32 masked CRC-32C of kind and bytes  u16 length  u8 kind  bytes        little-endian
/// kind  = 1 a whole record, 2 the first of several, 3 one between, 4 the last of several
/// ```
///
/// Basho's LevelDB allocates logs in advance and fills them with zeros: kind 0 and length 0 mark
/// the rest of the block as empty.
///
/// # Errors
/// A disk that fails.
pub fn read_log(
    file: &Arc<dyn DiskFile>,
    len: u64,
    take: &mut dyn FnMut(Logged<'_>),
) -> Result<(), DiskError> {
    let mut joining = Joining {
        take,
        record: Vec::new(),
        began: None,
        bad: None,
        has_wrong_bytes: false,
    };
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < len {
        let left = usize::try_from(len - at).unwrap_or(usize::MAX);
        let wanted = BLOCK_BYTES.min(left);
        let read = file.read_at(&mut block[..wanted], at, Reading::MayBlock)?;
        joining.take_block(&block[..read], at);
        if read < wanted {
            break;
        }
        at += read as u64;
    }
    joining.finish(len);
    Ok(())
}

/// Pieces that are joined to records.
struct Joining<'a> {
    take: &'a mut dyn FnMut(Logged<'_>),
    record: Vec<u8>,
    /// The offset of the incomplete record.
    began: Option<u64>,
    /// The offset of bytes that are not a record, until a record follows.
    bad: Option<u64>,
    /// True if these bytes have another defect than a missing end.
    has_wrong_bytes: bool,
}

impl Joining<'_> {
    fn take_block(&mut self, block: &[u8], at: u64) {
        let mut rest = block;
        while !rest.is_empty() {
            let offset = at + (block.len() - rest.len()) as u64;
            if let Some((piece, bytes, behind)) = split_piece(rest) {
                self.take_piece(piece, bytes, offset);
                rest = behind;
                continue;
            }
            if rest.iter().all(|byte| *byte == 0) {
                return;
            }
            self.lose(offset);
            self.has_wrong_bytes |= !is_cut(rest);
            // LevelDB gives up the block; here a search for the next intact piece follows.
            let starts = 1..rest.len();
            let mut starts = starts.filter(|start| split_piece(&rest[*start..]).is_some());
            rest = starts.next().map_or(&[][..], |start| &rest[start..]);
        }
    }

    fn take_piece(&mut self, piece: Piece, bytes: &[u8], offset: u64) {
        let continues = matches!(piece, Piece::Middle | Piece::Last);
        if continues != self.began.is_some() {
            self.lose(offset);
            if continues {
                return;
            }
        }
        if !continues {
            self.report_damage(offset);
            self.began = Some(offset);
        }
        self.record.extend_from_slice(bytes);
        if matches!(piece, Piece::Full | Piece::Last)
            && let Some(offset) = self.began.take()
        {
            let bytes = &self.record[..];
            (self.take)(Logged::Record { offset, bytes });
            self.record.clear();
        }
    }

    /// Gives up the incomplete record and the bytes from `offset` on.
    fn lose(&mut self, offset: u64) {
        self.record.clear();
        let from = self.began.take().unwrap_or(offset);
        self.bad.get_or_insert(from);
    }

    /// Reports the damage before a record at `until`: it is not a torn tail.
    fn report_damage(&mut self, until: u64) {
        if let Some(offset) = self.bad.take() {
            let len = until - offset;
            self.has_wrong_bytes = false;
            (self.take)(Logged::Damage { offset, len });
        }
    }

    fn finish(&mut self, len: u64) {
        if let Some(offset) = self.bad.take().or(self.began.take()) {
            let len = len.saturating_sub(offset);
            let is_cut = !self.has_wrong_bytes;
            (self.take)(Logged::TornTail {
                offset,
                len,
                is_cut,
            });
        }
    }
}

/// True for the start of a piece whose end is missing.
fn is_cut(rest: &[u8]) -> bool {
    match rest.first_chunk::<HEADER_BYTES>() {
        Some([.., l0, l1, _]) => {
            HEADER_BYTES + usize::from(u16::from_le_bytes([*l0, *l1])) > rest.len()
        }
        None => true,
    }
}

/// The first piece of a block's rest and the bytes after it; `None` if the piece is damaged.
fn split_piece(rest: &[u8]) -> Option<(Piece, &[u8], &[u8])> {
    let (header, behind) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let [s0, s1, s2, s3, l0, l1, kind] = *header;
    let piece = match kind {
        1 => Piece::Full,
        2 => Piece::First,
        3 => Piece::Middle,
        4 => Piece::Last,
        _ => return None,
    };
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    let (bytes, behind) = behind.split_at_checked(len)?;
    // The kind is directly before the bytes, and the checksum covers both.
    let covered = rest.get(HEADER_BYTES - 1..HEADER_BYTES + len)?;
    let sum = u32::from_le_bytes([s0, s1, s2, s3]);
    (mask_checksum(checksum(covered)) == sum).then_some((piece, bytes, behind))
}
