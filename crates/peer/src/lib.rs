//! Between nodes: framed, multiplexed requests over lanes that do not wait for one another.
//!
//! A node asks another by [`Peers::request`] and answers through a [`PeerService`]. Between a pair of
//! nodes there are up to three connections in each direction, one for each [`Lane`], so that neither a
//! transfer nor a large object ever holds up a heartbeat; within a lane, messages are cut into
//! fragments that take turns, so that a small one overtakes a large one. Riak ran all of this over one
//! connection, where one large object blocked the cluster's heartbeats.
//!
//! A request carries its deadline; one that nobody waits for any more is cancelled on the other side.
//! What is queued towards a peer and what is in progress for one is bounded, in messages and in bytes,
//! and beyond that the answer is [`PeerError::Overload`], at once: nothing was carried out. An answer
//! that finds no room waits for it, and counts as in progress.
//!
//! A node that stops takes its leave ([`Peers::take_leave`]): whoever asks it then learns of each request
//! either its answer or that nothing was carried out. A connection that breaks without that leaves open
//! what became of what was under way ([`PeerError::Broken`]).
//!
//! Connections begin with a hello ([`hello`]) in which both sides say who they are, to which cluster
//! they belong, and which versions they speak; whoever is not admitted learns why.
//!
//! Where connections are encrypted ([`Encryption`]), both ends prove by certificate which node of the
//! cluster they are, before the hello; everything between nodes goes over these connections.
//!
//! What this crate must not know: what messages mean.

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
