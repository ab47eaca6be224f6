//! Jobs from the users' side: recorded jobs, results against a model, limits, hostile input.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where it fails"
)]

mod filters;
mod hostile;
mod limits;
mod model;
mod recorded;
mod store;
mod terms;
