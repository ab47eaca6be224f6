//! The messages as generated from `proto/`; `bytes` fields are slices of the frame.
//!
//! The generated code is in the tree: the compiler of the files and its dependencies would take a fresh
//! build longer than the server's own lower floors. A test compares it with the files; `cargo xtask fix`
//! renews it.
//!
//! The generated decoder does not insist on `required` fields: one that is missing reads as empty
//! or zero, and the server judges it like any other empty value.

#![expect(
    missing_docs,
    reason = "fields carry Riak's names; the .proto files are their reference"
)]

include!("messages.inc");
