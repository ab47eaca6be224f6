//! The service through which members reach one another.

/// The name of the peers' listener among a member's addresses.
pub const PEER_SERVICE: &str = "peer";
