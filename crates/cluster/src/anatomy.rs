//! A view of a file of the cluster's state, for people.

use std::path::Path;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, read_file};

use crate::file_format::{TITLE, decode};
use crate::local::FILE_BYTES_MAX;

/// The first line of a state file.
pub const STATE_TITLE: &str = TITLE;

/// Shows the parts of a file of the cluster's state.
pub fn state_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(dissect(&read_file(disk, path, FILE_BYTES_MAX)?))
}

fn dissect(bytes: &[u8]) -> Piece {
    let check = match decode(bytes) {
        Ok(_) => Check::Good,
        Err(error) => Check::Bad {
            got: error.to_string(),
            expected: "the one right first line".to_owned(),
        },
    };
    if bytes.is_empty() {
        return Piece::damage(0, 0, "an empty file", "a cluster state");
    }
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let line = end.map_or(bytes.len(), |end| end + 1);
    let mut fields = Dissection::new(bytes, 0);
    let text = String::from_utf8_lossy(&bytes[..line.min(200)]);
    let text = text.trim_end().to_owned();
    fields.field("first line: format, length, checksum", line, text, check);
    let rest = fields.remaining();
    fields.bytes("document", rest);
    fields.finish("cluster state")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_format::encode;

    #[test]
    fn every_byte_is_in_one_field_and_every_flip_is_damage() {
        let good = encode(b"{\"members\":[]}");
        let piece = dissect(&good);
        assert!(!piece.is_damaged());
        assert_eq!(piece.end(), good.len() as u64);
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect(&bad).is_damaged(), "byte {index}");
            assert!(dissect(&good[..index]).is_damaged(), "cut at {index}");
        }
    }
}
