//! Between nodes: framed, multiplexed requests over lanes that do not wait for one another.
//!
//! A node asks another by [`Peers::request`] and answers through a [`PeerService`]. Between a pair of
//! nodes there are up to three connections in each direction, one for each [`Lane`], so that neither a
//! transfer nor a large object ever holds up a heartbeat; within a lane, messages are cut into
//! fragments that take turns, so that a small one overtakes a large one. Riak ran all of this over one
//! connection, where one large object blocked the cluster's heartbeats.
//!
//! A request carries its deadline; a request whose caller has stopped waiting is cancelled on the other
//! side. Messages queued towards a peer and requests in progress for one are bounded, in number and in
//! bytes. Beyond that the answer is [`PeerError::Overload`], at once: nothing was carried out. An
//! answer that finds no room waits for it, and counts as in progress.
//!
//! A node that stops takes its leave ([`Peers::take_leave`]): its callers then have for each request
//! either its answer or the certainty that nothing was carried out. A connection that breaks without
//! that leaves requests under way in doubt ([`PeerError::Broken`]).
//!
//! Connections begin with a hello ([`hello`]), in which both sides give their identity, their cluster,
//! and the versions they speak; a refused caller gets the reason.
//!
//! Where connections are encrypted ([`Encryption`]), both ends prove by certificate which node of the
//! cluster they are, before the hello; everything between nodes goes over these connections.
//!
//! Outside this crate: the meaning of messages.

mod answers;
mod assembly;
mod connected;
mod connection;
mod dialler;
mod encryption;
mod error;
mod frame;
pub mod hello;
mod lane;
mod message;
mod outbox;
mod peers;
mod service;
mod serving;
mod settings;

pub use connected::{Connected, connections_max};
pub use encryption::Encryption;
pub use error::PeerError;
pub use hello::{Admission, Introduction, Refusal};
pub use lane::Lane;
pub use message::Message;
pub use peers::Peers;
pub use service::{Caller, Directory, PeerService, Served};
pub use settings::PeerSettings;
