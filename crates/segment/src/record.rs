//! The record: the unit of a segment.

use kvorum_encoding::{ByteReader, Codec, checksum_append, mask_checksum};

use crate::{EncodedBack, SegmentId};

/// The length of the fixed header.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Records start at multiples of this; the gap is filled with zeros.
pub const RECORD_ALIGN_BYTES: u64 = 8;
/// The longest front, so that a wrong length is detected before it is used.
pub const FRONT_BYTES_MAX: u64 = 64 << 20;
/// The longest back.
pub const BACK_BYTES_MAX: u64 = 2 << 30;
/// The start and the number of the bytes under a header's short checksum.
const COVERED_FROM: usize = 4;
const COVERED_BYTES: usize = 26;
/// The end of the bytes under a header's own checksum, with which the front's checksum begins.
const COVERED_END: usize = COVERED_FROM + COVERED_BYTES;
/// The length of the back before compression, in front of a compressed record's front.
const RAW_LEN_BYTES: usize = 4;

const FLAG_REMOVAL: u8 = 1;
const FLAG_CONTINUES: u8 = 1 << 1;
const FLAG_CONTINUED: u8 = 1 << 2;
const CODEC_SHIFT: u8 = 3;
const CODEC_MASK: u8 = 0b11 << CODEC_SHIFT;
pub(crate) const FLAG_SEAL: u8 = 1 << 5;
pub(crate) const FLAG_MARK: u8 = 1 << 6;
const FLAGS_UNKNOWN: u8 = 1 << 7;

/// A record to be appended.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The caller's order, opaque here except for the range in a seal.
    pub sequence: u64,
    /// The caller's kind of record, opaque here.
    pub kind: u8,
    /// The record is a removal.
    pub removal: bool,
    /// The record's position in a group that is whole or absent.
    pub batch: BatchPlace,
    /// The part that is read without the back.
    pub front: &'a [u8],
    /// The rest of the record.
    pub back: EncodedBack<'a>,
}

impl Record<'_> {
    /// The record's place if its first byte is at `offset`.
    pub fn location_at(&self, offset: u64) -> Location {
        let (front_end, len) = stored_lens(self);
        Location {
            offset,
            front_end,
            len,
        }
    }
}

/// The place of a record. The lengths may be approximate: a longer one costs bytes read in vain, a
/// shorter one a second read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Offset in the segment, in bytes; a multiple of 8.
    pub offset: u64,
    /// Length of header and front, in bytes.
    pub front_end: u64,
    /// Length of the whole record without the zeros behind it, in bytes.
    pub len: u64,
}

impl Location {
    /// The offset of the next record.
    pub fn next_offset(&self) -> u64 {
        aligned(self.offset + self.len)
    }
}

/// The position of a record in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchPlace {
    /// The record is a batch by itself.
    Alone,
    /// Other records of the batch follow.
    First,
    /// Other records of the batch are on both sides.
    Middle,
    /// It completes the batch.
    Last,
}

impl BatchPlace {
    /// The place of record `index` of `count`.
    pub fn of(index: usize, count: usize) -> Self {
        match (index == 0, index + 1 >= count) {
            (true, true) => Self::Alone,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    /// True when the batch continues behind this record.
    pub fn continues(self) -> bool {
        matches!(self, Self::First | Self::Middle)
    }

    /// True when the batch began before this record.
    pub fn is_continued(self) -> bool {
        matches!(self, Self::Middle | Self::Last)
    }
}

/// The purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A record of the caller.
    Data,
    /// The last record of a finished segment.
    Seal,
    /// A record that only has its synced-to field.
    Mark,
}

/// The start value of a segment's checksums, which covers log and segment without storing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumSeed(u32);

impl ChecksumSeed {
    pub(crate) fn of(id: &SegmentId) -> Self {
        let log = checksum_append(0, &id.log_id.to_le_bytes());
        Self(checksum_append(log, &id.number.to_le_bytes()))
    }

    /// The checksum of log, segment and `offset`, and of a header's bytes 4..30 at that place.
    fn of_header(self, offset: u64, covered: &[u8; COVERED_BYTES]) -> u32 {
        // One pass over aligned words costs half as much as a pass over eight bytes and a pass over
        // the rest.
        let mut input = Aligned([0; 8 + COVERED_BYTES]);
        let (place, header) = input.0.split_at_mut(8);
        place.copy_from_slice(&offset.to_le_bytes());
        header.copy_from_slice(covered);
        checksum_append(self.0, &input.0)
    }
}

#[repr(align(8))]
struct Aligned<const LEN: usize>([u8; LEN]);

/// The fixed header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) front_checksum: u32,
    pub(crate) back_checksum: u32,
    pub(crate) sequence: u64,
    /// Length of the front as stored, including the raw back's length if there is one.
    pub(crate) front_len: u32,
    pub(crate) back_len: u32,
    pub(crate) synced_to: u64,
    pub(crate) kind: u8,
    pub(crate) removal: bool,
    pub(crate) batch: BatchPlace,
    pub(crate) codec: Codec,
    pub(crate) purpose: Purpose,
    /// The checksum of the place and of bytes 4..30, which the front's checksum continues.
    covered_checksum: u32,
}

impl RecordHeader {
    /// The checksum of the front in the bytes read. `bytes` are header and front, and the header
    /// was decoded from them.
    pub(crate) fn front_checksum_of(&self, bytes: &[u8]) -> u32 {
        mask_checksum(checksum_append(
            self.covered_checksum,
            &bytes[COVERED_END..],
        ))
    }

    /// The length of header and front.
    pub(crate) fn front_end(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.front_len)
    }

    /// The length of the record without the zeros behind it.
    pub(crate) fn len(&self) -> u64 {
        self.front_end() + u64::from(self.back_len)
    }

    /// The length of the bytes between the header and the caller's front.
    pub(crate) fn raw_len_bytes(&self) -> usize {
        match self.codec {
            Codec::Plain => 0,
            Codec::Lz4 | Codec::Zstd => RAW_LEN_BYTES,
        }
    }
}

/// The start of the next record if one ends at `offset`.
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(RECORD_ALIGN_BYTES)
}

/// The lengths of a record as stored: up to the end of the front, and of the whole.
pub(crate) fn stored_lens(record: &Record<'_>) -> (u64, u64) {
    let raw_len_bytes = match record.back.codec {
        Codec::Plain => 0,
        Codec::Lz4 | Codec::Zstd => RAW_LEN_BYTES,
    };
    let front_end = (RECORD_HEADER_BYTES + raw_len_bytes + record.front.len()) as u64;
    (front_end, front_end + record.back.stored_len())
}

/// Appends header and front of a record at `offset`; the back follows them.
///
/// ```text
/// offset  size  field
///      0     4  masked CRC-32C of: log id, segment number, offset of the record (all 64 bits and
///               not stored), bytes 4..32, the front
///      4     4  masked CRC-32C of the back as stored
///      8     8  sequence
///     16     4  length of the front (f)
///     20     4  length of the back as stored (b)
///     24     4  synced-to: how far the segment was durable when this was written, in units of 8
///     28     1  flags: 0 removal, 1 batch continues behind, 2 batch began before,
///               3-4 codec of the back (0 none, 1 LZ4, 2 Zstandard), 5 seal, 6 mark, 7 zero
///     29     1  kind, the caller's
///     30     2  low half of a masked CRC-32C of: log id, number, offset, bytes 4..30
///     32     f  front; of a compressed record: length of the back before (4), then the front
///   32+f     b  back
/// 32+f+b   0-7  zeros up to a multiple of 8
/// ```
///
/// The short checksum in bytes 30..32 makes a search for the next record cheap, and lets a scan
/// pass a damaged front.
pub(crate) fn encode_front(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    purpose: Purpose,
    seed: ChecksumSeed,
    offset: u64,
    synced_to: u64,
) {
    let (front_end, _) = stored_lens(record);
    let front_len = low_u32(front_end - RECORD_HEADER_BYTES as u64);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&mask_checksum(record.back.checksum).to_le_bytes());
    out.extend_from_slice(&record.sequence.to_le_bytes());
    out.extend_from_slice(&front_len.to_le_bytes());
    out.extend_from_slice(&low_u32(record.back.stored_len()).to_le_bytes());
    out.extend_from_slice(&low_u32(synced_to / RECORD_ALIGN_BYTES).to_le_bytes());
    out.push(flags(record, purpose));
    out.push(record.kind);
    let mut covered = [0; COVERED_BYTES];
    covered.copy_from_slice(&out[start + COVERED_FROM..]);
    let header = seed.of_header(offset, &covered);
    out.extend_from_slice(&short_check(header).to_le_bytes());
    if record.back.codec != Codec::Plain {
        out.extend_from_slice(&low_u32(record.back.raw_len).to_le_bytes());
    }
    out.extend_from_slice(record.front);
    let front = mask_checksum(checksum_append(header, &out[start + COVERED_END..]));
    out[start..start + 4].copy_from_slice(&front.to_le_bytes());
}

/// Decodes the header of a record at `offset`; `None` if there is none. The front is not checked
/// yet, so the lengths are right with a probability of 1 - 2^-16: plausible, not proven.
pub(crate) fn decode_header(bytes: &[u8], seed: ChecksumSeed, offset: u64) -> Option<RecordHeader> {
    let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
    let mut reader = ByteReader::new(bytes);
    let front_checksum = reader.u32().ok()?;
    let back_checksum = reader.u32().ok()?;
    let sequence = reader.u64().ok()?;
    let front_len = reader.u32().ok()?;
    let back_len = reader.u32().ok()?;
    let synced_to = u64::from(reader.u32().ok()?) * RECORD_ALIGN_BYTES;
    let flags = reader.u8().ok()?;
    let kind = reader.u8().ok()?;
    let stored_check = reader.u16().ok()?;
    let is_plausible = flags & FLAGS_UNKNOWN == 0
        && u64::from(front_len) <= FRONT_BYTES_MAX
        && u64::from(back_len) <= BACK_BYTES_MAX;
    if !is_plausible {
        return None;
    }
    let covered = bytes[COVERED_FROM..].first_chunk()?;
    let covered_checksum = seed.of_header(offset, covered);
    if short_check(covered_checksum) != stored_check {
        return None;
    }
    let purpose = match (flags & FLAG_SEAL != 0, flags & FLAG_MARK != 0) {
        (false, false) => Purpose::Data,
        (true, false) => Purpose::Seal,
        (false, true) => Purpose::Mark,
        (true, true) => return None,
    };
    let batch = match (flags & FLAG_CONTINUED != 0, flags & FLAG_CONTINUES != 0) {
        (false, false) => BatchPlace::Alone,
        (false, true) => BatchPlace::First,
        (true, true) => BatchPlace::Middle,
        (true, false) => BatchPlace::Last,
    };
    let decoded = RecordHeader {
        front_checksum,
        back_checksum,
        sequence,
        front_len,
        back_len,
        synced_to,
        kind,
        removal: flags & FLAG_REMOVAL != 0,
        batch,
        codec: Codec::from_number((flags & CODEC_MASK) >> CODEC_SHIFT)?,
        purpose,
        covered_checksum,
    };
    (decoded.raw_len_bytes() <= front_len as usize).then_some(decoded)
}

/// The position of the first record header in bytes that begin at `at`, an aligned offset.
pub(crate) fn find_header(bytes: &[u8], seed: ChecksumSeed, at: u64) -> Option<usize> {
    let headers = bytes.windows(RECORD_HEADER_BYTES).enumerate();
    let mut headers = headers.step_by(usize::try_from(RECORD_ALIGN_BYTES).unwrap_or(1));
    let found = headers.find(|(index, header)| {
        header[..8] != [0; 8] && decode_header(header, seed, at + *index as u64).is_some()
    });
    found.map(|(index, _)| index)
}

/// The length of the back before compression. `front` is the checked front as stored.
pub(crate) fn raw_len(header: &RecordHeader, front: &[u8]) -> u64 {
    match (header.codec, front.first_chunk::<RAW_LEN_BYTES>()) {
        (Codec::Plain, _) | (_, None) => u64::from(header.back_len),
        (_, Some(raw_len)) => u64::from(u32::from_le_bytes(*raw_len)),
    }
}

fn flags(record: &Record<'_>, purpose: Purpose) -> u8 {
    let mut flags = record.back.codec.number() << CODEC_SHIFT;
    if record.removal {
        flags |= FLAG_REMOVAL;
    }
    if record.batch.continues() {
        flags |= FLAG_CONTINUES;
    }
    if record.batch.is_continued() {
        flags |= FLAG_CONTINUED;
    }
    match purpose {
        Purpose::Data => flags,
        Purpose::Seal => flags | FLAG_SEAL,
        Purpose::Mark => flags | FLAG_MARK,
    }
}

fn short_check(checksum: u32) -> u16 {
    let [low, high, ..] = mask_checksum(checksum).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Lengths were checked against their maxima before a record is encoded.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the writer refuses longer fronts, backs and segments"
)]
fn low_u32(value: u64) -> u32 {
    debug_assert!(u32::try_from(value).is_ok());
    value as u32
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;
    use proptest::prelude::*;

    use super::*;

    const ID: SegmentId = SegmentId {
        log_id: 5,
        number: 6,
        kind: 7,
    };

    fn encoded(record: &Record<'_>, offset: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode_front(&mut out, record, Purpose::Data, seed(), offset, 64);
        out
    }

    fn seed() -> ChecksumSeed {
        ChecksumSeed::of(&ID)
    }

    /// The checksum as drawn above [`encode_front`], in one pass.
    fn front_checksum(bytes: &[u8], seed: ChecksumSeed, offset: u64) -> u32 {
        let place = checksum_append(seed.0, &offset.to_le_bytes());
        mask_checksum(checksum_append(place, &bytes[4..]))
    }

    fn record() -> Record<'static> {
        Record {
            sequence: 0x0a0b,
            kind: 9,
            removal: true,
            batch: BatchPlace::First,
            front: b"front",
            back: EncodedBack::plain(b"back"),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("masked CRC-32C of place, bytes 4..32, the front", 4),
            ("masked CRC-32C of the back as stored", 4),
            ("sequence", 8),
            ("length of the front", 4),
            ("length of the back as stored", 4),
            ("synced-to, in units of 8", 4),
            ("flags: 0 removal, 1 batch continues behind", 1),
            ("kind, the caller's", 1),
            ("low half of a masked CRC-32C of place, bytes 4..30", 2),
            ("front", 5),
        ];
        assert_bytes("record.hex", &drawing, &encoded(&record(), 32));
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let bytes = encoded(&record(), 32);
        let header = decode_header(&bytes, seed(), 32).unwrap();
        assert_eq!(header.sequence, 0x0a0b);
        assert_eq!(header.synced_to, 64);
        assert_eq!(header.batch, BatchPlace::First);
        assert!(header.removal);
        assert_eq!(header.len(), 41);
        assert_eq!(header.front_checksum, header.front_checksum_of(&bytes));
        assert_eq!(header.front_checksum, front_checksum(&bytes, seed(), 32));
    }

    #[test]
    fn a_record_passes_at_its_own_place_only() {
        let bytes = encoded(&record(), 32);
        assert_ne!(
            front_checksum(&bytes, seed(), 40),
            front_checksum(&bytes, seed(), 32)
        );
        let other = ChecksumSeed::of(&SegmentId { number: 7, ..ID });
        assert_ne!(
            front_checksum(&bytes, other, 32),
            front_checksum(&bytes, seed(), 32)
        );
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(decode_header(&[0; 64], seed(), 32), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _decoded = decode_header(&bytes, seed(), 8);
        }

        #[test]
        fn every_flip_in_header_or_front_is_seen(at in 0usize..37, bit in 0u8..8) {
            let mut bytes = encoded(&record(), 32);
            bytes[at] ^= 1 << bit;
            let is_seen = match decode_header(&bytes, seed(), 32) {
                None => true,
                Some(header) => header.front_checksum_of(&bytes) != header.front_checksum,
            } || (4..8).contains(&at);
            prop_assert!(is_seen);
        }
    }
}
