//! Data directories that each engine left, stopped and killed: every later version opens them and
//! reads all of it.
//!
//! `recorded/2026-11` has them, packed: those of the version before the first release with these
//! engines. `KVORUM_RECORD=2026-11 cargo test -p kvorum-node recorded_engines` wrote them; a version
//! with other files gets a folder of its own, and these stay.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::recorded::{End, archive_in, end_and_pack, is_recording, unpack};
use crate::server::Site;

const FOLDER: &str = "2026-11";
const KEYS: u16 = 40;
/// Data types, the first operation of each, the second one, and the value after both.
const DATA_TYPES: [(&str, &str, &str, &str); 3] = [
    ("counter", r#"{"increment":5}"#, r#"{"increment":-2}"#, "3"),
    (
        "set",
        r#"{"add_all":["a","b"]}"#,
        r#"{"add":"c"}"#,
        r#"["a","b","c"]"#,
    ),
    (
        "map",
        r#"{"update":{"visits_counter":1}}"#,
        r#"{"update":{"name_register":"x"}}"#,
        r#"{"name_register":"x","visits_counter":1}"#,
    ),
];

fn site(engine: &str) -> Site {
    let mut site = Site::new();
    let several = [
        "multi_backend.bc.storage_backend=bitcask",
        "multi_backend.ldb.storage_backend=leveldb",
        "multi_backend.lvl.storage_backend=leveled",
        "multi_backend.default=bc",
    ];
    site.settings = vec![
        format!("storage_backend={engine}"),
        "buckets.default.n_val=1".to_owned(),
    ];
    if engine == "multi" {
        site.settings.extend(several.map(str::to_owned));
    }
    site
}

/// The places of buckets; of several backends, a bucket type for each.
fn buckets(engine: &str) -> &'static [&'static str] {
    match engine {
        "multi" => &[
            "types/on_bc/buckets/b",
            "types/on_ldb/buckets/b",
            "types/on_lvl/buckets/b",
        ],
        _ => &["buckets/b"],
    }
}

fn has_indexes(engine: &str, bucket: &str) -> bool {
    engine != "bitcask" && !bucket.contains("on_bc")
}

/// Some values are short, and some are large and hardly compress.
fn value(number: u16, round: u8) -> String {
    let len = match number % 8 {
        0 => 6_000,
        1 => 700,
        _ => 12 + usize::from(number),
    };
    let seed = u32::from(number) * 7 + u32::from(round);
    let letter = |at: u32| {
        let mixed = seed.wrapping_add(at).wrapping_mul(2_654_435_761) >> 24;
        char::from(b'a' + (mixed % 26) as u8)
    };
    (0..).map(letter).take(len).collect()
}

/// The round in which a key was written last; `None` for one that was deleted.
fn last_round(number: u16) -> Option<u8> {
    match number {
        it if it % 7 == 3 => None,
        it if it % 3 == 0 => Some(2),
        _ => Some(1),
    }
}

/// The head and the body of an answer.
fn ask(site: &Site, request: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(site.http).unwrap();
    let len = body.len();
    let head = format!("Host: x\r\nConnection: close\r\nContent-Length: {len}\r\n{headers}");
    write!(stream, "{request} HTTP/1.1\r\n{head}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn does(site: &Site, request: &str, headers: &str, body: &str) {
    let (head, said) = ask(site, request, headers, body);
    assert!(head.starts_with("HTTP/1.1 204"), "{request}: {head} {said}");
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value)
}

/// Overwrites a key.
fn put(site: &Site, bucket: &str, number: u16, round: u8) {
    let place = format!("/{bucket}/keys/k{number}");
    let (head, _) = ask(site, &format!("GET {place}"), "", "");
    let vclock = header(&head, "X-Riak-Vclock");
    let vclock = vclock.map_or(String::new(), |it| format!("X-Riak-Vclock: {it}\r\n"));
    let headers = format!(
        "Content-Type: text/plain\r\nX-Riak-Meta-Round: {round}\r\n\
         x-riak-index-number_int: {number}\r\n{vclock}"
    );
    let request = format!("PUT {place}");
    does(site, &request, &headers, &value(number, round));
}

const JSON: &str = "Content-Type: application/json\r\n";

fn create_types(site: &Site, engine: &str) {
    let of_kind = |(kind, ..): (&str, &str, &str, &str)| {
        (
            kind.to_owned(),
            format!(r#"{{"props":{{"datatype":"{kind}"}}}}"#),
        )
    };
    let mut types: Vec<(String, String)> = DATA_TYPES.map(of_kind).to_vec();
    if engine == "multi" {
        let on = |name| {
            let properties = format!(r#"{{"props":{{"backend":"{name}"}}}}"#);
            (format!("on_{name}"), properties)
        };
        types.extend(["bc", "ldb", "lvl"].map(on));
    }
    for (name, properties) in types {
        for words in [&["create", &name, &properties][..], &["activate", &name]] {
            let made = site.run(&[&["admin", "bucket-type"], words].concat());
            assert!(made.status.success(), "{made:?}");
        }
    }
}

fn data_type(kind: &str) -> String {
    format!("/types/{kind}/buckets/b/datatypes/k")
}

/// One run writes all keys; after a stop, the next one writes some again and removes others.
fn record(engine: &str, end: End) {
    let site = site(engine);
    let server = site.start();
    create_types(&site, engine);
    for bucket in buckets(engine) {
        (0..KEYS).for_each(|number| put(&site, bucket, number, 1));
        for sibling in ["one", "other"] {
            let request = format!("PUT /{bucket}/keys/siblings");
            does(&site, &request, "Content-Type: text/plain\r\n", sibling);
        }
    }
    for (kind, first, ..) in DATA_TYPES {
        does(&site, &format!("POST {}", data_type(kind)), JSON, first);
    }
    server.stop();
    let server = site.start();
    for bucket in buckets(engine) {
        for number in 0..KEYS {
            match last_round(number) {
                Some(1) => {}
                Some(round) => put(&site, bucket, number, round),
                None => does(&site, &format!("DELETE /{bucket}/keys/k{number}"), "", ""),
            }
        }
    }
    for (kind, _, second, _) in DATA_TYPES {
        does(&site, &format!("POST {}", data_type(kind)), JSON, second);
    }
    end_and_pack(&site, server, end, &archive(engine, end));
}

fn archive(engine: &str, end: End) -> std::path::PathBuf {
    archive_in(FOLDER, &format!("{engine}-{}", end.name()))
}

/// Reads everything that [`record`] has written, with the keys as `written` has them.
fn reads_all(site: &Site, engine: &str, story: &str, written: impl Fn(u16) -> Option<u8>) {
    for bucket in buckets(engine) {
        for number in 0..KEYS {
            let place = format!("GET /{bucket}/keys/k{number}");
            let (head, body) = ask(site, &place, "", "");
            let Some(round) = written(number) else {
                assert!(head.starts_with("HTTP/1.1 404"), "{story}: {place} {head}");
                continue;
            };
            assert!(head.starts_with("HTTP/1.1 200"), "{story}: {place} {head}");
            assert_eq!(body, value(number, round), "{story}: {place}");
            let round = round.to_string();
            assert_eq!(header(&head, "X-Riak-Meta-Round"), Some(&*round), "{head}");
            assert_eq!(header(&head, "Content-Type"), Some("text/plain"), "{head}");
        }
        let place = format!("GET /{bucket}/keys/siblings");
        let (head, body) = ask(site, &place, "Accept: multipart/mixed\r\n", "");
        assert!(head.starts_with("HTTP/1.1 300"), "{story}: {head}");
        assert!(
            body.contains("one") && body.contains("other"),
            "{story}: {body}"
        );
        if has_indexes(engine, bucket) {
            let expected = (0..KEYS).filter(|it| written(*it).is_some()).count();
            assert_eq!(indexed(site, bucket), expected, "{story}: {bucket}");
        }
    }
    for (kind, _, _, value) in DATA_TYPES {
        let (_, body) = ask(site, &format!("GET {}", data_type(kind)), "", "");
        let got: Value = serde_json::from_str(&body).unwrap();
        let expected: Value = serde_json::from_str(value).unwrap();
        assert_eq!(got["value"], expected, "{story}: {kind}");
    }
}

/// Number of keys in the index.
fn indexed(site: &Site, bucket: &str) -> usize {
    let request = format!("GET /{bucket}/index/number_int/0/9999");
    let (_, body) = ask(site, &request, "", "");
    let found: Value = serde_json::from_str(&body).unwrap();
    found["keys"].as_array().unwrap().len()
}

fn opens_and_goes_on(engine: &str) {
    for end in End::ALL {
        let story = format!("{engine}, {}", end.name());
        if is_recording(FOLDER) {
            record(engine, end);
        }
        let site = site(engine);
        unpack(&site, &archive(engine, end));
        let server = site.start();
        reads_all(&site, engine, &story, last_round);
        let is_rewritten = |number: u16| number % 6 == 1;
        for bucket in buckets(engine) {
            let rewritten = (0..KEYS).filter(|it| is_rewritten(*it));
            rewritten.for_each(|number| put(&site, bucket, number, 3));
        }
        server.stop();
        let verified = site.run_alone(&["verify", "data"]);
        assert!(verified.status.success(), "{story}: {verified:?}");
        let server = site.start();
        let written = |number| match is_rewritten(number) {
            true => Some(3),
            false => last_round(number),
        };
        reads_all(&site, engine, &story, written);
        server.stop();
    }
}

#[test]
fn bitcask_opens_what_it_left() {
    opens_and_goes_on("bitcask");
}

#[test]
fn leveldb_opens_what_it_left() {
    opens_and_goes_on("leveldb");
}

#[test]
fn leveled_opens_what_it_left() {
    opens_and_goes_on("leveled");
}

#[test]
fn hanoidb_opens_what_it_left() {
    opens_and_goes_on("hanoidb");
}

#[test]
fn innostore_opens_what_it_left() {
    opens_and_goes_on("innostore");
}

#[test]
fn several_backends_open_what_they_left() {
    opens_and_goes_on("multi");
}
