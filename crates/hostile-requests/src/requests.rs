//! Requests over HTTP: one of each resource, and some that are too large for a server.

use rand::RngExt;
use rand::rngs::StdRng;

/// The sizes of values: most are small, and some need reserved room.
pub(crate) const SIZES: &[usize] = &[0, 1, 10, 100, 100, 1_000, 1_000, 10_000, 100_000, 1_000_000];

/// Jobs that end, fail and are refused.
pub(crate) const JOBS: &[&str] = &[
    r#"{"inputs":"hostile","query":[{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}],"timeout":3000}"#,
    r#"{"inputs":[["hostile","k1"],["hostile","k2"]],"query":[{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value","arg":"filter_notfound"}}],"timeout":3000}"#,
    r#"{"inputs":{"bucket":"hostile","index":"n_int","start":1,"end":90},"query":[{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_identity"}},{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_sort"}}],"timeout":3000}"#,
    r#"{"inputs":{"bucket":"hostile","key_filters":[["matches","^k[0-9]+$"],["ends_with","7"]]},"query":[{"link":{"tag":"next"}}],"timeout":3000}"#,
    r#"{"inputs":"hostile","query":[{"map":{"language":"javascript","source":"function(v){return [v]}"}}]}"#,
    r#"{"inputs":"hostile","query":[{"map":{"language":"erlang","source":"fun(_,_,_) -> loop() end."}}]}"#,
    r#"{"inputs":[[[[[[[[]]]]]]]],"query":{}}"#,
    "{",
];

/// Methods and paths. `K` is a key's number.
const RESOURCES: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/ping"),
    ("GET", "/stats"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/health/ready"),
    ("GET", "/nowhere"),
    ("OPTIONS", "*"),
    ("GET", "/buckets?buckets=true&timeout=2000"),
    ("GET", "/types/plain/buckets?buckets=stream&timeout=2000"),
    ("GET", "/buckets/hostile/keys?keys=true&timeout=2000"),
    ("GET", "/buckets/hostile/keys?keys=stream&timeout=2000"),
    ("GET", "/riak/hostile?keys=true&props=true"),
    ("GET", "/buckets/hostile/keys/kK?r=1&timeout=2000"),
    ("GET", "/buckets/hostile/keys/kK"),
    ("GET", "/types/plain/buckets/hostile/keys/kK?vtag=x"),
    ("GET", "/types/plain/buckets/hostile/keys/kK"),
    ("HEAD", "/riak/hostile/kK"),
    ("DELETE", "/buckets/hostile/keys/kK?rw=all"),
    ("PUT", "/buckets/hostile/keys/kK?returnbody=true&w=2&dw=1"),
    ("PUT", "/types/plain/buckets/hostile/keys/kK"),
    ("PUT", "/types/once/buckets/hostile/keys/kK"),
    ("POST", "/types/plain/buckets/hostile/keys"),
    ("GET", "/buckets/hostile/keys/kK/_,_,1/hostile,next,_"),
    ("GET", "/buckets/hostile/keys/kK/preflist"),
    ("GET", "/buckets/hostile/index/n_int/7"),
    (
        "GET",
        "/buckets/hostile/index/word_bin/1/9?return_terms=true&max_results=10",
    ),
    (
        "GET",
        "/buckets/hostile/index/$key/k/l?stream=true&timeout=2000",
    ),
    (
        "GET",
        "/buckets/hostile/index/n_int/1/9?term_regex=^[0-9]*$&continuation=x",
    ),
    ("GET", "/buckets/changing/props"),
    ("PUT", "/buckets/changing/props"),
    ("DELETE", "/buckets/changing/props"),
    ("GET", "/types/maps/props"),
    ("PUT", "/types/changing/props"),
    ("GET", "/buckets/changing/counters/kK"),
    ("POST", "/buckets/changing/counters/kK"),
    ("GET", "/buckets/changing/keys/kK"),
    ("PUT", "/buckets/changing/keys/kK"),
    ("GET", "/types/sets/buckets/hostile/datatypes/kK"),
    (
        "GET",
        "/types/maps/buckets/hostile/datatypes/kK?include_context=false",
    ),
    (
        "POST",
        "/types/counters/buckets/hostile/datatypes/kK?returnbody=true",
    ),
    ("POST", "/types/sets/buckets/hostile/datatypes/kK"),
    ("POST", "/types/maps/buckets/hostile/datatypes/kK"),
    ("POST", "/types/hlls/buckets/hostile/datatypes/kK"),
    ("POST", "/mapred"),
    ("POST", "/mapred?chunked=true"),
    ("GET", "/aaebucketlist"),
    ("GET", "/objectstats/buckets/hostile"),
    ("GET", "/siblings/types/plain/buckets/hostile/counts/2"),
    ("GET", "/objectsizes/buckets/hostile/sizes/1000"),
    ("GET", "/tombs/buckets/hostile"),
    ("GET", "/rangetrees/buckets/hostile/trees/small"),
    (
        "GET",
        "/rangetrees/buckets/hostile/keysclocks?filter=bm90IGpzb24=",
    ),
    ("PUT", "/erase/types/plain/buckets/hostile"),
    ("PUT", "/reap/buckets/hostile"),
];

/// Bodies that some resource takes.
const BODIES: &[&str] = &[
    "",
    "text",
    "5",
    "1",
    r#"{"props":{"n_val":2,"allow_mult":false}}"#,
    r#"{"props":{"precommit":[{"mod":"kvorum","fun":"json"}]}}"#,
    r#"{"props":{"n_val":"many","w":[],"linkfun":{}}}"#,
    r#"{"increment":3}"#,
    r#"{"add":"m1"}"#,
    r#"{"add_all":["m1","m2"],"remove":"m3"}"#,
    r#"{"update":{"c_counter":1,"s_set":{"add":"m1"},"f_flag":"enable","m_map":{"update":{"r_register":"x"}}}}"#,
];

/// Headers that some resource takes, and some that none does.
const HEADERS: &[&str] = &[
    "Content-Type: text/plain",
    "Content-Type: application/json",
    "Content-Type: ",
    "X-Riak-Vclock: a85hYGBgzGDKBVIcypz/fgb6K6xhSGTKY2XIY1l4ii8LAA==",
    "X-Riak-Vclock: !",
    "X-Riak-Index-n_int: 7",
    "X-Riak-Index-word_bin: a, b",
    "X-Riak-Index-n_int: x",
    "X-Riak-Meta-Color: red",
    "X-Kvorum-TTL: 60",
    "Link: </buckets/hostile/keys/k1>; riaktag=\"next\"",
    "Link: <",
    "If-None-Match: *",
    "If-Match: \"x\"",
    "If-Modified-Since: Sat, 28 Nov 2026 09:00:00 GMT",
    "Accept: multipart/mixed",
    "Accept: nothing/nowhere;q=zero",
    "Accept-Encoding: gzip",
    "Content-Encoding: gzip",
    "Range: bytes=0-9",
    "Expect: 100-continue",
    "Referer: http://elsewhere.example/",
];

/// The number of keys: few, so that the data stays small.
const KEYS: u32 = 300;

/// A request to a random resource.
pub(crate) fn draw(random: &mut StdRng) -> Vec<u8> {
    // Most traffic is reads and writes.
    let at = match random.random_range(0..10) {
        0..3 => named("GET", "/buckets/hostile/keys/kK"),
        3..5 => named("PUT", "/types/plain/buckets/hostile/keys/kK"),
        _ => random.random_range(0..RESOURCES.len()),
    };
    let (method, path) = RESOURCES[at];
    let path = path.replace('K', &random.random_range(0..KEYS).to_string());
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for _ in 0..random.random_range(0..4) {
        head.push_str(HEADERS[random.random_range(0..HEADERS.len())]);
        head.push_str("\r\n");
    }
    let body = match method {
        "GET" | "HEAD" | "DELETE" | "OPTIONS" => Vec::new(),
        _ => body(&path, random),
    };
    if random.random_ratio(1, 4) {
        return chunked(head, &body);
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    [head.as_bytes(), &body].concat()
}

/// The place of a resource of the table.
fn named(method: &str, path: &str) -> usize {
    let found = RESOURCES.iter().position(|it| *it == (method, path));
    found.unwrap_or(0)
}

fn body(path: &str, random: &mut StdRng) -> Vec<u8> {
    let is_object = path.contains("/keys");
    match random.random_range(0..4) {
        _ if path.starts_with("/mapred") => {
            JOBS[random.random_range(0..JOBS.len())].as_bytes().to_vec()
        }
        0..3 if is_object => vec![random.random(); SIZES[random.random_range(0..SIZES.len())]],
        _ => BODIES[random.random_range(0..BODIES.len())]
            .as_bytes()
            .to_vec(),
    }
}

fn chunked(mut head: String, body: &[u8]) -> Vec<u8> {
    head.push_str("Transfer-Encoding: chunked\r\n\r\n");
    let mut bytes = head.into_bytes();
    for chunk in body.chunks(4_000) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// A request with too much in one of its parts.
pub(crate) fn oversized(random: &mut StdRng) -> Vec<u8> {
    let much = "y".repeat(300_000);
    let put =
        "PUT /buckets/hostile/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    match random.random_range(0..5) {
        0 => format!("GET /{much} HTTP/1.1\r\n\r\n").into_bytes(),
        1 => format!("GET /ping HTTP/1.1\r\nX: {much}\r\n\r\n").into_bytes(),
        2 => format!("{put}Content-Length: 99999999999\r\n\r\n{much}").into_bytes(),
        3 => format!("{put}Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n{much}").into_bytes(),
        _ => {
            let many: String = (0..2_000)
                .map(|number| format!("X-{number}: y\r\n"))
                .collect();
            format!("GET /ping HTTP/1.1\r\n{many}\r\n").into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_traffic_goes_to_resources_that_are_there() {
        for (method, path) in [
            ("GET", "/buckets/hostile/keys/kK"),
            ("PUT", "/types/plain/buckets/hostile/keys/kK"),
        ] {
            assert_eq!(RESOURCES[named(method, path)], (method, path));
        }
    }
}
