//! The state of transfers for operators.

use std::time::Duration;

use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Moment;

use crate::transfer_id::{TransferId, TransferKind};

/// Transfers under way and waiting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransfersStatus {
    /// Transfers into this node, under way and waiting.
    pub inbound: Vec<TransferStatus>,
    /// Partitions that are here in full, but whose source is not notified yet.
    pub settling: Vec<Partition>,
    /// Transfers of other nodes from this node.
    pub outbound: Vec<OutboundStatus>,
    /// Transfers at once in each direction.
    pub transfers_max: usize,
    /// True if this node fetches.
    pub is_inbound_enabled: bool,
    /// True if other nodes may fetch from it.
    pub is_outbound_enabled: bool,
}

/// Questions of transfers that were refused or got no answer in time, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferCounts {
    /// Questions of other nodes that were refused because of the transfer limit, or because sending
    /// was switched off.
    pub rejected: u64,
    /// Questions of this node without an answer in time.
    pub timed_out: u64,
}

/// The activity of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It has not begun, or has given up its turn.
    Waiting,
    /// It fetches data.
    Fetching,
    /// Everything is here, and the cluster has yet to agree on that.
    Reporting,
}

/// One transfer into this node.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferStatus {
    /// The transfer.
    pub id: TransferId,
    /// The node whose data is fetched at present.
    pub from: Option<NodeId>,
    /// The node that receives the data, which is this node.
    pub to: NodeId,
    /// Its activity.
    pub activity: Activity,
    /// Objects confirmed since it began or was resumed.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The approximate number of objects in all; 0 while it is unknown.
    pub keys_about: u64,
    /// The time of its beginning, or of its resumption.
    pub begun_at: Option<Moment>,
    /// The time of the last confirmation of objects.
    pub updated_at: Option<Moment>,
    /// Bytes a second since it began or was resumed.
    pub bytes_per_second: u64,
    /// The remaining time at this rate.
    pub remaining: Option<Duration>,
    /// The reason for its last delay, if it has made no progress since.
    pub hindrance: Option<String>,
}

/// A transfer of another node from this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundStatus {
    /// The reason for the transfer.
    pub kind: TransferKind,
    /// The source vnode on this node.
    pub partition: Partition,
    /// The vnode that is filled.
    pub target: Partition,
    /// The receiver.
    pub to: NodeId,
    /// Objects sent.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time of its beginning.
    pub begun_at: Moment,
}

/// The driver's notes on a transfer under way.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) activity: Activity,
    pub(crate) from: Option<NodeId>,
    pub(crate) begun_at: Moment,
    pub(crate) updated_at: Moment,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    pub(crate) keys_about: u64,
    pub(crate) hindrance: Option<String>,
}

impl Observed {
    pub(crate) fn new(begun_at: Moment) -> Self {
        Self {
            activity: Activity::Fetching,
            from: None,
            begun_at,
            updated_at: begun_at,
            keys: 0,
            bytes: 0,
            keys_about: 0,
            hindrance: None,
        }
    }

    pub(crate) fn status(&self, id: TransferId, to: NodeId, now: Moment) -> TransferStatus {
        let took_ms = now.since(self.begun_at).as_millis().max(1);
        let bytes_per_second = u128::from(self.bytes) * 1_000 / took_ms;
        let left = u128::from(self.keys_about.saturating_sub(self.keys));
        let left_ms = (left * took_ms).checked_div(u128::from(self.keys));
        TransferStatus {
            id,
            from: self.from,
            to,
            activity: self.activity,
            keys: self.keys,
            bytes: self.bytes,
            keys_about: self.keys_about,
            begun_at: Some(self.begun_at),
            updated_at: Some(self.updated_at),
            bytes_per_second: u64::try_from(bytes_per_second).unwrap_or(u64::MAX),
            remaining: left_ms
                .filter(|_| self.keys_about > 0)
                .and_then(|ms| u64::try_from(ms).ok())
                .map(Duration::from_millis),
            hindrance: self.hindrance.clone(),
        }
    }
}

/// A transfer that has not begun.
pub(crate) fn waiting(id: TransferId, to: NodeId, hindrance: Option<String>) -> TransferStatus {
    TransferStatus {
        id,
        from: None,
        to,
        activity: Activity::Waiting,
        keys: 0,
        bytes: 0,
        keys_about: 0,
        begun_at: None,
        updated_at: None,
        bytes_per_second: 0,
        remaining: None,
        hindrance,
    }
}
