//! Bytes stay bytes: objects stored over protocol buffers are read and written back over HTTP unchanged,
//! and never replace the server's own headers.

use bytes::Bytes;
use kvorum_coordinator::{Condition, Detail, GetOptions, PutKind, PutOptions, PutRequest};
use kvorum_encoding::{Address, BucketType};
use kvorum_object::{Clock, Content, IndexEntry, Link, Metadata, UserMetadata};

use crate::client::{Client, Response};
use crate::world::{World, run};

const PATH: &str = "/types/typed/buckets/b/keys/k";

fn address(key: &[u8]) -> Address {
    Address {
        bucket_type: BucketType::from("typed"),
        bucket: "b".into(),
        key: Bytes::copy_from_slice(key).into(),
    }
}

/// Stores an object as the protocol-buffer interface does.
async fn store(world: &World, key: &[u8], metadata: Metadata) {
    let request = PutRequest {
        context: Clock::new(),
        condition: Condition::Always,
        content: Content {
            metadata,
            value: "value".into(),
        },
        kind: PutKind::Versioned,
    };
    let (address, options) = (address(key), PutOptions::default());
    let now = world.runtime.now();
    let stored = world.coordinator.put(&address, request, &options, now);
    stored.await.unwrap();
}

/// The metadata of the one sibling, sorted, without the time.
async fn stored(world: &World, key: &[u8]) -> Metadata {
    let options = GetOptions {
        detail: Detail::Whole,
        ..GetOptions::default()
    };
    let now = world.runtime.now();
    let object = world.coordinator.get(&address(key), &options, now).await;
    let object = object.unwrap().unwrap();
    assert_eq!(object.siblings().len(), 1);
    let mut metadata = object.siblings()[0].metadata.clone();
    metadata.last_modified = Metadata::default().last_modified;
    metadata.user_metadata.sort();
    metadata.indexes.sort();
    metadata.links.sort();
    metadata
}

fn user(name: &'static [u8], value: Option<&'static [u8]>) -> UserMetadata {
    UserMetadata {
        name: Bytes::from_static(name),
        value: value.map(Bytes::from_static),
    }
}

/// Everything that the interfaces store, in forms that no header has.
fn awkward() -> Metadata {
    let entry = |field: &'static [u8], value: &'static [u8]| IndexEntry {
        field: Bytes::from_static(field),
        value: Bytes::from_static(value),
    };
    let link = |tag: &'static [u8]| Link {
        bucket: "people".into(),
        key: "a/b\n".into(),
        tag: Bytes::from_static(tag),
    };
    Metadata {
        content_type: "text/plain; charset=utf-8".into(),
        charset: "x\r\ny".into(),
        content_encoding: "\x01".into(),
        links: vec![link(b""), link(b"friend\"")],
        user_metadata: vec![
            user(b"Date", Some(b"2017-04-05")),
            user(b"Location", Some(b"shelf 7")),
            user(b"Server", Some(b"web3")),
            user(b"Version", Some(b"1.0")),
            user(b"X-Riak-Deleted", Some(b"true")),
            user(b"X-Riak-Meta-Color", Some(b"red")),
            user(b"X-Riak-Vclock", Some(b"forged")),
            user(b"color", Some(b"a\r\nSet-Cookie: b")),
            user(b"none", None),
            user(b"two words", Some(b" padded ")),
        ],
        indexes: vec![
            entry(b"f_bin", b""),
            entry(b"f_bin", b"a\0b"),
            entry(b"f_bin", b"one, two"),
            entry(b"f_bin", b"plain"),
            entry(b"n_int", b"-7"),
            entry(b"odd field_bin", b"x"),
        ],
        ..Metadata::default()
    }
}

/// Reads an object and writes back all that an HTTP client keeps of it.
async fn write_back(client: &mut Client, path: &str) -> Response {
    let read = client.get(path).await;
    assert_eq!(read.status, 200, "{}", read.text());
    let is_kept = |name: &str| {
        let own = ["content-type", "content-encoding", "link", "x-riak-vclock"];
        own.contains(&name) || name.starts_with("x-riak-meta-") || name.starts_with("x-riak-index-")
    };
    let kept = read.headers.iter().filter(|(name, _)| is_kept(name));
    let kept: Vec<(&str, &str)> = kept.map(|(name, value)| (&name[..], &value[..])).collect();
    let written = client.ask("PUT", path, &kept, b"newer").await;
    assert_eq!(written.status, 204, "{}", written.text());
    read
}

#[test]
fn an_update_over_http_leaves_what_protocol_buffers_stored() {
    run(|world| async move {
        let mut client = world.client().await;
        store(&world, b"k", awkward()).await;
        let before = stored(&world, b"k").await;
        let read = write_back(&mut client, PATH).await;
        assert_eq!(stored(&world, b"k").await, before);
        for (name, value) in [
            ("x-riak-meta-version", "1.0"),
            ("x-riak-meta-location", "shelf 7"),
            ("x-riak-meta-two%20words", "%20padded%20"),
            ("x-riak-index-f_bin", "plain"),
            ("x-riak-index-n_int", "-7"),
        ] {
            assert_eq!(read.header(name), Some(value), "{name}");
        }
        for name in ["version", "location", "x-riak-deleted", "set-cookie"] {
            assert_eq!(read.header(name), None, "{name}");
        }
        let vclocks = read
            .headers
            .iter()
            .filter(|(name, _)| name == "x-riak-vclock");
        assert_eq!(vclocks.count(), 1);
        assert_ne!(read.header("server"), Some("web3"));
    });
}

#[test]
fn what_a_client_changes_is_stored_as_the_client_wrote_it() {
    run(|world| async move {
        let mut client = world.client().await;
        store(&world, b"k", awkward()).await;
        let read = client.get(PATH).await;
        let exact = read.header("x-riak-meta-kvorum-exact").unwrap();
        let headers = [
            ("Content-Type", "text/html"),
            ("X-Riak-Vclock", read.header("x-riak-vclock").unwrap()),
            ("X-Riak-Meta-Kvorum-Exact", exact),
            ("X-Riak-Meta-Version", "2.0"),
            ("X-Riak-Meta-Color.2", "100%25"),
            ("X-Riak-Meta-New", "n"),
        ];
        let written = client.ask("PUT", PATH, &headers, b"v").await;
        assert_eq!(written.status, 204, "{}", written.text());
        let metadata = stored(&world, b"k").await;
        assert_eq!(metadata.content_type, "text/html");
        let expected = [
            user(b"Version", Some(b"2.0")),
            user(b"X-Riak-Meta-New", Some(b"n")),
            user(b"color", Some(b"100%25")),
        ];
        assert_eq!(metadata.user_metadata, expected);
        let broken = [headers[0], ("X-Riak-Meta-Kvorum-Exact", "q:a=b")];
        let refused = client.ask("PUT", PATH, &broken, b"v").await;
        assert_eq!(refused.status, 400);
        assert!(refused.text().contains("q:a=b"), "{}", refused.text());
    });
}

#[test]
fn parts_of_siblings_say_the_same_as_single_answers() {
    run(|world| async move {
        let mut client = world.client().await;
        store(&world, b"k", awkward()).await;
        let single = client.get(PATH).await;
        client.put(PATH, "another").await;
        let accept = [("Accept", "multipart/mixed")];
        let several = client.ask("GET", PATH, &accept, b"").await;
        assert_eq!(several.status, 300);
        let body = several.text().to_ascii_lowercase();
        let of_client =
            |name: &str| name.starts_with("x-riak-meta-") || name.starts_with("x-riak-index-");
        let headers = single.headers.iter().filter(|(name, _)| of_client(name));
        for (name, value) in headers {
            let line = format!("{name}: {value}\r\n").to_ascii_lowercase();
            assert!(body.contains(&line), "{line} in {body}");
        }
        assert!(!body.contains("\nset-cookie"), "{body}");
    });
}

/// Every byte that may appear in a request line: a space and a line break end the target.
fn printable() -> impl Iterator<Item = u8> {
    (0x21..=0x7e).chain(0x80..=0xff)
}

/// Regression: Riak's HTTP parser took nearly any byte in a path. Here `<`, `>`, a back-tick and
/// bytes that are not UTF-8 were refused, with an empty answer.
#[test]
fn keys_that_stand_raw_in_a_path_are_served() {
    run(|world| async move {
        let mut client = world.client().await;
        // These separate the parts of a target, or have a meaning in a key (`%41`, `+` for a space).
        let is_key = |byte: &u8| !matches!(byte, b'/' | b'?' | b'#' | b'%' | b'+');
        let raw = printable()
            .filter(is_key)
            .map(|byte| vec![b'a', byte, b'b']);
        let others: [&[u8]; 3] = [b"\xc3\xa4", b"\x01\x7f", b"\"<>\""];
        for key in raw.chain(others.map(<[u8]>::to_vec)) {
            let head = [
                &b"PUT /buckets/b/keys/"[..],
                &key,
                b" HTTP/1.1\r\nHost: x\r\n",
            ]
            .concat();
            let rest = b"Content-Type: text/plain\r\nContent-Length: 4\r\n\r\n<\xe4\0>";
            client.send(&[&head[..], rest].concat()).await;
            let answer = client.receive(false).await.unwrap();
            assert_eq!(answer.status, 204, "{}", key.escape_ascii());
            let escaped: String = key.iter().map(|byte| format!("%{byte:02X}")).collect();
            let read = client.get(&format!("/buckets/b/keys/{escaped}")).await;
            assert_eq!(read.status, 200, "{}", key.escape_ascii());
            assert_eq!(read.body, b"<\xe4\0>");
        }
    });
}

/// Regression: a raw `"` in a query, as in a search for a phrase, got 400 with an empty answer.
#[test]
fn bytes_that_stand_raw_in_a_query_are_taken() {
    run(|world| async move {
        let mut client = world.client().await;
        for byte in printable() {
            let target = [
                b"/buckets/b/keys/k?x=a",
                &[byte][..],
                b"b&timeout=a",
                &[byte],
            ];
            let head = [
                b"GET ",
                &target.concat()[..],
                b" HTTP/1.1\r\nHost: x\r\n\r\n",
            ]
            .concat();
            client.send(&head).await;
            let answer = client.receive(false).await.unwrap();
            let shown = [byte].escape_ascii().to_string();
            if byte == b'#' {
                // Bytes behind it are not part of the query, and there is no such object.
                assert_eq!(answer.status, 404, "{shown}");
                continue;
            }
            // The query was read up to its end, which is wrong on purpose.
            assert_eq!(answer.status, 400, "{shown}");
            assert!(
                answer.text().contains("timeout"),
                "{shown}: {}",
                answer.text()
            );
        }
    });
}

#[test]
fn every_name_that_is_listed_can_be_read() {
    run(|world| async move {
        let mut client = world.client().await;
        for key in [&b"plain"[..], b"\xff/k", "\u{e4}".as_bytes()] {
            store(&world, key, Metadata::default()).await;
        }
        for mode in ["true", "stream"] {
            let path = format!("/types/typed/buckets/b/keys?keys={mode}");
            let listed = client.get(&path).await;
            let (mut plain, mut encoded) = (Vec::new(), Vec::new());
            let objects = serde_json::Deserializer::from_slice(&listed.body);
            for object in objects.into_iter::<serde_json::Value>() {
                let object = object.unwrap();
                let names = |field: &str| object[field].as_array().cloned().unwrap_or_default();
                plain.extend(names("keys"));
                encoded.extend(names("percent_encoded_keys"));
            }
            plain.sort_by_key(ToString::to_string);
            assert_eq!(plain, ["plain", "\u{e4}"], "{path}");
            assert_eq!(encoded, ["%FF%2Fk"], "{path}");
        }
        let read = client.get("/types/typed/buckets/b/keys/%FF%2Fk").await;
        assert_eq!(read.text(), "value");
    });
}
