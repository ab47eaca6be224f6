//! The seal: the last record of a finished segment, a summary of the records before it.
//!
//! Sealing cuts a segment to its end, so the seal is found from the end of the file. Damaged
//! records before a seal were once whole: they are corruption, and never a torn tail.

use kvorum_encoding::ByteReader;

/// The length of a seal's front.
pub(crate) const SEAL_FRONT_BYTES: usize = 32;
/// The length of a whole seal.
pub(crate) const SEAL_BYTES: u64 = (crate::RECORD_HEADER_BYTES + SEAL_FRONT_BYTES) as u64;

/// The contents of a finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The place of the seal: the end of the caller's records.
    pub data_end: u64,
    /// The number of the caller's records.
    pub records: u64,
    /// The lowest sequence among them; 0 when there is none.
    pub sequence_min: u64,
    /// The highest sequence among them; 0 when there is none.
    pub sequence_max: u64,
}

impl Seal {
    /// Encodes the front of a seal:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  offset of the seal
    ///      8     8  number of records
    ///     16     8  lowest sequence
    ///     24     8  highest sequence
    /// ```
    pub(crate) fn encode(&self) -> [u8; SEAL_FRONT_BYTES] {
        let mut out = [0; SEAL_FRONT_BYTES];
        let fields = [
            self.data_end,
            self.records,
            self.sequence_min,
            self.sequence_max,
        ];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(front: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(front);
        Some(Self {
            data_end: reader.u64().ok()?,
            records: reader.u64().ok()?,
            sequence_min: reader.u64().ok()?,
            sequence_max: reader.u64().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let seal = Seal {
            data_end: 0x0102_0304,
            records: 7,
            sequence_min: 300,
            sequence_max: 306,
        };
        let bytes = seal.encode();
        let drawing = [
            ("offset of the seal", 8),
            ("number of records", 8),
            ("lowest sequence", 8),
            ("highest sequence", 8),
        ];
        assert_bytes("seal.hex", &drawing, &bytes);
        assert_eq!(Seal::decode(&bytes), Some(seal));
    }
}
