//! A job's memory limit, its requests at a time, and its time limit.

use std::time::Duration;

use bytes::Bytes;
use kvorum_map_reduce::{
    Execution, Failure, Gathered, Job, Next, OBJECTS_AT_A_TIME_MAX, ObjectSibling, ReadObject,
    Term, Wanted,
};

const VALUES: &str =
    r#"{"map":{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}"#;
const SORT: &str =
    r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_sort"}}"#;
const COUNT: &str = r#"{"reduce":{"language":"erlang","module":"riak_kv_mapreduce","function":"reduce_count_inputs"}}"#;

fn job(query: &str) -> Job {
    let body = format!(r#"{{"inputs":"b","query":[{query}]}}"#);
    Job::from_json(body.as_bytes()).unwrap()
}

fn object(wanted: &Wanted, bytes: usize) -> ReadObject {
    ReadObject {
        bucket: wanted.bucket.clone(),
        key: wanted.key.clone(),
        siblings: vec![ObjectSibling {
            value: Bytes::from(vec![b'x'; bytes]),
            links: Vec::new(),
        }],
    }
}

fn page(from: usize, keys: usize) -> Vec<Bytes> {
    (from..from + keys)
        .map(|it| format!("{it:06}").into())
        .collect()
}

/// Runs a job over this many keys with values of this size; returns its peak memory.
fn most_held(
    query: &str,
    keys: usize,
    value_bytes: usize,
    bytes_max: usize,
) -> Result<usize, Failure> {
    let mut execution = Execution::new(job(query), bytes_max);
    let (mut given, mut most) = (0, 0);
    loop {
        most = most.max(execution.bytes());
        match execution.step()? {
            Next::ReadInputs => {
                execution.take_keys(page(given, 100), given + 100 >= keys)?;
                given += 100;
            }
            Next::ReadObject(wanted) => {
                let object = object(&wanted, value_bytes);
                execution.take_object(wanted.ticket, Some(object))?;
            }
            Next::Reduce(reducing) => execution.take_reduced(reducing.run())?,
            Next::Emit(_) => {}
            Next::Wait => panic!("everything was taken in"),
            Next::Done => return Ok(most),
        }
    }
}

#[test]
fn a_job_that_streams_holds_little_however_many_objects_it_reads() {
    let few = most_held(VALUES, 1_000, 1_000, 1 << 20).unwrap();
    let many = most_held(VALUES, 20_000, 1_000, 1 << 20).unwrap();
    assert!(
        many <= few + few / 10,
        "{many} bytes with 20,000 keys, {few} with 1,000"
    );
    most_held(COUNT, 20_000, 0, 1 << 20).unwrap();
}

#[test]
fn a_job_that_would_hold_too_much_ends_with_the_phase_that_wanted_it() {
    let sorted = format!("{VALUES},{SORT}");
    let failure = most_held(&sorted, 20_000, 1_000, 1 << 20).unwrap_err();
    let Failure::Memory { bytes_max, .. } = failure else {
        panic!("{failure}");
    };
    assert_eq!(bytes_max, 1 << 20);
    assert_eq!(
        failure.json(),
        r#"{"phase":0,"error":"phase 0: the job would hold more than 1048576 bytes"}"#
    );
    let large = most_held(VALUES, 100, 2 << 20, 1 << 20).unwrap_err();
    assert!(matches!(large, Failure::Memory { phase: 0, .. }), "{large}");
}

#[test]
fn an_answer_that_would_hold_too_much_is_an_error() {
    let job = job(VALUES);
    let mut gathered = Gathered::new(&job, 10_000);
    let output = kvorum_map_reduce::Output {
        phase: 0,
        results: vec![Term::Binary(Bytes::from(vec![0; 6_000]))],
    };
    gathered.add(&output).unwrap();
    assert!(gathered.add(&output).is_err());
}

#[test]
fn a_reduction_of_much_is_handed_out_and_its_results_are_all_there() {
    let mut execution = Execution::new(job(&format!("{SORT},{COUNT}")), 64 << 20);
    let (mut given, mut handed_out) = (0, 0);
    let count = loop {
        match execution.step().unwrap() {
            Next::ReadInputs => {
                execution
                    .take_keys(page(given, 1_000), given == 39_000)
                    .unwrap();
                given += 1_000;
            }
            Next::Reduce(reducing) => {
                handed_out += 1;
                // Meanwhile the only work is to read on, up to a bound.
                let next = execution.step().unwrap();
                assert!(matches!(next, Next::ReadInputs | Next::Wait), "{next:?}");
                if matches!(next, Next::ReadInputs) {
                    execution
                        .take_keys(page(given, 1_000), given == 39_000)
                        .unwrap();
                    given += 1_000;
                }
                execution.take_reduced(reducing.run()).unwrap();
            }
            Next::Emit(output) => break output.json().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(count, "[40000]");
    assert!((2..10).contains(&handed_out), "{handed_out} times");
}

#[test]
fn objects_and_keys_are_asked_for_within_bounds() {
    let mut execution = Execution::new(job(VALUES), 1 << 20);
    let (mut pages, mut asked) = (0, 0);
    loop {
        match execution.step().unwrap() {
            Next::ReadInputs => {
                pages += 1;
                execution.take_keys(page(pages * 500, 500), false).unwrap();
            }
            Next::ReadObject(_) => asked += 1,
            Next::Wait => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, OBJECTS_AT_A_TIME_MAX);
    assert!(pages <= 4, "{pages} pages for objects that are not read");
}

#[test]
fn a_job_whose_time_is_over_has_failed_for_good() {
    let mut execution = Execution::new(job(VALUES), 1 << 20);
    assert!(matches!(execution.step(), Ok(Next::ReadInputs)));
    assert_eq!(execution.time_out().json(), r#"{"error":"timeout"}"#);
    assert_eq!(execution.step().unwrap_err(), Failure::Timeout);
    execution.take_object(0, None).unwrap();
    assert_eq!(
        execution.inputs_failed("late".to_string()),
        Failure::Timeout
    );
}

#[test]
fn times_that_are_no_times_are_as_if_not_given() {
    let timeout = |text: &str| {
        let body = format!(r#"{{"inputs":"b","query":[],"timeout":{text}}}"#);
        Job::from_json(body.as_bytes()).unwrap().timeout
    };
    for text in ["0", "-1", "\"x\"", "null", "[]"] {
        assert_eq!(timeout(text), Duration::from_secs(60), "{text}");
    }
    assert_eq!(timeout("1500"), Duration::from_millis(1500));
    assert_eq!(timeout("0.5"), Duration::from_micros(500));
    assert!(timeout("1e300") > Duration::from_secs(86_400));
}
