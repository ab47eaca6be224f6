//! Settings of a member.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_agreement::AgreementSettings;
use kvorum_claimant::ClaimantSettings;
use kvorum_coordinator::CoordinatorSettings;
use kvorum_exchanges::ExchangeSettings;
use kvorum_handoff::TransferSettings;
use kvorum_liveness::LivenessSettings;
use kvorum_peer::PeerSettings;
use kvorum_properties::PropertyOverlay;
use kvorum_ring::RingSize;
use kvorum_vnode::VnodeSettings;

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Its name, such as `kvorum@127.0.0.1`.
    pub name: String,
    /// The cluster's name, on which all members have to agree.
    pub cluster_name: String,
    /// Addresses for other nodes and clients, by the name of the service; see [`crate::PEER_SERVICE`].
    pub addresses: BTreeMap<String, String>,
    /// The number of partitions of a cluster that it founds.
    pub ring_size: RingSize,
    /// The properties of buckets without type, for a cluster that it founds.
    pub default_properties: PropertyOverlay,
    /// Sizes and sibling counts.
    pub vnode: VnodeSettings,
    /// Settings of requests.
    pub coordinator: CoordinatorSettings,
    /// True if replicas on other nodes are asked for heads first.
    pub heads_first: bool,
    /// Settings of connections.
    pub peer: PeerSettings,
    /// Settings of the log.
    pub agreement: AgreementSettings,
    /// Limits after which a node counts as down.
    pub liveness: LivenessSettings,
    /// Settings of the claimant.
    pub claimant: ClaimantSettings,
    /// Settings of transfers.
    pub transfers: TransferSettings,
    /// Settings of the comparison of replicas; `None` for no anti-entropy, and no trees.
    pub exchanges: Option<ExchangeSettings>,
    /// True if this member leads rounds after complete exchanges, which remove tombstones. It
    /// always takes part in rounds of other members.
    pub reaping: bool,
    /// Hints are tried at least this often, when a node comes up, and sooner while some stay.
    pub hint_period: Duration,
}
