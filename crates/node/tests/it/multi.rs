//! A node with several backends: buckets go where their properties say, over both protocols and restarts, and
//! each bucket can do what its own backend can.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;

use crate::leveldb::http;
use crate::server::Site;

fn site() -> Site {
    let mut site = Site::new();
    site.settings = [
        "storage_backend=multi",
        "multi_backend.bc.storage_backend=bitcask",
        "multi_backend.ldb.storage_backend=leveldb",
        "multi_backend.mem.storage_backend=memory",
        "multi_backend.default=bc",
        "leveldb.maximum_memory=64MB",
        "buckets.default.n_val=1",
    ]
    .map(str::to_owned)
    .to_vec();
    site
}

pub(crate) fn create_type(site: &Site, name: &str, backend: &str) {
    let properties = format!("{{\"props\":{{\"backend\":\"{backend}\"}}}}");
    for words in [
        &["admin", "bucket-type", "create", name, &properties][..],
        &["admin", "bucket-type", "activate", name],
    ] {
        let output = site.run(words);
        assert!(output.status.success(), "{output:?}");
    }
}

pub(crate) fn put(site: &Site, path: &str, body: &str) {
    let indexed = format!("PUT {path}?w=1&dw=1\r\nx-riak-index-age_int: 7");
    let (status, _) = http(site, &indexed, body);
    assert!(status.contains("204"), "{path}: {status}");
}

fn get(site: &Site, path: &str) -> String {
    http(site, &format!("GET {path}"), "").1
}

fn set_backend(site: &Site, place: &str, backend: &str) -> (String, String) {
    let body = format!("{{\"props\":{{\"backend\":\"{backend}\"}}}}");
    let request = format!("PUT {place}/props\r\ncontent-type: application/json");
    let mut stream = std::net::TcpStream::connect(site.http).unwrap();
    use std::io::{Read as _, Write as _};
    let (line, header) = request.split_once("\r\n").unwrap();
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// The backends with a directory in the store of some partition.
fn directories(site: &Site) -> BTreeSet<String> {
    let stores = site.path().join("data/multi");
    let listed = |path: &Path| {
        let entries = std::fs::read_dir(path).unwrap();
        let entries = entries.map(|it| it.unwrap());
        let directories = entries.filter(|it| it.file_type().unwrap().is_dir());
        directories
            .map(|it| it.file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    let partitions = listed(&stores).into_iter();
    partitions.flat_map(|it| listed(&stores.join(it))).collect()
}

/// Keys of each backend in all partitions, as `vnode-status --json` tells.
pub(crate) fn keys_of(site: &Site, backend: &str) -> u64 {
    let output = site.run(&["admin", "vnode-status", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let start = format!("{backend}: ");
    let counts = text.split(&start).skip(1).filter_map(|rest| {
        let (count, _) = rest.split_once(" keys")?;
        count.rsplit(' ').next()?.parse::<u64>().ok()
    });
    counts.sum()
}

#[test]
fn a_type_is_in_its_backend_over_both_protocols_and_a_restart() {
    let site = site();
    let server = site.start();
    create_type(&site, "tables", "ldb");
    create_type(&site, "cache", "mem");
    put(&site, "/buckets/b/keys/k", "in bitcask");
    put(&site, "/types/tables/buckets/b/keys/k", "in leveldb");
    put(&site, "/types/cache/buckets/b/keys/k", "in memory");
    assert_eq!(get(&site, "/buckets/b/keys/k"), "in bitcask");
    assert_eq!(get(&site, "/types/tables/buckets/b/keys/k"), "in leveldb");
    assert_eq!(get(&site, "/types/cache/buckets/b/keys/k"), "in memory");
    assert_eq!(
        directories(&site),
        BTreeSet::from(["bc".to_owned(), "ldb".to_owned()])
    );
    for backend in ["bc", "ldb", "mem"] {
        assert_eq!(keys_of(&site, backend), 1, "{backend}");
    }
    server.stop();
    let _server = site.start();
    assert_eq!(get(&site, "/buckets/b/keys/k"), "in bitcask");
    assert_eq!(get(&site, "/types/tables/buckets/b/keys/k"), "in leveldb");
    let (status, _) = http(&site, "GET /types/cache/buckets/b/keys/k", "");
    assert!(status.contains("404"), "{status}");
}

#[test]
fn a_bucket_has_indexes_where_its_backend_has() {
    let site = site();
    let _server = site.start();
    create_type(&site, "tables", "ldb");
    put(&site, "/buckets/b/keys/k", "no index");
    put(&site, "/types/tables/buckets/b/keys/k", "index");
    let (status, body) = http(&site, "GET /buckets/b/index/age_int/7", "");
    assert!(status.contains("500"), "{status}");
    assert!(body.contains("indexes_not_supported"), "{body}");
    let found = get(&site, "/types/tables/buckets/b/index/age_int/7");
    assert_eq!(found, "{\"keys\":[\"k\"]}");
}

#[test]
fn a_backend_is_refused_when_it_is_unknown_and_when_there_is_data() {
    let site = site();
    let _server = site.start();
    let (status, body) = set_backend(&site, "/buckets/b", "other");
    assert!(status.contains("400"), "{status}");
    assert!(body.contains("bc or ldb or mem"), "{body}");
    let (status, body) = set_backend(&site, "/buckets/b", "ldb");
    assert!(status.contains("204"), "{status}: {body}");
    put(&site, "/buckets/b/keys/k", "in leveldb");
    assert_eq!(keys_of(&site, "ldb"), 1);
    let (status, body) = set_backend(&site, "/buckets/b", "bc");
    assert!(status.contains("400"), "{status}");
    let why = "kvorum admin backend migrate";
    assert!(body.contains(why), "{body}");
    let (status, body) = set_backend(&site, "/buckets/b", "ldb");
    assert!(status.contains("204"), "{status}: {body}");
}

/// Changed configurations must not hide what is there, nor begin anew beside it.
#[tokio::test]
async fn another_default_hides_nothing_and_a_backend_with_data_is_not_left_out() {
    let mut site = site();
    let server = site.start();
    put(&site, "/buckets/b/keys/k", "before");
    server.stop();
    site.settings.push("multi_backend.default=ldb".to_owned());
    let server = site.start();
    assert_eq!(get(&site, "/buckets/b/keys/k"), "before");
    let mut client = site.client().await;
    let new = Bytes::from_static(b"after");
    client.put_value(b"b", b"k2", new).await.unwrap();
    let listed = get(&site, "/buckets/b/keys?keys=true");
    assert!(
        listed.contains("\"k\"") && listed.contains("\"k2\""),
        "{listed}"
    );
    assert_eq!(keys_of(&site, "ldb"), 1);
    server.stop();
    site.settings
        .retain(|it| !it.starts_with("multi_backend.bc"));
    let refused = site.run(&["server"]);
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        told.contains("multi_backend.bc.storage_backend = bitcask"),
        "{told}"
    );
}
