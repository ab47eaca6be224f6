//! Index queries to a node whose engine keeps no indexes, over HTTP.

use crate::leveldb::http;
use crate::server::Site;

const REFUSAL: &str = "Error:\n{error,{indexes_not_supported,bitcask}}\n";

#[test]
fn bitcask_takes_objects_with_index_entries_and_refuses_to_query_them_over_http() {
    let mut site = Site::new();
    site.settings = vec!["storage_backend=bitcask".to_owned()];
    let _server = site.start();
    let indexed = "PUT /buckets/b/keys/k\r\nx-riak-index-age_int: 7";
    assert!(http(&site, indexed, "hello").0.contains("204"));
    assert_eq!(http(&site, "GET /buckets/b/keys/k", "").1, "hello");
    for bucket in ["/buckets/b", "/types/default/buckets/b"] {
        for query in [
            "age_int/7",
            "age_int/1/9",
            "age_int/1/9?return_terms=true&max_results=5",
            "age_int/7?stream=true",
            "$key/a/z",
            "$bucket/b",
        ] {
            let (status, body) = http(&site, &format!("GET {bucket}/index/{query}"), "");
            assert!(status.contains("500"), "{query}: {status}");
            assert_eq!(body, REFUSAL, "{query}");
        }
    }
}
