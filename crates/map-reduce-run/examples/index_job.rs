//! Measures the keys per second of a MapReduce job: a single node with its stores in memory, and
//! jobs over one of its indexes.
//!
//! `cargo run --release -p kvorum-map-reduce-run --example index_job [KEYS]`

use std::sync::Arc;

use bytes::Bytes;
use kvorum_coordinator::{Condition, Coordinator, PutKind, PutOptions, PutRequest};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_map_reduce_run::{AdmittedJob, JobForm, answer};
use kvorum_object::{Clock, Content, IndexEntry, Limits, Metadata};
use kvorum_runtime::{Executor, ProductionOptions, Room, Runtime};
use kvorum_test_cluster::{Failure, LoneNode, coordinator_settings};

const VALUE_BYTES: usize = 100;

/// The number of runs; the best one counts.
const RUNS: usize = 5;

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn main() -> Result<(), Failure> {
    let keys = std::env::args()
        .nth(1)
        .map_or(Ok(100_000), |text| text.parse())?;
    let executor = Runtime::production(&ProductionOptions::default())?;
    let node = LoneNode::found(
        &executor.runtime(),
        "kvorum@127.0.0.1",
        64,
        Limits::default(),
    )?;
    node.open()?;
    let coordinator = Coordinator::new(node.parts(), coordinator_settings());
    let coordinator = Arc::new(coordinator);
    executor.block_on(fill(&coordinator, keys))?;
    for (name, query) in [
        (
            "count the keys of the index",
            phases(&[("reduce", "reduce_count_inputs")]),
        ),
        (
            "count the values of its objects",
            phases(&[
                ("map", "map_object_value"),
                ("reduce", "reduce_count_inputs"),
            ]),
        ),
        ("all values", phases(&[("map", "map_object_value")])),
    ] {
        let job = format!(
            r#"{{"inputs":{{"bucket":"b","index":"n_int","start":0,"end":{keys}}},"query":[{query}]}}"#
        );
        let seconds = best_of_runs(&executor, &coordinator, &job)?;
        println!("{:>8.0} keys/s  {name}", keys as f64 / seconds);
    }
    Ok(())
}

fn phases(query: &[(&str, &str)]) -> String {
    let phase = |(kind, function): &(&str, &str)| {
        format!(
            r#"{{"{kind}":{{"language":"erlang","module":"riak_kv_mapreduce","function":"{function}"}}}}"#
        )
    };
    query.iter().map(phase).collect::<Vec<_>>().join(",")
}

async fn fill(coordinator: &Coordinator, keys: usize) -> Result<(), Failure> {
    for number in 0..keys {
        let index = IndexEntry {
            field: "n_int".into(),
            value: number.to_string().into(),
        };
        let metadata = Metadata {
            indexes: vec![index],
            ..Metadata::default()
        };
        let request = PutRequest {
            context: Clock::new(),
            condition: Condition::Always,
            content: Content {
                metadata,
                value: Bytes::from(vec![b'v'; VALUE_BYTES]),
            },
            kind: PutKind::Versioned,
        };
        let address = Address {
            bucket_type: BucketType::default_type(),
            bucket: Bucket::from("b"),
            key: Key::new(format!("key-{number:08}")),
        };
        let (options, now) = (PutOptions::default(), coordinator.runtime().now());
        coordinator.put(&address, request, &options, now).await?;
    }
    Ok(())
}

/// Seconds.
fn best_of_runs(
    executor: &Executor,
    coordinator: &Arc<Coordinator>,
    job: &str,
) -> Result<f64, Failure> {
    let (runtime, room) = (executor.runtime(), Room::default());
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let began = runtime.now();
        let text = Bytes::copy_from_slice(job.as_bytes());
        // On a thread of the pool, like a server's connection.
        let (coordinator, room) = (coordinator.clone(), room.clone());
        let run = runtime.spawn("job", async move {
            let admitted = AdmittedJob::read(&coordinator, &room, JobForm::Json, text).await;
            Ok::<_, Failure>(answer(&coordinator, admitted?).await?)
        });
        executor.block_on(run)??;
        best = best.min(runtime.now().since(began).as_secs_f64());
    }
    Ok(best)
}
