//! Jobs over a node of one in memory: all pages arrive, and missing memory or replicas end them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{Condition, Coordinator, PutKind, PutOptions, PutRequest, RequestError};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_map_reduce::Failure;
use kvorum_map_reduce_run::{AdmittedJob, JobForm, JobOutputs, NotAdmitted, RunError, answer};
use kvorum_object::{Clock, Content, IndexEntry, Limits, Metadata};
use kvorum_runtime::{Room, Runtime};
use kvorum_test_cluster::{LoneNode, coordinator_settings};

/// More than a page.
const KEYS: usize = 3_500;

const ROOM_BYTES: usize = 8 << 20;

struct World {
    coordinator: Arc<Coordinator>,
    room: Room,
}

impl World {
    async fn admit(&self, job: String) -> Result<AdmittedJob, NotAdmitted> {
        let runtime = self.coordinator.runtime();
        AdmittedJob::read(runtime, &self.room, JobForm::Json, job.into()).await
    }

    async fn run(&self, job: String) -> Result<String, RunError> {
        answer(&self.coordinator, self.admit(job).await.unwrap()).await
    }

    async fn put(&self, number: usize, value: Bytes) {
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
            content: Content { metadata, value },
            kind: PutKind::Versioned,
        };
        let address = Address {
            bucket_type: BucketType::default_type(),
            bucket: Bucket::from("b"),
            key: Key::new(number.to_string()),
        };
        let (options, now) = (PutOptions::default(), self.coordinator.runtime().now());
        self.coordinator
            .put(&address, request, &options, now)
            .await
            .unwrap();
    }
}

/// Runs a test on a node, with open stores or without.
fn with_node<F: Future<Output = ()>>(is_open: bool, test: impl FnOnce(World) -> F) {
    let executor = Runtime::simulated(3).unwrap();
    let node = LoneNode::found(
        &executor.runtime(),
        "kvorum@127.0.0.1",
        8,
        Limits::default(),
    );
    let node = node.unwrap();
    if is_open {
        node.open().unwrap();
    }
    let coordinator = Coordinator::new(node.parts(), coordinator_settings());
    let room = Room::new(ROOM_BYTES as u64);
    let world = World {
        coordinator: Arc::new(coordinator),
        room: room.clone(),
    };
    executor.block_on(test(world));
    assert_eq!(room.taken_bytes(), 0, "all room is given back");
}

fn job(inputs: &str, query: &[(&str, &str)]) -> String {
    let phase = |(kind, function): &(&str, &str)| {
        format!(
            r#"{{"{kind}":{{"language":"erlang","module":"riak_kv_mapreduce","function":"{function}"}}}}"#
        )
    };
    let query: Vec<String> = query.iter().map(phase).collect();
    format!(r#"{{"inputs":{inputs},"query":[{}]}}"#, query.join(","))
}

const COUNT: (&str, &str) = ("reduce", "reduce_count_inputs");
const VALUE: (&str, &str) = ("map", "map_object_value");

#[test]
fn all_pages_of_keys_come_and_each_object_once() {
    with_node(true, |world| async move {
        for number in 0..KEYS {
            world.put(number, number.to_string().into()).await;
        }
        let index = format!(r#"{{"bucket":"b","index":"n_int","start":0,"end":{KEYS}}}"#);
        for inputs in [r#""b""#, &index] {
            let counted = world.run(job(inputs, &[COUNT])).await;
            assert_eq!(counted.unwrap(), format!("[{KEYS}]"));
            let sum = [
                VALUE,
                ("reduce", "reduce_string_to_integer"),
                ("reduce", "reduce_sum"),
            ];
            let summed = world.run(job(inputs, &sum)).await;
            assert_eq!(summed.unwrap(), format!("[{}]", (0..KEYS).sum::<usize>()));
        }
    });
}

#[test]
fn results_wait_until_they_are_taken() {
    with_node(true, |world| async move {
        for number in 0..KEYS {
            world.put(number, number.to_string().into()).await;
        }
        let admitted = world.admit(job(r#""b""#, &[VALUE])).await.unwrap();
        let mut run = JobOutputs::begin(&world.coordinator, admitted);
        let first = run.next().await.unwrap().unwrap();
        assert!((1..=100).contains(&first.results.len()));
        drop(run);
        let admitted = world.admit(job(r#""b""#, &[VALUE])).await.unwrap();
        let mut run = JobOutputs::begin(&world.coordinator, admitted);
        let mut results = 0;
        while let Some(output) = run.next().await {
            results += output.unwrap().results.len();
        }
        assert_eq!(results, KEYS);
        assert!(run.next().await.is_none(), "and no more comes");
    });
}

#[test]
fn results_that_are_not_taken_in_time_end_the_job_and_give_back_its_memory() {
    with_node(true, |world| async move {
        for number in 0..300 {
            world.put(number, number.to_string().into()).await;
        }
        let text = job(r#""b""#, &[VALUE]).replace("\"query\"", "\"timeout\":5000,\"query\"");
        let admitted = world.admit(text).await.unwrap();
        let mut run = JobOutputs::begin(&world.coordinator, admitted);
        assert!(run.next().await.unwrap().is_ok());
        let runtime = world.coordinator.runtime();
        runtime.sleep(Duration::from_secs(4)).await;
        assert!(world.room.taken_bytes() > 0);
        runtime.sleep(Duration::from_secs(2)).await;
        assert_eq!(world.room.taken_bytes(), 0);
        let mut last = None;
        while let Some(output) = run.next().await {
            last = Some(output.map(drop));
        }
        assert_eq!(last, Some(Err(Failure::Timeout.into())));
    });
}

#[test]
fn a_job_ends_when_others_take_the_room_that_it_needs() {
    with_node(true, |world| async move {
        for number in 0..12 {
            world.put(number, vec![b'v'; 1 << 20].into()).await;
        }
        let holding = job(r#""b""#, &[VALUE, ("reduce", "reduce_sort"), COUNT]);
        assert_eq!(
            world.run(holding.clone()).await.unwrap(),
            "[12]",
            "alone it may"
        );
        let others = world.room.take(1 << 20).unwrap();
        let ended = world.run(holding.clone()).await;
        assert_eq!(ended, Err(RunError::RetryLater(RequestError::Overload)));
        drop(others);
        let others = world.room.take(ROOM_BYTES).unwrap();
        let refused = world.admit(holding).await;
        assert!(matches!(refused, Err(NotAdmitted::Overload)));
        drop(others);
    });
}

#[test]
fn a_node_that_serves_nothing_says_to_come_back() {
    with_node(false, |world| async move {
        for inputs in [r#""b""#, r#"[["b","k"]]"#] {
            let ended = world.run(job(inputs, &[VALUE])).await;
            assert!(matches!(ended, Err(RunError::RetryLater(_))), "{ended:?}");
        }
    });
}
