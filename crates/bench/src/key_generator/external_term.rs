//! A key in Erlang's external term format, as `term_to_binary` writes it.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::key::Key;

const VERSION: u8 = 131;
const SMALL_INTEGER: u8 = 97;
const INTEGER: u8 = 98;
const SMALL_BIG: u8 = 110;
const NIL: u8 = 106;
const STRING: u8 = 107;
const LIST: u8 = 108;
const BINARY: u8 = 109;

/// The version byte and one term; the format's numbers are big-endian.
///
/// ```text
/// 97  u8                                integers from 0 to 255
/// 98  i32                               other integers of 32 bits
/// 110 u8 length, u8 sign, magnitude     larger ones; the magnitude is little-endian
/// 106                                   the empty string, which is the empty list
/// 107 u16 length, bytes                 strings of up to 65535 bytes
/// 108 u32 length, 97 u8 for each, 106   longer strings
/// 109 u32 length, bytes                 binaries
/// ```
pub(super) fn external_term(key: &Key) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    match key {
        Key::Integer(value) => put_integer(*value, &mut out),
        Key::String(bytes) => put_string(bytes, &mut out),
        Key::Binary(bytes) => {
            out.put_u8(BINARY);
            out.put_u32(length(bytes));
            out.put_slice(bytes);
        }
    }
    out.freeze()
}

/// The integer in a term; `None` for any other term.
pub(super) fn external_integer(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(&[VERSION])? {
        [SMALL_INTEGER, value] => Some(i64::from(*value)),
        [INTEGER, value @ ..] => Some(i64::from(i32::from_be_bytes(value.try_into().ok()?))),
        [SMALL_BIG, length, sign, magnitude @ ..] => {
            if usize::from(*length) != magnitude.len() || magnitude.len() > 8 {
                return None;
            }
            let mut whole = [0; 8];
            whole.get_mut(..magnitude.len())?.copy_from_slice(magnitude);
            let value = i128::from(u64::from_le_bytes(whole));
            i64::try_from(if *sign == 0 { value } else { -value }).ok()
        }
        _ => None,
    }
}

fn put_integer(value: i64, out: &mut BytesMut) {
    if let Ok(small) = u8::try_from(value) {
        out.put_slice(&[SMALL_INTEGER, small]);
    } else if let Ok(value) = i32::try_from(value) {
        out.put_u8(INTEGER);
        out.put_i32(value);
    } else {
        let magnitude = value.unsigned_abs().to_le_bytes();
        let used = magnitude.iter().rposition(|byte| *byte != 0);
        let used = magnitude.get(..=used.unwrap_or(0)).unwrap_or_default();
        let sign = u8::from(value < 0);
        out.put_slice(&[SMALL_BIG, u8::try_from(used.len()).unwrap_or(8), sign]);
        out.put_slice(used);
    }
}

fn put_string(bytes: &[u8], out: &mut BytesMut) {
    if bytes.is_empty() {
        out.put_u8(NIL);
    } else if let Ok(length) = u16::try_from(bytes.len()) {
        out.put_u8(STRING);
        out.put_u16(length);
        out.put_slice(bytes);
    } else {
        out.put_u8(LIST);
        out.put_u32(length(bytes));
        for byte in bytes {
            out.put_slice(&[SMALL_INTEGER, *byte]);
        }
        out.put_u8(NIL);
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_written_as_erlang_does() {
        let string = |bytes: &'static [u8]| Key::String(Bytes::from_static(bytes));
        for (key, expected) in [
            (Key::Integer(255), &[131, 97, 255][..]),
            (Key::Integer(256), &[131, 98, 0, 0, 1, 0]),
            (Key::Integer(-1), &[131, 98, 255, 255, 255, 255]),
            (Key::Integer(1 << 32), &[131, 110, 5, 0, 0, 0, 0, 0, 1]),
            (
                Key::Integer(-(1 << 31) - 1),
                &[131, 110, 4, 1, 1, 0, 0, 128],
            ),
            (string(b""), &[131, 106]),
            (string(b"ab"), &[131, 107, 0, 2, 97, 98]),
            (
                Key::Binary(Bytes::from_static(b"ab")),
                &[131, 109, 0, 0, 0, 2, 97, 98],
            ),
        ] {
            assert_eq!(external_term(&key), expected, "{key:?}");
            if let Key::Integer(value) = key {
                assert_eq!(external_integer(expected), Some(value));
                for length in 0..expected.len() {
                    assert_eq!(external_integer(&expected[..length]), None);
                }
            } else {
                assert_eq!(external_integer(expected), None);
            }
        }
        let long = external_term(&Key::String(Bytes::from(vec![7; 70_000])));
        assert_eq!(&long[..7], [131, 108, 0, 1, 17, 112, 97]);
        assert_eq!(long.len(), 1 + 5 + 140_000 + 1);
    }
}
