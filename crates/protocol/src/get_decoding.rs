//! Reading a get, the request that comes most, without the generated decoder's ceremony.
//!
//! Clients write its fields as everybody does: known numbers, keys of one byte. Whatever is not like
//! that is left to the generated decoder, from the start, so that both always agree.

use bytes::{Buf as _, Bytes};
use prost::encoding::decode_varint;
use prost::{DecodeError, Message as _};

use crate::pb::RpbGetReq;

impl RpbGetReq {
    /// As the generated `decode`: the same message or the same error, only sooner.
    pub fn decode_payload(payload: Bytes) -> Result<Self, DecodeError> {
        match decode_known(&payload) {
            Some(request) => Ok(request),
            None => Self::decode(payload),
        }
    }
}

/// Wire types, the low three bits of a field's key.
const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

/// The message, unless there is anything in it that is not plain.
fn decode_known(payload: &Bytes) -> Option<RpbGetReq> {
    let mut request = RpbGetReq::default();
    let mut rest = &payload[..];
    while let Some((key, behind)) = rest.split_first() {
        rest = behind;
        match (key >> 3, key & 7) {
            (number, LENGTH_DELIMITED) => {
                let bytes = payload.slice_ref(take_prefixed(&mut rest)?);
                match number {
                    1 => request.bucket = bytes,
                    2 => request.key = bytes,
                    7 => request.if_modified = Some(bytes),
                    13 => request.r#type = Some(bytes),
                    _ => return None,
                }
            }
            (number, VARINT) => {
                let value = take_varint(&mut rest)?;
                // Longer numbers lose their high bits, as in the generated decoder.
                let short = Some(u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default());
                let truth = Some(value != 0);
                match number {
                    3 => request.r = short,
                    4 => request.pr = short,
                    5 => request.basic_quorum = truth,
                    6 => request.notfound_ok = truth,
                    8 => request.head = truth,
                    9 => request.deletedvclock = truth,
                    10 => request.timeout = short,
                    11 => request.sloppy_quorum = truth,
                    12 => request.n_val = short,
                    14 => request.node_confirms = short,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(request)
}

#[inline]
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    if let [byte @ ..0x80, behind @ ..] = *rest {
        *rest = behind;
        return Some((*byte).into());
    }
    decode_varint(rest).ok()
}

#[inline]
fn take_prefixed<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_varint(rest)?).ok()?;
    let taken = rest.get(..len)?;
    rest.advance(len);
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field() -> impl Strategy<Value = Vec<u8>> {
        let number = (0u8..17, prop_oneof![0..300u64, any::<u64>()]).prop_map(|(number, value)| {
            let mut out = vec![number << 3];
            prost::encoding::encode_varint(value, &mut out);
            out
        });
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        let bytes = (0u8..17, bytes).prop_map(|(number, bytes)| {
            let mut out = vec![number << 3 | LENGTH_DELIMITED];
            prost::encoding::encode_varint(bytes.len() as u64, &mut out);
            out.extend_from_slice(&bytes);
            out
        });
        prop_oneof![number, bytes, prop::collection::vec(any::<u8>(), 0..4)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_payload_reads_as_the_generated_decoder_reads_it(
            fields in prop::collection::vec(field(), 0..6),
            cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let mut payload = Bytes::from(fields.concat());
            if is_cut && !payload.is_empty() {
                payload.truncate(cut.index(payload.len()));
            }
            let expected = RpbGetReq::decode(payload.clone());
            let got = RpbGetReq::decode_payload(payload);
            match (got, expected) {
                (Ok(got), Ok(expected)) => prop_assert_eq!(got, expected),
                (Err(got), Err(expected)) => prop_assert_eq!(got.to_string(), expected.to_string()),
                (got, expected) => prop_assert!(false, "{got:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_plain_request_is_not_left_to_the_generated_decoder() {
        let request = RpbGetReq {
            bucket: Bytes::from_static(b"b"),
            key: Bytes::from_static(b"k"),
            r: Some(u32::MAX - 2),
            head: Some(true),
            r#type: Some(Bytes::from_static(b"t")),
            ..RpbGetReq::default()
        };
        let payload = Bytes::from(request.encode_to_vec());
        assert_eq!(decode_known(&payload), Some(request));
    }
}
