//! A running node's background work, on a real disk.

use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Batch, Durability, Fields, Tag, Timestamp, Write};
use kvorum_encoding::StorageKey;
use kvorum_runtime::Runtime;

use crate::node::Node;

/// A node on a real disk, overwritten until it has merged something.
#[test]
fn a_running_node_merges_and_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = format!("platform_data_dir={}", directory.path().display());
    let overrides = [
        data.as_str(),
        "ring_size=8",
        // Puts then go to the stores' own files, which merges rewrite.
        "durability=none",
        "bitcask.compression=none",
        "bitcask.max_file_size=1MB",
        "bitcask.merge.thresholds.small_file=disabled",
        "value_log.segment_bytes=1MB",
        "value_log.bytes_max=4MB",
    ];
    let configuration = kvorum_settings::Configuration::load("", &overrides).unwrap();
    let executor = Runtime::production(&kvorum_runtime::ProductionOptions::default()).unwrap();
    let node = Node::open(&configuration.settings, &executor, Vec::new()).unwrap();
    let mut merged = 0;
    for round in 0..2000u32 {
        for vnode in node.vnodes.all() {
            for number in 0..8 {
                let key = StorageKey::from_encoded(format!("key {number}").into_bytes());
                let fields = Fields {
                    segment: 1,
                    last_modified: Timestamp(1_700_000_000_000_000 + u64::from(round)),
                    expiry: None,
                    tag: Tag(1),
                };
                let body = Bytes::from(vec![b'v'; 4000]);
                let write = Write::put(key, fields, Bytes::from_static(b"head"), body);
                let put = vnode
                    .store_for_upkeep()
                    .put(&Batch::of(write), Durability::Buffered);
                let _receipt = put.unwrap();
            }
        }
        let (text, data) = node.maintenance.show();
        merged = data["kinds"]["merge"]["bytes"].as_u64().unwrap_or(0);
        if merged > 0 {
            assert!(text.contains("merge"), "{text}");
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(merged > 0, "{}", node.maintenance.show().0);
    let metrics = kvorum_server_http::NodeFacts::metrics(&*node.figures);
    assert!(
        metrics.contains("kvorum_maintenance_owed_bytes{kind=\"merge\"}"),
        "{metrics}"
    );
    node.close(&executor).unwrap();
}
