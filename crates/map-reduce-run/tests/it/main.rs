//! Jobs over a single node in memory: all pages arrive, missing memory or replicas end them, and
//! each job is counted.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Condition, Coordinator, Meter, Parts, PutKind, PutOptions, PutRequest, RequestError,
    RequestKind,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_map_reduce::{Failure, JOB_BYTES_MAX};
use kvorum_map_reduce_run::{AdmittedJob, JobForm, JobOutputs, NotAdmitted, RunError, answer};
use kvorum_object::{Clock, Content, IndexEntry, Limits, Metadata, Object};
use kvorum_runtime::{Moment, Room, Runtime};
use kvorum_test_cluster::{LoneNode, coordinator_settings};

/// More than a page.
const KEYS: usize = 3_500;

const ROOM_BYTES: usize = 8 << 20;

struct World {
    coordinator: Arc<Coordinator>,
    room: Room,
    jobs: Arc<Jobs>,
}

/// Counts of jobs.
#[derive(Default)]
struct Jobs {
    begun: AtomicUsize,
    ended: AtomicUsize,
    refused: AtomicUsize,
}

impl Jobs {
    /// The numbers of jobs that have begun, have ended, and were refused.
    fn counts(&self) -> [usize; 3] {
        [&self.begun, &self.ended, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Meter for Jobs {
    fn finished(
        &self,
        _: RequestKind,
        _: Option<&RequestError>,
        _: Duration,
        _: Option<&Object>,
        _: Moment,
    ) {
    }

    fn read_repaired(&self, _: Moment) {}

    fn job_begun(&self, _: Moment) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn job_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn job_refused(&self, _: Moment) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

impl World {
    async fn admit(&self, job: String) -> Result<AdmittedJob, NotAdmitted> {
        let coordinator = &self.coordinator;
        AdmittedJob::read(coordinator, &self.room, JobForm::Json, job.into()).await
    }

    async fn run(&self, job: String) -> Result<String, RunError> {
        answer(&self.coordinator, self.admit(job).await.unwrap()).await
    }

    /// Runs a job while others leave this much memory.
    async fn run_in(&self, room_bytes: usize, job: String) -> Result<String, RunError> {
        let (coordinator, room) = (&self.coordinator, Room::new(room_bytes as u64));
        let admitted = AdmittedJob::read(coordinator, &room, JobForm::Json, job.into()).await;
        let ended = answer(coordinator, admitted.unwrap()).await;
        assert_eq!(room.taken_bytes(), 0, "all room is given back");
        ended
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
    let jobs = Arc::new(Jobs::default());
    let parts = Parts {
        meter: jobs.clone(),
        ..node.parts()
    };
    let coordinator = Coordinator::new(parts, coordinator_settings());
    let room = Room::new(ROOM_BYTES as u64);
    let world = World {
        coordinator: Arc::new(coordinator),
        room: room.clone(),
        jobs: jobs.clone(),
    };
    executor.block_on(test(world));
    assert_eq!(room.taken_bytes(), 0, "all room is given back");
    let [begun, ended, _] = jobs.counts();
    assert_eq!(begun, ended, "every job that has begun has ended");
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
fn jobs_are_counted_from_their_beginning_to_their_end_and_refused_ones_apart() {
    with_node(true, |world| async move {
        world.put(1, "1".into()).await;
        let counts = || world.jobs.counts();
        assert!(world.admit("{}".to_owned()).await.is_err());
        assert_eq!(counts(), [0, 0, 1]);
        let admitted = world.admit(job(r#""b""#, &[VALUE])).await.unwrap();
        let run = JobOutputs::begin(&world.coordinator, admitted);
        assert_eq!(counts(), [1, 0, 1]);
        drop(run);
        let runtime = world.coordinator.runtime();
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(counts(), [1, 1, 1]);
        let counted = world.run(job(r#""b""#, &[COUNT])).await;
        assert_eq!(counted.unwrap(), "[1]");
        assert_eq!(counts(), [2, 2, 1]);
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

/// A job that sorts all values has to keep them in memory at once. The room is a little larger than
/// a job's limit: if the job exceeded it, the end would be `overload`.
#[test]
fn a_job_holds_64_mb_and_one_that_wants_more_ends_with_its_phase() {
    with_node(true, |world| async move {
        let holding = || job(r#""b""#, &[VALUE, ("reduce", "reduce_sort"), COUNT]);
        let room_bytes = JOB_BYTES_MAX + (4 << 20);
        for number in 0..62 {
            world.put(number, vec![b'v'; 1 << 20].into()).await;
        }
        let ended = world.run_in(room_bytes, holding()).await;
        assert_eq!(ended.unwrap(), "[62]");
        for number in 62..70 {
            world.put(number, vec![b'v'; 1 << 20].into()).await;
        }
        let ended = world.run_in(room_bytes, holding()).await;
        let Err(RunError::Failed(Failure::Memory { phase, bytes_max })) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(bytes_max, 64 << 20);
        assert!(phase <= 1, "phase {phase} wanted it");
    });
}

#[test]
fn a_compressed_job_is_refused_for_what_it_would_inflate_to() {
    with_node(true, |world| async move {
        let (coordinator, room) = (&world.coordinator, &world.room);
        let named = (16_u32 << 20) + 1;
        let text = [&[131, 80], &named.to_be_bytes()[..], &[0; 40]].concat();
        let read = AdmittedJob::read(coordinator, room, JobForm::ErlangTerms, text.into());
        let refused = read.await.err().unwrap();
        assert!(
            matches!(refused, NotAdmitted::TooLong { bytes, .. } if bytes == named as usize),
            "{refused}"
        );
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
