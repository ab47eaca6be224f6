//! The wire form: sent messages arrive, and damaged ones are refused.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durability, Durable, FoldRange};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey};
use kvorum_golden::assert_bytes;
use kvorum_key_folds::{EntryClass, Findings, FoldKind, FoldScope, KeyFold};
use kvorum_object::{Clock, Content, Metadata, Object, ObjectTag, Resolution, Timestamp};
use kvorum_ring::{Epoch, KeyHash, RingSize, Role};
use kvorum_tictac::TreeSize;
use proptest::prelude::*;

use super::message::VERSION;
use super::*;
use crate::{
    ClientUpdate, Condition, CountPage, DataTypeUpdate, Detail, IndexPage, IndexPageRequest,
    IndexPosition, IndexScan, KeyFoldPart, KeyFoldRequest, LeafKeys, Operation, Page, PageKind,
    PageRequest, PagedUpdate, ReplicaFailure, ReplicaReply, ReplicaRequest, SeenEntry, TermPattern,
    TreeAnswer, TreeName, TreeQuestion, TreeRequest,
};

fn key() -> StorageKey {
    StorageKey::from_address(&Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(b"bucket".to_vec()),
        key: Key::new(b"key\0with\xff".to_vec()),
    })
}

fn object(value: &[u8]) -> Arc<Object> {
    let content = Content {
        metadata: Metadata {
            content_type: Bytes::from_static(b"text/plain"),
            ..Metadata::default()
        },
        value: Bytes::copy_from_slice(value),
    };
    Arc::new(Object::as_is(
        Clock::new(),
        content,
        Timestamp::from_micros(77),
    ))
}

fn replica(operation: Operation) -> PeerRequest {
    PeerRequest::Replica {
        role: Role::Fallback,
        request: ReplicaRequest {
            partition: RingSize::new(64).unwrap().partition(63).unwrap(),
            epoch: Epoch::new(9),
            operation,
        },
    }
}

fn apply(context: Option<kvorum_data_types::Clock>) -> PeerRequest {
    replica(Operation::Apply {
        key: key(),
        update: Arc::new(DataTypeUpdate {
            operation: kvorum_data_types::Operation::Counter(-7),
            context,
            precision: 9,
            tag: ObjectTag::named("document").unwrap(),
        }),
        durability: Durability::Grouped,
    })
}

/// The second add to a set that has lost a member.
fn paged_update() -> Arc<PagedUpdate> {
    use kvorum_data_types::{Actor, Dot, Set, SetChange, Update};
    let mut set = Set::default();
    let mut update = |changes: &[SetChange], counter| {
        let context = Some(set.context());
        let dot = Dot::new(Actor(1), counter);
        let update = Update {
            dot,
            micros: 0,
            context: context.as_ref(),
        };
        set.update(changes, update).unwrap()
    };
    let first = Bytes::from_static(b"first");
    update(&[SetChange::Add(first.clone())], 1);
    let second = SetChange::Add(Bytes::from_static(b"second"));
    let delta = update(&[SetChange::Remove(first), second], 2);
    let object = object(b"head of a set");
    Arc::new(PagedUpdate { object, delta })
}

fn follow(durability: Durability) -> PeerRequest {
    replica(Operation::Follow {
        key: key(),
        update: paged_update(),
        resolution: Resolution::NewestWins,
        tag: ObjectTag::named("document").unwrap(),
        durability,
    })
}

fn requests() -> Vec<PeerRequest> {
    let clock = object(b"seen").clock().clone();
    let update = |condition, value: &'static [u8]| {
        Arc::new(ClientUpdate {
            context: clock.clone(),
            condition,
            content: Content {
                value: Bytes::from_static(value),
                ..Content::default()
            },
            resolution: Resolution::NewestWins,
            tag: ObjectTag::named("document").unwrap(),
        })
    };
    let coordinate = |condition, value| {
        replica(Operation::Coordinate {
            key: key(),
            update: update(condition, value),
            durability: Durability::Grouped,
        })
    };
    let written_once = ClientUpdate {
        resolution: Resolution::WrittenOnce,
        ..ClientUpdate::clone(&update(Condition::Always, b"once"))
    };
    let (object, resolution) = (object(b"value"), Resolution::KeepSiblings);
    let size = RingSize::new(8).unwrap();
    let partition = size.partition(3).unwrap();
    let mut requests = vec![
        replica(Operation::Coordinate {
            key: key(),
            update: Arc::new(written_once),
            durability: Durability::BackendDefault,
        }),
        replica(Operation::Get {
            key: key(),
            detail: Detail::Head,
        }),
        coordinate(Condition::Always, b"value"),
        coordinate(Condition::Absent, b""),
        coordinate(Condition::Version(clock.clone()), b"v"),
        coordinate(Condition::NothingBeyond(clock.clone()), b"v"),
        apply(None),
        apply(Some(kvorum_data_types::Clock::new())),
        replica(Operation::Store {
            key: key(),
            object: object.clone(),
            resolution,
            tag: ObjectTag::named("h").unwrap(),
            durability: Durability::BackendDefault,
        }),
        replica(Operation::Mend {
            key: key(),
            object,
            resolution,
            tag: ObjectTag::default(),
        }),
        replica(Operation::Reap { key: key(), clock }),
        PeerRequest::Page(PageRequest {
            partition,
            epoch: Epoch::FIRST,
            kind: PageKind::Keys,
            hash: KeyHash::Standard,
            size,
            owners: Some(vec![partition]),
            range: FoldRange {
                from: Bound::Included(key().to_bytes()),
                to: Bound::Unbounded,
            },
            names_max: 10,
        }),
        PeerRequest::Page(PageRequest {
            partition,
            epoch: Epoch::FIRST,
            kind: PageKind::Count,
            hash: KeyHash::BucketOnly,
            size,
            owners: None,
            range: FoldRange::all(),
            names_max: 7,
        }),
        index_page(IndexScan::Keys {
            from: Bound::Excluded(Bytes::from_static(b"a")),
            to: Bound::Unbounded,
        }),
        index_page(IndexScan::Terms {
            field: Bytes::from_static(b"n_int"),
            from: Bound::Included(Bytes::from_static(b"\x01\x017")),
            to: Bound::Included(Bytes::from_static(b"\x01\x027")),
        }),
    ];
    requests.extend(tree_questions().into_iter().map(tree));
    requests.extend([key_fold(None), key_fold(Some(key()))]);
    requests.push(follow(Durability::Grouped));
    requests
}

fn tree(question: TreeQuestion) -> PeerRequest {
    let size = RingSize::new(8).unwrap();
    PeerRequest::Tree(TreeRequest {
        partition: size.partition(3).unwrap(),
        epoch: Epoch::new(5),
        tree: TreeName {
            owner: size.partition(1).unwrap(),
            n_val: 3,
        },
        question,
    })
}

fn tree_questions() -> [TreeQuestion; 5] {
    let size = TreeSize::Medium;
    let keys = LeafKeys {
        size,
        leaves: [7, 300_000].into(),
        bucket_prefix: None,
        modified: None,
        after: None,
        keys_max: 100,
    };
    [
        TreeQuestion::Root,
        TreeQuestion::Branches {
            size,
            branches: [0, 1_023].into(),
        },
        TreeQuestion::Keys(keys.clone()),
        TreeQuestion::Keys(LeafKeys {
            bucket_prefix: Some(Bytes::from_static(b"prefix")),
            modified: Some((5, u64::MAX)),
            after: Some(key()),
            ..keys
        }),
        TreeQuestion::Recount {
            size,
            leaves: [1].into(),
        },
    ]
}

fn tree_answers() -> [TreeAnswer; 5] {
    let seen = |expiry| SeenEntry {
        key: key(),
        segment: 9,
        version: u64::MAX,
        modified: 77,
        expiry,
    };
    [
        TreeAnswer::Root {
            size: TreeSize::XxSmall,
            hash_version: 1,
            root: vec![3; 16],
            is_building: true,
        },
        TreeAnswer::Branches {
            branches: vec![vec![1, 2], Vec::new()],
            is_building: false,
        },
        TreeAnswer::Keys {
            entries: vec![seen(None), seen(Some(99))],
            is_cut: true,
            now: 98,
        },
        TreeAnswer::Recounted,
        TreeAnswer::Unknown,
    ]
}

fn key_fold(from: Option<StorageKey>) -> PeerRequest {
    let size = RingSize::new(8).unwrap();
    let partition = size.partition(3).unwrap();
    let bucket = Bucket::new(b"bucket".to_vec());
    PeerRequest::KeyFold(KeyFoldRequest {
        partition,
        epoch: Epoch::new(5),
        hash: KeyHash::BucketOnly,
        size,
        owners: from.is_some().then(|| vec![partition]),
        fold: Arc::new(KeyFold {
            scope: FoldScope::bucket(&BucketType::from("type"), &bucket),
            kind: FoldKind::Clocks(EntryClass::Tombstones),
        }),
        from,
    })
}

fn key_fold_part(next: Option<StorageKey>) -> ReplicaReply {
    let mut findings = Findings::default();
    findings.count = 300;
    ReplicaReply::Folded(Box::new(KeyFoldPart { findings, next }))
}

fn found(term: &'static [u8], key: &'static [u8]) -> IndexPosition {
    IndexPosition {
        term: Bytes::from_static(term),
        key: Key::new(key),
    }
}

fn index_page(scan: IndexScan) -> PeerRequest {
    let size = RingSize::new(8).unwrap();
    let partition = size.partition(3).unwrap();
    let is_of_terms = matches!(scan, IndexScan::Terms { .. });
    PeerRequest::IndexPage(IndexPageRequest {
        partition,
        epoch: Epoch::FIRST,
        hash: KeyHash::BucketOnly,
        size,
        owners: is_of_terms.then(|| vec![partition]),
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(b"bucket".to_vec()),
        scan,
        pattern: is_of_terms.then(|| TermPattern::new("a+").unwrap()),
        after: is_of_terms.then(|| found(b"term", b"key")),
        entries_max: 10,
    })
}

fn replies() -> Vec<ReplicaReply> {
    let (got, expected) = (Epoch::new(3), Epoch::new(4));
    let failures = [
        ReplicaFailure::StaleEpoch { got, expected },
        ReplicaFailure::ConditionFound,
        ReplicaFailure::ConditionModified,
        ReplicaFailure::ConditionAbsent,
        ReplicaFailure::ObjectTooLarge {
            bytes: 5,
            bytes_max: 4,
        },
        ReplicaFailure::TooManySiblings {
            siblings: 3,
            siblings_max: 2,
        },
        ReplicaFailure::Full("full".into()),
        ReplicaFailure::Damaged("damaged".into()),
        ReplicaFailure::Storage("broken".into()),
        ReplicaFailure::Internal("odd".into()),
        ReplicaFailure::NotServing,
        ReplicaFailure::Incomplete,
        ReplicaFailure::Unwritable("broken before".into()),
        ReplicaFailure::NotOpen { is_failed: false },
        ReplicaFailure::NotOpen { is_failed: true },
        ReplicaFailure::IndexesNotSupported("bitcask".into()),
        ReplicaFailure::NotPresent("{precondition,..}".into()),
        ReplicaFailure::OperationRefused("too deep".into()),
    ];
    let stored = |value| ReplicaReply::Stored {
        object: object(value),
        durable: Durable::Already,
    };
    let mut replies = vec![
        ReplicaReply::Found(object(b"value")),
        ReplicaReply::NotFound,
        stored(b"sent"),
        stored(b"other"),
        ReplicaReply::Received {
            durable: Durable::Already,
        },
        ReplicaReply::Reaped,
        ReplicaReply::Listed(Page {
            keys: vec![key(), key()],
            next: Some(key()),
        }),
        ReplicaReply::Counted(CountPage {
            keys: 300,
            next: Some(key()),
        }),
        ReplicaReply::Counted(CountPage {
            keys: 0,
            next: None,
        }),
        ReplicaReply::IndexListed(IndexPage {
            entries: vec![found(b"", b"a"), found(b"t\0", b"")],
            next: Some(found(b"x", b"y")),
        }),
    ];
    replies.extend(failures.into_iter().map(ReplicaReply::Failed));
    replies.extend([key_fold_part(None), key_fold_part(Some(key()))]);
    replies.extend(tree_answers().into_iter().map(ReplicaReply::Trees));
    replies.extend([
        ReplicaReply::Updated {
            update: paged_update(),
            durable: Durable::Already,
        },
        ReplicaReply::NeedsWhole,
    ]);
    replies
}

const SENT: Bytes = Bytes::from_static(b"sent");

/// Compares heads and bodies of messages, each with its name.
fn assert_messages(file: &str, messages: &[(String, WireMessage)]) {
    let (mut drawing, mut bytes) = (Vec::new(), Vec::new());
    for (text, message) in messages {
        let name = name_in(text);
        drawing.extend([(name, message.head.len()), ("body", message.body.len())]);
        bytes.extend_from_slice(&message.head);
        bytes.extend_from_slice(&message.body);
    }
    assert_bytes(file, &drawing, &bytes);
}

/// The name of a message in its `Debug` text; for a replica's request, the operation's name.
fn name_in(text: &str) -> &str {
    let of_operation = text.split_once("operation: ");
    let text = of_operation.map_or(text, |(_, text)| text);
    let end = text.find(|letter: char| !letter.is_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

#[test]
fn the_bytes_of_messages_stay() {
    let named = |it: &PeerRequest| (format!("{it:?}"), encode_request(it));
    let requests: Vec<_> = requests().iter().map(named).collect();
    assert_messages("wire.requests.hex", &requests);
    let named = |it: &ReplicaReply| (format!("{it:?}"), encode_reply(it, &SENT));
    let replies: Vec<_> = replies().iter().map(named).collect();
    assert_messages("wire.replies.hex", &replies);
}

#[test]
fn requests_arrive_as_they_were_sent() {
    for request in requests() {
        let decoded = decode_request(&encode_request(&request)).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{request:?}"));
    }
}

#[test]
fn answers_arrive_as_they_were_sent() {
    for reply in replies() {
        let decoded = decode_reply(&encode_reply(&reply, &SENT), &SENT).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{reply:?}"));
    }
}

#[test]
fn values_are_shared_and_not_sent_back() {
    let object = object(b"a value");
    let value = object.siblings()[0].value.clone();
    let reply = ReplicaReply::Found(object.clone());
    let message = encode_reply(&reply, &SENT);
    assert_eq!(message.body.as_ptr(), value.as_ptr());
    let stored = ReplicaReply::Stored {
        object,
        durable: Durable::Already,
    };
    assert_eq!(encode_reply(&stored, &value).body.len(), 0);
    assert_eq!(encode_reply(&stored, &SENT).body, value);
}

#[test]
fn a_long_explanation_is_cut_at_a_character() {
    let reply = ReplicaReply::Failed(ReplicaFailure::Storage("\u{e9}".repeat(2_000)));
    let decoded = decode_reply(&encode_reply(&reply, &SENT), &SENT).unwrap();
    let ReplicaReply::Failed(ReplicaFailure::Storage(text)) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(text, "\u{e9}".repeat(512));
}

#[test]
fn what_is_cut_short_or_has_bytes_left_over_is_refused() {
    for request in requests() {
        let whole = encode_request(&request);
        for len in 0..whole.head.len() {
            let cut = WireMessage {
                head: whole.head.slice(..len),
                body: whole.body.clone(),
            };
            assert!(decode_request(&cut).is_err(), "{request:?} cut at {len}");
        }
        let mut longer = whole.clone();
        longer.head = [&whole.head[..], &[0]].concat().into();
        assert!(decode_request(&longer).is_err());
        longer = whole;
        longer.body = [&longer.body[..], &[0]].concat().into();
        assert!(decode_request(&longer).is_err());
    }
}

#[test]
fn a_damaged_value_is_never_taken() {
    let mut message = encode_reply(&ReplicaReply::Found(object(b"value")), &SENT);
    message.body = Bytes::from_static(b"valuf");
    assert!(matches!(
        decode_reply(&message, &SENT),
        Err(WireError::Object(_))
    ));
}

#[test]
fn another_version_is_recognized() {
    let mut message = encode_request(&requests()[0]);
    message.head = [&[2], &message.head[1..]].concat().into();
    assert_eq!(
        decode_request(&message).unwrap_err(),
        WireError::Version { got: 2 }
    );
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_make_the_decoders_panic(head in proptest::collection::vec(any::<u8>(), 0..200)) {
        let body = Bytes::new();
        let mut versioned = head.clone();
        versioned.insert(0, VERSION);
        for head in [head, versioned] {
            let message = WireMessage { head: head.into(), body: body.clone() };
            let _either = decode_request(&message);
            let _either = decode_reply(&message, &SENT);
        }
    }

    #[test]
    fn flipped_bytes_do_no_harm(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let flipped = |message: WireMessage| {
            let mut head = message.head.to_vec();
            let at = at.index(head.len());
            head[at] ^= flip;
            WireMessage { head: head.into(), body: message.body }
        };
        let requests = requests();
        let message = flipped(encode_request(&requests[which.index(requests.len())]));
        if let Ok(request) = decode_request(&message) {
            // An accepted message could have been sent.
            prop_assert_eq!(encode_request(&request).body, message.body);
        }
        let replies = replies();
        let message = flipped(encode_reply(&replies[which.index(replies.len())], &SENT));
        let _either = decode_reply(&message, &SENT);
    }
}
