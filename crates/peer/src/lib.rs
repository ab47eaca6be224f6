//! Communication between nodes: framed, multiplexed requests over lanes that do not wait for one
//! another.
//!
//! A node sends requests with [`Peers::request`] and answers through a [`PeerService`]. A pair of
//! nodes has up to three connections in each direction, one for each [`Lane`], so that no transfer
//! or large object delays a heartbeat. Within a lane, messages are cut into fragments that take
//! turns, so that a small message overtakes a large one. Riak used one connection for everything,
//! and one large object blocked the cluster's heartbeats.
//!
//! A request carries its deadline; a request whose caller has stopped waiting is cancelled on the
//! other side. Queued messages and requests in progress are bounded for each peer, in number and in
//! bytes. Beyond the bounds the answer is [`PeerError::Overload`], at once: nothing was carried
//! out. An answer that finds no room waits, and its request counts as in progress.
//!
//! A stopping node sends a farewell ([`Peers::take_leave`]): its callers then have for each request
//! either its answer or the certainty that nothing was carried out. A connection that breaks
//! without a farewell leaves requests under way in doubt ([`PeerError::Broken`]).
//!
//! Connections begin with a hello ([`hello`]), in which both sides state their identity, their
//! cluster, and their versions. A refused caller gets the reason.
//!
//! If connections are encrypted ([`Encryption`]), both ends prove with a certificate, before the
//! hello, which node of the cluster they are. All traffic between nodes uses these connections.
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
