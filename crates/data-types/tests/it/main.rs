//! Data types as their users see them: histories against a model, deltas, pages, and byte forms.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where it fails"
)]

mod byte_forms;
mod contexts;
mod counters;
mod histories;
mod json;
mod pages;
mod riak_fixtures;
mod sketches;
mod trace;
