//! Placement of keys: the partitions and nodes of a key, and the vnodes that a listing has to ask.
//!
//! The ring is a circle of 2^160 positions cut into `ring_size` equal partitions. A key hashes to a
//! position, the partition that follows it is the key's *owner partition*, and the replicas live on
//! that and the next partitions around the circle. Everything here is a pure function, without
//! clock, randomness or sockets. So every node computes the same answer from the same ring, and a
//! simulation can replay it.
//!
//! - [`position`]: bytes of an address to a [`Position`], exactly as Riak hashes them;
//! - [`Ring`]: the owner of each partition, and its [`Epoch`];
//! - [`claim`]: the choice of each partition's owner;
//! - [`Detours`]: partitions that lists pass over, so that replicas are on distinct nodes;
//! - [`Transition`]: a ring on its way to another, one replica of a list at a time;
//! - [`Ring::preference_list`] and [`Ring::write_list`]: the replicas of one key, fallbacks included;
//! - [`Ring::coverage_plan`]: the fewest vnodes that together hold every key.

mod claim;
mod coverage;
mod detour;
mod growth;
mod motion;
mod moving;
mod node_id;
mod partition;
mod phase;
mod position;
mod preference_list;
mod ring;
mod ring_detours;
mod search;
mod share;
mod spread;
mod transition;
mod write_list;

pub use claim::{ClaimError, Claimant, claim};
pub use coverage::{CoverageError, CoveragePlan, CoverageVnode};
pub use detour::Detours;
pub use motion::{Growth, Move};
pub use moving::MoveError;
pub use node_id::{NodeId, NodeIdError};
pub use partition::{IndexError, Partition, RING_SIZE_MAX, RING_SIZE_MIN, RingSize, RingSizeError};
pub use phase::{List, Phase};
pub use position::{KeyHash, Position, position};
pub use preference_list::{PreferenceList, Replica, Role};
pub use ring::{Epoch, Ring, RingError};
pub use ring_detours::Fill;
pub use transition::Transition;
pub use write_list::{WriteList, WriteReplica};
