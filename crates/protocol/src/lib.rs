//! Riak's protocol-buffer frames and messages and HTTP field shapes: a pure codec.
//!
//! What existing Riak clients send and expect, byte for byte, and nothing else: no sockets, no
//! clock, no knowledge of objects or quorums. Both servers and the client stand on this crate, so
//! that a shape is written down once. Decoders take hostile input: they never panic, and they
//! allocate by what has arrived, never by what is announced. The worst a payload can do is a list
//! of empty sub-messages, which takes up to 50 times its bytes once decoded; the limit on frames
//! is the bound on that.
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
