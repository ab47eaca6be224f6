//! Every message survives encoding and decoding, and no bytes cause a panic.

use kvorum_golden::assert_bytes;
use kvorum_ring::RingSize;
use proptest::prelude::*;

use super::*;

fn partition(number: u16) -> Partition {
    RingSize::new(64).unwrap().partition(number).unwrap()
}

fn session() -> Session {
    Session {
        kind: TransferKind::Growth,
        target: partition(5),
        source: partition(4),
        number: 0x0123_4567_89ab_cdef,
        sequence: 3,
    }
}

fn key(text: &str) -> StorageKey {
    StorageKey::from_encoded(text.as_bytes().to_vec())
}

fn questions() -> Vec<Question> {
    let page = PageQuestion {
        session: session(),
        epoch: Epoch::new(7),
        wanted: Wanted::All,
        after: None,
        bytes_max: 1 << 20,
        entries_max: 1_000,
        piece_bytes_max: 4 << 20,
    };
    let some = PageQuestion {
        wanted: Wanted::Owners {
            owners: vec![partition(2), partition(3)],
            replicas: 3,
        },
        after: Some(key("a")),
        ..page.clone()
    };
    vec![
        Question::Page(page),
        Question::Page(some),
        Question::Piece {
            session: session(),
            offset: 1 << 33,
            bytes_max: 9,
        },
        Question::Knows {
            partition: partition(63),
            epoch: Epoch::new(2),
        },
        Question::LacksNothing {
            partition: partition(63),
        },
        Question::Pin {
            partition: partition(63),
            epoch: Epoch::new(2),
        },
    ]
}

fn answers() -> Vec<Answer> {
    let entry = |text: &str, body: &'static [u8]| Entry {
        key: key(text),
        head: Bytes::from_static(b"head"),
        body: Bytes::from_static(body),
    };
    let page = Page {
        session: session(),
        epoch: Epoch::new(7),
        total: Chain {
            count: 2,
            digest: 99,
        },
        keys_about: 1_000,
        is_last: false,
        through: Some(key("c")),
        content: Content::Entries(vec![entry("a", b"one"), entry("b", b"")]),
    };
    let large = Page {
        is_last: true,
        content: Content::Large {
            key: key("c"),
            head: Bytes::from_static(b"head"),
            body_len: 1 << 32,
        },
        ..page.clone()
    };
    vec![
        Answer::Page(page),
        Answer::Page(large),
        Answer::Piece {
            session: session(),
            offset: 4,
            bytes: Bytes::from_static(b"piece"),
        },
        Answer::Knows(true),
        Answer::Pin(None),
        Answer::Pin(Some("ldb".to_owned())),
        Answer::Later {
            wait: Duration::from_millis(1_500),
            reason: "it has not learned of the move".into(),
        },
        Answer::UnknownSession,
        Answer::Refused("no".into()),
    ]
}

#[test]
fn every_question_survives_its_way() {
    for question in questions() {
        let message = encode_question(&question);
        assert_eq!(decode_question(&message), Ok(question));
    }
}

#[test]
fn every_answer_survives_its_way() {
    for answer in answers() {
        let message = encode_answer(&answer);
        assert_eq!(decode_answer(&message), Ok(answer));
    }
}

/// Heads and bodies of messages, each with its name.
fn dump<'a>(
    messages: impl Iterator<Item = (&'a str, Message)>,
) -> (Vec<(&'a str, usize)>, Vec<u8>) {
    let (mut drawing, mut bytes) = (Vec::new(), Vec::new());
    for (name, message) in messages {
        drawing.extend([(name, message.head.len()), ("body", message.body.len())]);
        bytes.extend_from_slice(&message.head);
        bytes.extend_from_slice(&message.body);
    }
    (drawing, bytes)
}

#[test]
fn the_bytes_of_messages_stay() {
    let names = [
        "page of everything",
        "page of some owners, behind a key",
        "piece",
        "knows",
        "lacks nothing",
        "pin",
    ];
    let questions = questions();
    let messages = questions.iter().map(encode_question);
    assert_eq!(names.len(), questions.len());
    let (drawing, bytes) = dump(names.into_iter().zip(messages));
    assert_bytes("wire.questions.hex", &drawing, &bytes);
    let names = [
        "page of entries",
        "page with one large entry",
        "piece",
        "knows",
        "no pin",
        "pin",
        "later",
        "unknown session",
        "refused",
    ];
    let answers = answers();
    let messages = answers.iter().map(encode_answer);
    assert_eq!(names.len(), answers.len());
    let (drawing, bytes) = dump(names.into_iter().zip(messages));
    assert_bytes("wire.answers.hex", &drawing, &bytes);
}

#[test]
fn another_version_is_refused_and_so_is_a_cut_or_overlong_message() {
    for message in questions().iter().map(encode_question) {
        for len in 0..message.head.len() {
            let cut = Message::of_head(message.head.slice(..len));
            assert!(decode_question(&cut).is_err(), "{len}");
        }
        let mut longer = message.head.to_vec();
        longer.push(0);
        assert!(decode_question(&Message::of_head(longer)).is_err());
        let mut later = message.head.to_vec();
        later[1] = 9;
        let refused = decode_question(&Message::of_head(later));
        assert_eq!(refused, Err(WireError::Version { got: 9 }));
    }
    for message in answers().iter().map(encode_answer) {
        for len in 0..message.head.len() {
            let head = message.head.slice(..len);
            let body = message.body.clone();
            assert!(decode_answer(&Message { head, body }).is_err(), "{len}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_do_harm(
        kind in 0u8..8,
        head in prop::collection::vec(any::<u8>(), 0..200),
        body in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut whole = vec![SERVICE, VERSION, kind];
        whole.extend(head);
        let message = Message { head: sealed(whole).into(), body: body.into() };
        let _judged = decode_question(&message);
        let _judged = decode_answer(&message);
    }

    #[test]
    fn a_flipped_byte_is_noticed(which in 0usize..7, at in 0usize..200, flip in 1u8..) {
        let message = encode_answer(&answers()[which]);
        let mut head = message.head.to_vec();
        let at = at % head.len();
        head[at] ^= flip;
        let flipped = Message { head: head.into(), body: message.body };
        prop_assert!(decode_answer(&flipped).is_err());
    }
}
