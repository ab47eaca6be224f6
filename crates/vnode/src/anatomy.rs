//! The table of dot leases taken apart for people.

use std::path::Path;

use kvorum_disk::anatomy::{Dissection, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, mask_checksum};

use crate::lease_file::{FILE_BYTES_MAX, MAGIC, decode};

/// The first bytes of a table of leases.
pub const LEASE_TABLE_MAGIC: &[u8; 8] = MAGIC;

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

    use super::*;
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
}
