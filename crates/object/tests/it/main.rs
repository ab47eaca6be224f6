//! Objects as their users see them: histories against a model, writes, encodings.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where it fails"
)]

mod causal_history;
mod encoding;
mod replica;
mod siblings;
mod writes;
