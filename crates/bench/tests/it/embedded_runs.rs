//! Runs on an engine in this process.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use kvorum_backend::Backend;
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_bench::{BenchCommand, Engine, execute_command_with};

use super::runs::{Run, succeeded};

#[derive(clap::Parser)]
struct Commands {
    #[command(subcommand)]
    command: BenchCommand,
}

const ENGINES: [Engine; 1] = [Engine {
    name: "memory",
    other_driver: Some("ets"),
    directory_key: None,
    instances_key: None,
    open,
}];

fn open(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    if directory.ends_with("instance.9") {
        return Err("nine is too many".to_owned());
    }
    Ok(Arc::new(MemoryBackend::new(Settings::default(), || 7)))
}

fn start(run: &Run, text: &str, options: &[&str]) -> anyhow::Result<ExitCode> {
    let root = run.directory.path();
    let path = root.join("my.config");
    std::fs::write(&path, text).unwrap();
    let directory = format!(
        "embedded_dir={:?}",
        root.join("stores").display().to_string()
    );
    let mut words: Vec<std::ffi::OsString> = vec!["bench".into(), "run".into(), path.into()];
    words.extend(["--out".into(), root.join("results").into_os_string()]);
    words.extend(["--name", "run", "--set", &directory].map(Into::into));
    words.extend(options.iter().map(Into::into));
    let commands = Commands::parse_from(words);
    execute_command_with(&commands.command, &ENGINES, &mut std::io::sink())
}

#[test]
fn an_engine_is_loaded_without_a_server() {
    let run = Run::new();
    let text = "{mode, max}. {concurrent, 4}. {driver, basho_bench_driver_ets}.
        {embedded_instances, 2}. {value_generator, {fixed_bin, 100}}.
        {value_generator_source_size, 1000}. {embedded_durability, grouped}.
        {key_generator, {uniform_int, 50}}.
        {operations, [{get, 4}, {put, 4}, {update, 1}, {head, 1}, {delete, 1}, {merge, 1}]}.";
    // Two workers use each of two stores. The ledger would count both as one store, so nothing is
    // checked.
    assert!(succeeded(start(&run, text, &["--duration", "1"])));
    let record = run.record();
    assert_eq!(record.backend.as_deref(), Some("memory"));
    assert_eq!(record.durability.as_deref(), Some("grouped"));
    assert_eq!(run.result("errors.csv"), "\"error\",\"count\"\n");
    assert!(record.totals.values().all(|totals| totals.count > 0));
    let server = run.result("server.csv");
    let last = server.lines().last().unwrap();
    let put: u64 = last.rsplit(", ").next().unwrap().parse().unwrap();
    assert!(put > 0, "{server}");
}

#[test]
fn reads_of_an_engine_are_verified() {
    let run = Run::new();
    let text = "{mode, max}. {concurrent, 4}. {driver, memory}.
        {value_generator, {fixed_bin, 100, 1}}. {key_generator, {uniform_int, 50}}.
        {operations, [{get, 4}, {put, 4}, {update, 1}, {head, 1}, {delete, 1}]}.";
    let ended = start(
        &run,
        text,
        &["--duration", "1", "--verify", "--threads", "2"],
    );
    assert!(succeeded(ended), "{}", run.result("errors.csv"));
    assert!(run.record().verified);
}

#[test]
fn stores_that_cannot_be_opened_say_why() {
    let run = Run::new();
    let text = "{driver, memory}. {embedded_instances, 9}. {operations, [{get, 1}]}.";
    let error = start(&run, text, &[]).unwrap_err().to_string();
    assert!(error.contains("nine is too many"), "{error}");
    let text = "{driver, memory}. {operations, [{fly, 1}]}.";
    let error = start(&run, text, &[]).unwrap_err().to_string();
    assert!(error.contains("with an embedded driver"), "{error}");
    let text = "{driver, innostore}.";
    let error = start(&run, text, &[]).unwrap_err().to_string();
    assert!(error.contains("can be opened here: memory"), "{error}");
}
