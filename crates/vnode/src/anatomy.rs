//! The files of vnodes taken apart for people: the table of dot leases, and kept trees.

use std::path::Path;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, mask_checksum};
use kvorum_tictac::Tree;

use crate::kept_trees::{self, NAME_BYTES};
use crate::lease_file::{FILE_BYTES_MAX, MAGIC, decode};
use crate::tree_files;

/// The first bytes of a table of leases.
pub const LEASE_TABLE_MAGIC: &[u8; 8] = MAGIC;

/// The first bytes of a file of trees.
pub const KEPT_TREES_MAGIC: &[u8; 8] = kept_trees::MAGIC;

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
