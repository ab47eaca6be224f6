//! Lanes: kinds of traffic that must not wait for one another.

/// A kind of traffic between two nodes; each has a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Membership, agreement, liveness: small messages, which are useless when late.
    Control,
    /// Requests for which clients wait.
    Requests,
    /// Transfers and repair: large messages for which no client waits.
    Bulk,
}

impl Lane {
    /// The number of lanes.
    pub(crate) const COUNT: usize = 3;

    /// The lane's byte in a hello.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Control => 0,
            Self::Requests => 1,
            Self::Bulk => 2,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Control),
            1 => Some(Self::Requests),
            2 => Some(Self::Bulk),
            _ => None,
        }
    }

    /// The word for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Requests => "requests",
            Self::Bulk => "bulk",
        }
    }
}
