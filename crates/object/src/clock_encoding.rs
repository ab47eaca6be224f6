//! The byte form of a clock, for clients and as a part of object heads.

use bytes::{BufMut, Bytes};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum, put_varint, varint_len};
use smallvec::SmallVec;

use crate::{ActorId, Clock, DecodeError, Dot, Part, Timestamp};

const VERSION: u8 = 1;
const VERSION_LEN: usize = 1;
pub(crate) const CHECKSUM_LEN: usize = 4;
const NEWEST_LEN: usize = 8;
const ACTOR_LEN: usize = 8;
/// An actor and a counter of one byte.
const ENTRY_LEN_MIN: usize = ACTOR_LEN + 1;
/// Most clocks are not longer: two actors fit with any counters.
const SHORT_LEN_MAX: usize = 64;

#[repr(align(8))]
struct Aligned([u8; SHORT_LEN_MAX]);

impl Clock {
    /// The opaque bytes that clients get and hand back.
    ///
    /// ```text
    /// clock    = version   u8      1
    ///            entries           see below
    ///            checksum  u32     masked CRC-32C of all bytes before
    /// entries  = newest    u64     microseconds since the Unix epoch
    ///            count     varint
    ///            entry*            by strictly ascending actor
    /// entry    = actor     u64     not 0
    ///            counter   varint  not 0
    /// ```
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.put_encoded(&mut out);
        out.into()
    }

    /// The length of what [`Clock::encode`] gives, in bytes.
    pub fn encoded_len(&self) -> usize {
        VERSION_LEN + self.entries_len() + CHECKSUM_LEN
    }

    /// Appends what [`Clock::encode`] gives.
    pub fn put_encoded(&self, out: &mut (impl BufMut + AsRef<[u8]>)) {
        if self.encoded_len() <= SHORT_LEN_MAX {
            // The checksum of word-aligned memory costs half, and `out` grows once.
            let mut short = Aligned([0; SHORT_LEN_MAX]);
            let mut rest = &mut short.0[..];
            self.put_covered(&mut rest);
            let covered = SHORT_LEN_MAX - rest.len();
            let sum = mask_checksum(checksum(&short.0[..covered]));
            let end = covered + CHECKSUM_LEN;
            short.0[covered..end].copy_from_slice(&sum.to_le_bytes());
            out.put_slice(&short.0[..end]);
            return;
        }
        let start = out.as_ref().len();
        self.put_covered(out);
        put_checksum_from(start, out);
    }

    /// All but the checksum.
    fn put_covered(&self, out: &mut impl BufMut) {
        out.put_u8(VERSION);
        self.put_entries(out);
    }

    /// Reads back what [`Clock::encode`] wrote; no bytes at all are a fresh clock.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::new());
        }
        let covered = check_envelope(bytes, Part::Clock, VERSION)?;
        let mut reader = ByteReader::new(covered);
        let clock = reader
            .take(VERSION_LEN)
            .and_then(|_| Self::read_entries(&mut reader))
            .map_err(DecodeError::cut(Part::Clock))?;
        if !reader.is_empty() {
            return Err(DecodeError::Malformed {
                part: Part::Clock,
                offset: reader.offset(),
            });
        }
        Ok(clock)
    }

    /// The length of what [`Clock::put_entries`] writes, in bytes.
    pub(crate) fn entries_len(&self) -> usize {
        let entries = self
            .entries()
            .iter()
            .map(|entry| ACTOR_LEN + varint_len(entry.counter));
        NEWEST_LEN + varint_len(self.entries().len() as u64) + entries.sum::<usize>()
    }

    /// Writes the `entries` of the drawing at [`Clock::encode`].
    pub(crate) fn put_entries(&self, out: &mut impl BufMut) {
        out.put_u64_le(self.newest().as_micros());
        put_varint(out, self.entries().len() as u64);
        for entry in self.entries() {
            out.put_u64_le(entry.actor.0);
            put_varint(out, entry.counter);
        }
    }

    /// Reads the `entries` of the drawing at [`Clock::encode`].
    pub(crate) fn read_entries(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let newest = Timestamp::from_micros(reader.u64()?);
        let count = reader.varint_len()?;
        let malformed = Truncated {
            offset: reader.offset(),
        };
        if count > reader.remaining() / ENTRY_LEN_MIN {
            return Err(malformed);
        }
        let mut entries = SmallVec::with_capacity(count);
        let mut last = ActorId(0);
        for _ in 0..count {
            let offset = reader.offset();
            let dot = Dot {
                actor: ActorId(reader.u64()?),
                counter: reader.varint()?,
            };
            if dot.actor <= last || dot.counter == 0 {
                return Err(Truncated { offset });
            }
            last = dot.actor;
            entries.push(dot);
        }
        Ok(Self::from_sorted(entries, newest))
    }
}

/// Appends the checksum of all that `out` holds.
pub(crate) fn put_checksum(out: &mut Vec<u8>) {
    put_checksum_from(0, out);
}

/// Appends the checksum of what `out` holds from `start` on.
fn put_checksum_from(start: usize, out: &mut (impl BufMut + AsRef<[u8]>)) {
    let sum = mask_checksum(checksum(&out.as_ref()[start..]));
    out.put_u32_le(sum);
}

/// Checks the version byte in front; returns all but the checksum behind, and the checksum.
pub(crate) fn open_envelope(
    bytes: &[u8],
    part: Part,
    version: u8,
) -> Result<(&[u8], u32), DecodeError> {
    let Some((covered, stored)) = bytes.split_last_chunk::<CHECKSUM_LEN>() else {
        return Err(DecodeError::Malformed {
            part,
            offset: bytes.len(),
        });
    };
    match covered.first() {
        Some(got) if *got == version => {}
        Some(got) => {
            return Err(DecodeError::Version {
                part,
                got: *got,
                expected: version,
            });
        }
        None => return Err(DecodeError::Malformed { part, offset: 0 }),
    }
    Ok((covered, u32::from_le_bytes(*stored)))
}

/// Checks the version byte in front and the checksum behind; returns all but the checksum.
pub(crate) fn check_envelope(bytes: &[u8], part: Part, version: u8) -> Result<&[u8], DecodeError> {
    let (covered, got) = open_envelope(bytes, part, version)?;
    let expected = mask_checksum(checksum(covered));
    if got != expected {
        return Err(DecodeError::Checksum {
            part,
            got,
            expected,
        });
    }
    Ok(covered)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Clock {
        let mut clock = Clock::new();
        clock.observe(
            Dot {
                actor: ActorId(2),
                counter: 300,
            },
            Timestamp::from_micros(0x0102),
        );
        clock.observe(
            Dot {
                actor: ActorId(1),
                counter: 7,
            },
            Timestamp::from_micros(5),
        );
        clock
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = sample().encode();
        let drawn = [
            &[1][..],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[2],
            &[1, 0, 0, 0, 0, 0, 0, 0, 7],
            &[2, 0, 0, 0, 0, 0, 0, 0, 0xac, 0x02],
        ]
        .concat();
        assert_eq!(bytes[..bytes.len() - CHECKSUM_LEN], drawn);
        let decoded = Clock::decode(&bytes).unwrap();
        assert_eq!(decoded, sample());
        assert_eq!(decoded.newest(), sample().newest());
    }

    #[test]
    fn no_bytes_are_a_fresh_clock() {
        assert!(Clock::decode(b"").unwrap().is_empty());
        assert!(Clock::decode(&Clock::new().encode()).unwrap().is_empty());
    }

    #[test]
    fn every_flipped_or_missing_byte_is_refused() {
        let bytes = sample().encode();
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.to_vec();
                flipped[index] ^= 1 << bit;
                assert!(Clock::decode(&flipped).is_err(), "byte {index} bit {bit}");
            }
            assert!(
                index == 0 || Clock::decode(&bytes[..index]).is_err(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn a_checksum_does_not_excuse_a_broken_layout() {
        let newest = [0u8; 8];
        let entry = |actor: u8, counter: u8| [actor, 0, 0, 0, 0, 0, 0, 0, counter];
        let cases = [
            ("unsorted", [&[2][..], &entry(2, 1), &entry(1, 1)].concat()),
            ("repeated", [&[2][..], &entry(2, 1), &entry(2, 2)].concat()),
            ("counter zero", [&[1][..], &entry(2, 0)].concat()),
            ("reserved actor", [&[1][..], &entry(0, 1)].concat()),
            ("count beyond the bytes", [&[3][..], &entry(1, 1)].concat()),
            ("trailing byte", [&[1][..], &entry(1, 1), &[0]].concat()),
        ];
        for (name, entries) in cases {
            let mut bytes = [&[VERSION][..], &newest, &entries].concat();
            put_checksum(&mut bytes);
            let result = Clock::decode(&bytes);
            assert!(
                matches!(result, Err(DecodeError::Malformed { .. })),
                "{name}: {result:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Clock::decode(&bytes);
            bytes.insert(0, VERSION);
            put_checksum(&mut bytes);
            if let Ok(clock) = Clock::decode(&bytes) {
                prop_assert_eq!(Clock::decode(&clock.encode()).unwrap(), clock);
            }
        }
    }
}
