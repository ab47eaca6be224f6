//! Failures of verbs that were called with `--json`, as one JSON document like any other result.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

const OPTION: &str = "--json";

/// Verbs without JSON output, each with the place of data for programs.
const WITHOUT_JSON: [(&str, &str); 2] = [
    (
        "server",
        "it prints a log; `logger.format = json` makes each of its lines a JSON object",
    ),
    (
        "bench",
        "the directory of a run has its figures for programs, in run.json and CSV files",
    ),
];

/// True if the arguments ask for JSON.
pub(crate) fn is_wanted(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--");
    options.into_iter().any(|word| word == OPTION)
}

/// The error text for arguments that cannot be parsed.
pub(crate) fn of_words(error: &clap::Error, words: &[OsString]) -> String {
    let verb = words.get(1).and_then(|word| word.to_str());
    let without = WITHOUT_JSON.iter().find(|(name, _)| Some(*name) == verb);
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) => argument,
        _ => "",
    };
    match without {
        Some((name, instead)) if unknown == OPTION => {
            format!("`kvorum {name}` has no {OPTION}: {instead}")
        }
        _ => error
            .to_string()
            .trim_start_matches("error: ")
            .trim_end()
            .to_owned(),
    }
}
