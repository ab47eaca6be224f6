//! The messages as generated from `proto/`; `bytes` fields are slices of the frame.
//!
//! The generated decoder does not insist on `required` fields: one that is missing reads as empty
//! or zero, and the server judges it like any other empty value.

#![expect(
    missing_docs,
    reason = "fields carry Riak's names; the .proto files are their reference"
)]

include!(concat!(env!("OUT_DIR"), "/kvorum.riak.rs"));
