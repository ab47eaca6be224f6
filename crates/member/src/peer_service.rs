//! The service by which members reach each other.

/// The name under which a member's addresses tell where it listens for the others.
pub const PEER_SERVICE: &str = "peer";
