//! A node whose log fails for good reports it everywhere, and continues reading.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Batch, Durability, Durable, Fields, Lookup, ReadAt, Reading, Timestamp, Write,
};
use kvorum_disk::{Disk, ErrorKind, Fault, FaultyDisk, Operation, RealDisk, Rule};
use kvorum_encoding::StorageKey;
use kvorum_maintenance::Failures;
use kvorum_runtime::Runtime;
use kvorum_vnode::Vnode;

use crate::node::Node;

fn put(vnode: &Vnode, key: &'static str) -> Result<(), BackendError> {
    let key = StorageKey::from_encoded(key);
    let write = Write::put(
        key,
        Fields::default(),
        Bytes::new(),
        Bytes::from_static(b"value"),
    );
    let receipt = vnode
        .store_for_upkeep()
        .put(&Batch::of(write), Durability::Grouped)?;
    match receipt.durable {
        Durable::After(ticket) => ticket.wait(),
        Durable::Already => Ok(()),
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}");
}

#[test]
fn a_failed_sync_of_the_value_log_is_reported_with_its_time_and_reason_until_the_restart() {
    let log = "value_log";
    for engine in ["bitcask", "leveldb", "leveled", "hanoidb", "innostore"] {
        let directory = tempfile::tempdir().unwrap();
        let overrides = [
            format!("platform_data_dir={}", directory.path().display()),
            format!("storage_backend={engine}"),
            "ring_size=8".to_owned(),
        ];
        let overrides = overrides.each_ref().map(String::as_str);
        let configuration = kvorum_settings::Configuration::load("", &overrides).unwrap();
        let executor = Runtime::production(&kvorum_runtime::ProductionOptions::default()).unwrap();
        let faulty = FaultyDisk::new(Arc::new(RealDisk));
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let settings = &configuration.settings;
        let open = |disk| Node::open_on(disk, settings, &executor, Vec::new()).unwrap();
        let node = open(disk);
        wait_until("stores are not open", || {
            node.vnodes.readiness().is_complete()
        });
        let vnode = node.vnodes.all().remove(0);
        put(&vnode, "before").unwrap();
        let shown = |name: &str| node.figures.riak_values().get(name).cloned();
        assert_eq!(shown("vnodes_unwritable"), Some(0.into()));
        assert_eq!(shown("unwritable_since"), None);

        let begun = node.figures.runtime.wall_time().micros() / 1_000_000;
        let at = directory.path().join(log).display().to_string();
        let failing = Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Sync)
            .path_contains(&at);
        faulty.add_rule(failing);
        put(&vnode, "failed").unwrap_err();
        wait_until("the vnodes do not count as unwritable", || {
            shown("vnodes_unwritable") == Some(8.into())
        });
        // Background work notes the time at its next look.
        wait_until("the time is not shown", || {
            shown("unwritable_since").is_some()
        });
        let since = shown("unwritable_since")
            .and_then(|it| it.as_u64())
            .unwrap();
        assert!((begun..begun + 120).contains(&since), "{since} and {begun}");
        let reason = shown("unwritable_reason").unwrap().to_string();
        assert!(reason.len() > 10, "{reason}");
        let metrics = kvorum_server_http::NodeFacts::metrics(&*node.figures);
        assert!(metrics.contains("kvorum_vnodes_unwritable 8"), "{metrics}");
        // It stays up, and reads.
        put(&vnode, "after").unwrap_err();
        let key = StorageKey::from_encoded("before");
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: Timestamp(1),
        };
        let read = vnode.store_for_upkeep().get(&key, at);
        assert!(matches!(read, Ok(Lookup::Found(_))));
        drop(vnode);
        let _failed_as_its_log_did = node.close(&executor);

        let node = open(Arc::new(RealDisk));
        wait_until("stores are not open", || {
            node.vnodes.readiness().is_complete()
        });
        put(&node.vnodes.all()[0], "again").unwrap();
        assert_eq!(node.maintenance.failures(), Failures::default());
        node.close(&executor).unwrap();
    }
}
