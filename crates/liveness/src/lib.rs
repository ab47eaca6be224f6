//! Which nodes are up: a SWIM failure detector (a library) over our peers and runtime.
//!
//! Who *is* a member is agreed ([`Liveness::follow_members`]); who of them answers is found out here,
//! by probing and gossip, and may differ between nodes for a while. Nothing is decided by it but whom
//! to ask first: a node that is wrongly taken to be down loses no data, and one wrongly taken to be up
//! costs a failed request.
//!
//! The detector hears of nodes through other nodes, which is what keeps it from being wrong about a
//! busy one, and makes it slow. A request needs an answer to *this* node: a member that leaves some
//! questions in a row without one is down here, whatever the others say.
//!
//! The detector itself ([`foca`]) is pure; what it needs of the world (messages, timers, randomness)
//! it is given from the seams, so that a simulation owns them. A node is known by its identity; each
//! of its runs has a higher generation, and the higher one wins.
//!
//! What this crate must not know: what a node is needed for.

mod detector;
mod hearing;
mod liveness;
mod settings;

pub use liveness::Liveness;
pub use settings::LivenessSettings;
