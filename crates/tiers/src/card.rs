//! The card of a tier, with the path of the other directory.

use std::path::{Path, PathBuf};

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, ErrorKind as DiskErrorKind, read_file, replace_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

/// The card in the fast directory, with the path of the slow one.
pub const CARD_OF_SLOW: &str = "tier-slow";
/// The card in the slow directory, with the path of the fast one.
pub const CARD_OF_FAST: &str = "tier-fast";
/// The first bytes of a card.
pub const MAGIC: [u8; 8] = *b"KVlsmtie";
const VERSION: u8 = 1;
const DROPPED: u8 = 1;
const HEAD_BYTES: usize = 24;
/// The most bytes of a card.
pub const CARD_BYTES_MAX: u64 = 64 << 10;

/// The contents of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    /// The number drawn for the pair of directories.
    pub(super) number: u64,
    /// The store is being removed, and the files here belong to no store.
    pub(super) is_dropped: bool,
    pub(super) other: PathBuf,
}

/// The result of reading a card.
pub(super) enum Found {
    Nothing,
    Damaged,
    Card(Card),
}

impl Card {
    /// Encodes it:
    ///
    /// ```text
    /// size  field
    /// 8     magic "KVlsmtie"
    /// 1     format version, 1
    /// 1     flags: 0 the store is being removed
    /// 2     zero
    /// 4     masked CRC-32C of the bytes before and behind
    /// 8     number that was drawn for the two directories
    /// rest  path of the other directory, UTF-8
    /// ```
    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = MAGIC.to_vec();
        let flags = if self.is_dropped { DROPPED } else { 0 };
        out.extend_from_slice(&[VERSION, flags, 0, 0]);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(self.other.to_str()?.as_bytes());
        let check = computed(&out);
        out[12..16].copy_from_slice(&check.to_le_bytes());
        Some(out)
    }

    /// `None` for damaged bytes.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let Some((head, other)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let check = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        if head[..8] != MAGIC || check != computed(bytes) {
            return Ok(None);
        }
        if head[8] != VERSION {
            let (path, got) = (path.display(), head[8]);
            let detail = format!("{path} has format version {got}, and {VERSION} is supported");
            return Err(BackendError::new(ErrorKind::NewerFormat, detail));
        }
        let mut number = [0; 8];
        number.copy_from_slice(&head[16..]);
        Ok(std::str::from_utf8(other).ok().map(|other| Self {
            number: u64::from_le_bytes(number),
            is_dropped: head[9] & DROPPED != 0,
            other: PathBuf::from(other),
        }))
    }
}

fn computed(bytes: &[u8]) -> u32 {
    let head = &bytes[..bytes.len().min(12)];
    let rest = bytes.get(16..).unwrap_or(&[]);
    mask_checksum(checksum_append(checksum(head), rest))
}

pub(super) fn read(disk: &dyn Disk, directory: &Path, name: &str) -> Result<Found> {
    let path = directory.join(name);
    match read_file(disk, &path, CARD_BYTES_MAX) {
        Ok(bytes) => Ok(match Card::decode(&bytes, &path)? {
            Some(card) => Found::Card(card),
            None => Found::Damaged,
        }),
        Err(error) if error.kind() == DiskErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) if error.kind() == DiskErrorKind::TooLarge => Ok(Found::Damaged),
        Err(error) => Err(BackendError::from(&error)),
    }
}

/// Writes a card durably.
pub(super) fn write(disk: &dyn Disk, directory: &Path, name: &str, card: &Card) -> Result<()> {
    let bytes = card.encode().ok_or_else(|| {
        let detail = format!("the path {} is not UTF-8", card.other.display());
        BackendError::new(ErrorKind::Denied, detail)
    })?;
    Ok(replace_file(disk, &directory.join(name), &bytes)?)
}

/// A card taken apart for display.
pub fn card_piece(bytes: &[u8]) -> Piece {
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(&MAGIC);
    fields.number("format version", 1);
    fields.number("flags", 1);
    fields.number("zero", 2);
    fields.checksum("checksum of the file", computed(bytes));
    fields.identity("number of the two directories", 8);
    let rest = bytes.get(fields.position()..).unwrap_or(&[]);
    let shown = String::from_utf8_lossy(rest).into_owned();
    fields.field("the other directory", rest.len(), shown, Check::Covered);
    fields.finish("card of a tier")
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let card = Card {
            number: 0x0102_0304,
            is_dropped: true,
            other: PathBuf::from("/mnt/slow/3"),
        };
        let bytes = card.encode().unwrap();
        let drawing = [
            ("magic \"KVlsmtie\"", 8),
            ("format version, 1", 1),
            ("flags: 0 the store is being removed", 1),
            ("zero", 2),
            ("masked CRC-32C of the bytes before and behind", 4),
            ("number that was drawn for the two directories", 8),
            ("path of the other directory", 11),
        ];
        assert_bytes("card.hex", &drawing, &bytes);
        assert_eq!(Card::decode(&bytes, Path::new("x")), Ok(Some(card)));
    }

    #[test]
    fn a_card_that_was_changed_anywhere_is_damaged() {
        let card = Card {
            number: 7,
            is_dropped: true,
            other: PathBuf::from("/mnt/slow/data/3"),
        };
        let bytes = card.encode().unwrap();
        let path = Path::new("x");
        assert_eq!(Card::decode(&bytes, path).unwrap(), Some(card));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(Card::decode(&changed, path).unwrap(), None, "byte {at}");
            assert_eq!(Card::decode(&bytes[..at], path).unwrap(), None, "cut {at}");
        }
    }
}
