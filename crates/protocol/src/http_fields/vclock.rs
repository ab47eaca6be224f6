//! `X-Riak-Vclock`: the opaque causality token in base64.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

/// Writes padding, but reads tokens without it too, since clients pass tokens through many
/// libraries.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A vclock header that is not base64.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vclock is not base64")]
pub struct VclockError {
    source: base64::DecodeError,
}

/// Encodes a vclock for the header.
pub fn encode_vclock(vclock: &[u8]) -> String {
    BASE64.encode(vclock)
}

/// Decodes a vclock header; white space is ignored, an empty header is an empty vclock.
///
/// # Errors
/// [`VclockError`] if the rest is not base64.
pub fn decode_vclock(header: &[u8]) -> Result<Bytes, VclockError> {
    let decoded = if header.iter().any(u8::is_ascii_whitespace) {
        let dense: Vec<u8> = header
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        BASE64.decode(dense)
    } else {
        BASE64.decode(header)
    };
    decoded
        .map(Bytes::from)
        .map_err(|source| VclockError { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_padding_or_space_does_not_matter() {
        assert_eq!(encode_vclock(b"\x00\x01\xfe\xff"), "AAH+/w==");
        assert_eq!(
            decode_vclock(b"AAH+/w==").unwrap(),
            &b"\x00\x01\xfe\xff"[..]
        );
        assert_eq!(
            decode_vclock(b" AAH+\r\n/w ").unwrap(),
            &b"\x00\x01\xfe\xff"[..]
        );
        assert_eq!(decode_vclock(b"").unwrap(), Bytes::new());
        assert!(decode_vclock(b"not*base64").is_err());
        assert!(decode_vclock(b"A").is_err());
    }
}
