//! Merging, defaults, and refusals that name the term and the allowed forms.

use std::path::Path;
use std::time::Duration;

use super::{Configuration, ConfigurationError};
use crate::random::Seed;
use crate::settings::{Mode, Settings};
use kvorum_erlang_terms::Term;

fn load(text: &str) -> Configuration {
    let mut configuration = Configuration::default();
    configuration
        .add_file(Path::new("a.config"), text.as_bytes())
        .unwrap();
    configuration
}

fn refusal(text: &str) -> String {
    Settings::read(&load(text)).unwrap_err().to_string()
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let settings = Settings::read(&load("")).unwrap();
    assert_eq!(settings.mode, Mode::Rate(5.0));
    assert_eq!(settings.duration, Some(Duration::from_secs(301)));
    assert_eq!(settings.concurrent, 3);
    assert_eq!(settings.report_interval, Duration::from_secs(10));
    assert_eq!(settings.driver, "http_raw");
    assert_eq!(settings.operations.len(), 3);
    assert_eq!(settings.key_generator.to_string(), "{uniform_int,100000}");
    assert_eq!(settings.value_generator.to_string(), "{fixed_bin,100}");
    assert_eq!(settings.seed, Some(Seed([42, 23, 12])));
    assert!(!settings.shutdown_on_error);
}

/// Regression: charts of runs of a few seconds had one point.
#[test]
fn a_run_of_any_length_is_reported_twenty_times() {
    for (seconds, expected) in [
        (0.5, 20),
        (1.0, 50),
        (15.0, 500),
        (61.0, 3000),
        (301.0, 10_000),
    ] {
        let mut settings = Settings::read(&load("")).unwrap();
        settings.duration = Some(Duration::from_secs_f64(seconds));
        settings.report_often_enough();
        assert_eq!(settings.report_interval, Duration::from_millis(expected));
        let reports = seconds / settings.report_interval.as_secs_f64();
        assert!(reports >= 20.0, "{seconds}");
    }
    let mut settings =
        Settings::read(&load("{report_interval, 1}. {duration, infinity}.")).unwrap();
    settings.report_often_enough();
    assert_eq!(settings.report_interval, Duration::from_secs(1));
}

#[test]
fn what_has_no_effect_is_noted_and_passwords_are_masked() {
    let configuration = load(
        "{concurrent, 3}. {concurrent, 4}. {a, b, c}. word. {sequential_int_state_dir, \"/tmp\"}.
         {pb_connect_options, [{credentials, \"user\", \"secret\"}]}.
         {value_generator, {fixed_char, 10}}. {value_generator_source_size, 4096}.",
    );
    let settings = Settings::read(&configuration).unwrap();
    assert_eq!(settings.concurrent, 4);
    settings.note_unused(&configuration);
    let notes: Vec<String> = configuration
        .not_honoured()
        .iter()
        .map(ToString::to_string)
        .collect();
    let noted = |text: &str| notes.iter().any(|note| note.contains(text));
    for text in [
        "a.config:1:1: concurrent has no effect: a.config:1:18 sets it again",
        "{a,b,c} has no effect",
        "word has no effect",
        "sequential_int_state_dir has no effect",
        "value_generator_source_size has no effect",
    ] {
        assert!(noted(text), "{text}: {notes:?}");
    }
    assert_eq!(
        configuration.printed()["pb_connect_options"],
        "[{credentials,\"user\",\"***\"}]"
    );
}

#[test]
fn reads_every_core_key() {
    let settings = Settings::read(&load(
        "{mode, {rate, 100}}. {duration, infinity}. {concurrent, 7}. {report_interval, 1}.
         {driver, basho_bench_driver_nhs}. {rng_seed, now}. {shutdown_on_error, true}.
         {operations, [{get, 3}, {\"first put\", {put_pb, 5}, 1}]}.",
    ))
    .unwrap();
    assert_eq!(settings.mode, Mode::Rate(100.0));
    assert_eq!(settings.duration, None);
    assert_eq!(settings.driver, "nhs");
    assert_eq!(settings.seed, None);
    assert!(settings.shutdown_on_error);
    assert_eq!(
        settings.operations[1].label,
        Term::String("first put".to_owned())
    );
    assert_eq!(settings.operations[1].operation.to_string(), "{put_pb,5}");
    for text in ["{mode, max}.", "{mode, {rate, max}}."] {
        assert_eq!(Settings::read(&load(text)).unwrap().mode, Mode::Max);
    }
}

#[test]
fn later_pairs_files_and_overrides_win() {
    let mut configuration =
        load("{concurrent, 1}. {concurrent, 2}. [{duration, 1}, [{mode, max}]].");
    configuration
        .add_file(Path::new("b.config"), b"{concurrent, 4}. other. {a, b, c}.")
        .unwrap();
    let settings = Settings::read(&configuration).unwrap();
    assert_eq!((settings.concurrent, settings.mode), (4, Mode::Max));
    configuration.add_override("concurrent = 9").unwrap();
    assert_eq!(Settings::read(&configuration).unwrap().concurrent, 9);
}

#[test]
fn keys_that_nobody_reads_are_reported() {
    let configuration = load("{mode, max}.\n{made_up, 1}.\n {pre_hook, {a, b}}.");
    Settings::read(&configuration).unwrap();
    let unread: Vec<String> = configuration
        .unread()
        .into_iter()
        .map(|(key, origin)| format!("{key} {origin}"))
        .collect();
    assert_eq!(unread, ["made_up a.config:2:1", "pre_hook a.config:3:2"]);
    assert!(
        Settings::why_without_effect("pre_hook")
            .unwrap()
            .contains("Erlang")
    );
    assert_eq!(Settings::why_without_effect("made_up"), None);
}

#[test]
fn refusals_name_place_value_and_allowed_forms() {
    assert_eq!(
        refusal("{concurrent, 2}.\n{mode, fast}."),
        "a.config:2:1: mode cannot be fast: expected max, {rate, max} or {rate, N} with N \
         operations per second and worker above 0"
    );
    for (text, part) in [
        ("{mode, {rate, 0}}.", "above 0"),
        ("{duration, 0.5}.", "--duration gives seconds"),
        ("{concurrent, 0}.", "from 1 to 100000"),
        ("{operations, [{get, -1}]}.", "not {get,-1}"),
        ("{operations, [{get, 0}]}.", "weight above 0"),
        ("{operations, []}.", "weight above 0"),
        ("{rng_seed, {1, 2}}.", "three integers"),
        ("{shutdown_on_error, yes}.", "true or false"),
        ("{driver, \"x\"}.", "an atom"),
    ] {
        let error = refusal(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn overrides_that_are_no_terms_are_refused() {
    let mut configuration = Configuration::default();
    for text in ["concurrent", "concurrent=", "concurrent=[1"] {
        let error = configuration.add_override(text).unwrap_err();
        assert!(
            matches!(error, ConfigurationError::Override { .. }),
            "{error}"
        );
    }
}
