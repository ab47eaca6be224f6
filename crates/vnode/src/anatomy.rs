//! The files of vnodes taken apart for people: the table of dot leases, kept trees and the notes of rounds.

use std::path::Path;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, mask_checksum};
use kvorum_reaping::{HAS_MARK, HIDES, NOTES_MAGIC, RECEIVES, decode_notes};
use kvorum_tictac::Tree;

use crate::kept_trees::{self, NAME_BYTES};
use crate::lease_file::{FILE_BYTES_MAX, MAGIC, decode};
use crate::note_files;
use crate::tree_files;

/// The first bytes of a table of leases.
pub const LEASE_TABLE_MAGIC: &[u8; 8] = MAGIC;

/// The first bytes of a file of trees.
pub const KEPT_TREES_MAGIC: &[u8; 8] = kept_trees::MAGIC;

/// The first bytes of the notes of rounds.
pub const ROUND_NOTES_MAGIC: [u8; 4] = NOTES_MAGIC;

/// Takes a file of trees apart.
pub fn kept_trees_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    let bytes = read_file(disk, path, tree_files::FILE_BYTES_MAX)?;
    Ok(dissect_trees(&bytes))
}

fn dissect_trees(bytes: &[u8]) -> Piece {
    let sum = |from: usize, to: usize| mask_checksum(checksum(&bytes[from..to]));
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(KEPT_TREES_MAGIC);
    fields.identity("store identity", 8);
    fields.number("complete up to batch", 8);
    fields.number("no batch behind", 8);
    fields.number("losses listed by the store", 8);
    fields.number("building begun, in microseconds", 8);
    fields.identity("properties of buckets", 4);
    let count = fields.number("number of trees", 4);
    fields.checksum("checksum of the stamp", sum(0, fields.position()));
    let (names_at, mut lengths) = (fields.position(), Vec::new());
    for _ in 0..count {
        if fields.remaining() < NAME_BYTES {
            break;
        }
        fields.number("owner partition", 2);
        fields.number("n_val", 1);
        fields.number("zero", 1);
        lengths.push(fields.number("length of the tree", 4));
    }
    fields.checksum("checksum of the names", sum(names_at, fields.position()));
    for len in lengths {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let from = fields.position();
        let to = from.saturating_add(len).min(bytes.len());
        let (value, check) = shown_tree(&bytes[from..to]);
        fields.field("tree", len, value, check);
    }
    fields.nothing_more();
    let piece = fields.finish("trees of a vnode");
    match kept_trees::decode(bytes) {
        Err(error) if !piece.is_damaged() => {
            let len = bytes.len() as u64;
            Piece::damage(0, len, &error.to_string(), "a file of trees")
        }
        _ => piece,
    }
}

fn shown_tree(bytes: &[u8]) -> (String, Check) {
    match Tree::decode(bytes) {
        Ok((tree, _)) => {
            let (size, keys) = (tree.size().name(), tree.keys());
            (format!("{size}, about {keys} keys"), Check::Covered)
        }
        Err(error) => {
            let (got, expected) = (error.to_string(), "a tree".to_owned());
            (String::new(), Check::Bad { got, expected })
        }
    }
}

/// Takes the notes of rounds apart.
pub fn round_notes_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(dissect_notes(&read_file(
        disk,
        path,
        note_files::FILE_BYTES_MAX,
    )?))
}

fn dissect_notes(bytes: &[u8]) -> Piece {
    let covered = bytes.len().saturating_sub(4);
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(&NOTES_MAGIC);
    fields.number("version", 1);
    fields.number("reserved", 3);
    fields.identity("identity of the store", 8);
    fields.number("last durable sequence", 8);
    let count = fields.number("number of lists", 4);
    for _ in 0..count {
        if fields.position() >= covered {
            break;
        }
        dissect_note(&mut fields);
    }
    let rest = covered.saturating_sub(fields.position());
    fields.bytes("rest", rest);
    let sum = mask_checksum(checksum(&bytes[..covered]));
    fields.checksum("checksum of the file", sum);
    let piece = fields.finish("notes of rounds");
    match decode_notes(bytes) {
        Err(error) if !piece.is_damaged() => {
            let len = bytes.len() as u64;
            Piece::damage(0, len, &error.to_string(), "notes of rounds")
        }
        _ => piece,
    }
}

fn dissect_note(fields: &mut Dissection<'_>) {
    fields.number("partition", 2);
    fields.number("n_val", 1);
    let flags = fields.number("flags", 1);
    let has = |flag: u8| flags & u64::from(flag) != 0;
    fields.number("joined in epoch", 8);
    if has(HAS_MARK) {
        dissect_round(fields, "mark");
        dissect_extent(fields);
    }
    if has(RECEIVES) {
        dissect_round(fields, "watermark");
    }
    if has(HIDES) {
        dissect_extent(fields);
    }
}

fn dissect_round(fields: &mut Dissection<'_>, name: &str) {
    fields.number(&format!("number of the {name}'s round"), 8);
    fields.identity("nonce", 8);
}

fn dissect_extent(fields: &mut Dissection<'_>) {
    for _ in 0..fields.number("stores of the extent", 4) {
        if fields.remaining() == 0 {
            break;
        }
        fields.identity("identity of the store", 8);
        fields.number("last sequence", 8);
    }
}

/// Takes a table of leases apart.
pub fn lease_table_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(dissect(&read_file(disk, path, FILE_BYTES_MAX)?))
}

fn dissect(bytes: &[u8]) -> Piece {
    const LEASE_BYTES: usize = 34;
    let covered = bytes.len().saturating_sub(4);
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(MAGIC);
    fields.number("number of leases", 4);
    while fields.position() + LEASE_BYTES <= covered {
        fields.number("partition", 2);
        fields.identity("store identity", 8);
        fields.number("sequence", 8);
        fields.identity("actor", 8);
        fields.number("next counter", 8);
    }
    let rest = covered.saturating_sub(fields.position());
    fields.bytes("rest", rest);
    fields.checksum(
        "checksum of the file",
        mask_checksum(checksum(&bytes[..covered])),
    );
    let piece = fields.finish("dot leases");
    match decode(bytes) {
        Err(error) if !piece.is_damaged() => {
            let len = bytes.len() as u64;
            Piece::damage(0, len, &error.to_string(), "a lease table")
        }
        _ => piece,
    }
}

#[cfg(test)]
mod tests {
    use kvorum_backend::{Sequence, StoreId};
    use kvorum_object::ActorId;
    use kvorum_reaping::{
        BatchName, Extent, ListName, Mark, Note, Receiving, RoundName, VnodeNotes, encode_notes,
    };
    use kvorum_ring::Partition;
    use kvorum_tictac::TreeSize;

    use super::*;
    use crate::kept_trees::KeptStamp;
    use crate::lease_file::{Lease, Leases, encode};

    #[test]
    fn every_byte_is_in_one_field_and_every_flip_is_damage() {
        let lease = |number| Lease {
            store: StoreId(number),
            sequence: Sequence(number + 1),
            actor: ActorId(number + 2),
            next: 9,
        };
        let leases: Leases = [(1, lease(7)), (2, lease(8))].into();
        let good = encode(&leases);
        let piece = dissect(&good);
        assert!(!piece.is_damaged(), "{piece:?}");
        let mut at = 0;
        for field in &piece.fields {
            assert_eq!(field.offset, at, "{field:?}");
            at += field.len;
        }
        assert_eq!(at, good.len() as u64);
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect(&bad).is_damaged(), "byte {index}");
            assert!(dissect(&good[..index]).is_damaged(), "cut at {index}");
        }
    }

    #[test]
    fn every_byte_of_the_notes_of_rounds_is_in_one_field_and_every_flip_is_damage() {
        let good = encode_notes(&notes());
        let piece = dissect_notes(&good);
        assert!(!piece.is_damaged(), "{piece:?}");
        assert_eq!(piece.end(), good.len() as u64);
        assert!(
            piece
                .fields
                .iter()
                .all(|it| it.name != "rest" || it.len == 0)
        );
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect_notes(&bad).is_damaged(), "byte {index}");
            assert!(dissect_notes(&good[..index]).is_damaged(), "cut at {index}");
        }
    }

    fn notes() -> VnodeNotes {
        let batch = |sequence| BatchName { store: 7, sequence };
        let round = RoundName {
            number: 4,
            nonce: 5,
        };
        let extent = Extent::up_to([batch(8)]);
        let note = Note {
            joined: 2,
            mark: Some(Mark {
                round,
                extent: extent.clone(),
                is_confirmed: true,
            }),
            receiving: Some(Receiving {
                watermark: round,
                hidden: Some(extent),
            }),
        };
        let list = ListName {
            partition: 3,
            n_val: 3,
        };
        VnodeNotes {
            written_at: batch(9),
            lists: [
                (list, note),
                (ListName { n_val: 5, ..list }, Note::default()),
            ]
            .into(),
        }
    }

    #[test]
    fn every_byte_of_a_file_of_trees_is_in_one_field_and_every_flip_is_damage() {
        let stamp = KeptStamp {
            store: StoreId(7),
            complete: Sequence(8),
            reached: Sequence(9),
            lost: 0,
            built_at: 1,
            placements: 2,
        };
        let owner = Partition::of_number(3).unwrap();
        let name = crate::tree_name::TreeName { owner, n_val: 3 };
        let tree = Tree::new(TreeSize::XxSmall).encode(stamp.of_tree());
        let good = kept_trees::encode(&stamp, &[(name, tree)]);
        let piece = dissect_trees(&good);
        assert!(!piece.is_damaged(), "{piece:?}");
        assert_eq!(piece.end(), good.len() as u64);
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect_trees(&bad).is_damaged(), "byte {index}");
            assert!(dissect_trees(&good[..index]).is_damaged(), "cut at {index}");
        }
    }
}
