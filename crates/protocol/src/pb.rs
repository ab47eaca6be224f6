//! The messages as generated from `proto/`; `bytes` fields are slices of the frame.
//!
//! What is generated is in the tree: the compiler of the files and what it needs would take a fresh build
//! longer than the server's own lower floors. A test holds it to the files, `cargo xtask fix` renews it.
//!
//! The generated decoder does not insist on `required` fields: one that is missing reads as empty
//! or zero, and the server judges it like any other empty value.

#![expect(
    missing_docs,
    reason = "fields carry Riak's names; the .proto files are their reference"
)]

include!("messages.inc");
