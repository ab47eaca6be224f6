//! Founding: the origin of a node's identity and log.
//!
//! There are four origins:
//!
//! - An earlier run left both.
//! - The node is new, and founds a cluster of one.
//! - An earlier version left the state of a single node in a file. The state becomes the first
//!   entry of the log, and the file is kept.
//! - An operator recovers a cluster on this node. The recovered state becomes the first entry of a
//!   new log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_agreement::{Agreement, Founding};
use kvorum_claimant::{ClusterMachine, ReplicatedState, ShownState};
use kvorum_cluster::{
    AgreedState, ClusterId, ClusterState, Command, LocalState, Member as MemberEntry, MemberStatus,
};
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_peer::{Encryption, Peers};
use kvorum_ring::{NodeId, Ring};
use kvorum_runtime::Runtime;

use crate::card::{Card, CardFile, FIRST_LOG, LOG_DIRECTORY, Stage};
use crate::check;
use crate::contacts::Contacts;
use crate::error::OpenError;
use crate::peer_service::PEER_SERVICE;
use crate::recovered_state;
use crate::settings::MemberSettings;
use crate::unknown_state::unknown_state;

/// The identity of a node whose log is not open yet.
pub(crate) struct Founded {
    pub(crate) card: Card,
    /// The first entry of the log, if the log has to be created.
    pub(crate) first: Option<ClusterState>,
}

/// Reads the card, or begins a new one. Blocks.
pub(crate) fn identify(
    runtime: &Runtime,
    disk: &Arc<dyn Disk>,
    cards: &CardFile,
    remnant: Option<PathBuf>,
    settings: &MemberSettings,
) -> Result<Founded, OpenError> {
    let directory = cards.directory();
    create_directory_durably(&**disk, directory)?;
    let card = cards.load()?;
    if let Some(card) = card.filter(|card| card.stage != Stage::Founding) {
        return Ok(Founded { card, first: None });
    }
    if let Some(card) = card
        && let Some((node, state)) = recovered_state::first_state(&**disk, directory, &card)?
    {
        tracing::warn!(event = "cluster_recovered", version = state.version());
        return begin(disk, cards, node, state, card.log);
    }
    let log = FIRST_LOG;
    if card.is_none() && has_log(&**disk, directory)? {
        return Err(OpenError::CardMissing {
            directory: directory.to_owned(),
        });
    }
    let random = || {
        let mut bytes = [0; 16];
        runtime.randomness().fill(&mut bytes);
        bytes
    };
    let (node, first) = match LocalState::open(disk.clone(), directory, &settings.name) {
        Ok(opened) => {
            if let Some(note) = opened.note {
                tracing::warn!(event = "cluster_state_restored", note = %note);
            }
            let state = ClusterState::clone(&opened.state.current());
            tracing::info!(
                event = "cluster_state_taken_over",
                version = state.version()
            );
            (opened.state.this_node(), state)
        }
        Err(kvorum_cluster::OpenError::Missing { .. }) => {
            if card.is_none() {
                refuse_remnants(&**disk, cards, remnant)?;
            }
            let node = NodeId::from_random(random());
            let cluster = ClusterId::from_random(random());
            (node, first_state(cluster, node, settings))
        }
        Err(error) => return Err(error.into()),
    };
    begin(disk, cards, node, first, log)
}

fn has_log(disk: &dyn Disk, directory: &Path) -> Result<bool, OpenError> {
    let entries = disk.list(directory)?;
    Ok(entries.iter().any(|it| it.name.starts_with(LOG_DIRECTORY)))
}

/// Refuses to found a new node where an earlier node left remnants without a card, a log or an
/// agreed state.
fn refuse_remnants(
    disk: &dyn Disk,
    cards: &CardFile,
    remnant: Option<PathBuf>,
) -> Result<(), OpenError> {
    let found = check::remnant(disk, cards.directory(), cards.data_directory());
    match found.or(remnant) {
        Some(remnant) => Err(OpenError::RingGone {
            directory: cards.directory().to_owned(),
            remnant,
        }),
        None => Ok(()),
    }
}

/// Begins a log with `first`, after removing files of an uncompleted attempt.
fn begin(
    disk: &Arc<dyn Disk>,
    cards: &CardFile,
    node: NodeId,
    first: ClusterState,
    log: u64,
) -> Result<Founded, OpenError> {
    let card = Card {
        stage: Stage::Founding,
        node,
        cluster: first.id(),
        log,
    };
    cards.store(&card)?;
    let directory = cards.log_directory(log);
    if disk.info(&directory)?.is_some() {
        disk.remove_directory(&directory)?;
    }
    Ok(Founded {
        card,
        first: Some(first),
    })
}

fn first_state(cluster: ClusterId, node: NodeId, settings: &MemberSettings) -> ClusterState {
    let ring = Ring::single(settings.ring_size, node);
    tracing::info!(
        event = "cluster_founded",
        node = %settings.name,
        ring_size = settings.ring_size.get(),
    );
    let mut member = MemberEntry::new(&settings.name);
    member.addresses.clone_from(&settings.addresses);
    ClusterState::found(cluster, &settings.cluster_name, node, member, ring)
}

/// The parts with which a node makes its connections and opens its log.
pub(crate) struct Opening<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) disk: &'a Arc<dyn Disk>,
    pub(crate) cards: &'a CardFile,
    pub(crate) settings: &'a MemberSettings,
    pub(crate) encryption: Encryption,
}

impl Opening<'_> {
    /// The directory of contacts, still empty, and the connections that use it.
    pub(crate) fn peers(&self, card: &Card) -> (Arc<Contacts>, Peers) {
        let unknown = unknown_state(card.cluster, card.node, &self.settings.name);
        let contacts = Arc::new(Contacts {
            node: card.node,
            cluster: arc_swap::ArcSwap::from_pointee(card.cluster),
            cluster_name: self.settings.cluster_name.clone(),
            shown: Arc::new(ShownState::new(unknown)),
            vouching: Arc::default(),
        });
        let peers = Peers::encrypted(
            self.runtime.clone(),
            contacts.clone(),
            self.settings.peer.clone(),
            self.encryption.clone(),
        );
        (contacts, peers)
    }

    /// Opens or begins the log, and brings the state up to date with it.
    pub(crate) async fn log(
        &self,
        founded: Founded,
        contacts: &Contacts,
        peers: &Peers,
    ) -> Result<(Card, ReplicatedState), OpenError> {
        let Founded { mut card, first } = founded;
        let machine = Arc::new(ClusterMachine::new(contacts.shown.clone()));
        let parts = kvorum_agreement::Parts {
            runtime: self.runtime.clone(),
            disk: self.disk.clone(),
            directory: self.cards.log_directory(card.log),
            second_mark: self.cards.second_mark(card.log),
            node: card.node,
            peers: peers.clone(),
            machine: machine.clone(),
        };
        let founding = match first {
            Some(_) => Founding::Alone,
            None => Founding::Opened,
        };
        let agreement = Agreement::open(parts, founding, self.settings.agreement).await?;
        if let Some(file) = agreement.status().unreadable_snapshot {
            tracing::warn!(event = "snapshot_unreadable", file = %file.display());
        }
        let state = ReplicatedState::new(self.runtime.clone(), agreement, machine);
        if let Some(first) = &first {
            state.found(first).await?;
            card.stage = Stage::Founded;
            self.cards.store(&card)?;
        }
        if is_alone(&state, card.node) {
            // The last agreed entry may not be marked as agreed yet; agreeing on this one marks both.
            let name = state.current().name().to_owned();
            state.agree(Command::NameCluster(name)).await?;
        }
        if card.stage == Stage::Founded && !state.is_founded() {
            return Err(OpenError::LogWithoutState {
                directory: self.cards.log_directory(card.log),
            });
        }
        let of = state.current().id();
        if state.is_founded() && of != card.cluster {
            return Err(OpenError::OtherCluster {
                directory: self.cards.log_directory(card.log),
                got: of,
                expected: card.cluster,
            });
        }
        Ok((card, state))
    }
}

/// True if the node is the only voter of its log.
pub(crate) fn is_alone(state: &ReplicatedState, node: NodeId) -> bool {
    let voters = state.agreement().status().voters;
    voters.len() == 1 && voters.contains(&node)
}

/// Commands that adapt the agreed state to the configuration of its only member.
pub(crate) fn settled_alone(state: &ClusterState, settings: &MemberSettings) -> Vec<Command> {
    let mut commands = Vec::new();
    if state.members().len() > 1 {
        return commands;
    }
    if state.name() != settings.cluster_name {
        commands.push(Command::NameCluster(settings.cluster_name.clone()));
    }
    let agreed = state.default_properties();
    let defaults = settings.default_properties.staying_in_backend_of(agreed);
    if *agreed != defaults {
        commands.push(Command::SetDefaultProperties(defaults));
    }
    commands
}

/// The command that adapts this node's entry in the agreed state to the configuration.
pub(crate) fn introduction(
    state: &ClusterState,
    node: NodeId,
    settings: &MemberSettings,
) -> Option<Command> {
    let known = state.member(node)?;
    let mut member = known.clone();
    member.name.clone_from(&settings.name);
    if member.status == MemberStatus::Down {
        // The node was marked as down while it could not be reached; now it is back.
        member.status = MemberStatus::Valid;
    }
    // A start without listeners (an import) keeps the addresses that the other nodes have.
    member.addresses.extend(settings.addresses.clone());
    (member != *known).then_some(Command::UpdateMember { node, member })
}

/// Warns about settings that the agreed state overrides.
pub(crate) fn warn_of_overruled(state: &ClusterState, settings: &MemberSettings) {
    let (kept, configured) = (state.ring().size(), settings.ring_size);
    if kept != configured {
        tracing::warn!(
            event = "ring_size_kept",
            kept = kept.get(),
            configured = configured.get(),
            "the ring size of a cluster is fixed when it is founded",
        );
    }
    if state.members().len() > 1 && state.name() != settings.cluster_name {
        tracing::warn!(
            event = "cluster_name_kept",
            kept = state.name(),
            configured = %settings.cluster_name,
            "a cluster of several nodes keeps the name that they agreed on",
        );
    }
    let agreed = state.default_properties();
    let configured = settings.default_properties.staying_in_backend_of(agreed);
    if state.members().len() > 1 && *agreed != configured {
        tracing::warn!(
            event = "default_properties_kept",
            "buckets.default.* differs from the agreed defaults, which stay in force; `kvorum admin \
             bucket-defaults` shows both and can change the agreed ones",
        );
    }
    if !settings.addresses.contains_key(PEER_SERVICE) {
        tracing::info!(
            event = "no_peer_listener",
            "no other node can join this one without a listener for peers"
        );
    }
}
