//! Time limits of the failure detector.

use std::time::Duration;

/// Limits after which a node is taken to be down.
#[derive(Clone, Copy, Debug)]
pub struct LivenessSettings {
    /// One member is probed this often.
    pub probe_period: Duration,
    /// A member that has answered no probe, directly or through others, counts as down after this
    /// time.
    pub suspicion: Duration,
    /// This node is announced this often to members that seem to be down.
    pub greeting_period: Duration,
    /// Every member is asked for an answer this often.
    pub question_period: Duration,
    /// A member that leaves this many questions in a row without an answer is down for this node.
    pub unanswered_max: u32,
}

impl Default for LivenessSettings {
    fn default() -> Self {
        Self {
            probe_period: Duration::from_secs(1),
            suspicion: Duration::from_secs(3),
            greeting_period: Duration::from_secs(1),
            question_period: Duration::from_millis(500),
            unanswered_max: 3,
        }
    }
}
