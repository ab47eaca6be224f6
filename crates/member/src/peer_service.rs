//! The service by which members reach each other.

/// The name of the peers' listener among a member's addresses.
pub const PEER_SERVICE: &str = "peer";
