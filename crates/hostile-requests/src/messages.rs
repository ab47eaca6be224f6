//! Requests over protocol buffers: for each code its message, if we send one, and noise for all
//! other codes.

use bytes::Bytes;
use kvorum_protocol::{CodedMessage, MessageCode, frame, pb};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::requests::{JOBS, SIZES};

/// Frames above the limit of a server's default settings.
const OVERSIZED_BYTES: u32 = (64 << 20) + 1;

/// The number of keys: few, so that the data stays small.
const KEYS: u32 = 300;

/// The time that a request may take, in milliseconds.
const TIMEOUT_MS: u32 = 2_000;

/// A frame with a random code.
pub(crate) fn draw(random: &mut StdRng) -> Vec<u8> {
    // Most traffic is reads and writes.
    let code = match random.random_range(0..10) {
        0..3 => MessageCode::RPB_GET_REQ,
        3..5 => MessageCode::RPB_PUT_REQ,
        5 => MessageCode::DT_UPDATE_REQ,
        _ => MessageCode(random.random()),
    };
    of_code(code, random)
}

/// A frame that announces more than the server accepts, in some cases with all these bytes.
pub(crate) fn oversized(random: &mut StdRng) -> Vec<u8> {
    let announced = if random.random_ratio(1, 2) {
        OVERSIZED_BYTES
    } else {
        u32::MAX
    };
    let brought = if random.random_ratio(1, 4) {
        8 << 20
    } else {
        100
    };
    let mut bytes = announced.to_be_bytes().to_vec();
    bytes.push(MessageCode::RPB_PUT_REQ.0);
    bytes.resize(bytes.len() + brought, 7);
    bytes
}

fn of_code(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    match code {
        MessageCode::RPB_SET_CLIENT_ID_REQ => encoded(&pb::RpbSetClientIdReq {
            client_id: Bytes::from_static(b"hostile"),
        }),
        MessageCode::RPB_GET_REQ => get(random),
        MessageCode::RPB_PUT_REQ => put(random),
        MessageCode::RPB_DEL_REQ => delete(random),
        MessageCode::RPB_LIST_BUCKETS_REQ
        | MessageCode::RPB_LIST_KEYS_REQ
        | MessageCode::RPB_CS_BUCKET_REQ
        | MessageCode::RPB_INDEX_REQ
        | MessageCode::RPB_MAP_RED_REQ
        | MessageCode::RPB_COVERAGE_REQ => listing(code, random),
        MessageCode::RPB_GET_BUCKET_REQ
        | MessageCode::RPB_SET_BUCKET_REQ
        | MessageCode::RPB_RESET_BUCKET_REQ
        | MessageCode::RPB_GET_BUCKET_TYPE_REQ
        | MessageCode::RPB_SET_BUCKET_TYPE_REQ
        | MessageCode::RPB_GET_BUCKET_KEY_PREFLIST_REQ => properties(code, random),
        MessageCode::RPB_COUNTER_UPDATE_REQ
        | MessageCode::RPB_COUNTER_GET_REQ
        | MessageCode::DT_FETCH_REQ
        | MessageCode::DT_UPDATE_REQ => data_type(code, random),
        MessageCode(202 | 204 | 206 | 253) => other(code),
        MessageCode(210..=231) => fold(code, random),
        _ => noise(code, random),
    }
}

fn encoded(message: &impl CodedMessage) -> Vec<u8> {
    let mut buffer = Vec::new();
    // Encoding fails only for a frame of 4 GiB.
    let _ = frame::encode(message, &mut buffer);
    buffer
}

/// A frame with the right length and any payload.
fn noise(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    let payload = (0..random.random_range(0..60_u8)).map(|_| random.random());
    let payload: Vec<u8> = payload.collect();
    let length = u32::try_from(payload.len() + 1).unwrap_or(1);
    [&length.to_be_bytes()[..], &[code.0], &payload].concat()
}

fn one<'a>(of: &[&'a str], random: &mut StdRng) -> &'a str {
    of[random.random_range(0..of.len())]
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn bucket() -> Bytes {
    Bytes::from_static(b"hostile")
}

/// A bucket, and a type, whose properties change. Properties are agreed state, so a new name for
/// each request would leave data behind.
fn changing() -> Bytes {
    Bytes::from_static(b"changing")
}

fn key(random: &mut StdRng) -> Bytes {
    Bytes::from(format!("k{}", random.random_range(0..KEYS)))
}

/// A type of plain objects, or none.
fn plain_type(random: &mut StdRng) -> Option<Bytes> {
    match random.random_range(0..4) {
        0 => Some(text("plain")),
        1 => Some(text("once")),
        2 => Some(text(one(&["sets", "counters", "nothing"], random))),
        _ => None,
    }
}

fn flag(random: &mut StdRng) -> Option<bool> {
    match random.random_range(0..4) {
        0 => Some(true),
        1 => Some(false),
        _ => None,
    }
}

fn get(random: &mut StdRng) -> Vec<u8> {
    encoded(&pb::RpbGetReq {
        bucket: if random.random_ratio(1, 20) {
            changing()
        } else {
            bucket()
        },
        key: key(random),
        r#type: plain_type(random),
        head: flag(random),
        deletedvclock: flag(random),
        basic_quorum: flag(random),
        timeout: Some(TIMEOUT_MS),
        ..Default::default()
    })
}

fn put(random: &mut StdRng) -> Vec<u8> {
    let bytes = SIZES[random.random_range(0..SIZES.len())];
    let pair = |name: &str, value: &str| pb::RpbPair {
        key: text(name),
        value: Some(text(value)),
    };
    let link = pb::RpbLink {
        bucket: Some(bucket()),
        key: Some(key(random)),
        tag: Some(text("next")),
    };
    let number = random.random_range(0..KEYS).to_string();
    encoded(&pb::RpbPutReq {
        bucket: bucket(),
        key: Some(key(random)),
        r#type: plain_type(random),
        content: pb::RpbContent {
            value: Bytes::from(vec![random.random::<u8>(); bytes]),
            content_type: Some(text(one(&["text/plain", "application/json", ""], random))),
            links: vec![link],
            usermeta: vec![pair("color", "red"), pair("X-Kvorum-TTL", "60")],
            indexes: vec![pair("n_int", &number), pair("word_bin", &number)],
            ..Default::default()
        },
        return_body: flag(random),
        return_head: flag(random),
        if_none_match: flag(random),
        asis: flag(random),
        timeout: Some(TIMEOUT_MS),
        ..Default::default()
    })
}

fn delete(random: &mut StdRng) -> Vec<u8> {
    encoded(&pb::RpbDelReq {
        bucket: bucket(),
        key: key(random),
        r#type: plain_type(random),
        timeout: Some(TIMEOUT_MS),
        ..Default::default()
    })
}

fn listing(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    match code {
        MessageCode::RPB_LIST_BUCKETS_REQ => encoded(&pb::RpbListBucketsReq {
            timeout: Some(TIMEOUT_MS),
            stream: flag(random),
            r#type: plain_type(random),
        }),
        MessageCode::RPB_LIST_KEYS_REQ => encoded(&pb::RpbListKeysReq {
            bucket: bucket(),
            timeout: Some(TIMEOUT_MS),
            r#type: plain_type(random),
        }),
        MessageCode::RPB_CS_BUCKET_REQ => encoded(&pb::RpbCsBucketReq {
            bucket: bucket(),
            start_key: text("k"),
            end_key: Some(text("k2")),
            max_results: Some(50),
            timeout: Some(TIMEOUT_MS),
            r#type: plain_type(random),
            ..Default::default()
        }),
        MessageCode::RPB_INDEX_REQ => index_query(random),
        MessageCode::RPB_COVERAGE_REQ => encoded(&pb::RpbCoverageReq {
            bucket: bucket(),
            r#type: plain_type(random),
            min_partitions: Some(8),
            ..Default::default()
        }),
        _ => encoded(&pb::RpbMapRedReq {
            request: text(one(JOBS, random)),
            content_type: text(one(
                &[
                    "application/json",
                    "application/x-erlang-binary",
                    "text/xml",
                ],
                random,
            )),
        }),
    }
}

fn index_query(random: &mut StdRng) -> Vec<u8> {
    let is_range = random.random_ratio(2, 3);
    let value = || Some(text("7"));
    encoded(&pb::RpbIndexReq {
        bucket: bucket(),
        index: text(one(
            &["n_int", "word_bin", "$key", "$bucket", "nothing"],
            random,
        )),
        qtype: i32::from(is_range),
        key: if is_range { None } else { value() },
        range_min: if is_range { Some(text("1")) } else { None },
        range_max: if is_range { Some(text("99")) } else { None },
        return_terms: flag(random),
        return_body: flag(random),
        stream: flag(random),
        max_results: flag(random).map(|_| 10),
        term_regex: flag(random).map(|_| text("^[0-9]+$")),
        timeout: Some(TIMEOUT_MS),
        r#type: plain_type(random),
        ..Default::default()
    })
}

fn properties(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    let props = pb::RpbBucketProps {
        n_val: Some(random.random_range(1..4)),
        allow_mult: flag(random),
        last_write_wins: flag(random),
        r: Some(random.random_range(1..4)),
        notfound_ok: flag(random),
        ..Default::default()
    };
    let bucket = changing();
    match code {
        MessageCode::RPB_GET_BUCKET_REQ => encoded(&pb::RpbGetBucketReq {
            bucket,
            r#type: plain_type(random),
        }),
        MessageCode::RPB_SET_BUCKET_REQ => encoded(&pb::RpbSetBucketReq {
            bucket,
            props,
            r#type: plain_type(random),
        }),
        MessageCode::RPB_RESET_BUCKET_REQ => encoded(&pb::RpbResetBucketReq {
            bucket,
            r#type: plain_type(random),
        }),
        MessageCode::RPB_GET_BUCKET_TYPE_REQ => encoded(&pb::RpbGetBucketTypeReq {
            r#type: plain_type(random).unwrap_or_default(),
        }),
        MessageCode::RPB_SET_BUCKET_TYPE_REQ => encoded(&pb::RpbSetBucketTypeReq {
            r#type: changing(),
            props,
        }),
        _ => encoded(&pb::RpbGetBucketKeyPreflistReq {
            bucket,
            key: key(random),
            r#type: plain_type(random),
        }),
    }
}

fn data_type(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    let bucket_type = one(
        &["counters", "sets", "gsets", "maps", "hlls", "plain"],
        random,
    );
    match code {
        MessageCode::RPB_COUNTER_UPDATE_REQ => encoded(&pb::RpbCounterUpdateReq {
            bucket: changing(),
            key: key(random),
            amount: random.random_range(-5..5),
            returnvalue: flag(random),
            ..Default::default()
        }),
        MessageCode::RPB_COUNTER_GET_REQ => encoded(&pb::RpbCounterGetReq {
            bucket: changing(),
            key: key(random),
            ..Default::default()
        }),
        MessageCode::DT_FETCH_REQ => encoded(&pb::DtFetchReq {
            bucket: bucket(),
            key: key(random),
            r#type: text(bucket_type),
            include_context: flag(random),
            timeout: Some(TIMEOUT_MS),
            ..Default::default()
        }),
        _ => encoded(&pb::DtUpdateReq {
            bucket: bucket(),
            key: Some(key(random)),
            r#type: text(bucket_type),
            op: operation(bucket_type, random),
            return_body: flag(random),
            timeout: Some(TIMEOUT_MS),
            ..Default::default()
        }),
    }
}

/// An operation on a data type, with few different members.
fn operation(bucket_type: &str, random: &mut StdRng) -> pb::DtOp {
    let member = Bytes::from(format!("m{}", random.random_range(0..20)));
    let set_op = || pb::SetOp {
        adds: vec![member.clone()],
        removes: Vec::new(),
    };
    match bucket_type {
        "sets" => pb::DtOp {
            set_op: Some(set_op()),
            ..Default::default()
        },
        "gsets" => pb::DtOp {
            gset_op: Some(pb::GSetOp { adds: vec![member] }),
            ..Default::default()
        },
        "hlls" => pb::DtOp {
            hll_op: Some(pb::HllOp { adds: vec![member] }),
            ..Default::default()
        },
        "maps" => {
            let field = |name: &str, of: pb::map_field::MapFieldType| pb::MapField {
                name: text(name),
                r#type: i32::from(of),
            };
            let update = pb::MapUpdate {
                field: field("members", pb::map_field::MapFieldType::Set),
                set_op: Some(set_op()),
                ..Default::default()
            };
            let inner = pb::MapUpdate {
                field: field("inner", pb::map_field::MapFieldType::Map),
                map_op: Some(pb::MapOp {
                    updates: vec![update],
                    removes: Vec::new(),
                }),
                ..Default::default()
            };
            pb::DtOp {
                map_op: Some(pb::MapOp {
                    updates: vec![inner],
                    removes: Vec::new(),
                }),
                ..Default::default()
            }
        }
        _ => pb::DtOp {
            counter_op: Some(pb::CounterOp {
                increment: Some(random.random_range(-9..9)),
            }),
            ..Default::default()
        },
    }
}

/// Messages of replication and security, which the server refuses by name.
fn other(code: MessageCode) -> Vec<u8> {
    match code {
        MessageCode::RPB_FETCH_REQ => encoded(&pb::RpbFetchReq {
            queuename: text("q"),
            encoding: None,
        }),
        MessageCode::RPB_PUSH_REQ => encoded(&pb::RpbPushReq {
            queuename: text("q"),
            keys_value: Vec::new(),
        }),
        MessageCode::RPB_MEMBERSHIP_REQ => encoded(&pb::RpbMembershipReq::default()),
        _ => encoded(&pb::RpbAuthReq {
            user: text("somebody"),
            password: text("something"),
        }),
    }
}

fn fold(code: MessageCode, random: &mut StdRng) -> Vec<u8> {
    let (bucket, of_type) = (bucket(), plain_type(random));
    let is_counted = random.random_ratio(3, 4);
    let change_method = i32::from(if is_counted {
        pb::ChangeMethod::Count
    } else {
        pb::ChangeMethod::Local
    });
    match code {
        MessageCode::RPB_AAE_FOLD_MERGE_TREES_RANGE_REQ => {
            encoded(&pb::RpbAaeFoldMergeTreesRangeReq {
                r#type: of_type,
                bucket,
                tree_size: random.random_range(0..4),
                use_prehash: true,
                ..Default::default()
            })
        }
        MessageCode::RPB_AAE_FOLD_FETCH_CLOCKS_RANGE_REQ => {
            encoded(&pb::RpbAaeFoldFetchClocksRangeReq {
                r#type: of_type,
                bucket,
                ..Default::default()
            })
        }
        MessageCode::RPB_AAE_FOLD_FIND_KEYS_REQ => encoded(&pb::RpbAaeFoldFindKeysReq {
            r#type: of_type,
            bucket,
            finder: random.random_range(0..2),
            find_limit: 100,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_OBJECT_STATS_REQ => encoded(&pb::RpbAaeFoldObjectStatsReq {
            r#type: of_type,
            bucket,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_FIND_TOMBS_REQ => encoded(&pb::RpbAaeFoldFindTombsReq {
            r#type: of_type,
            bucket,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_REPAIR_KEYS_REQ => encoded(&pb::RpbAaeFoldRepairKeysReq {
            r#type: of_type,
            bucket,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_REAP_TOMBS_REQ => encoded(&pb::RpbAaeFoldReapTombsReq {
            r#type: of_type,
            bucket,
            change_method,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_ERASE_KEYS_REQ => encoded(&pb::RpbAaeFoldEraseKeysReq {
            r#type: of_type,
            bucket,
            change_method,
            ..Default::default()
        }),
        MessageCode::RPB_AAE_FOLD_LIST_BUCKETS_REQ => {
            encoded(&pb::RpbAaeFoldListBucketsReq { n_val: Some(3) })
        }
        _ => noise(code, random),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_code_has_a_whole_frame_of_its_own() {
        let mut random = StdRng::seed_from_u64(1);
        let decoder = frame::FrameDecoder::new(64 << 20);
        for code in 0..=255 {
            let mut buffer = BytesMut::from(&of_code(MessageCode(code), &mut random)[..]);
            let frame = decoder.decode(&mut buffer).unwrap().unwrap();
            assert_eq!((frame.code, buffer.len()), (MessageCode(code), 0));
        }
    }

    #[test]
    fn what_is_oversized_is_refused_by_the_decoder() {
        let mut random = StdRng::seed_from_u64(1);
        let decoder = frame::FrameDecoder::new(64 << 20);
        let mut buffer = BytesMut::from(&oversized(&mut random)[..]);
        assert!(decoder.decode(&mut buffer).is_err());
    }
}
