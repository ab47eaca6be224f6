//! Faults of peers, logged once for each kind and connection, with a limit per minute over all.
//!
//! A broken client repeats its mistake with every request, and some connect again for each; the log has
//! to name the fault and the client, not the number of repetitions.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use kvorum_runtime::{LogQuota, Moment};

/// A kind of misbehaviour, or of a request that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A frame above the limit, or of length zero.
    BadFrame,
    /// The stream ended within a frame.
    Truncated,
    /// A large frame that was not complete in time.
    TooSlow,
    /// A payload that is not a message of its code.
    Undecodable,
    /// An unknown code.
    UnknownCode,
    /// A request that is not served yet.
    NotSupported,
    /// A request for something impossible.
    BadRequest,
    /// A change to the cluster's state that was refused or could not be stored.
    NotAgreed,
    /// A reply of ours that does not fit a frame.
    ReplyTooLong,
}

/// The kinds of faults.
const FAULTS: usize = Fault::ReplyTooLong as usize + 1;

/// The quotas of all connections together, by kind.
#[derive(Debug, Default)]
pub(crate) struct FaultQuotas([LogQuota; FAULTS]);

/// The faults of one connection.
#[derive(Debug)]
pub(crate) struct FaultLog {
    peer: SocketAddr,
    quotas: Arc<FaultQuotas>,
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
    pub(crate) fn new(peer: SocketAddr, quotas: Arc<FaultQuotas>) -> Self {
        let seen = 0;
        Self { peer, quotas, seen }
    }

    /// Logs a fault, unless this connection had one of its kind before or the quota of the kind is
    /// used up; returns true if it was logged.
    pub(crate) fn note(&mut self, fault: Fault, detail: &dyn fmt::Display, now: Moment) -> bool {
        let bit = 1 << (fault as u8);
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        let quota = &self.quotas.0[fault as usize];
        let left_out = is_new.then(|| quota.take(now.elapsed())).flatten();
        if let Some(left_out) = left_out {
            tracing::warn!(
                event = fault.event(),
                peer = %self.peer,
                detail = %detail,
                left_out,
            );
        }
        left_out.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_start(std::time::Duration::from_secs(7));

    #[test]
    fn each_kind_is_logged_once() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut log = FaultLog::new(peer, Arc::default());
        let now = NOW;
        assert!(log.note(Fault::UnknownCode, &"99", now));
        assert!(!log.note(Fault::UnknownCode, &"98", now));
        assert!(log.note(Fault::ReplyTooLong, &"5 GiB", now));
        assert!(log.note(Fault::BadFrame, &"0", now));
    }

    /// Regression: a test suite that connected for each test caused 226 lines about refused
    /// requests.
    #[test]
    fn many_connections_share_a_quota() {
        let quotas = Arc::<FaultQuotas>::default();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let logged = (0..226).filter(|_| {
            let mut log = FaultLog::new(peer, quotas.clone());
            log.note(Fault::NotSupported, &"counters", NOW)
        });
        assert_eq!(logged.count(), 10);
    }
}
