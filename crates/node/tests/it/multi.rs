//! A node with several backends: buckets go where their properties place them, over both protocols and
//! restarts, and each bucket has the abilities of its own backend.

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

/// Keys of each backend in all partitions, from `vnode-status --json`.
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
    let refusal = "{error,{indexes_not_supported,bitcask}}";
    assert!(body.contains(refusal), "{body}");
    let found = get(&site, "/types/tables/buckets/b/index/age_int/7");
    assert_eq!(found, "{\"keys\":[\"k\"]}");
}

/// Regression: the first backend by name had all buckets of a prefix, even those of another
/// backend's longer prefix.
#[test]
fn the_longest_beginning_of_a_buckets_name_says_its_backend() {
    let mut site = site();
    site.settings[0] = "storage_backend=prefix_multi".to_owned();
    for prefix in ["bc.bucket_prefix=x_", "ldb.bucket_prefix=x_y_, x_z_"] {
        site.settings.push(format!("multi_backend.{prefix}"));
    }
    let _server = site.start();
    for (bucket, keys) in [
        ("x_a", [1, 0]),
        ("x_y_a", [1, 1]),
        ("x_z_", [1, 2]),
        ("b", [2, 2]),
    ] {
        put(&site, &format!("/buckets/{bucket}/keys/k"), "value");
        assert_eq!(
            [keys_of(&site, "bc"), keys_of(&site, "ldb")],
            keys,
            "{bucket}"
        );
    }
}

/// Regression: `prefix_multi` was shown as multi, without names of backends, and with only the
/// default backend's durability.
#[test]
fn reports_and_statistics_name_all_backends() {
    let mut site = site();
    site.settings[0] = "storage_backend=prefix_multi".to_owned();
    let interval = "bitcask.sync.strategy=interval";
    site.settings.push(format!("multi_backend.bc.{interval}"));
    let several = "bc (bitcask, default), ldb (leveldb), mem (memory)";
    let said = |words: &[&str]| String::from_utf8(site.run(words).stdout).unwrap();
    let checked = said(&["chkconfig"]);
    for line in [
        &format!("backend        prefix_multi: {several}"),
        "durability     bc: interval: a write is acknowledged when the operating system has it, and",
        "               ldb: grouped: a write is acknowledged when it is on stable storage\n",
        "               mem: none: nothing survives a stop\n",
    ] {
        assert!(checked.contains(line), "{line}: {checked}");
    }
    let programs: serde_json::Value =
        serde_json::from_str(&said(&["chkconfig", "--json"])).unwrap();
    assert_eq!(programs["backend"], "prefix_multi");
    let backends = programs["backends"].as_array().unwrap();
    let of = |name: &str, field: &str| {
        let backend = backends.iter().find(|it| it["name"] == name).unwrap();
        backend[field].clone()
    };
    assert_eq!(
        (of("bc", "default"), of("ldb", "default")),
        (true.into(), false.into())
    );
    assert_eq!(of("ldb", "engine"), "leveldb");
    assert_eq!(of("mem", "durability"), "none: nothing survives a stop");
    let _server = site.start();
    let stats: serde_json::Value = serde_json::from_str(&get(&site, "/stats")).unwrap();
    assert_eq!(stats["storage_backend"], "riak_kv_multi_prefix_backend");
    assert_eq!(stats["storage_backends"], several);
    let status = said(&["admin", "status"]);
    assert!(status.contains(several), "{status}");
    let vnodes = said(&["admin", "vnode-status"]);
    assert!(
        vnodes.lines().next().unwrap().ends_with(several),
        "{vnodes}"
    );
}

/// Regression: each backend had its own cache, of the size for all.
#[test]
fn backends_of_innostore_share_one_cache_of_pages_whose_size_the_metrics_show() {
    let mut site = site();
    for (name, bytes) in [("in1", "64MB"), ("in2", "128MB")] {
        let backend = format!("multi_backend.{name}");
        let size = "innostore.buffer_pool_size";
        site.settings
            .push(format!("{backend}.storage_backend=innostore"));
        site.settings.push(format!("{backend}.{size}={bytes}"));
    }
    let _server = site.start();
    create_type(&site, "ranges", "in2");
    put(&site, "/types/ranges/buckets/b/keys/k", "in innostore");
    assert_eq!(get(&site, "/types/ranges/buckets/b/keys/k"), "in innostore");
    let metrics = get(&site, "/metrics");
    let gauge = |name: &str| {
        let lines = metrics.lines();
        let value = lines
            .filter_map(|line| line.strip_prefix(name))
            .find_map(|it| it.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} is in {metrics}"))
    };
    let bytes_max = gauge("kvorum_innostore_cache_bytes_max ");
    assert!((1.0..=64e6 * 1.05).contains(&bytes_max), "{bytes_max}");
    assert!(gauge("kvorum_innostore_cache_bytes ") <= bytes_max);
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

/// Changed configurations must not hide existing data, nor start again beside it.
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
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        printed.contains("multi_backend.bc.storage_backend = bitcask"),
        "{printed}"
    );
}
