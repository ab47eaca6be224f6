//! The head of the replaced object is read once, and a write never waits where it must not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{ErrorKind, Reading};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{FaultyDisk, MemoryDisk, Operation as DiskOperation};
use kvorum_object::{Clock, Limits, Object, ObjectTag, Resolution};
use kvorum_ring::Epoch;
use kvorum_vnode::{
    Condition, Handled, Operation, ReplicaReply, ReplicaRequest, Vnode, VnodeSettings,
};

use crate::{Bench, NOW, content, coordinate, made_elsewhere, partition, storage_key, store};

/// A vnode over an engine that keeps no heads in memory.
struct OnDisk {
    vnode: Vnode,
    disk: FaultyDisk,
}

impl OnDisk {
    fn new() -> Self {
        let Bench { leases, .. } = Bench::new();
        let disk = FaultyDisk::over_memory(&MemoryDisk::new());
        let directory = Path::new("store");
        let draw = Arc::new(|| 7);
        let settings = BitcaskSettings::default();
        let store = Bitcask::open(Arc::new(disk.clone()), directory, settings, draw, None).unwrap();
        let (epoch, limits) = (Epoch::new(3), Limits::default());
        let settings = VnodeSettings { limits };
        let vnode = Vnode::new(partition(), epoch, Arc::new(store), leases, settings);
        Self { vnode, disk }
    }

    /// The reply, and the number of reads of the disk.
    fn reads_of(&self, operation: Operation) -> (ReplicaReply, usize) {
        self.disk.clear_log();
        let request = ReplicaRequest {
            partition: partition(),
            epoch: Epoch::new(3),
            operation,
        };
        let Handled::Done(reply) = self.vnode.handle(&request, NOW, Reading::CachedOnly) else {
            panic!("it would block");
        };
        let log = self.disk.log();
        let is_read = |operation: DiskOperation| operation == DiskOperation::Read;
        let reads = log.iter().filter(|it| is_read(it.operation)).count();
        (reply, reads)
    }

    fn put(&self, value: &str, context: &Clock) -> (Arc<Object>, usize) {
        let put = coordinate("k", content(value), context, Condition::Always);
        let (ReplicaReply::Stored { object, .. }, reads) = self.reads_of(put) else {
            panic!("not stored");
        };
        (object, reads)
    }
}

#[test]
fn the_head_of_what_is_replaced_is_read_once() {
    let node = OnDisk::new();
    let (first, reads) = node.put("a", &Clock::new());
    assert_eq!(reads, 0, "of a new key nothing is read");
    let (second, reads) = node.put("b", first.clock());
    assert_eq!(reads, 1);
    let newer = made_elsewhere("c", second.clock(), 1);
    let (reply, reads) = node.reads_of(store("k", &newer));
    assert!(matches!(reply, ReplicaReply::Received { .. }));
    assert_eq!(reads, 1);
    let mend = Operation::Mend {
        key: storage_key("k"),
        object: Arc::new(made_elsewhere("d", newer.clock(), 2)),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
    };
    let (reply, reads) = node.reads_of(mend);
    assert!(matches!(reply, ReplicaReply::Received { .. }));
    assert_eq!(reads, 2, "the whole object, and its head");
}

/// After its head was read, an entry may move to a place that is not in memory.
#[test]
fn a_write_that_the_store_cannot_do_without_waiting_is_repeated_where_it_may_wait() {
    let bench = Bench::new();
    let object = bench.put("k", "a", &Clock::new());
    let puts = bench.backend.puts.load(Ordering::Relaxed);
    bench.backend.refuse_puts(Some(ErrorKind::WouldBlock));
    let put = coordinate("k", content("b"), object.clock(), Condition::Always);
    assert!(matches!(bench.handle(put), Handled::WouldBlock));
    assert!(bench.vnode.unwritable().is_none());
    assert_eq!(bench.backend.puts.load(Ordering::Relaxed), puts);
    bench.backend.refuse_puts(None);
    assert_eq!(bench.get("k"), Some(object.clone()));
    bench.put("k", "b", object.clock());
}
