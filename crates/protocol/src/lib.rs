//! Riak's protocol-buffer frames and messages and HTTP field shapes: a pure codec.
//!
//! The bytes that existing Riak clients send and expect, and nothing else: no sockets, clocks,
//! objects or quorums. Both servers and the client use this crate, so that each shape is defined
//! once. Decoders take hostile input: they never panic, and they allocate by the bytes that have
//! arrived, never by an announced length. The worst payload is a list of empty sub-messages, which
//! takes up to 50 times its bytes once decoded; the limit on frames bounds that.
//!
//! - [`frame`]: length, code and payload on a connection, both directions.
//! - [`MessageCode`]: the number of every message; [`pb`]: the messages themselves.
//! - [`request`]: get, put and delete laid out from borrowed fields, for busy clients.
//! - [`quorum`]: the four symbolic quorum values.
//! - [`http_fields`]: headers, query parameters and bodies of the HTTP interface.

pub mod frame;
pub mod http_fields;
mod message_code;
pub mod pb;
pub mod quorum;
pub mod request;

pub use message_code::{CodedMessage, MessageCode};
