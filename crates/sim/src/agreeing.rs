//! A node as the server opens it: a complete member with its own log and transfers, on a simulated
//! machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::AgreedState as _;
use kvorum_disk::Disk;
use kvorum_member::{
    AgreementSettings, Budget, ClaimantSettings, Encryption, LivenessSettings, Member,
    MemberSettings, PEER_SERVICE, Parts, PeerSettings, TransferSettings,
};
use kvorum_ring::RingSize;
use kvorum_runtime::{ListenOptions, Moment, Runtime};
use kvorum_test_cluster::{Unmeasured, machine, peer_address};
use parking_lot::Mutex;

use crate::machine::{DATA_DIRECTORY, Machine, Node, RING_DIRECTORY, Running};
use crate::node_settings::{VNODE_SETTINGS, coordinator_settings, exchange_settings};
use crate::plan::{Engine, RunPlan};
use crate::stores::MemberStores;

/// The name of a node.
pub(crate) fn name_of(number: u8) -> String {
    format!("kvorum@{}", machine(number))
}

/// A budget with a number of bytes a second, or without a limit.
struct Throttle {
    runtime: Runtime,
    bytes_per_second: Option<u64>,
    /// The time at which all admitted bytes are spent.
    free_at: Mutex<Moment>,
}

impl Budget for Throttle {
    fn ask(&self, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else {
            return Duration::ZERO;
        };
        let (now, mut free_at) = (self.runtime.now(), self.free_at.lock());
        if *free_at > now {
            return free_at.since(now);
        }
        *free_at = now.plus(Duration::from_micros(bytes * 1_000_000 / rate.max(1)));
        Duration::ZERO
    }
}

impl Machine {
    /// Opens a member in the process whose runtime this is; it ends with the process.
    pub(crate) async fn member(
        &self,
        runtime: &Runtime,
        disk: Arc<dyn Disk>,
    ) -> anyhow::Result<Running> {
        let stores = self.stores(runtime, &disk);
        let listener = runtime.listen(peer_address(self.number), ListenOptions::default())?;
        let figures = Arc::new(Unmeasured);
        let budget = Throttle {
            runtime: runtime.clone(),
            bytes_per_second: self.plan.transfer_bytes_per_second,
            free_at: Mutex::new(runtime.now()),
        };
        let parts = Parts {
            runtime: runtime.clone(),
            disk,
            directory: PathBuf::from(RING_DIRECTORY),
            data_directory: PathBuf::from(DATA_DIRECTORY),
            remnant: None,
            stores: Arc::new(MemberStores(stores.clone())),
            listeners: vec![listener],
            encryption: Encryption::Off,
            meter: figures.clone(),
            maintenance: figures,
            budget: Arc::new(budget),
            settings: settings(&self.plan, self.number)?,
        };
        let opening = Member::open_behind(parts, self.front(runtime));
        let opening = runtime.spawn("member", opening);
        let member = opening.await??;
        Ok(Running {
            runtime: runtime.clone(),
            coordinator: member.coordinator().clone(),
            vnodes: member.vnodes().clone(),
            hints: member.hints().clone(),
            liveness: member.liveness().clone(),
            stores,
            exchanges: member.exchanges().cloned(),
            node: Node::Member(member),
        })
    }
}

/// The settings of a server, but with pages, files and pauses so small that a run has many of them.
fn settings(plan: &RunPlan, number: u8) -> anyhow::Result<MemberSettings> {
    let addresses = [(PEER_SERVICE.to_owned(), peer_address(number).to_string())];
    Ok(MemberSettings {
        name: name_of(number),
        cluster_name: "simulated".to_owned(),
        addresses: BTreeMap::from(addresses),
        ring_size: RingSize::new(plan.ring_size)?,
        default_properties: plan.default_properties(),
        vnode: VNODE_SETTINGS,
        coordinator: coordinator_settings(plan),
        heads_first: plan.heads_first,
        peer: PeerSettings::default(),
        agreement: AgreementSettings {
            commands_between_snapshots: 20,
            ..AgreementSettings::default()
        },
        liveness: LivenessSettings::default(),
        claimant: ClaimantSettings {
            period: Duration::from_millis(200),
            moves_max: 4,
            patience: Duration::from_secs(3),
        },
        transfers: TransferSettings {
            transfers_max: 4,
            page_bytes_max: 2 << 10,
            page_entries_max: 5,
            piece_bytes_max: 1 << 10,
            answer_wait_max: Duration::from_secs(3),
            retry_pause: Duration::from_millis(200),
            cursor_period: Duration::from_millis(300),
            are_stores_kept: plan.engine != Engine::Memory,
            ..TransferSettings::default()
        },
        exchanges: exchange_settings(plan),
        reaping: plan.has_reaping,
        hint_period: Duration::from_secs(1),
    })
}

impl Machine {
    /// The position of its node's agreed log, in words; `None` if it has none.
    pub(crate) fn log_status(&self) -> Option<String> {
        let running = self.running()?;
        let status = running.member()?.state().agreement().status();
        let known = self.learned();
        let name = |node| known.member(node).map_or("?", |member| &member.name);
        let (leader, applied) = (status.leader.map(name), status.applied);
        let voters: Vec<&str> = status.voters.into_iter().map(name).collect();
        Some(format!(
            "node {} in term {} of {leader:?} at {applied:?}, voters {voters:?}",
            self.number, status.term
        ))
    }
}

impl Running {
    /// The first reason why a member is not in order yet, in words.
    pub(crate) fn shortcoming(&self) -> Option<String> {
        let member = self.member()?;
        if let Some(hindrance) = member.state().agreement().status().hindrance {
            return Some(format!("cannot write its log: {hindrance}"));
        }
        let readiness = member.vnodes().readiness();
        if !readiness.is_complete() {
            let unopened = member.vnodes().unopened();
            return Some(format!("has vnodes that do not serve: {unopened:?}"));
        }
        let vnodes = member.vnodes().all();
        if let Some(vnode) = vnodes.iter().find(|vnode| !vnode.is_complete()) {
            let number = vnode.partition().number();
            return Some(format!("lacks some of partition {number}"));
        }
        let state = member.state().current();
        let owned = state.ring().owned_by(member.node()).count();
        (owned != vnodes.len()).then(|| format!("has {} vnodes of {owned}", vnodes.len()))
    }
}
