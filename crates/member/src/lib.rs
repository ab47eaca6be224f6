//! One member of a cluster, put together from the seams.
//!
//! Given a disk, a runtime, listeners, and a [`Stores`] that opens stores, [`Member::open`] makes a
//! node that takes part: the agreed log and the state that it makes, the detector of nodes that are up,
//! connections to the others and the service that answers them, the vnodes that the ring gives to this
//! node, and the coordinator on top. A single node is the same: the only voter of its log, the only
//! owner of its ring.
//!
//! The modules: `founding` gives a node its log and its identity; `follower` opens and removes vnodes
//! with the ring, and `opening` opens those that the node starts with, behind `catching_up`; `dispatch` has
//! the table of services; `joining` and `doorkeeper` are the two sides of becoming a member; `operations` carries
//! operators' questions from one node to another; `health` is its ability to serve; `vouching` asks
//! others about members that are not known here; `type_holding` says if a node has keys of a bucket type
//! that is being removed; `recovering` is the recovery of a cluster whose log has lost its majority.
//!
//! It starts no threads and opens no files but through the seams, so that a simulation builds whole
//! clusters of it. Outside this crate: engines, protocols for clients, settings files.

mod accepting;
mod agreed_log;
mod card;
mod catching_up;
pub mod check;
mod checked_file;
mod chronicle;
mod contacts;
mod dispatch;
mod doorkeeper;
mod error;
mod follower;
mod founding;
mod generation;
mod health;
mod hint_pace;
mod hint_store;
mod joining;
mod known_stores;
mod member;
mod moves_of_stores;
mod opening;
mod operating;
mod operations;
mod peer_service;
mod recognising;
mod recovered_state;
mod recovering;
mod round_lists;
mod round_service;
mod settings;
mod store_list;
mod stores;
mod type_holding;
mod unknown_state;
mod vnode_table;
mod vouching;
mod writability;

pub use kvorum_agreement::AgreementSettings;
pub use kvorum_anti_entropy::{ExchangeLimits, ScheduleSettings};
pub use kvorum_claimant::{ClaimantSettings, MayBeBehind};
pub use kvorum_exchanges::{
    ComparedCounts, ExchangeSettings, Exchanges, ExchangesReport, ListTombstones, RoundsReport,
    Stay,
};
pub use kvorum_handoff::{Budget, TransferSettings, Unbounded};
pub use kvorum_liveness::LivenessSettings;
pub use kvorum_peer::{Encryption, PeerSettings, connections_max as peer_connections_max};

pub use accepting::AcceptError;
pub use error::{JoinError, OpenError};
pub use follower::ACCEPT_LOST_STORES;
pub use health::{DEGRADED, Finding, Health, Membership, READY};
pub use joining::Joined;
pub use known_stores::{RecordedStores, known_stores};
pub use member::{Member, Parts};
pub use moves_of_stores::{MoveView, StoreMoves};
pub use operations::{Operation, Outcome, StoreSize, TransferView, TransfersView};
pub use peer_service::PEER_SERVICE;
pub use recovering::{Outlook, RecoverError};
pub use settings::MemberSettings;
pub use stores::{Found, StoreError, Stores};
pub use type_holding::Holding;
pub use vnode_table::{Readiness, Unopened, VnodeTable};
pub use writability::Refusal;
