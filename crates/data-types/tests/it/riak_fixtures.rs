//! Data types that nodes of Riak 3.2.3 wrote, on every backend, and the answers of these nodes for
//! them. The file is generated data: each object's value in hexadecimal, and the answer of the node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kvorum_data_types::{
    DataType, HyperLogLog, RiakFormError, decode_context, decode_riak_value, encode_legacy_counter,
    encode_riak_value, fetched_json,
};
use serde_json::Value;

const OBJECTS: &str = include_str!("../fixtures/riak-3.2/data_types.json");

fn objects() -> Vec<Value> {
    serde_json::from_str(OBJECTS).unwrap()
}

fn stored(object: &Value) -> Bytes {
    let hex = object["stored"].as_str().unwrap().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.chunks(2).map(byte).collect()
}

#[test]
fn what_riak_stored_has_the_value_that_riak_answered() {
    let objects = objects();
    assert_eq!(objects.len(), 102);
    for object in &objects {
        let read = decode_riak_value(&stored(object)).unwrap_or_else(|e| panic!("{e:?}: {object}"));
        let is_legacy = object["type"] == "legacy";
        assert_eq!(read.is_legacy, is_legacy, "{object}");
        assert_eq!(object["content_type"], read.value.kind().content_type());
        let shown = fetched_json(&read.value.value(), None).unwrap();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["value"], object["value"], "{object}");
        if !is_legacy {
            assert_eq!(shown["type"], object["type"]);
        }
    }
}

/// Riak's context is its whole clock; ours has only the actors with a part in the value.
#[test]
fn a_context_of_riak_covers_ours() {
    let mut compared = 0;
    for object in objects() {
        let Some(context) = object["context"].as_str() else {
            continue;
        };
        let riak = decode_context(&STANDARD.decode(context).unwrap().into()).unwrap();
        let value = decode_riak_value(&stored(&object)).unwrap().value;
        let ours = value.context().unwrap();
        assert!(riak.descends(&ours), "{object}");
        for dot in ours.entries() {
            assert_eq!(riak.get(dot.actor), dot.counter, "{object}");
        }
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn what_we_write_for_riak_is_what_riak_wrote() {
    for object in objects() {
        let value = decode_riak_value(&stored(&object)).unwrap().value;
        let again = decode_riak_value(&encode_riak_value(&value)).unwrap().value;
        assert_eq!(again.value(), value.value(), "{object}");
        if let DataType::Counter(counter) = &value {
            let legacy = decode_riak_value(&encode_legacy_counter(counter)).unwrap();
            assert_eq!(legacy.value.value(), value.value());
        }
    }
}

#[test]
fn imported_values_are_stored_and_merged_with_themselves() {
    for object in objects() {
        let value = decode_riak_value(&stored(&object)).unwrap().value;
        assert_eq!(DataType::decode(&value.encode()), Ok(value.clone()));
        let mut merged = value.clone();
        merged.merge(value.clone()).unwrap();
        assert_eq!(merged, value);
    }
}

#[test]
fn sketches_of_riak_have_its_precision() {
    for object in objects().iter().filter(|object| object["type"] == "hll") {
        let DataType::HyperLogLog(sketch) = decode_riak_value(&stored(object)).unwrap().value
        else {
            panic!("{object}");
        };
        assert_eq!(sketch.precision(), HyperLogLog::default().precision());
    }
}

#[test]
fn other_values_are_refused_by_what_they_are() {
    let plain = decode_riak_value(&Bytes::from_static(b"text"));
    assert_eq!(plain, Err(RiakFormError::Plain));
    let module = decode_riak_value(&Bytes::from_static(b"E\x02\0\0\0\x03abcM\x01\x83j"));
    let name = Bytes::from_static(b"abc");
    assert_eq!(module, Err(RiakFormError::Module { module: name }));
    assert!(decode_riak_value(&Bytes::from_static(b"E\x03")).is_err());
}
