//! The files of a store taken apart, for display and for the check of a directory: its card, the
//! record of its move and its pin.

use std::path::Path;

use kvorum_backend::dissect_copy;
use kvorum_backend_migration::RECORD_MAGIC;
use kvorum_disk::anatomy::{Dissection, Piece};
use kvorum_disk::{Disk, read_file};

use crate::card::{self, CARD_NAMES};
use crate::move_record::{self, RECORD_NAMES};
use crate::pin::{self, PIN_MAGIC, PIN_NAMES};

/// A kind of file in the directory of a store; there are two copies of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiFile {
    /// The children.
    Card,
    /// The progress of a move.
    Move,
    /// The child that receives all data.
    Pin,
}

impl MultiFile {
    const ALL: [Self; 3] = [Self::Card, Self::Move, Self::Pin];

    /// The kind of a file with this beginning.
    pub fn of_magic(magic: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.magic() == magic)
    }

    /// The kind of a file with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.names().contains(&name))
    }

    /// The file's fields.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn piece(self, disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
        let bytes_max = match self {
            Self::Card => card::BYTES_MAX,
            Self::Move => move_record::BYTES_MAX,
            Self::Pin => pin::BYTES_MAX,
        };
        Ok(self.dissect(&read_file(disk, path, bytes_max)?))
    }

    fn magic(self) -> [u8; 8] {
        match self {
            Self::Card => card::MAGIC,
            Self::Move => RECORD_MAGIC,
            Self::Pin => PIN_MAGIC,
        }
    }

    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Card => CARD_NAMES,
            Self::Move => RECORD_NAMES,
            Self::Pin => PIN_NAMES,
        }
    }

    fn dissect(self, bytes: &[u8]) -> Piece {
        let mut fields = dissect_copy(bytes, &self.magic());
        match self {
            Self::Card => card_fields(&mut fields),
            Self::Move => move_fields(&mut fields),
            Self::Pin => {
                fields.number("0 none, 1 pinned, 2 taken back", 1);
                text(&mut fields, "name of the backend");
            }
        }
        fields.nothing_more();
        fields.finish(match self {
            Self::Card => "card of a store of several backends",
            Self::Move => "record of a move between backends",
            Self::Pin => "pin of a store of several backends",
        })
    }
}

fn card_fields(fields: &mut Dissection<'_>) {
    for _ in 0..fields.number("number of backends", 1) {
        if fields.remaining() == 0 {
            break;
        }
        text(fields, "name of a backend");
        text(fields, "engine");
        fields.identity("identity", 8);
    }
    text(fields, "label of the store");
}

fn move_fields(fields: &mut Dissection<'_>) {
    fields.number("phase", 1);
    fields.number("1 if it was cancelled", 1);
    fields.number("parts that were found wrong", 1);
    fields.number("1 if a key is done in this phase", 1);
    for count in [
        "bytes to copy, by estimate",
        "bytes copied",
        "entries copied",
        "entries found the same",
        "entries removed",
    ] {
        fields.number(count, 8);
    }
    text(fields, "source");
    text(fields, "target");
    long(fields, "beginning of all keys");
    long(fields, "last key that is done");
}

/// Four bytes for the length, and the bytes.
fn long(fields: &mut Dissection<'_>, name: &str) {
    let len = fields.number(&format!("length of the {name}"), 4);
    fields.bytes(name, usize::try_from(len).unwrap_or(usize::MAX));
}

/// A byte for the length, and the text.
fn text(fields: &mut Dissection<'_>, name: &str) {
    let len = fields.number(&format!("length of the {name}"), 1);
    fields.bytes(name, usize::try_from(len).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvorum_backend_migration::{Migration, Plan, Record};

    use super::*;

    #[test]
    fn a_move_is_taken_apart_to_its_last_byte_and_a_flip_is_shown() {
        let bytes = Record {
            generation: 5,
            identity: 6,
            migration: Migration::new(Plan {
                source: "bc".to_owned(),
                target: "ldb".to_owned(),
                scope: Bytes::from_static(b"\0b\0\x01"),
                bytes_estimate: 77,
            }),
        }
        .encode();
        assert_eq!(MultiFile::of_magic(&bytes[..8]), Some(MultiFile::Move));
        assert_eq!(MultiFile::of_name("move-1"), Some(MultiFile::Move));
        assert_eq!(MultiFile::of_name("pin-0"), Some(MultiFile::Pin));
        assert!(!MultiFile::Move.dissect(&bytes).is_damaged());
        let mut flipped = bytes;
        flipped[60] ^= 1;
        assert!(MultiFile::Move.dissect(&flipped).is_damaged());
    }
}
