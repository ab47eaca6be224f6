//! Nodes that are up: a SWIM failure detector (a library) over our peers and runtime.
//!
//! The members are agreed on ([`Liveness::follow_members`]). The members that answer are found here by
//! probing and gossip, and may differ between nodes for a while. They decide only the order of asking:
//! a node that is wrongly taken to be down loses no data, and one wrongly taken to be up costs a failed
//! request.
//!
//! The detector accepts reports of other nodes. So it makes few mistakes about busy nodes, but is
//! slow. A request needs an answer to *this* node: a member that does not answer several questions
//! in a row counts as down here, even if it answers other nodes.
//!
//! The detector itself ([`foca`]) is pure; the seams give it messages, timers and randomness, so
//! that a simulation controls them. Each run of a node has a higher generation than the one before,
//! and the highest wins.
//!
//! Outside this crate: the decisions about nodes that are down.

mod detector;
mod hearing;
mod liveness;
mod settings;

pub use liveness::Liveness;
pub use settings::LivenessSettings;
