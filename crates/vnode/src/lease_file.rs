//! The file of dot leases.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_backend::{Sequence, StoreId};
use kvorum_disk::{Disk, DiskError, ErrorKind};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};
use kvorum_object::ActorId;

/// By partition number.
pub(crate) type Leases = BTreeMap<u16, Lease>;

/// While the store is at this sequence, the actor may continue at this counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) store: StoreId,
    pub(crate) sequence: Sequence,
    pub(crate) actor: ActorId,
    pub(crate) next: u64,
}

/// The table exists and could not be used.
#[derive(Debug)]
pub struct Unreadable {
    /// The copy that was set aside.
    pub kept_as: PathBuf,
    /// The error in it.
    pub reason: String,
}

pub(crate) const MAGIC: &[u8; 8] = b"kvorlea1";
/// A bound on the memory that a damaged length can make us allocate; the largest ring needs a tenth.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why bytes are not a lease table.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("{len} bytes are too few for a table")]
    TooShort { len: usize },
    #[error("checksum {got:08x} where {expected:08x} is expected")]
    Checksum { got: u32, expected: u32 },
    #[error("it begins with \"{}\" where \"{}\" is expected", got.escape_ascii(), MAGIC.escape_ascii())]
    Magic { got: Vec<u8> },
    #[error("table cut short at byte {}", .0.offset)]
    Truncated(#[from] Truncated),
    #[error("{bytes} bytes follow the last lease")]
    Trailing { bytes: usize },
}

/// Encodes a table:
///
/// ```text
/// lease table (file `dot_leases`, replaced atomically; little-endian)
///   magic      8 bytes   "kvorlea1"
///   count      u32       number of leases
///   lease      34 bytes  partition u16, store identity u64, sequence u64, actor u64, next counter
///                        u64; `count` times
///   checksum   u32       masked CRC-32C of all bytes before
/// ```
pub(crate) fn encode(leases: &Leases) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    // Partitions are numbered by 16 bits.
    let count = u32::try_from(leases.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    for (partition, lease) in leases {
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&lease.store.0.to_le_bytes());
        out.extend_from_slice(&lease.sequence.0.to_le_bytes());
        out.extend_from_slice(&lease.actor.0.to_le_bytes());
        out.extend_from_slice(&lease.next.to_le_bytes());
    }
    let sum = mask_checksum(checksum(&out));
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Leases, DecodeError> {
    let too_short = DecodeError::TooShort { len: bytes.len() };
    let Some((body, stored)) = bytes.split_last_chunk::<4>() else {
        return Err(too_short);
    };
    let (got, expected) = (u32::from_le_bytes(*stored), mask_checksum(checksum(body)));
    if got != expected {
        return Err(DecodeError::Checksum { got, expected });
    }
    let mut reader = ByteReader::new(body);
    let magic = reader.take(MAGIC.len())?;
    if magic != MAGIC {
        let got = magic.to_vec();
        return Err(DecodeError::Magic { got });
    }
    let count = reader.u32()?;
    let mut leases = Leases::new();
    for _ in 0..count {
        let partition = reader.u16()?;
        let lease = Lease {
            store: StoreId(reader.u64()?),
            sequence: Sequence(reader.u64()?),
            actor: ActorId(reader.u64()?),
            next: reader.u64()?,
        };
        leases.insert(partition, lease);
    }
    match reader.remaining() {
        0 => Ok(leases),
        bytes => Err(DecodeError::Trailing { bytes }),
    }
}

/// Reads a table. An unreadable table is moved aside, durably, and reported. The removal of a missing one
/// is made durable: if a power cut undid it, stores might fit the old leases again with other contents.
pub(crate) fn read(
    disk: &dyn Disk,
    path: &Path,
) -> Result<(Leases, Option<Unreadable>), DiskError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    if disk.info(path)?.is_none() {
        match disk.sync_directory(directory) {
            // Without a directory nothing can come back.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        return Ok((Leases::new(), None));
    }
    let outcome = match kvorum_disk::read_file(disk, path, FILE_BYTES_MAX) {
        Ok(bytes) => decode(&bytes).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(leases) => Ok((leases, None)),
        Err(reason) => {
            let kept_as = path.with_extension("unreadable");
            disk.rename(path, &kept_as)?;
            disk.sync_directory(directory)?;
            Ok((Leases::new(), Some(Unreadable { kept_as, reason })))
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn table() -> Leases {
        let lease = |number| Lease {
            store: StoreId(number),
            sequence: Sequence(number + 1),
            actor: ActorId(number + 2),
            next: number + 3,
        };
        [(0, lease(10)), (7, lease(20)), (4095, lease(u64::MAX - 3))].into()
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("magic \"kvorlea1\"", 8),
            ("number of leases", 4),
            ("partition", 2),
            ("store identity", 8),
            ("sequence", 8),
            ("actor", 8),
            ("next counter", 8),
            ("masked CRC-32C of all bytes before", 4),
        ];
        let lease = Lease {
            store: StoreId(3),
            sequence: Sequence(4),
            actor: ActorId(5),
            next: 6,
        };
        let bytes = encode(&[(0x0102, lease)].into());
        assert_bytes("lease_file.hex", &drawing, &bytes);
    }

    #[test]
    fn a_table_reads_back() {
        assert_eq!(decode(&encode(&table())), Ok(table()));
        assert_eq!(decode(&encode(&Leases::new())), Ok(Leases::new()));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes() {
        let bytes = encode(&table());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_right_checksum_does_not_make_a_table() {
        let sealed = |body: &[u8]| {
            let mut bytes = body.to_vec();
            bytes.extend_from_slice(&mask_checksum(checksum(body)).to_le_bytes());
            decode(&bytes)
        };
        assert!(matches!(
            sealed(b"kvorlea2\0\0\0\0"),
            Err(DecodeError::Magic { .. })
        ));
        assert!(matches!(
            sealed(b"kvorlea1\xff\xff\xff\xff"),
            Err(DecodeError::Truncated(_))
        ));
        assert_eq!(
            sealed(b"kvorlea1\0\0\0\0extra"),
            Err(DecodeError::Trailing { bytes: 5 })
        );
    }
}
