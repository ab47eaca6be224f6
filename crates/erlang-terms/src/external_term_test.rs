//! Terms in Erlang's form, and damaged bytes.

use proptest::prelude::*;

use super::*;

fn decode(bytes: &[u8]) -> Result<Term, TermError> {
    Term::decode(&Bytes::copy_from_slice(bytes))
}

fn binary(text: &'static str) -> Term {
    Term::Binary(Bytes::from_static(text.as_bytes()))
}

#[test]
fn terms_of_every_kind_are_understood() {
    let cases: [(&[u8], Term); 12] = [
        (&[131, 97, 7], Term::Integer(7)),
        (&[131, 98, 255, 255, 255, 254], Term::Integer(-2)),
        (&[131, 110, 5, 0, 0, 0, 0, 0, 1], Term::Integer(1 << 32)),
        (&[131, 110, 1, 1, 9], Term::Integer(-9)),
        (&[131, 70, 63, 240, 0, 0, 0, 0, 0, 0], Term::Float(1.0)),
        (b"\x83d\0\x02ok", Term::Atom(Bytes::from_static(b"ok"))),
        (b"\x83w\x02ok", Term::Atom(Bytes::from_static(b"ok"))),
        (b"\x83k\0\x02hi", Term::Text(Bytes::from_static(b"hi"))),
        (b"\x83m\0\0\0\x02hi", binary("hi")),
        (b"\x83h\x01m\0\0\0\x02hi", Term::Tuple(vec![binary("hi")])),
        (
            b"\x83l\0\0\0\x01m\0\0\0\x01am\0\0\0\x01b",
            Term::List(vec![binary("a")], Some(Box::new(binary("b")))),
        ),
        (
            b"\x83t\0\0\0\x01a\x01a\x02",
            Term::Map(vec![(Term::Integer(1), Term::Integer(2))]),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decode(bytes), Ok(expected), "{bytes:?}");
    }
}

#[test]
fn integers_and_long_lists_are_read_back() {
    let integers = [
        0,
        255,
        256,
        -1,
        1 << 31,
        -(1 << 31) - 1,
        1 << 100,
        -(1 << 100),
    ];
    for value in integers {
        let term = Term::Integer(value);
        assert_eq!(Term::decode(&term.encode()), Ok(term));
    }
    let long = vec![Term::Integer(1); 300];
    for term in [Term::Tuple(long.clone()), Term::List(long, None)] {
        assert_eq!(Term::decode(&term.encode()), Ok(term));
    }
}

#[test]
fn a_compressed_term_is_inflated_and_one_that_names_a_wrong_length_is_refused() {
    use std::io::Write as _;
    let plain = b"m\0\0\0\x05hello";
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain).unwrap();
    let stream = encoder.finish().unwrap();
    let with_len = |len: u32| [&[131, 80], &len.to_be_bytes()[..], &stream].concat();
    assert_eq!(decode(&with_len(10)), Ok(binary("hello")));
    assert_eq!(decode(&with_len(9)), Err(TermError::Compression));
    assert_eq!(decode(&with_len(11)), Err(TermError::Compression));
    assert_eq!(decode(&with_len(u32::MAX)), Err(TermError::TooLarge));
    assert_eq!(inflated_len(&with_len(10)), Some(10));
    let bare = inflated(&with_len(10).into()).unwrap();
    assert_eq!(bare, [&[131], &plain[..]].concat());
    assert_eq!(
        (inflated_len(&bare), inflated(&bare)),
        (None, Ok(bare.clone()))
    );
    assert_eq!(decode(&[131, 80, 0, 0]), Err(TermError::Cut { offset: 2 }));
}

#[test]
fn lengths_and_nesting_cost_nothing_before_their_bytes_are_there() {
    let huge_tuple = [131, 105, 255, 255, 255, 255, 97, 1];
    assert_eq!(decode(&huge_tuple), Err(TermError::Cut { offset: 8 }));
    let mut deep = vec![131];
    deep.extend([104u8, 1].repeat(1_000_000));
    assert_eq!(decode(&deep), Err(TermError::TooLarge));
    let mut wide = vec![131, 105, 0, 32, 0, 0];
    wide.resize(wide.len() + (1 << 21), 106);
    assert_eq!(decode(&wide), Err(TermError::TooLarge));
}

#[test]
fn text_is_taken_from_binaries_strings_atoms_and_lists_of_characters() {
    let list = |characters: &[i128]| {
        Term::List(
            characters.iter().copied().map(Term::Integer).collect(),
            None,
        )
    };
    assert_eq!(list(&[104, 105]).to_text().unwrap(), "hi");
    assert_eq!(list(&[255]).to_text().unwrap(), &[255][..]);
    assert_eq!(list(&[0x20ac]).to_text().unwrap(), "\u{20ac}");
    assert_eq!(list(&[-1]).to_text(), None);
    assert_eq!(Term::Integer(3).to_text(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_written_so_that_it_is_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut whole = vec![131];
        whole.extend(bytes);
        if let Ok(term) = decode(&whole) {
            let again = Term::decode(&term.encode());
            prop_assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, TermError>(term)));
        }
    }

    #[test]
    fn no_bytes_whatever_bring_the_decoder_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut whole = vec![131];
        whole.extend(bytes);
        let _any_outcome_will_do = decode(&whole);
    }
}
