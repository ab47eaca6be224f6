//! Views of the agreed log and its snapshots, for people.

use std::path::Path;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

use crate::{end_mark, log_file, snapshot_file};

/// The first bytes of the log.
pub const LOG_MAGIC: &[u8; 8] = log_file::MAGIC;
/// The first line of a snapshot.
pub const SNAPSHOT_TITLE: &str = snapshot_file::TITLE;

/// The first bytes of the mark of a log's durable end.
pub const END_MAGIC: &[u8; 8] = end_mark::MAGIC;

/// Dissects the mark of a log's durable end.
pub fn end_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    Ok(end_mark::dissect(&read_file(disk, path, 1 << 20)?))
}

/// Dissects an agreed log. The log is small by design, and read whole.
pub fn log_pieces(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Vec<Piece>> {
    Ok(dissect_log(&read_file(
        disk,
        path,
        log_file::FILE_BYTES_MAX,
    )?))
}

/// Dissects a snapshot.
pub fn snapshot_piece(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Piece> {
    let bytes = read_file(disk, path, snapshot_file::FILE_BYTES_MAX)?;
    Ok(dissect_snapshot(&bytes))
}

fn dissect_log(bytes: &[u8]) -> Vec<Piece> {
    let header_bytes = log_file::header_bytes_of(bytes);
    let (header, _) = bytes.split_at(bytes.len().min(header_bytes));
    let mut fields = Dissection::new(header, 0);
    fields.magic(LOG_MAGIC);
    fields.number("format", 4);
    let covered = header.get(..header_bytes - 4).unwrap_or(header);
    if covered.len() > 12 {
        fields.bytes("node", 16);
        fields.number("log", 8);
        fields.number("generation", 8);
        fields.number("length when it was written anew", 8);
    }
    fields.checksum("checksum of the header", mask_checksum(checksum(covered)));
    let mut pieces = vec![fields.finish("agreed log")];
    let mut at = header.len();
    while at < bytes.len() {
        let end = record_end(bytes, at);
        let Some(end) = end.filter(|end| *end <= bytes.len()) else {
            let len = (bytes.len() - at) as u64;
            let found = format!("{len} bytes");
            pieces.push(Piece::damage(at as u64, len, &found, "a whole record"));
            break;
        };
        let record = &bytes[at..end];
        let mut fields = Dissection::new(record, at as u64);
        fields.number("length", 4);
        let content = &record[log_file::PREFIX_BYTES..];
        let sum = mask_checksum(checksum_append(checksum(&record[..4]), content));
        fields.checksum("checksum", sum);
        fields.bytes("content", content.len());
        pieces.push(fields.finish("record"));
        at = end;
    }
    pieces
}

/// The end of the record at `at`, from its length.
fn record_end(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    at.checked_add(log_file::PREFIX_BYTES)?.checked_add(length)
}

fn dissect_snapshot(bytes: &[u8]) -> Piece {
    if bytes.is_empty() {
        return Piece::damage(0, 0, "an empty file", "a snapshot");
    }
    let check = match snapshot_file::decode(bytes) {
        Ok(_) => Check::Good,
        Err(error) => Check::Bad {
            got: format!("{error:?}"),
            expected: "the one right first line".to_owned(),
        },
    };
    let line_len = |from: usize| {
        let end = bytes[from..].iter().position(|byte| *byte == b'\n');
        end.map_or(bytes.len() - from, |end| end + 1)
    };
    let first = line_len(0);
    let mut fields = Dissection::new(bytes, 0);
    let text = String::from_utf8_lossy(&bytes[..first.min(200)]);
    let text = text.trim_end().to_owned();
    fields.field("first line: format, length, checksum", first, text, check);
    fields.bytes("what it covers", line_len(first));
    let rest = fields.remaining();
    fields.bytes("state", rest);
    fields.finish("agreed snapshot")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use kvorum_disk::MemoryDisk;

    use super::*;
    use crate::log_file::{LogContents, LogFile, LogRecord, Place};
    use crate::snapshot_file::{Stored, encode};

    fn covers(pieces: &[Piece], len: usize) {
        let mut at = 0;
        for field in pieces.iter().flat_map(|piece| &piece.fields) {
            assert_eq!(field.offset, at, "{field:?}");
            at += field.len;
        }
        assert_eq!(at, len as u64);
    }

    #[test]
    fn every_byte_of_a_log_is_in_one_field_and_every_flip_is_damage() {
        let disk = MemoryDisk::new();
        let path = Path::new("log");
        let place = Place {
            disk: Arc::new(disk.clone()),
            log: path.to_owned(),
            marks: ["end".into(), "log.end".into()],
            node: kvorum_ring::NodeId::from_bytes([1; 16]),
            drawn: 1,
        };
        let mut log = LogFile::create(place).unwrap();
        let mut contents = LogContents::default();
        for index in 0..3 {
            let record = LogRecord::Truncate(index);
            log.put(record, &mut contents).unwrap();
        }
        let good = read_file(&disk, path, 1 << 20).unwrap();
        let pieces = log_pieces(&disk, path).unwrap();
        assert!(!pieces.iter().any(Piece::is_damaged), "{pieces:?}");
        covers(&pieces, good.len());
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            let pieces = dissect_log(&bad);
            assert!(pieces.iter().any(Piece::is_damaged), "byte {index}");
            covers(&pieces, good.len());
        }
    }

    #[test]
    fn every_byte_of_a_snapshot_is_in_one_field_and_every_flip_is_damage() {
        let stored = Stored {
            meta: Default::default(),
            state: b"state".to_vec(),
        };
        let good = encode(&stored).unwrap();
        let piece = dissect_snapshot(&good);
        assert!(!piece.is_damaged(), "{piece:?}");
        covers(&[piece], good.len());
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x20;
            assert!(dissect_snapshot(&bad).is_damaged(), "byte {index}");
        }
    }
}
