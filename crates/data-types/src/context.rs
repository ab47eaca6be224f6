//! The opaque bytes that clients get with a set or a map and send with their removes.

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, checksum, mask_checksum};

use crate::clock::Clock;
use crate::clock_encoding::{put_clock, read_clock};
use crate::decode_error::DecodeError;
use crate::riak_clock::clock_from_riak;

const VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;
/// The first byte of a context of Riak's, an Erlang term.
const RIAK_FORMAT: u8 = 131;

/// The bytes of a context.
///
/// ```text
/// context  = version   u8      1
///            clock             see `put_clock`
///            checksum  u32     masked CRC-32C of all bytes before
/// ```
pub fn encode_context(clock: &Clock) -> Bytes {
    let mut out = vec![VERSION];
    put_clock(&mut out, clock);
    let sum = mask_checksum(checksum(&out));
    out.put_u32_le(sum);
    out.into()
}

/// Reads what [`encode_context`] wrote, or a context that Riak gave before an import.
///
/// # Errors
/// [`DecodeError`] for anything else: the client sent bytes that no server issued.
pub fn decode_context(bytes: &Bytes) -> Result<Clock, DecodeError> {
    if bytes.first() == Some(&RIAK_FORMAT) {
        return clock_from_riak(bytes).ok_or(DecodeError::Malformed { offset: 0 });
    }
    let covered_len = bytes.len().checked_sub(CHECKSUM_LEN);
    let covered_len = covered_len.ok_or(DecodeError::Malformed {
        offset: bytes.len(),
    })?;
    let (covered, sum) = bytes.split_at(covered_len);
    let got = ByteReader::new(sum).u32()?;
    let expected = mask_checksum(checksum(covered));
    if got != expected {
        return Err(DecodeError::Checksum { got, expected });
    }
    let mut reader = ByteReader::new(covered);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version {
            got: version,
            expected: VERSION,
        });
    }
    let clock = read_clock(&mut reader)?;
    match reader.is_empty() {
        true => Ok(clock),
        false => Err(DecodeError::Malformed {
            offset: reader.offset(),
        }),
    }
}
