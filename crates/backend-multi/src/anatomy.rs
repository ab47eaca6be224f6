//! The card of a store taken apart, for people and for the check of a directory.

use std::path::Path;

use kvorum_backend::dissect_copy;
use kvorum_disk::anatomy::{Dissection, Piece};
use kvorum_disk::{Disk, read_file};

use crate::card::{BYTES_MAX, CARD_NAMES, MAGIC};

/// The first bytes of a card.
pub const CARD_MAGIC: [u8; 8] = MAGIC;

/// True for the name of a card.
pub fn is_card_name(name: &str) -> bool {
    CARD_NAMES.contains(&name)
}

/// A card's fields.
///
/// # Errors
/// Those of the disk.
pub fn card_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(dissect(&read_file(disk, path, BYTES_MAX)?))
}

fn dissect(bytes: &[u8]) -> Piece {
    let mut fields = dissect_copy(bytes, &MAGIC);
    for _ in 0..fields.number("number of backends", 1) {
        if fields.remaining() == 0 {
            break;
        }
        text(&mut fields, "name of a backend");
        text(&mut fields, "engine");
        fields.identity("identity", 8);
    }
    text(&mut fields, "label of the store");
    fields.nothing_more();
    fields.finish("card of a store of several backends")
}

/// A byte for the length, and the text.
fn text(fields: &mut Dissection<'_>, name: &str) {
    let len = fields.number(&format!("length of the {name}"), 1);
    fields.bytes(name, usize::try_from(len).unwrap_or(usize::MAX));
}
