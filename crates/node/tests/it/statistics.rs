//! `/stats` and `/metrics` of a server that did one thing after the other.
//!
//! Regression: 61 of 139 names were zero on every node, and `vnode_gets` counted the requests of
//! clients. A test beside the names (`figures.rs`) checks that each is recorded. Here a running
//! server moves those that a single node can.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{answer, cluster_of_three_with, until};
use crate::leveldb::http;
use crate::server::{Server, Site};

const RIAK_NAMES: &str = include_str!("../../../stats/src/riak_names.tsv");

/// Names that move in the first minute of a single node, after one request of each kind.
const MOVED: [&str; 51] = [
    "coord_local_unloaded_total",
    "cpu_nprocs",
    "index_fsm_complete",
    "index_fsm_create_total",
    "index_fsm_results_100",
    "index_fsm_time_100",
    "list_fsm_create",
    "list_fsm_create_total",
    "mem_allocated",
    "mem_total",
    "memory_total",
    "node_get_fsm_active_60s",
    "node_get_fsm_objsize_100",
    "node_get_fsm_siblings_100",
    "node_get_fsm_time_100",
    "node_gets",
    "node_gets_total",
    "node_put_fsm_active_60s",
    "node_put_fsm_time_100",
    "node_puts",
    "node_puts_total",
    "object_merge",
    "object_merge_total",
    "pbc_active",
    "pbc_connects",
    "pbc_connects_total",
    "pipeline_create_count",
    "pipeline_create_error_count",
    "pipeline_create_error_one",
    "pipeline_create_one",
    "precommit_fail",
    "riak_kv_vnodes_running",
    "ring_num_partitions",
    "sys_logical_processors",
    "sys_port_count",
    "sys_wordsize",
    "vnode_get_fsm_time_100",
    "vnode_gets",
    "vnode_gets_total",
    "vnode_heads_total",
    "vnode_index_deletes_postings_total",
    "vnode_index_reads_total",
    "vnode_index_writes_postings_total",
    "vnode_index_writes_total",
    "vnode_put_fsm_time_100",
    "vnode_puts",
    "vnode_puts_total",
    "worker_vnode_pool_total",
    "worker_vnode_pool_worktime_100",
    "write_once_puts_total",
    "write_once_put_objsize_100",
];

/// The properties of a type that takes no plain text.
const VALIDATED: &str = r#"{"props":{"precommit":[{"mod":"kvorum","fun":"json"}]}}"#;

fn stats(site: &Site) -> BTreeMap<String, Value> {
    let (status, body) = http(site, "GET /stats", "");
    assert!(status.contains("200"), "{status}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn the_figures_of_a_node_move_with_what_it_does() {
    let mut site = Site::new();
    site.settings = vec!["storage_backend=leveldb".to_owned()];
    let _server = site.start();
    let _client = site.client().await;
    let before = stats(&site);
    assert_eq!(before["node_gets_total"], 0);
    assert_eq!(before["vnode_gets_total"], 0);

    for words in [
        &["create", "once", r#"{"props":{"write_once":true}}"#][..],
        &["activate", "once"],
        &["create", "checked", VALIDATED],
        &["activate", "checked"],
    ] {
        let output = site.run(&[&["admin", "bucket-type"], words].concat());
        assert!(output.status.success(), "{output:?}");
    }
    let asked = |request: &str, status: u16| {
        let (line, body) = http(&site, request, "some value");
        assert!(
            line.contains(&format!(" {status} ")),
            "{request}: {line} {body}"
        );
    };
    for number in 0..40 {
        let key = format!("/buckets/b/keys/k{number}");
        let indexed = format!("PUT {key}\r\nX-Riak-Index-age_int: {number}");
        asked(&indexed, 204);
        asked(&format!("GET {key}"), 200);
    }
    // Twice without having seen the other, and once on a condition.
    asked("PUT /buckets/b/keys/k1", 204);
    asked("PUT /buckets/b/keys/k2\r\nIf-Match: \"none\"", 412);
    asked("DELETE /buckets/b/keys/k3", 204);
    asked("GET /buckets/b/index/age_int/1/9", 200);
    asked("GET /buckets/b/keys?keys=true", 200);
    asked("PUT /types/once/buckets/b/keys/k", 204);
    asked("PUT /types/checked/buckets/b/keys/k", 403);
    let job = r#"{"inputs":[["b","k1"]],"query":[{"reduce":{"language":"erlang",
        "module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}]}"#;
    assert_eq!(post_json(&site, "/mapred", job), 200);
    assert_ne!(post_json(&site, "/mapred", "{}"), 200);

    let after = stats(&site);
    let number = |name: &str| after.get(name).and_then(Value::as_f64).unwrap_or(-1.0);
    let still: Vec<&str> = MOVED
        .into_iter()
        .filter(|name| number(name) <= 0.0)
        .collect();
    assert!(still.is_empty(), "these did not move: {still:?}");
    for name in ["cpu_avg1", "cpu_avg5", "cpu_avg15"] {
        assert!(number(name) >= 0.0, "{name}");
    }
    let disks = after["disk"].as_array().unwrap();
    assert!(
        disks
            .iter()
            .all(|disk| disk["size"].is_u64() && disk["id"].is_string())
    );
    assert!(!disks.is_empty());
    for name in ["postcommit_fail", "dropped_vnode_requests_total"] {
        assert!(!after.contains_key(name), "{name} cannot happen here");
    }
    check_the_table(&after);
    // Each put of a new key, k1 again, the tombstone of k3, and the write-once key. A write that a
    // condition refused reached no vnode as a put.
    let (gets, puts) = (number("vnode_gets_total"), number("vnode_puts_total"));
    assert!(gets >= 40.0 && puts >= 43.0, "{gets} gets, {puts} puts");

    let metrics = site.metrics();
    for line in [
        "kvorum_vnode_gets_total ",
        "kvorum_machine_memory_bytes ",
        "kvorum_disk_size_bytes{",
    ] {
        assert!(metrics.iter().any(|it| it.starts_with(line)), "{line}");
    }
    check_names_of_metrics(&metrics);
    let gets = format!("kvorum_vnode_gets_total {}", after["vnode_gets_total"]);
    assert!(metrics.contains(&gets), "{gets}");
}

/// Sends JSON over HTTP; the status.
fn post_json(site: &Site, path: &str, body: &str) -> u16 {
    let len = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    );
    let answer = answer(site, &request);
    let status = answer.split(' ').nth(1);
    status.and_then(|it| it.parse().ok()).unwrap()
}

/// A node reports every name of Riak's that the table calls present, and none that it calls absent.
fn check_the_table(given: &BTreeMap<String, Value>) {
    let lines = RIAK_NAMES.lines().filter(|line| !line.starts_with('#'));
    let mut names = 0;
    for line in lines {
        let mut columns = line.split('\t');
        let (name, fate) = (columns.next().unwrap(), columns.next().unwrap());
        let is_given = fate != "absent";
        assert_eq!(given.contains_key(name), is_given, "{line}");
        names += usize::from(is_given);
    }
    assert!(names >= 300, "{names} of Riak's names");
}

/// No family appears twice, none is named like a sample of another, and all are in base units.
fn check_names_of_metrics(metrics: &[String]) {
    let mut families = BTreeSet::new();
    for line in metrics {
        let Some(described) = line.strip_prefix("# TYPE ") else {
            continue;
        };
        let (name, _kind) = described.split_once(' ').unwrap();
        assert!(families.insert(name), "{name} stands twice");
        let reserved = [
            "_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info",
        ];
        let is_reserved = reserved.iter().any(|ending| name.ends_with(*ending));
        assert!(!is_reserved, "{name}");
        for other_unit in ["_us", "_ms", "_kib", "_kb", "_mb", "_percent"] {
            assert!(!name.ends_with(other_unit), "{name}: no base unit");
        }
    }
    assert!(families.len() > 100, "{} families", families.len());
}

/// Names that move with requests for a data type, the type in place of `TYPE`. The time of a change may
/// be less than a microsecond.
const MOVED_BY_A_TYPE: [&str; 14] = [
    "node_gets_TYPE",
    "node_gets_TYPE_total",
    "node_get_fsm_TYPE_time_mean",
    "node_get_fsm_TYPE_time_median",
    "node_get_fsm_TYPE_time_95",
    "node_get_fsm_TYPE_time_99",
    "node_get_fsm_TYPE_time_100",
    "node_get_fsm_TYPE_objsize_100",
    "node_get_fsm_TYPE_siblings_100",
    "node_puts_TYPE",
    "node_puts_TYPE_total",
    "node_put_fsm_TYPE_time_100",
    "vnode_TYPE_update",
    "vnode_TYPE_update_total",
];

#[test]
fn the_figures_of_each_data_type_move_with_its_requests_and_no_others() {
    let site = Site::new();
    let _server = site.start();
    let mut expected: Vec<String> = [
        "counter_actor_counts_100",
        "set_actor_counts_100",
        "map_actor_counts_100",
        "hll_bytes",
        "hll_bytes_total",
        "hll_bytes_100",
    ]
    .map(str::to_owned)
    .to_vec();
    for (kind, operation) in [
        ("counter", r#"{"increment":1}"#),
        ("set", r#"{"add":"a"}"#),
        ("map", r#"{"update":{"visits_counter":1}}"#),
        ("hll", r#"{"add":"a"}"#),
    ] {
        let properties = format!(r#"{{"props":{{"datatype":"{kind}"}}}}"#);
        for words in [
            &["create", kind, properties.as_str()][..],
            &["activate", kind],
        ] {
            let output = site.run(&[&["admin", "bucket-type"], words].concat());
            assert!(output.status.success(), "{output:?}");
        }
        let path = format!("/types/{kind}/buckets/b/datatypes/k");
        assert_eq!(post_json(&site, &path, operation), 204, "{kind}");
        assert_eq!(asked(&site, &format!("GET {path}"), ""), 200, "{kind}");
        let of_type = MOVED_BY_A_TYPE.iter().map(|it| it.replace("TYPE", kind));
        expected.extend(of_type);
    }
    let after = stats(&site);
    let is_moved = |name: &String| after.get(name).and_then(Value::as_u64) > Some(0);
    let still: Vec<_> = expected.iter().filter(|name| !is_moved(name)).collect();
    assert!(still.is_empty(), "these did not move: {still:?}");
    for name in ["node_gets_total", "node_puts_total", "object_merge_total"] {
        assert_eq!(after[name], 0, "{name} is of plain objects");
    }
}

/// Names that move when nodes are killed, lag, or do not answer. `skipped_read_repairs` is missing,
/// since it takes a thousand simultaneous repairs, and so are repairs of fallbacks, since they take
/// more nodes.
const MOVED_BY_OTHERS: [&str; 15] = [
    "coord_redirs_total",
    "index_fsm_create_error",
    "index_fsm_create_error_total",
    "list_fsm_create_error",
    "list_fsm_create_error_total",
    "node_get_fsm_errors",
    "node_get_fsm_errors_total",
    "node_get_fsm_rejected_60s",
    "node_get_fsm_rejected_total",
    "node_put_fsm_rejected_60s",
    "node_put_fsm_rejected_total",
    "read_repairs",
    "read_repairs_total",
    "read_repairs_primary_notfound_count",
    "read_repairs_primary_outofdate_count",
];

fn sum_of(sites: &[Site], name: &str) -> u64 {
    let of = |site: &Site| stats(site).get(name).and_then(Value::as_u64);
    sites.iter().filter_map(of).sum()
}

fn asked(site: &Site, request: &str, body: &str) -> u16 {
    let (line, _) = http(site, request, body);
    let status = line.split(' ').nth(1);
    status.and_then(|it| it.parse().ok()).unwrap()
}

/// Regression: only a test's own calls moved the figures of the traffic between nodes.
#[test]
fn the_figures_of_nodes_that_lack_each_other_move() {
    // One request at a time, so that a second one is refused.
    let (sites, mut servers) = cluster_of_three_with(&["max_concurrent_requests=1"]);
    let first = &sites[0];
    let put = |key: &str, value: &str| asked(first, &format!("PUT {key}"), value);
    let of_one = "/buckets/one/keys";
    let properties = "{\"props\":{\"n_val\":1}}";
    until("the properties are set", || {
        let len = properties.len();
        let request = format!(
            "PUT /buckets/one/props HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{properties}"
        );
        answer(first, &request).starts_with("HTTP/1.1 204")
    });
    for number in 0..12 {
        for bucket in [of_one, "/buckets/b/keys"] {
            until("a key is put", || {
                put(&format!("{bucket}/k{number}"), "old") == 204
            });
        }
    }
    until("a put goes by way of another node", || {
        sum_of(&sites[..1], "coord_redirs_total") > 0
    });

    // The third misses some new keys and new values.
    drop(servers.pop());
    until("puts go on without the third", || {
        put("/buckets/b/keys/new", "new") == 204 && put("/buckets/b/keys/k1", "new") == 204
    });
    until("a get of all primaries fails", || {
        asked(first, "GET /buckets/b/keys/k1?pr=3", "") == 503
    });
    servers.push(sites[2].start());
    for (key, name) in [
        ("new", "read_repairs_primary_notfound_count"),
        ("k1", "read_repairs_primary_outofdate_count"),
    ] {
        until(name, || {
            asked(first, &format!("GET /buckets/b/keys/{key}?r=3"), "");
            sum_of(&sites[..1], name) > 0
        });
    }

    refused_while_others_are_held(first, &servers[1..]);
    let still: Vec<&str> = MOVED_BY_OTHERS
        .into_iter()
        .filter(|name| sum_of(&sites[..1], name) == 0)
        .collect();
    assert!(still.is_empty(), "these did not move: {still:?}");
}

/// A put that waits for nodes without an answer takes the only place, and everything else is
/// refused.
fn refused_while_others_are_held(first: &Site, others: &[Server]) {
    assert_ne!(asked(first, "GET /buckets/b/index/age_int/1", ""), 200);
    others.iter().for_each(|it| it.signal(Signal::STOP));
    std::thread::scope(|scope| {
        scope.spawn(|| asked(first, "PUT /buckets/b/keys/held?w=3&timeout=20000", "value"));
        until("the put is under way", || {
            sum_of(std::slice::from_ref(first), "node_put_fsm_active") > 0
        });
        assert_eq!(asked(first, "GET /buckets/b/keys/k1", ""), 503);
        assert_eq!(asked(first, "PUT /buckets/b/keys/k1", "more"), 503);
        asked(first, "GET /buckets/b/keys?keys=true&timeout=200", "");
        others.iter().for_each(|it| it.signal(Signal::CONT));
    });
}
