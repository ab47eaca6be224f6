//! The messages as generated from `proto/`; `bytes` fields are slices of the frame.
//!
//! The generated code is in the tree: a fresh build would spend more time on the protocol compiler and
//! its dependencies than on the server's own lower floors. A test compares the code with the `.proto`
//! files, and `cargo xtask fix` generates it again.
//!
//! The generated decoder does not check that `required` fields are there: a missing one reads as empty
//! or zero, and the server treats it as any other empty value.

#![expect(
    missing_docs,
    reason = "fields carry Riak's names; the .proto files are their reference"
)]

include!("messages.inc");
