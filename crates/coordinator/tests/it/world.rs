//! A single node in memory, and the helpers of tests.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Backend as _, Batch, Durability, ReadAt, Reading, Timestamp, Write};
use kvorum_cluster::{AgreedState as _, Command, LocalState};
use kvorum_coordinator::{
    Condition, Coordinator, CoordinatorSettings, DeleteOptions, Deleted, GetOptions,
    MaintenanceWitness, Meter, PartReading, Parts, PutKind, PutOptions, PutRequest, Repaired,
    RequestError, RequestKind, TombstoneKeeping,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey};
use kvorum_object::{Clock, Content, Limits, Object};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::{Executor, Moment, Runtime};
use kvorum_test_cluster::{LoneNode, Vnodes, coordinator_settings};
use parking_lot::Mutex;

use crate::trick_backend::{LateSync, TrickBackend};

pub(crate) struct Setup {
    pub(crate) ring_size: u64,
    pub(crate) colocated: bool,
    pub(crate) tombstones: TombstoneKeeping,
    pub(crate) requests_max: usize,
    /// Puts are durable only when the test makes them so.
    pub(crate) syncs_late: bool,
    /// The delay of puts by background work.
    pub(crate) put_delay: Duration,
    /// There is no room for puts.
    pub(crate) is_full: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ring_size: 8,
            colocated: false,
            tombstones: TombstoneKeeping::Keep,
            requests_max: 100,
            syncs_late: false,
            put_delay: Duration::ZERO,
            is_full: false,
        }
    }
}

/// Three replicas of each key, all on this node.
pub(crate) fn colocated() -> Setup {
    Setup {
        colocated: true,
        ..Setup::default()
    }
}

pub(crate) struct World {
    executor: Executor,
    pub(crate) runtime: Runtime,
    pub(crate) node: NodeId,
    pub(crate) cluster: Arc<LocalState>,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) vnodes: Arc<Vnodes>,
    /// The stores of the vnodes.
    pub(crate) backends: BTreeMap<Partition, Arc<TrickBackend>>,
    pub(crate) meter: Arc<Recorder>,
    pub(crate) syncs: Arc<LateSync>,
}

/// The meter's record.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) finished: Mutex<Vec<(RequestKind, Option<RequestError>)>>,
    pub(crate) repairs: Mutex<usize>,
    pub(crate) repaired: Mutex<Vec<Repaired>>,
    pub(crate) redirects: Mutex<usize>,
    pub(crate) coordinated_here: Mutex<usize>,
    /// Numbers of results of completed index queries.
    pub(crate) index_results: Mutex<Vec<u64>>,
    pub(crate) parts_read: Mutex<usize>,
}

impl Meter for Recorder {
    fn finished(
        &self,
        kind: RequestKind,
        error: Option<&RequestError>,
        _took: Duration,
        _object: Option<&Object>,
        _now: Moment,
    ) {
        self.finished.lock().push((kind, error.cloned()));
    }

    fn read_repaired(&self, _now: Moment) {
        *self.repairs.lock() += 1;
    }

    fn replica_repaired(&self, repaired: Repaired, _now: Moment) {
        self.repaired.lock().push(repaired);
    }

    fn redirected(&self) {
        *self.redirects.lock() += 1;
    }

    fn coordinated_here(&self) {
        *self.coordinated_here.lock() += 1;
    }

    fn index_query_complete(&self, results: u64, _now: Moment) {
        self.index_results.lock().push(results);
    }

    fn part_read(&self, _reading: PartReading, _now: Moment) {
        *self.parts_read.lock() += 1;
    }
}

/// No maintenance, but optionally a delay or no room.
#[derive(Default)]
pub(crate) struct NoMaintenance {
    put_delay: Duration,
    pub(crate) is_full: AtomicBool,
}

impl MaintenanceWitness for NoMaintenance {
    fn put_delay(&self) -> Duration {
        self.put_delay
    }

    fn refuses_puts(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn step_between(&self, _from: Moment, _to: Moment) -> Option<String> {
        None
    }
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self::on(Runtime::simulated(1).unwrap(), setup)
    }

    pub(crate) fn on(executor: Executor, setup: &Setup) -> Self {
        let runtime = executor.runtime();
        let lone = LoneNode::found(
            &runtime,
            "one@127.0.0.1",
            setup.ring_size,
            Limits::default(),
        );
        let lone = lone.unwrap();
        let syncs = Arc::new(LateSync::default());
        let mut backends = BTreeMap::new();
        for (partition, _, epoch) in lone.cluster.current().ring().partitions() {
            let identity = u64::from(partition.number());
            let backend = Arc::new(match setup.syncs_late {
                true => TrickBackend::syncing_late(identity, &syncs),
                false => TrickBackend::new(identity),
            });
            let vnode = lone.stores.open_over(partition, epoch, backend.clone());
            lone.vnodes.insert(Arc::new(vnode.unwrap()));
            backends.insert(partition, backend);
        }
        let meter = Arc::new(Recorder::default());
        let parts = Parts {
            meter: meter.clone(),
            maintenance: Arc::new(NoMaintenance {
                put_delay: setup.put_delay,
                is_full: AtomicBool::new(setup.is_full),
            }),
            ..lone.parts()
        };
        let settings = CoordinatorSettings {
            colocated_replicas: setup.colocated,
            requests_max: setup.requests_max,
            tombstones: setup.tombstones,
            ..coordinator_settings()
        };
        Self {
            executor,
            runtime,
            node: parts.node,
            cluster: lone.cluster,
            coordinator: Arc::new(Coordinator::new(parts, settings)),
            vnodes: lone.vnodes,
            backends,
            meter,
            syncs,
        }
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future)
    }

    /// Waits for all work that clients did not wait for.
    pub(crate) fn settle(&self) {
        self.run(self.runtime.sleep(Duration::from_secs(1)));
    }

    pub(crate) fn propose(&self, command: Command) {
        self.cluster.propose(command).unwrap();
    }

    /// Sets properties of a bucket of the default type.
    pub(crate) fn set_bucket(&self, bucket: &str, properties: PropertyOverlay) {
        self.propose(Command::SetBucketProperties {
            bucket_type: BucketType::default_type(),
            bucket: Bucket::new(bucket.as_bytes().to_vec()),
            properties,
        });
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.try_get(key, &GetOptions::default()).unwrap()
    }

    pub(crate) fn try_get(
        &self,
        key: &str,
        options: &GetOptions,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let now = self.runtime.now();
        self.run(self.coordinator.get(&address(key), options, now))
    }

    pub(crate) fn put(&self, key: &str, value: &str, context: &Clock) -> Arc<Object> {
        let request = request(value, context, Condition::Always);
        self.try_put(key, request, &PutOptions::default()).unwrap()
    }

    pub(crate) fn put_if(
        &self,
        key: &str,
        value: &str,
        condition: Condition,
    ) -> Result<Arc<Object>, RequestError> {
        let request = request(value, &Clock::new(), condition);
        self.try_put(key, request, &PutOptions::default())
    }

    pub(crate) fn try_put(
        &self,
        key: &str,
        request: PutRequest,
        options: &PutOptions,
    ) -> Result<Arc<Object>, RequestError> {
        let now = self.runtime.now();
        self.run(self.coordinator.put(&address(key), request, options, now))
    }

    pub(crate) fn delete(&self, key: &str) -> Deleted {
        self.try_delete(key, None, &DeleteOptions::default())
            .unwrap()
    }

    pub(crate) fn try_delete(
        &self,
        key: &str,
        context: Option<Clock>,
        options: &DeleteOptions,
    ) -> Result<Deleted, RequestError> {
        let now = self.runtime.now();
        let address = address(key);
        self.run(self.coordinator.delete(&address, context, options, now))
    }

    /// The stores of a key's replicas, in the order of the preference list.
    pub(crate) fn replicas(&self, key: &str) -> Vec<&TrickBackend> {
        let places = self.coordinator.preference_list(&address(key)).unwrap();
        let partitions = places.iter().map(|place| place.partition);
        partitions.map(|it| &*self.backends[&it]).collect()
    }
}

/// True when a store has an entry for the key.
pub(crate) fn holds(backend: &TrickBackend, key: &str) -> bool {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: Timestamp(0),
    };
    let found = backend.head(&storage_key(key), at).unwrap();
    matches!(found, kvorum_backend::Lookup::Found(_))
}

/// Removes a key from a store without a trace, as no store should.
pub(crate) fn forget(backend: &TrickBackend, key: &str) {
    let batch = Batch::of(Write::remove(storage_key(key)));
    let _receipt = backend.put(&batch, Durability::Buffered).unwrap();
}

pub(crate) fn storage_key(key: &str) -> StorageKey {
    StorageKey::from_address(&address(key))
}

/// `key`, `bucket/key` or `type/bucket/key`.
pub(crate) fn address(text: &str) -> Address {
    let mut parts = text.rsplit('/').map(|part| part.as_bytes().to_vec());
    let key = parts.next().unwrap();
    let bucket = parts.next().unwrap_or_else(|| b"bucket".to_vec());
    let bucket_type = parts.next().unwrap_or_else(|| b"default".to_vec());
    Address {
        bucket_type: BucketType::new(bucket_type),
        bucket: Bucket::new(bucket),
        key: Key::new(key),
    }
}

pub(crate) fn request(value: &str, context: &Clock, condition: Condition) -> PutRequest {
    PutRequest {
        context: context.clone(),
        condition,
        content: Content {
            value: Bytes::copy_from_slice(value.as_bytes()),
            ..Content::default()
        },
        kind: PutKind::Versioned,
    }
}

pub(crate) fn siblings() -> PropertyOverlay {
    PropertyOverlay {
        allow_mult: Some(true),
        ..PropertyOverlay::default()
    }
}

pub(crate) fn values(object: &Object) -> Vec<String> {
    let value =
        |sibling: &kvorum_object::Sibling| String::from_utf8_lossy(&sibling.value).into_owned();
    let mut values: Vec<_> = object.siblings().iter().map(value).collect();
    values.sort();
    values
}
