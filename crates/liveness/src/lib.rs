//! Nodes that are up: a SWIM failure detector (a library) over our peers and runtime.
//!
//! The members are agreed on ([`Liveness::follow_members`]). The members that answer are found here by
//! probing and gossip, and may differ between nodes for a while. They decide only the order of asking:
//! a node that is wrongly taken to be down loses no data, and one wrongly taken to be up costs a failed
//! request.
//!
//! The detector hears of nodes through other nodes. So it makes few mistakes about busy nodes, but is slow. A
//! request needs an answer to *this* node: a member that does not answer several questions in a row counts as
//! down here, even if it answers other nodes.
//!
//! The detector itself ([`foca`]) is pure; the seams give it messages, timers and randomness, so that a
//! simulation owns them. A node is known by its identity; each of its runs has a higher generation, and
//! the higher one wins.
//!
//! Outside this crate: the use of a node.

mod detector;
mod hearing;
mod liveness;
mod settings;

pub use liveness::Liveness;
pub use settings::LivenessSettings;
