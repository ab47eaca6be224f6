//! The form of small text files that are read back unchanged or not at all: a node's identity, its
//! stores, its generation. Each file is kept twice.

use std::path::Path;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

/// Larger than any of these files: the largest has a line for each partition of the largest ring.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FORMAT: &str = ", format 1, sequence ";

/// True when a file begins like a file in this form.
pub fn begins(bytes: &[u8]) -> bool {
    title_of(bytes).is_some()
}

fn title_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let line = std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?;
    let title = &line[..line.find(FORMAT)?];
    title.starts_with("kvorum ").then_some(title)
}

/// Shows the parts of a file in this form.
pub fn piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(dissect(&read_file(disk, path, FILE_BYTES_MAX)?))
}

fn dissect(bytes: &[u8]) -> Piece {
    if bytes.is_empty() {
        return Piece::damage(
            0,
            0,
            "an empty file",
            "a line of title, length and checksum",
        );
    }
    let check = match title_of(bytes).and_then(|title| decode(title, bytes)) {
        Some(_) => Check::Good,
        None => Check::Bad {
            got: "another line or body".to_owned(),
            expected: "the one right first line".to_owned(),
        },
    };
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let line = end.map_or(bytes.len(), |end| end + 1);
    let mut fields = Dissection::new(bytes, 0);
    let text = String::from_utf8_lossy(&bytes[..line.min(200)]);
    let text = text.trim_end().to_owned();
    fields.field("first line: title, length, checksum", line, text, check);
    let rest = fields.remaining();
    fields.bytes("body", rest);
    fields.finish("text with a checksum")
}

/// A body as a file:
///
/// ```text
/// line 1:  TITLE, format 1, sequence S, N bytes, crc32c C\n
///            S  how often it has been written, decimal
///            N  length of the body in bytes, decimal
///            C  masked CRC-32C over line 1 up to "bytes" and the body, 8 hexadecimal digits
/// after:   the body, text, N bytes
/// ```
pub fn encode(title: &str, sequence: u64, body: &str) -> Vec<u8> {
    let mut file = first_line(title, sequence, body).into_bytes();
    file.extend_from_slice(body.as_bytes());
    file
}

fn first_line(title: &str, sequence: u64, body: &str) -> String {
    let covered = format!(
        "{title}, format 1, sequence {sequence}, {} bytes",
        body.len()
    );
    let checksum = checksum_append(checksum(covered.as_bytes()), body.as_bytes());
    format!("{covered}, crc32c {:08x}\n", mask_checksum(checksum))
}

/// The sequence and the body. They determine the first line, so comparing the whole line checks
/// every byte.
pub fn decode(title: &str, file: &[u8]) -> Option<(u64, String)> {
    let text = std::str::from_utf8(file).ok()?;
    let end = text.find('\n')? + 1;
    let (line, body) = text.split_at(end);
    let rest = line.strip_prefix(title)?;
    let rest = rest.strip_prefix(", format 1, sequence ")?;
    let sequence: u64 = rest.split(',').next()?.parse().ok()?;
    (line == first_line(title, sequence, body)).then(|| (sequence, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = encode("kvorum membership card", 7, "node 1\n");
        let drawing = [
            ("title", 22),
            ("format and sequence", 22),
            ("length of the body", 9),
            (
                "masked CRC-32C over line 1 up to \"bytes\" and the body",
                17,
            ),
            ("newline", 1),
            ("body", 7),
        ];
        assert_bytes("checked_text.hex", &drawing, &bytes);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found() {
        let bytes = encode("a title", 7, "node 1\n");
        assert_eq!(decode("a title", &bytes), Some((7, "node 1\n".to_owned())));
        assert_eq!(decode("b title", &bytes), None);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(decode("a title", &flipped), None, "{at} {bit}");
            }
            assert_eq!(decode("a title", &bytes[..at]), None);
        }
    }

    #[test]
    fn every_byte_is_in_one_field_and_every_flip_is_damage() {
        let good = encode("kvorum membership card", 3, "stage founded\n");
        let piece = dissect(&good);
        assert!(!piece.is_damaged() && begins(&good));
        assert_eq!(piece.end(), good.len() as u64);
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect(&bad).is_damaged(), "byte {index}");
            assert!(dissect(&good[..index]).is_damaged(), "cut at {index}");
        }
    }
}
