//! Folds over keys on a node of each engine, by its command line.

use std::fs;

use serde_json::{Value, json};

use crate::leveldb::http;
use crate::server::Site;

const ENGINES: [&str; 6] = [
    "memory",
    "bitcask",
    "leveldb",
    "leveled",
    "hanoidb",
    "innostore",
];

fn fold(site: &Site, words: &str) -> Value {
    let words: Vec<&str> = words.split(' ').collect();
    let output = site.run(&[&["admin", "tictacaae", "fold"], &words[..], &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn keys(found: &Value) -> Vec<&str> {
    let found = found.as_array().unwrap().iter();
    found.map(|it| it["key"].as_str().unwrap()).collect()
}

#[test]
fn every_engine_counts_finds_erases_and_reaps_the_keys_of_a_bucket() {
    for engine in ENGINES {
        let mut site = Site::new();
        site.settings = vec![
            format!("storage_backend={engine}"),
            "delete_mode=keep".to_owned(),
        ];
        let _server = site.start();
        for key in ["a", "b", "c", "d"] {
            let put = format!("PUT /buckets/b/keys/{key}");
            assert!(http(&site, &put, "hello").0.contains("204"), "{engine}");
        }
        http(&site, "PUT /buckets/b/keys/e", &"large".repeat(1_000));
        http(&site, "DELETE /buckets/b/keys/d", "");

        assert_eq!(fold(&site, "list-buckets"), json!(["b"]), "{engine}");
        let stats = fold(&site, "object-stats b all all");
        assert_eq!(stats["total_count"], 5, "{engine}: {stats}");
        let large = fold(&site, "find-keys b all all object_size=4000");
        assert_eq!(keys(&large), ["e"], "{engine}");
        let ranged = fold(&site, "count-keys b b,e all sibling_count=0");
        assert_eq!(ranged, json!({"count": 4}), "{engine}");
        let graves = fold(&site, "find-tombstones b all all all");
        assert_eq!(keys(&graves), ["d"], "{engine}");

        let erased = fold(&site, "erase-keys b a,b all all local");
        let two = json!({"dispatched_count": 2, "left": 0});
        assert_eq!(erased, two, "{engine}");
        let count = "count-tombstones b all all all";
        assert_eq!(fold(&site, count), json!({"count": 3}), "{engine}");
        let reaped = fold(&site, "reap-tombstones b all all all local");
        let three = json!({"dispatched_count": 3, "left": 0});
        assert_eq!(reaped, three, "{engine}");
        assert_eq!(fold(&site, count), json!({"count": 0}), "{engine}");
        let repaired = fold(&site, "repair-keys b all all");
        assert_eq!(repaired, two, "{engine}");
    }
}

#[test]
fn results_are_written_to_a_file_as_riaks_command_writes_them() {
    let site = Site::new();
    let _server = site.start();
    http(&site, "PUT /buckets/b/keys/k", "hello");
    let path = site.path().join("results.json");
    let file = path.to_str().unwrap();
    let words = ["admin", "tictacaae", "fold"];
    let write = |verb: &[&str]| {
        let output = site.run(&[&words, verb, &["-o", file]].concat());
        assert!(output.status.success(), "{verb:?}");
        fs::read_to_string(&path).unwrap()
    };
    let count = write(&["count-keys", "b", "all", "all", "object_size=1"]);
    assert_eq!(count, "1\n");
    let buckets = write(&["list-buckets", "3"]);
    assert_eq!(
        serde_json::from_str::<Value>(&buckets).unwrap(),
        json!(["b"])
    );
}

#[test]
fn words_that_say_nothing_are_refused() {
    let site = Site::new();
    let _server = site.start();
    let words = [
        "admin",
        "tictacaae",
        "fold",
        "object-stats",
        "b",
        "some",
        "all",
    ];
    let output = site.run(&words);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("KEYS \"some\" is neither all nor FROM,TO"),
        "{text}"
    );
}
