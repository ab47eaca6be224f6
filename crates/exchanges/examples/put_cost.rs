//! The cost of trees for a put: an overwrite of a 1 KB object at one vnode over a store in memory,
//! with and without trees.
//!
//! `cargo run --release -p kvorum-exchanges --example put_cost [SECONDS]`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Durability, FoldClock, Lease, Reading, Timestamp};
use kvorum_cluster::{ClusterId, ClusterState, Member};
use kvorum_disk::MemoryDisk;
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_exchanges::KeyPlaces;
use kvorum_object::{Clock, Content, ObjectTag, Resolution};
use kvorum_ring::{Epoch, Ring, RingSize};
use kvorum_runtime::{ProductionOptions, Runtime};
use kvorum_test_cluster::{Failure, GivenState, MemoryVnodes, node_id};
use kvorum_vnode::{
    BuildStep, ClientUpdate, Condition, Handled, Operation, ReplicaReply, ReplicaRequest, Vnode,
};

/// More keys than the processor's cache has room for leaves.
const KEYS: u32 = 200_000;
const VALUE_BYTES: usize = 1024;
const BATCH: u32 = 10_000;

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let executor = Runtime::production(&ProductionOptions::default())?;
    let runtime = executor.runtime();
    for has_trees in [false, true] {
        let vnode = vnode(&runtime, has_trees)?;
        let mut clocks = Vec::new();
        for number in 0..KEYS {
            clocks.push(put(&vnode, number, &Clock::new())?);
        }
        let fold_clock = FoldClock::stopped_at(Timestamp(1));
        let began = runtime.now();
        while vnode.build_trees(&fold_clock, Lease::Unlimited, 5_000) == Ok(BuildStep::Going) {}
        let built = runtime.now().since(began);
        let nanos = measure(&runtime, Duration::from_secs(seconds), &vnode, &mut clocks)?;
        println!("trees {has_trees:5}  put {nanos} ns");
        if let Some(trees) = vnode.trees_status() {
            let bytes = trees.memory_bytes;
            println!(
                "built over {KEYS} keys in {} ms, {bytes} bytes",
                built.as_millis()
            );
        }
    }
    Ok(())
}

fn vnode(runtime: &Runtime, has_trees: bool) -> Result<Vnode, Failure> {
    let size = RingSize::new(64)?;
    let ring = Ring::single(size, node_id(1));
    let id = ClusterId::from_random([9; 16]);
    let state = ClusterState::found(id, "cost", node_id(1), Member::new("cost@10.0.0.1"), ring);
    let known = Arc::new(GivenState::new(Arc::new(state)));
    let disk = Arc::new(MemoryDisk::new());
    let stores = MemoryVnodes::new(disk, Path::new("/node"), runtime.randomness(), || 7)?;
    let partition = size.partition(5).ok_or("there is no partition 5")?;
    let vnode = stores.open(partition, Epoch::FIRST)?;
    Ok(match has_trees {
        true => vnode.with_trees(Arc::new(KeyPlaces::new(known))),
        false => vnode,
    })
}

/// The time of an overwrite in nanoseconds, in the best batch.
fn measure(
    runtime: &Runtime,
    patience: Duration,
    vnode: &Vnode,
    clocks: &mut [Clock],
) -> Result<u128, Failure> {
    let (began, mut best) = (runtime.now(), u128::MAX);
    while runtime.now().since(began) < patience {
        let batch_began = runtime.now();
        for at in 0..BATCH {
            let number = at.wrapping_mul(7_919) % KEYS;
            let clock = &mut clocks[number as usize];
            *clock = black_box(put(vnode, number, clock)?);
        }
        let took = runtime.now().since(batch_began);
        best = best.min(took.as_nanos() / u128::from(BATCH));
    }
    Ok(best)
}

fn put(vnode: &Vnode, number: u32, context: &Clock) -> Result<Clock, Failure> {
    let key = Key::new(format!("key-{number:08}").into_bytes());
    let update = ClientUpdate {
        context: context.clone(),
        condition: Condition::Always,
        content: Content {
            value: Bytes::from_static(&[b'v'; VALUE_BYTES]),
            ..Content::default()
        },
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
    };
    let request = ReplicaRequest {
        partition: vnode.partition(),
        epoch: Epoch::FIRST,
        operation: Operation::Coordinate {
            key: StorageKey::new(&BucketType::default_type(), &Bucket::from("bucket"), &key),
            update: Arc::new(update),
            durability: Durability::Buffered,
        },
    };
    match vnode.handle(&request, Timestamp(1), Reading::MayBlock) {
        Handled::Done(ReplicaReply::Stored { object, .. }) => Ok(object.clock().clone()),
        other => Err(format!("{other:?}").into()),
    }
}
