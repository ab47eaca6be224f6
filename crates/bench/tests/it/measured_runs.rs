//! The reports of a run: run.json, the server's figures, warm-up, open loop, merging.

use std::path::PathBuf;

use clap::Parser as _;
use kvorum_bench::run_record::{LoopMode, RunRecord};

use super::fake_http::FakeHttp;
use super::fake_server::{FakeServer, Fault};
use super::runs::{Arguments, Run, succeeded};

const NULL: &str = "{mode, max}. {concurrent, 2}. {driver, basho_bench_driver_null}.
    {report_interval, 1}. {key_generator, {uniform_int, 1000}}.
    {value_generator, {fixed_bin, 10, 1}}. {operations, [{get, 3}, {put, 1}]}.";

#[test]
fn a_run_describes_itself_and_its_server() {
    let server = FakeHttp::start();
    let run = Run::new();
    let http = format!("127.0.0.1:{}", server.port);
    let process = std::process::id().to_string();
    let options = [
        "--duration",
        "2.2",
        "--warm-up",
        "0.2",
        "--server-http",
        &http,
        "--server-pid",
        &process,
        "--server-setting",
        "durability=grouped",
        "--scale",
        "0.5",
    ];
    assert!(succeeded(run.configured(NULL, &options)));
    let record = run.record();
    assert_eq!(
        (record.mode, record.rate, record.workers),
        (LoopMode::Closed, None, 2)
    );
    assert_eq!(record.configuration["key_generator"], "{uniform_int,1000}");
    assert_eq!(record.backend.as_deref(), Some("memory"));
    assert_eq!(record.durability.as_deref(), Some("grouped"));
    assert_eq!(
        record.server.map(|it| it.version).as_deref(),
        Some("kvorum 9.9")
    );
    assert!((record.warm_up_seconds - 0.2).abs() < 1e-9);
    assert!(record.duration_seconds < 5.0 && record.duration_seconds >= 2.2);
    assert_eq!(record.operations_total, run.sum("summary.csv", 2));
    assert_eq!(record.totals["get"].count, run.sum("get_latencies.csv", 2));
    let server_rows = run.result("server.csv");
    let rows: Vec<&str> = server_rows.lines().skip(1).collect();
    assert!(rows.len() >= 3, "{server_rows}");
    for row in rows {
        let columns: Vec<&str> = row.split(", ").collect();
        assert_eq!(
            (columns.len(), columns[3], columns[6]),
            (7, "7", "100"),
            "{row}"
        );
        assert!(columns[1].parse::<f64>().unwrap() > 0.0);
    }
    let volume = run.result("volume.csv");
    let last: Vec<u64> = volume
        .lines()
        .last()
        .unwrap()
        .split(", ")
        .skip(1)
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(last[0], record.operations_total);
    // Ten bytes of value, and one to three of key.
    let puts = record.totals["put"].count;
    assert!(
        (puts * 11..=puts * 13).contains(&last[1]),
        "{last:?} of {puts} puts"
    );
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let run = Run::new();
    assert!(succeeded(
        run.configured(NULL, &["--duration", "2", "--rate", "300"])
    ));
    let record = run.record();
    assert_eq!((record.mode, record.rate), (LoopMode::Open, Some(300.0)));
    // Never more operations than are due; the machine decides how many fewer.
    assert!(
        record.operations_total <= 620,
        "{}",
        record.operations_total
    );
    let lateness = record.lateness.unwrap();
    assert_eq!(lateness.count, record.operations_total);
}

#[test]
fn an_open_loop_counts_what_a_stall_held_up() {
    let server = FakeServer::start(Fault::StallsOnce);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 4}}. {{driver, basho_bench_driver_riakc_pb}}.
         {{riakc_pb_port, {}}}. {{key_generator, {{uniform_int, 1000}}}}.
         {{value_generator, {{fixed_bin, 10, 1}}}}. {{operations, [{{get, 1}}]}}.",
        server.port
    );
    assert!(succeeded(
        run.configured(&text, &["--duration", "3", "--rate", "300"])
    ));
    let record = run.record();
    // About 300 operations were due during that second, and each waited for the rest of it. A
    // closed loop would have recorded four slow ones.
    let get = record.totals["get"];
    assert!(get.p95_us > 500_000, "{get:?}");
    assert!(get.mean_us > 50_000.0, "{get:?}");
    let longest = record.stalls.iter().map(|stall| stall.seconds);
    assert!(longest.fold(0.0, f64::max) >= 0.7, "{:?}", record.stalls);
}

#[test]
fn merged_results_are_those_of_all_samples_together() {
    let runs: Vec<Run> = (1..=3)
        .map(|part| {
            let run = Run::new();
            let part = format!("{part}/3");
            let options = ["--duration", "1.5", "--part", &part, "--rate", "600"];
            assert!(succeeded(run.configured(NULL, &options)));
            run
        })
        .collect();
    let directories: Vec<PathBuf> = runs
        .iter()
        .map(|run| run.directory.path().join("results/run"))
        .collect();
    let out = runs[0].directory.path().join("merged");
    let mut words = vec![PathBuf::from("bench"), "merge".into()];
    words.extend(directories.iter().cloned());
    words.extend(["--out".into(), out.clone()]);
    let arguments = Arguments::parse_from(&words);
    assert!(succeeded(kvorum_bench::execute(
        &arguments.bench,
        &mut std::io::sink()
    )));
    let merged = RunRecord::read(&out).unwrap();
    let parts: Vec<RunRecord> = runs.iter().map(Run::record).collect();
    let sum: u64 = parts.iter().map(|part| part.operations_total).sum();
    assert_eq!((merged.operations_total, merged.workers), (sum, 6));
    assert_eq!(merged.rate, Some(600.0));
    for label in ["get", "put"] {
        let of = |record: &RunRecord| record.totals[label];
        let max = parts.iter().map(|part| of(part).max_us).max();
        assert_eq!(Some(of(&merged).max_us), max);
        let samples: u64 = parts.iter().map(|part| of(part).count).sum();
        assert_eq!(of(&merged).count, samples);
        let weighted: f64 = parts
            .iter()
            .map(|part| of(part).mean_us * of(part).count as f64)
            .sum();
        let mean = weighted / samples as f64;
        assert!((of(&merged).mean_us - mean).abs() < 0.01, "{label}: {mean}");
    }
    // Merging the merged result again changes only the name.
    let again = runs[0].directory.path().join("again");
    let arguments = Arguments::parse_from([
        PathBuf::from("bench"),
        "merge".into(),
        out.clone(),
        "--out".into(),
        again.clone(),
    ]);
    assert!(succeeded(kvorum_bench::execute(
        &arguments.bench,
        &mut std::io::sink()
    )));
    let again_record = RunRecord::read(&again).unwrap();
    assert_eq!(again_record.totals, merged.totals);
    for name in [
        "summary.csv",
        "get_latencies.csv",
        "volume.csv",
        "counts.csv",
    ] {
        let read = |directory: &PathBuf| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(read(&again), read(&out), "{name}");
    }
    assert!(
        kvorum_bench::execute(&arguments.bench, &mut std::io::sink()).is_err(),
        "it exists"
    );
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    for (options, part) in [
        (["--scale", "0"], "above 0"),
        (["--rate", "0"], "0.001 operations"),
        (["--warm-up", "-1"], "no number of seconds"),
    ] {
        let run = Run::new();
        let option = format!("{}={}", options[0], options[1]);
        let error = run.configured(NULL, &[&option]).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }
    for part in ["0/3", "4/3", "1", "1/x"] {
        let words = ["bench", "run", "file", "--part", part];
        assert!(Arguments::try_parse_from(words).is_err(), "{part}");
    }
}

#[test]
fn parts_share_a_sequential_load_without_overlap() {
    let server = FakeServer::start(Fault::None);
    let text = format!(
        "{{mode, max}}. {{concurrent, 3}}. {{driver, basho_bench_driver_riakc_pb}}.
         {{riakc_pb_port, {}}}. {{key_generator, {{partitioned_sequential_int, 1000}}}}.
         {{value_generator, {{fixed_bin, 10, 1}}}}. {{operations, [{{put, 1}}]}}.",
        server.port
    );
    let mut puts = 0;
    for part in ["1/2", "2/2"] {
        let run = Run::new();
        assert!(succeeded(run.configured(&text, &["--part", part])));
        puts += run.record().operations_total;
    }
    assert_eq!(puts, 1000);
    assert_eq!(server.store.lock().unwrap().objects.len(), 1000);
}
