//! Objects written by Riak, and damaged objects.

use proptest::prelude::*;

use super::*;

/// An object of version 1 that Riak wrote: value "hello", text/plain, vtag abc.
const RECORDED: &str = "350100000022836c0000000168026d000000080102030405060708680261016e0500009f\
    bce00e6a00000001000000060168656c6c6f00000035000006a40001e2400000002a03616263000000000d01636f\
    6e74656e742d747970650000000f00836b000a746578742f706c61696e";

fn recorded() -> Vec<u8> {
    let digits = RECORDED.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn an_object_written_by_riak_is_understood() {
    let object = RiakObject::decode(&recorded().into()).unwrap();
    let [sibling] = &object.siblings[..] else {
        panic!("{object:?}");
    };
    assert_eq!(sibling.value, "hello");
    assert_eq!(sibling.metadata.content_type, "text/plain");
    assert_eq!(sibling.metadata.vtag, "abc");
    assert_eq!(sibling.metadata.last_modified_micros, 1_700_123_456_000_042);
    assert!(!sibling.metadata.deleted);
    let dot = crate::version_vector::RiakDot {
        actor: Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8]),
        counter: 1,
    };
    assert!(object.clock.contains(&dot));
}

#[test]
fn every_truncation_is_refused() {
    let whole = recorded();
    for len in 0..whole.len() {
        assert!(
            RiakObject::decode(&whole[..len].to_vec().into()).is_err(),
            "{len}"
        );
    }
    let mut longer = whole;
    longer.push(0);
    let decoded = RiakObject::decode(&longer.into());
    assert!(matches!(decoded, Err(ObjectError::Trailing { .. })));
}

#[test]
fn counts_and_lengths_beyond_the_bytes_cost_nothing() {
    let mut whole = recorded();
    whole[40..44].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(RiakObject::decode(&whole.into()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_flips_bring_the_decoder_down(flips in proptest::collection::vec((0usize..111, any::<u8>()), 1..6)) {
        let mut bytes = recorded();
        for (at, flip) in flips {
            bytes[at] ^= flip;
        }
        let _any_outcome_will_do = RiakObject::decode(&bytes.into());
    }

    #[test]
    fn no_bytes_whatever_bring_the_decoder_down(version in 0..2, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut whole = if version == 0 { vec![131, 104, 7] } else { vec![53, 1] };
        whole.extend(bytes);
        let _any_outcome_will_do = RiakObject::decode(&whole.into());
    }
}
