//! `kvorum advise` from given facts, from a load test, and from a running node.

use std::process::{Command, Output, Stdio};

use bytes::Bytes;
use serde_json::Value;

use crate::server::Site;

fn advise(directory: &std::path::Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.current_dir(directory).arg("advise").args(words);
    // No user is there to answer questions.
    command.stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn capacity_answers_for_people_and_for_programs() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "capacity",
        "--keys",
        "100m",
        "--key-bytes",
        "67",
        "--value-bytes",
        "1KB",
    ];
    let text = advise(directory.path(), &words);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("keys per GB of memory      44,186,906"),
        "{text}"
    );
    assert!(
        text.contains("Riak's bitcask             8,659,208"),
        "{text}"
    );
    let answer = json(&advise(
        directory.path(),
        &[&words[..], &["--json"]].concat(),
    ));
    assert_eq!(answer["keys_per_gib"], 44_186_906);
    assert_eq!(answer["question"]["value_bytes"], 1024);
    let unknown = advise(
        directory.path(),
        &[&words[..], &["--backend", "sqlite"]].concat(),
    );
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no backend is called sqlite"));
}

#[test]
fn a_reader_that_reads_no_more_ends_it_without_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    let words = ["advise", "capacity", "--keys", "1m", "--key-bytes", "9"];
    command.args(words).args(["--value-bytes", "9"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{text}");
}

#[test]
fn nothing_is_said_to_be_printed_that_cannot_be() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    let words = ["advise", "capacity", "--keys", "1m", "--key-bytes", "9"];
    command.args(words).args(["--value-bytes", "9"]);
    let output = command.stdout(full.unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("standard output cannot be written"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

/// Regression: the README shows `kvorum advise` without a verb, which was a usage error.
#[test]
fn without_a_verb_and_without_a_terminal_a_default_is_recommended() {
    let directory = tempfile::tempdir().unwrap();
    let output = advise(directory.path(), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("storage_backend = bitcask"), "{text}");
    assert!(text.contains("there are no facts about the data"), "{text}");
}

#[test]
fn each_bucket_type_gets_its_own_advice() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "backend",
        "--json",
        "--say",
        "must_survive=no",
        "--type",
        "cache:keys=1m,value_bytes=1KB,\
         memory_bytes=8GB",
        "--type",
        "carts:must_survive=yes",
    ];
    let judged = json(&advise(directory.path(), &words));
    assert_eq!(judged[0]["subject"], "bucket type cache");
    assert_eq!(judged[0]["facts"]["known"]["keys"]["value"], 1e6);
    // The same backend is the best for both.
    assert_eq!(judged[0]["recommended"], "bitcask");
    assert_eq!(judged[1]["recommended"], "bitcask");
    assert_eq!(judged[0]["several_backends"], Value::Null);
    let refused = advise(directory.path(), &["backend", "--say", "colour=red"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("value_bytes"));
}

#[test]
fn types_that_are_best_in_different_backends_get_the_settings_of_several() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "backend",
        "--type",
        "sessions:keys=1m,expires=yes",
        "--type",
        "documents:uses_indexes=yes",
    ];
    let judged = json(&advise(
        directory.path(),
        &[&words[..], &["--json"]].concat(),
    ));
    assert_eq!(judged[0]["recommended"], "bitcask");
    assert_eq!(judged[0]["backend_property"], "bitcask");
    assert_eq!(judged[1]["recommended"], "leveled");
    assert_eq!(judged[1]["backend_property"], Value::Null);
    let settings = &judged[1]["several_backends"]["settings"];
    // The lines are a configuration that starts.
    let mut checked = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    checked.current_dir(directory.path()).arg("chkconfig");
    for line in settings.as_array().unwrap() {
        let setting = line.as_str().unwrap().replace(" = ", "=");
        checked.args(["--set", &setting]);
    }
    let output = checked.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        report.contains("multi: bitcask (bitcask), leveled (leveled, default)"),
        "{report}"
    );
    let text = advise(directory.path(), &words);
    let text = String::from_utf8_lossy(&text.stdout);
    for line in [
        "  multi_backend.default = leveled",
        "  bucket type sessions: the property \"backend\": \"bitcask\", before it has data",
        "  on nodes of one backend instead: leveled for all",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_load_test_gives_the_workload() {
    let directory = tempfile::tempdir().unwrap();
    let run = r#"{"format": 1, "name": "mine", "backend": "bitcask", "durability": "grouped",
        "configuration": {"value_generator": "{fixed_bin,4096}"},
        "totals": {"get": {"count": 10, "p99_us": 5}, "update": {"count": 30, "p99_us": 2000}},
        "operations_total": 40, "operations_per_second": 4000.0}"#;
    std::fs::write(directory.path().join("run.json"), run).unwrap();
    let advice = json(&advise(
        directory.path(),
        &["backend", "--json", "--bench", "."],
    ));
    let known = &advice[0]["facts"]["known"];
    assert_eq!(known["write_share"]["value"], 0.75);
    assert_eq!(known["value_bytes"]["value"], 4096.0);
}

#[tokio::test]
async fn a_running_node_gives_what_it_has_measured() {
    let site = Site::new();
    let _server = site.start();
    let mut client = site.client().await;
    for number in 0..4u8 {
        client
            .put_value(b"b", &[number], Bytes::from_static(&[7; 3000]))
            .await
            .unwrap();
        client.get_key(b"b", &[number]).await.unwrap();
    }
    assert!(
        site.run(&["admin", "bucket-type", "create", "carts"])
            .status
            .success()
    );
    let advice = json(&site.run(&["advise", "backend", "--node", "--json"]));
    assert_eq!(advice[0]["subject"], "bucket type default");
    assert_eq!(advice[1]["subject"], "bucket type carts");
    assert_eq!(advice[1]["facts"]["known"]["keys_per_node"]["value"], 4.0);
    for path in ["stats", "metrics"] {
        let url = format!("http://{}/{path}", site.http);
        let advice = json(&site.run(&["advise", "backend", "--json", "--stats", &url]));
        let known = &advice[0]["facts"]["known"];
        assert_eq!(known["write_share"]["value"], 0.5);
        assert!(known["value_bytes"]["value"].as_f64().unwrap() > 3000.0);
    }
}
