//! What peers do wrong, logged once for each kind and connection.
//!
//! A broken client repeats its mistake with every request; the log needs to know that it happened
//! and who did it, not how often.

use std::fmt;
use std::net::SocketAddr;

/// A kind of misbehaviour, or of request that finds nobody to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A frame above the limit, or of length zero.
    BadFrame,
    /// The stream ended within a frame.
    Truncated,
    /// A large frame that did not come to its end in time.
    TooSlow,
    /// A payload that is no message of its code.
    Undecodable,
    /// A code that nobody knows.
    UnknownCode,
    /// A request that is not served yet.
    NotSupported,
    /// A request that asks for what cannot be.
    BadRequest,
    /// A change to the cluster's state that was refused or could not be stored.
    NotAgreed,
    /// A reply of ours that does not fit a frame.
    ReplyTooLong,
}

/// The faults of one connection.
#[derive(Debug)]
pub(crate) struct FaultLog {
    peer: SocketAddr,
    seen: u16,
}

impl Fault {
    /// The event code in the log.
    fn event(self) -> &'static str {
        match self {
            Self::BadFrame => "pb_bad_frame",
            Self::Truncated => "pb_truncated_frame",
            Self::TooSlow => "pb_frame_too_slow",
            Self::Undecodable => "pb_undecodable_message",
            Self::UnknownCode => "pb_unknown_code",
            Self::NotSupported => "pb_not_supported",
            Self::BadRequest => "pb_bad_request",
            Self::NotAgreed => "pb_change_not_agreed",
            Self::ReplyTooLong => "pb_reply_too_long",
        }
    }
}

impl FaultLog {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self { peer, seen: 0 }
    }

    /// Logs a fault unless this connection had one of its kind before; returns whether it did.
    pub(crate) fn note(&mut self, fault: Fault, detail: &dyn fmt::Display) -> bool {
        let bit = 1 << (fault as u8);
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        if is_new {
            tracing::warn!(event = fault.event(), peer = %self.peer, detail = %detail);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_logged_once() {
        let mut log = FaultLog::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(log.note(Fault::UnknownCode, &"99"));
        assert!(!log.note(Fault::UnknownCode, &"98"));
        assert!(log.note(Fault::ReplyTooLong, &"5 GiB"));
        assert!(log.note(Fault::BadFrame, &"0"));
    }
}
