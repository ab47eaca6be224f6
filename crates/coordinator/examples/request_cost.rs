//! Cost of a get and a put of a 1 KB object above the store: one thread and a single node in
//! memory, with only the coordinator, the vnode and a store that never waits.
//!
//! `cargo run --release -p kvorum-coordinator --example request_cost [SECONDS]`

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Condition, Coordinator, CoordinatorSettings, GetOptions, PutKind, PutOptions, PutRequest,
    RequestError,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_object::{Clock, Content, Limits};
use kvorum_runtime::{Executor, ProductionOptions, Runtime};
use kvorum_test_cluster::{Failure, LoneNode, coordinator_settings};

/// Few enough for the caches: the work is measured, not the memory.
const KEYS: usize = 500;
const VALUE_BYTES: usize = 1024;
/// Requests between two readings of the clock.
const BATCH: usize = 1_000;

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

/// The time of a request in nanoseconds, in the best batch: other work of the machine does not count.
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
                // A stride that visits every key, but no neighbour of the last one.
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

fn node(runtime: &Runtime) -> Result<Coordinator, Failure> {
    let node = LoneNode::found(runtime, "cost@127.0.0.1", 64, Limits::default())?;
    node.open()?;
    let settings = CoordinatorSettings {
        requests_max: 50_000,
        ..coordinator_settings()
    };
    Ok(Coordinator::new(node.parts(), settings))
}
