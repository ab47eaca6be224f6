//! The Rust client over Riak's protocol buffers.
//!
//! One [`Client`] is one connection, used by one task at a time: the protocol answers in order, and
//! a load generator needs no lock before the socket. A caller that needs more connections opens
//! more clients. Requests are encoded from borrowed keys into a reused buffer, answers are slices
//! of the receive buffer, and a plain get or put of cached size makes no other copy of the value.
//!
//! Not here: pools, retries, sibling resolution and the HTTP interface.

mod answers;
mod client;
mod connection;
mod error;
mod settings;

pub use answers::{Answers, StreamedAnswer};
pub use client::Client;
pub use error::{Error, ErrorKind};
pub use kvorum_protocol::frame::Frame;
pub use kvorum_protocol::request::{Delete, DeleteOptions, Get, GetOptions, Put, PutOptions};
pub use kvorum_protocol::{MessageCode, pb, quorum};
pub use settings::ClientSettings;
