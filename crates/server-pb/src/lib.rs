//! The protocol-buffer interface: connections, framing and request handlers.
//!
//! A [`Server`] accepts connections and runs one task for each. A connection cuts its input into
//! frames, answers them one after the other, and sends its replies when no whole request is left in its
//! input: a pipelining client costs one read and one write for a batch of requests. Get and put are
//! laid out straight from the object into the output; all rarer requests go through the generated
//! messages.
//!
//! A request that arrives while a listing is being streamed is answered when the listing has ended,
//! in order like any other. Riak refuses it and closes the connection; no client depends on that,
//! and delaying requests needs no code.
//!
//! Outside this crate: replicas, engines, files. Requests of Riak that are not served yet are
//! refused with a text (`refusal.rs`). Codes that Riak does not serve either are unknown.

mod bucket_requests;
mod connection;
mod content;
mod data_type_fields;
mod data_type_requests;
mod dispatch;
mod expiry;
mod fault_log;
mod fold_requests;
mod index_requests;
mod listing_requests;
mod map_reduce_requests;
mod object_reply;
mod object_requests;
mod output;
mod property_fields;
mod refusal;
mod seats;
mod server;
mod settings;

pub use server::{ConnectionMeter, Server};
pub use settings::{JobSwitches, ServerSettings};
