//! The crate from outside: files of Riak, errors, the tables against the settings and the pages.

mod anchors;
mod any_text;
mod documents;
mod erlang_files;
mod errors;
mod keys;
mod precedence;
mod riak_files;
mod several_backends;
mod texts;

use kvorum_settings::{Configuration, Problems};

/// Loads a file without options.
fn load(text: &str) -> Result<Configuration, Problems> {
    Configuration::load(text, &[] as &[&str])
}

/// Loads a valid file.
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
fn loaded(text: &str) -> Configuration {
    load(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The problems of a file with errors, one text each.
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panic")]
fn problems(text: &str) -> Vec<String> {
    match load(text) {
        Ok(_) => panic!("nothing is wrong with {text:?}"),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}
