//! The files of a run with each driver, and the ways in which a run ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Parser;
use kvorum_bench::run_record::RunRecord;

use super::fake_server::{FakeServer, Fault};

#[derive(Parser)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) bench: kvorum_bench::BenchArguments,
}

/// A run in a directory of its own.
pub(crate) struct Run {
    pub(crate) directory: tempfile::TempDir,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn start(&self, files: &[&Path], options: &[&str]) -> anyhow::Result<ExitCode> {
        let results = self.directory.path().join("results");
        let mut words = vec!["bench".into(), "run".into()];
        words.extend(files.iter().map(|path| path.as_os_str().to_owned()));
        words.extend([
            "--out".into(),
            results.into_os_string(),
            "--name".into(),
            "run".into(),
        ]);
        words.extend(options.iter().map(Into::into));
        kvorum_bench::execute(&Arguments::parse_from(words).bench, &mut std::io::sink())
    }

    /// The content of `run.json`.
    pub(crate) fn record(&self) -> RunRecord {
        RunRecord::read(&self.directory.path().join("results/current")).unwrap()
    }

    pub(crate) fn configured(&self, text: &str, options: &[&str]) -> anyhow::Result<ExitCode> {
        let path = self.directory.path().join("my.config");
        std::fs::write(&path, text).unwrap();
        self.start(&[&path], options)
    }

    pub(crate) fn result(&self, name: &str) -> String {
        let path = self.directory.path().join("results/current").join(name);
        std::fs::read_to_string(path).unwrap()
    }

    /// A column of a result file, summed over all rows.
    pub(crate) fn sum(&self, name: &str, column: usize) -> u64 {
        let text = self.result(name);
        text.lines()
            .skip(1)
            .map(|row| row.split(", ").nth(column).unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

pub(crate) fn succeeded(result: anyhow::Result<ExitCode>) -> bool {
    // ExitCode cannot be compared.
    format!("{:?}", result.unwrap()) == format!("{:?}", ExitCode::SUCCESS)
}

pub(crate) fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench/configs")
        .join(name)
}

#[test]
fn a_sequential_load_writes_every_key_once_and_ends_by_itself() {
    let server = FakeServer::start(Fault::None);
    let run = Run::new();
    let ended = run.configured(
        &format!(
            "{{mode, max}}. {{duration, 60}}. {{concurrent, 3}}. {{report_interval, 1}}.
             {{driver, basho_bench_driver_riakc_pb}}. {{riakc_pb_port, {}}}.
             {{riakc_pb_bucket, {{<<\"type\">>, <<\"b\">>}}}}.
             {{key_generator, {{partitioned_sequential_int, 1000}}}}.
             {{value_generator, {{fixed_bin, 10}}}}. {{value_generator_source_size, 1000}}.
             {{operations, [{{put, 1}}]}}.",
            server.port
        ),
        &["--threads", "2"],
    );
    assert!(succeeded(ended));
    let store = server.store.lock().unwrap();
    assert_eq!(store.objects.len(), 1000);
    let (_, key) = store.objects.keys().next_back().unwrap();
    assert_eq!(key, "999");
    let content = store.objects.values().next().unwrap();
    assert_eq!(content.value.len(), 10);
    assert_eq!(
        content.content_type.as_deref(),
        Some(b"application/octet-stream".as_slice())
    );
    assert_eq!(run.sum("summary.csv", 2), 1000);
    assert_eq!(run.result("errors.csv"), "\"error\",\"count\"\n");
    assert!(
        run.result("my.config")
            .contains("partitioned_sequential_int")
    );
}

#[test]
fn the_published_test_4_runs_as_printed_and_reads_only_what_it_wrote() {
    let server = FakeServer::start(Fault::None);
    let run = Run::new();
    let port = format!("pb_port={}", server.port);
    let file = published("published-test4.config");
    let ended = run.start(&[&file], &["--duration", "1", "--verify", "--set", &port]);
    assert!(succeeded(ended));
    let store = server.store.lock().unwrap();
    let puts = u64::try_from(store.objects.len()).unwrap();
    assert!(puts > 100, "{puts}");
    assert!(run.sum("summary.csv", 3) > puts);
    assert_eq!(run.sum("summary.csv", 4), 0);
    for ((bucket, key), content) in &store.objects {
        assert_eq!(bucket, "domainDocument");
        assert_eq!((key.len(), content.value.len()), (18, 8000));
        assert_eq!(content.indexes[0].key, "lastmodified_bin");
    }
    assert!(run.result("get-unique_latencies.csv").lines().count() >= 2);
}

#[test]
fn every_published_file_is_accepted() {
    let blob = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(blob.path(), [7; 1000]).unwrap();
    // Values come from a file, because filling the blocks for every configuration would take long.
    let blob = format!("value_generator_blob_file=\"{}\"", blob.path().display());
    let mut files = 0;
    for entry in std::fs::read_dir(published("")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "config")
        {
            continue;
        }
        files += 1;
        let run = Run::new();
        // No server listens: a configuration counts as accepted when the run tries to connect.
        let mut options = vec!["--duration", "0", "--scale", "0.001", "--set", &blob];
        for port in [
            "pb_port=1",
            "http_port=1",
            "riakc_pb_port=1",
            "http_raw_port=1",
        ] {
            options.extend(["--set", port]);
        }
        let ended = run.start(&[&path], &options);
        if path.ends_with("null.config") {
            assert!(succeeded(ended));
        } else {
            let error = ended.unwrap_err().to_string();
            assert!(
                error.contains("cannot connect to 127.0.0.1:1"),
                "{}: {error}",
                path.display()
            );
        }
    }
    assert!(files >= 15, "{files}");
}

#[test]
fn records_are_read_back_updated_and_deleted() {
    let server = FakeServer::start(Fault::None);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 4}}. {{driver, basho_bench_driver_nhs}}. {{pb_port, {}}}.
         {{alwaysget, {{10, 2, skew_order}}}}. {{unique, {{100, skew_order}}}}.
         {{value_generator, {{fixed_bin, 50}}}}. {{value_generator_source_size, 1000}}.
         {{key_generator, {{uniform_int, 10}}}}. {{riakc_pb_replies, 1}}.
         {{operations, [{{alwaysget_pb, 5}}, {{alwaysget_updatewith2i, 3}},
                        {{alwaysget_updatewithout2i, 3}}, {{put_unique, 1}}, {{delete_unique, 1}},
                        {{get_pb, 1}}, {{update_with2i, 1}}]}}.",
        server.port
    );
    assert!(succeeded(
        run.configured(&text, &["--duration", "1", "--verify"])
    ));
    assert_eq!(run.result("errors.csv"), "\"error\",\"count\"\n");
    let store = server.store.lock().unwrap();
    let records = store
        .objects
        .keys()
        .filter(|(bucket, _)| bucket == "domainRecord")
        .count();
    // Ten records of each of the four workers, and at most ten of the key generator.
    assert!((41..=50).contains(&records), "{records}");
    assert!(store.puts_with_vclock > 0);
    assert!(run.sum("alwaysget-pb_latencies.csv", 2) > 0);
}

#[test]
fn refusals_of_the_server_are_counted_by_reason() {
    let server = FakeServer::start(Fault::RefusesPuts);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 1}}. {{driver, basho_bench_driver_riakc_pb}}.
         {{riakc_pb_port, {}}}. {{key_generator, {{sequential_int, 100}}}}.
         {{value_generator, {{fixed_bin, 5, 1}}}}.
         {{operations, [{{get, 1}}, {{put, 1}}, {{get_existing, 1}}, {{delete, 1}}]}}.",
        server.port
    );
    assert!(succeeded(run.configured(&text, &[])));
    let refused = run.sum("put_latencies.csv", 10);
    let errors = run.result("errors.csv");
    let reason: Vec<String> = b"disk full".iter().map(u8::to_string).collect();
    assert!(
        errors.contains(&format!(
            "\"{{{{put,put}},<<{}>>}}\",\"{refused}\"",
            reason.join(",")
        )),
        "{errors}"
    );
    assert!(
        errors.contains("\"{{get_existing,get_existing},{not_found,<<"),
        "{errors}"
    );
    assert_eq!(run.sum("summary.csv", 2), 100);
}

#[test]
fn a_lost_connection_is_an_error_and_the_worker_goes_on() {
    let server = FakeServer::start(Fault::ClosesConnections);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 2}}. {{driver, basho_bench_driver_riakc_pb}}.
         {{riakc_pb_port, {}}}. {{key_generator, {{sequential_int, 100}}}}.
         {{operations, [{{get, 1}}]}}. {{value_generator, {{fixed_bin, 1, 1}}}}.",
        server.port
    );
    assert!(succeeded(run.configured(&text, &[])));
    assert_eq!(run.sum("summary.csv", 2), 200);
    assert_eq!(run.sum("summary.csv", 4), 20);
    assert!(
        run.result("errors.csv")
            .contains("\"{{get,get},disconnected}\",\"20\"")
    );
}

#[test]
fn verification_finds_damaged_values_and_fails_the_run() {
    let server = FakeServer::start(Fault::DamagesValues);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 1}}. {{driver, basho_bench_driver_riakc_pb}}.
         {{riakc_pb_port, {}}}. {{key_generator, {{int_to_str, {{valgen, {{uniform_int, 5}}}}}}}}.
         {{value_generator, {{fixed_bin, 100, 1}}}}. {{operations, [{{get, 1}}, {{put, 1}}]}}.",
        server.port
    );
    assert!(!succeeded(
        run.configured(&text, &["--duration", "1", "--verify"])
    ));
    assert!(run.result("errors.csv").contains("{verification,damaged}"));
}

#[test]
fn counters_are_incremented_by_one_and_read() {
    let server = FakeServer::start(Fault::None);
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{duration, 60}}. {{concurrent, 2}}. {{report_interval, 1}}.
         {{driver, basho_bench_driver_riakc_pb}}. {{riakc_pb_port, {}}}.
         {{riakc_pb_bucket, {{<<\"counters\">>, <<\"b\">>}}}}.
         {{key_generator, {{partitioned_sequential_int, 100}}}}.
         {{value_generator, {{fixed_bin, 1}}}}.
         {{operations, [{{{{counter, increment}}, 1}}]}}.",
        server.port
    );
    assert!(succeeded(run.configured(&text, &[])));
    let counters = server.store.lock().unwrap().counters.clone();
    assert_eq!(counters.len(), 100);
    let is_of_the_type = |place: &(Bytes, Bytes, Bytes)| place.0 == "counters" && place.1 == "b";
    assert!(counters.keys().all(is_of_the_type));
    assert!(counters.values().all(|value| *value == 1));
    let read = text.replace("increment", "value");
    let reading = Run::new();
    assert!(succeeded(reading.configured(&read, &[])));
    assert_eq!(reading.result("errors.csv"), "\"error\",\"count\"\n");
    assert_eq!(reading.sum("summary.csv", 2), 100);
}

#[test]
fn the_first_error_ends_a_run_that_shuts_down_on_errors() {
    let run = Run::new();
    let text = "{mode, max}. {duration, infinity}. {driver, basho_bench_driver_null}.
                {shutdown_on_error, true}. {value_generator, {fixed_bin, 1, 1}}.
                {operations, [{do_something, 9}, {an_error, 1}]}.";
    assert!(!succeeded(run.configured(text, &[])));
}

#[test]
fn a_rate_limits_the_load() {
    let run = Run::new();
    let text = "{mode, {rate, 50}}. {concurrent, 2}. {driver, basho_bench_driver_null}.
                {value_generator, {fixed_bin, 1, 1}}. {operations, [{do_something, 1}]}.";
    assert!(succeeded(run.configured(text, &["--duration", "2"])));
    let total = run.sum("summary.csv", 2);
    assert!((1..1000).contains(&total), "{total}");
}

#[test]
fn configurations_that_cannot_run_say_why_before_anything_is_written() {
    for (text, part) in [
        (
            "{driver, basho_bench_driver_innostore}.",
            "choose riakc_pb, http_raw, nhs",
        ),
        (
            "{driver, basho_bench_driver_null}.\n{operations, [{jump, 1}]}.",
            "my.config:2:1: operations cannot be jump: expected absolutely_nothing",
        ),
        (
            "{driver, basho_bench_driver_riakc_pb}. {operations, [{mr_bucket_js, 1}]}.",
            "it needs MapReduce",
        ),
        (
            "{driver, basho_bench_driver_nhs}. {operations, [{get_unique, 1}]}. {unique, 8000}.",
            "expected {Size, key_order}",
        ),
        (
            "{driver, basho_bench_driver_null}. {operations, [{put, 1}]}.
             {key_generator, {function, m, f, []}}.",
            "my.config:2:14: key_generator cannot be {function,m,f,[]}: it names a function",
        ),
        ("{driver, ", "my.config: line 1, column 10: expected a term"),
    ] {
        let run = Run::new();
        // The text of the program: the failure, and its reason only once.
        let error = format!("{:#}", run.configured(text, &[]).unwrap_err());
        assert_eq!(error.matches(part).count(), 1, "{text}: {error}");
        assert!(!run.directory.path().join("results").exists());
    }
}
