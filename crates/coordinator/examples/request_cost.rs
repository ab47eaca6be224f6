//! What a get and a put of a 1 KB object cost above the store: one thread, a node of one in memory,
//! nothing in the way but the coordinator, the vnode and a store that never waits.
//!
//! `cargo run --release -p kvorum-coordinator --example request_cost [SECONDS]`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_cluster::{AgreedState, ClusterId, Founding, LocalState, Member};
use kvorum_coordinator::{
    Condition, Coordinator, CoordinatorSettings, GetOptions, LocalVnodes, MaintenanceWitness,
    Meter, Parts, PutKind, PutOptions, PutRequest, RequestError, RequestKind, TombstoneKeeping,
};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Clock, Content, Limits, Object};
use kvorum_ring::{NodeId, Partition, RingSize};
use kvorum_runtime::{Executor, Moment, ProductionOptions, Runtime};
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};

/// Few enough for the caches: what is measured is work, not memory.
const KEYS: usize = 500;
const VALUE_BYTES: usize = 1024;
/// Requests between two looks at the clock.
const BATCH: usize = 1_000;

type Failure = Box<dyn std::error::Error>;

struct Vnodes(Vec<Arc<Vnode>>);

impl LocalVnodes for Vnodes {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.0.get(partition.slot()).cloned()
    }
}

struct Nobody;

impl Meter for Nobody {
    fn finished(
        &self,
        _kind: RequestKind,
        _error: Option<&RequestError>,
        _took: Duration,
        _object: Option<&Object>,
        _now: Moment,
    ) {
    }

    fn read_repaired(&self, _now: Moment) {}
}

impl MaintenanceWitness for Nobody {
    fn step_between(&self, _from: Moment, _to: Moment) -> Option<String> {
        None
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    let executor = Runtime::production(&ProductionOptions::default())?;
    let coordinator = node(&executor.runtime())?;
    let addresses: Vec<Address> = (0..KEYS).map(address).collect();
    let value = Bytes::from(vec![b'v'; VALUE_BYTES]);
    for address in &addresses {
        executor.block_on(put(&coordinator, address, &value, &Clock::new()))?;
    }
    let patience = Duration::from_secs(seconds);
    let nanos = measure(&executor, patience, &addresses, &async |address| {
        let now = coordinator.runtime().now();
        let options = GetOptions::default();
        coordinator.get(address, &options, now).await.map(drop)
    })?;
    println!("get   {nanos} ns");
    let nanos = measure(&executor, patience, &addresses, &async |address| {
        put(&coordinator, address, &value, &Clock::new()).await
    })?;
    println!("put   {nanos} ns");
    Ok(())
}

/// The time of a request in nanoseconds, by the best batch: the machine's other business is not ours.
fn measure(
    executor: &Executor,
    patience: Duration,
    addresses: &[Address],
    request: &impl AsyncFn(&Address) -> Result<(), RequestError>,
) -> Result<u128, RequestError> {
    let runtime = executor.runtime();
    let began = runtime.now();
    let mut best = u128::MAX;
    executor.block_on(async {
        while runtime.now().since(began) < patience {
            let batch_began = runtime.now();
            for number in 0..BATCH {
                // A stride that meets every key and no neighbour of the last one.
                let at = number * 7_919 % addresses.len();
                black_box(request(&addresses[at]).await)?;
            }
            let took = runtime.now().since(batch_began);
            best = best.min(took.as_nanos() / BATCH as u128);
        }
        Ok(())
    })?;
    Ok(best)
}

async fn put(
    coordinator: &Coordinator,
    address: &Address,
    value: &Bytes,
    context: &Clock,
) -> Result<(), RequestError> {
    let mut content = Content {
        value: value.clone(),
        ..Content::default()
    };
    content.metadata.content_type = Bytes::from_static(b"application/octet-stream");
    let request = PutRequest {
        context: context.clone(),
        condition: Condition::Always,
        content,
        kind: PutKind::Versioned,
    };
    let now = coordinator.runtime().now();
    let options = PutOptions::default();
    coordinator
        .put(address, request, &options, now)
        .await
        .map(drop)
}

fn address(number: usize) -> Address {
    Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::from("bucket"),
        key: Key::new(format!("key-{number:08}").into_bytes()),
    }
}

fn node(runtime: &Runtime) -> Result<Arc<Coordinator>, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let directory = Path::new("/node");
    let founding = Founding {
        cluster_id: ClusterId::from_random([9; 16]),
        cluster_name: "cost".into(),
        node: NodeId::from_bytes([1; 16]),
        member: Member::new("cost@127.0.0.1"),
        ring_size: RingSize::new(64)?,
    };
    let node = founding.node;
    let cluster = Arc::new(LocalState::create(disk.clone(), directory, founding)?);
    let leases = Arc::new(LeaseTable::open(disk, directory, runtime.randomness())?.0);
    let settings = VnodeSettings {
        limits: Limits::default(),
    };
    let vnode = |(partition, _, epoch)| {
        let randomness = runtime.randomness();
        let draw = move || randomness.next_u64();
        let backend = Arc::new(MemoryBackend::new(Settings::default(), draw));
        Arc::new(Vnode::new(
            partition,
            epoch,
            backend,
            leases.clone(),
            settings,
        ))
    };
    let vnodes = cluster.current().ring().partitions().map(vnode).collect();
    let parts = Parts {
        node,
        runtime: runtime.clone(),
        cluster,
        vnodes: Arc::new(Vnodes(vnodes)),
        meter: Arc::new(Nobody),
        maintenance: Arc::new(Nobody),
    };
    let settings = CoordinatorSettings {
        colocated_replicas: false,
        request_timeout: Duration::from_secs(60),
        slow_request_threshold: Duration::MAX,
        requests_max: 50_000,
        tombstones: TombstoneKeeping::Keep,
        backend_name: "memory",
    };
    Ok(Arc::new(Coordinator::new(parts, settings)))
}
