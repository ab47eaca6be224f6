//! Shared parts for tests of nodes.
//!
//! | module | content |
//! |---|---|
//! | `lone_node` | a node of one over stores in memory |
//! | `machines` | simulated machines by number: addresses, links, machines that are down |
//! | `memory_vnodes` | vnodes over empty stores in memory |
//! | `stand_ins` | a coordinator's other parts: settings, a meter that counts nothing, a state set by hand |
//! | `vnodes` | the vnodes of a node, which tests open and remove |
//!
//! No program includes the crate: `dev-only` in its manifest, which `cargo xtask tidy` checks,
//! allows only tests and other such crates to import it.

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
