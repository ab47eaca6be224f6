//! Failures of verbs that were called with `--json`: a program reads one document in every case.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

const OPTION: &str = "--json";

/// Verbs that print nothing for programs, each with the place of the data that a program may want.
const WITHOUT_JSON: [(&str, &str); 2] = [
    (
        "server",
        "it prints a log; `logger.format = json` makes each of its lines a JSON object",
    ),
    (
        "bench",
        "what a run measured is in its directory for programs, in run.json and CSV files",
    ),
];

/// True if the words of a call ask for JSON.
pub(crate) fn is_wanted(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--");
    options.into_iter().any(|word| word == OPTION)
}

/// The error of words that are no call.
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
