//! Parts for tests of nodes, so that each part of the stage stands once.
//!
//! | module | content |
//! |---|---|
//! | `lone_node` | a node of one over stores in memory |
//! | `machines` | simulated machines by number: addresses, links, the machines that are down |
//! | `memory_vnodes` | vnodes over empty stores in memory |
//! | `stand_ins` | a coordinator's other parts: settings, a meter that counts nothing, a state set by hand |
//! | `vnodes` | the vnodes of a node, opened and taken away by hand |
//!
//! The crate ships with nothing: `dev-only` in its manifest, which `cargo xtask tidy` checks, lets only
//! tests and other crates of that kind import it.

mod lone_node;
mod machines;
mod memory_vnodes;
mod stand_ins;
mod vnodes;

pub use lone_node::LoneNode;
pub use machines::{Down, Everybody, cut_off, link_all, machine, node_id, number_of, peer_address};
pub use memory_vnodes::{Failure, MemoryVnodes};
pub use stand_ins::{GivenState, Unmeasured, coordinator_settings};
pub use vnodes::{Vnodes, partitions_at};
