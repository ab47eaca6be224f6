//! The agreed log of one node: its opening, its state, and its answers to other nodes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::{Disk, create_directory_durably};
use kvorum_peer::{Message, Peers};
use kvorum_ring::NodeId;
use kvorum_runtime::{Moment, Runtime};
use openraft::error::{InitializeError, RaftError};
use openraft::{ChangeMembers, Config, SnapshotPolicy};
use parking_lot::Mutex;

use crate::asking::{self, Asking, Call, SERVICE};
use crate::error::{AgreementError, OpenError};
use crate::log_file::{LogContents, LogFile, Place};
use crate::log_store::LogStore;
use crate::machine::{Driven, Machine};
use crate::membership::{MembershipStep, next_membership_step};
use crate::persistence::Persistence;
use crate::progress::{Progress, WaitEnd};
use crate::raft_runtime::within;
use crate::raft_types::{MemberId, Metrics, Raft};
use crate::snapshot_file::SnapshotFiles;

/// The log in its directory.
pub(crate) const LOG_NAME: &str = "log";
/// The mark of the log's durable end, beside the log. Its name sorts before the log's, so a copy of
/// the directory in the order of names has no mark ahead of the log.
pub(crate) const MARK_NAME: &str = "end";
/// Time within which a new log has to be created on its disk.
const FOUNDING_WAIT: Duration = Duration::from_secs(10);
/// Pause before a proposal is tried again when there is no leader.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the log.
#[derive(Clone, Copy, Debug)]
pub struct AgreementSettings {
    /// The period at which the leader announces itself.
    pub heartbeat: Duration,
    /// The least time without a message after which a node seeks a new leader; the most is twice
    /// that.
    pub patience: Duration,
    /// Commands between two snapshots of the machine.
    pub commands_between_snapshots: u64,
    /// The most nodes that vote.
    pub voters_max: usize,
}

impl Default for AgreementSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            patience: Duration::from_millis(1_500),
            commands_between_snapshots: 200,
            voters_max: 5,
        }
    }
}

/// The origin of a node's agreed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Founding {
    /// The node has a log from an earlier run.
    Opened,
    /// The node begins a log, as its only voter.
    Alone,
    /// The node joins a cluster, which sends it a log.
    Joining,
}

/// The parts of a log.
pub struct Parts {
    /// The node's runtime.
    pub runtime: Runtime,
    /// The disk of its files.
    pub disk: Arc<dyn Disk>,
    /// A directory of its own.
    pub directory: PathBuf,
    /// A file in another directory that marks the log's durable end: it reveals that the log's directory
    /// is gone or older.
    pub second_mark: PathBuf,
    /// This node.
    pub node: NodeId,
    /// The connections to other nodes.
    pub peers: Peers,
    /// The machine that the log drives, in its first state.
    pub machine: Arc<dyn Machine>,
}

/// The state of the log for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreementStatus {
    /// The leader in this node's state, which may be outdated.
    pub leader: Option<NodeId>,
    /// Number of searches for a leader so far.
    pub term: u64,
    /// The last command that the machine here has applied.
    pub applied: Option<u64>,
    /// The voters.
    pub voters: BTreeSet<NodeId>,
    /// Nodes that receive the log and do not vote.
    pub listeners: BTreeSet<NodeId>,
    /// A generation of the snapshot that could not be read when the log was opened.
    pub unreadable_snapshot: Option<PathBuf>,
    /// The reason why its files cannot be written at present; the log waits until they can.
    pub hindrance: Option<String>,
}

/// The agreed log of this node. Cheap to clone.
#[derive(Clone)]
pub struct Agreement {
    pub(crate) raft: Raft,
    pub(crate) progress: Progress<Metrics>,
    pub(crate) runtime: Runtime,
    pub(crate) peers: Peers,
    pub(crate) node: NodeId,
    settings: AgreementSettings,
    unreadable_snapshot: Option<PathBuf>,
    pub(crate) persistence: Persistence,
    store: LogStore,
    /// The last time that this node followed a leader.
    pub(crate) heard: Arc<Mutex<Option<Moment>>>,
}

impl Agreement {
    /// Opens or begins a log. When this returns, the machine has applied all agreed entries in this
    /// node's log.
    pub async fn open(
        parts: Parts,
        founding: Founding,
        settings: AgreementSettings,
    ) -> Result<Self, OpenError> {
        let runtime = parts.runtime.clone();
        within(runtime, Self::open_within(parts, founding, settings)).await
    }

    async fn open_within(
        parts: Parts,
        founding: Founding,
        settings: AgreementSettings,
    ) -> Result<Self, OpenError> {
        let Parts {
            runtime,
            disk,
            directory,
            second_mark,
            node,
            peers,
            machine,
        } = parts;
        let start = |detail: String| OpenError::Start { detail };
        let place = Place {
            disk: disk.clone(),
            log: directory.join(LOG_NAME),
            marks: [directory.join(MARK_NAME), second_mark],
            node,
            drawn: runtime.random_u64(),
        };
        let (file, contents) = open_log(place, &directory, founding)?;
        let files = SnapshotFiles::new(disk, &directory);
        let (snapshot, unreadable_snapshot) = files.load()?;
        let covered = snapshot.as_ref().and_then(|it| it.meta.last_log_id);
        files.check_reach(covered, contents.purged, unreadable_snapshot.as_deref())?;
        let persistence = Persistence::new(runtime.clone());
        let driven = Driven::new(persistence.clone(), machine, files, snapshot).map_err(start)?;
        let log = LogStore::new(persistence.clone(), file, contents);
        let store = log.clone();
        let network = Asking {
            runtime: runtime.clone(),
            peers: peers.clone(),
        };
        let config = Arc::new(config(settings).map_err(start)?);
        let raft = Raft::new(MemberId::from(node), config, network, log, driven).await;
        let raft = raft.map_err(|error| start(error.to_string()))?;
        if founding == Founding::Alone {
            let alone = BTreeSet::from([MemberId::from(node)]);
            let initialized = runtime.timeout(FOUNDING_WAIT, raft.initialize(alone)).await;
            match initialized {
                Ok(Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_)))) => {}
                Ok(Err(error)) => return Err(start(error.to_string())),
                Err(_) => {
                    persistence.stop();
                    let why = persistence.hindrance();
                    return Err(start(why.unwrap_or_else(|| "it does not begin".to_owned())));
                }
            }
        }
        let agreement = Self {
            progress: Progress::follow(&runtime, raft.metrics()),
            raft,
            runtime,
            peers,
            node,
            settings,
            unreadable_snapshot,
            persistence,
            store,
            heard: Arc::default(),
        };
        agreement.lead_if_alone().await;
        Ok(agreement)
    }

    /// Makes a single voter lead at once: there is no other leader to wait for.
    async fn lead_if_alone(&self) {
        if self.status().voters == BTreeSet::from([self.node]) {
            // If this fails, the library's timer does the same a little later.
            let _triggered_or_later = self.raft.trigger().elect().await;
        }
    }

    /// True for messages of this service.
    pub fn serves(message: &Message) -> bool {
        message.head.first() == Some(&SERVICE)
    }

    /// Waits for work that needs a majority, at most until `deadline`.
    pub(crate) async fn until<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = Result<T, AgreementError>>,
    ) -> Result<T, AgreementError> {
        let wait = deadline.since(self.runtime.now());
        let no_majority = |_| {
            let why = self.persistence.hindrance();
            let why = why.map(|why| format!("; this node's agreed log cannot be written: {why}"));
            AgreementError::NoMajority {
                detail: format!(
                    "no agreement within {} ms{}",
                    wait.as_millis(),
                    why.unwrap_or_default()
                ),
            }
        };
        self.runtime
            .timeout(wait, work)
            .await
            .map_err(no_majority)?
    }

    pub(crate) async fn until_applied(
        &self,
        index: u64,
        deadline: Moment,
    ) -> Result<(), AgreementError> {
        let wait = deadline.since(self.runtime.now());
        let is_applied = |it: &Metrics| {
            it.last_applied
                .is_some_and(|applied| applied.index >= index)
        };
        let applied = self.progress.until(&self.runtime, wait, is_applied);
        applied
            .await
            .map_err(|end: WaitEnd| AgreementError::NoMajority {
                detail: format!("{end}, and the agreed changes are not applied here yet"),
            })
    }

    /// Answers another node. A message that is not a question of this service gets an empty answer.
    pub async fn answer(&self, message: Message) -> Message {
        let Some(call) = asking::parse(&message) else {
            return Message::default();
        };
        within(self.runtime.clone(), self.answer_within(call)).await
    }

    async fn answer_within(&self, call: Call) -> Message {
        match call {
            Call::Append(request) => {
                let answered = self.raft.append_entries(request).await;
                self.note_heard(&answered);
                asking::answer(&answered)
            }
            Call::Vote(request) => asking::answer(&self.raft.vote(request).await),
            Call::Snapshot(request) => asking::answer(&self.raft.install_snapshot(request).await),
            Call::Propose(command) => asking::answer(&self.propose_here(command).await),
            Call::Read => asking::answer(&self.read_point_here().await),
        }
    }

    /// On the leader, takes one step that brings the log's membership closer to the cluster's.
    /// Returns true if it took a step.
    pub async fn follow_members(
        &self,
        members: &BTreeSet<NodeId>,
        unfit: &BTreeSet<NodeId>,
    ) -> Result<bool, AgreementError> {
        within(self.runtime.clone(), self.follow_within(members, unfit)).await
    }

    async fn follow_within(
        &self,
        members: &BTreeSet<NodeId>,
        unfit: &BTreeSet<NodeId>,
    ) -> Result<bool, AgreementError> {
        let status = self.status();
        if status.leader != Some(self.node) {
            return Ok(false);
        }
        let (voters, listeners) = (&status.voters, &status.listeners);
        let voters_max = self.settings.voters_max;
        let step = next_membership_step(voters, listeners, members, unfit, voters_max);
        let Some(step) = step else { return Ok(false) };
        let changed = match step {
            MembershipStep::AddListener(node) => {
                self.raft
                    .add_learner(node.into(), openraft::EmptyNode {}, false)
                    .await
            }
            MembershipStep::SetVoters(voters) => {
                let voters: BTreeSet<MemberId> = voters.into_iter().map(MemberId::from).collect();
                self.raft.change_membership(voters, true).await
            }
            MembershipStep::RemoveListener(node) => {
                let removed = BTreeSet::from([MemberId::from(node)]);
                self.raft
                    .change_membership(ChangeMembers::RemoveNodes(removed), true)
                    .await
            }
        };
        match changed {
            Ok(_) => Ok(true),
            Err(RaftError::Fatal(error)) => Err(AgreementError::Stopped {
                detail: error.to_string(),
            }),
            // Another change is under way, or another node leads now; the caller tries again later.
            Err(RaftError::APIError(error)) => {
                tracing::debug!(event = "membership_step_refused", error = %error);
                Ok(false)
            }
        }
    }

    /// The state of the log for operators.
    pub fn status(&self) -> AgreementStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let ids = |ids: Vec<MemberId>| ids.into_iter().map(NodeId::from).collect();
        AgreementStatus {
            leader: metrics.current_leader.map(NodeId::from),
            term: metrics.current_term,
            applied: metrics.last_applied.map(|applied| applied.index),
            voters: ids(membership.voter_ids().collect()),
            listeners: ids(membership.learner_ids().collect()),
            unreadable_snapshot: self.unreadable_snapshot.clone(),
            hindrance: self.persistence.hindrance(),
        }
    }

    /// Ends the log's tasks.
    pub async fn stop(&self) {
        self.persistence.stop();
        let stopped = within(self.runtime.clone(), self.raft.shutdown()).await;
        if let Err(error) = stopped {
            tracing::warn!(event = "agreement_stop_failed", error = %error);
        }
        let store = self.store.clone();
        self.runtime.blocking(move || store.mark_end()).await;
    }
}

fn open_log(
    place: Place,
    directory: &Path,
    founding: Founding,
) -> Result<(LogFile, LogContents), OpenError> {
    if founding == Founding::Opened {
        if place.disk.info(&place.log)?.is_none() {
            return Err(OpenError::Missing {
                directory: directory.to_owned(),
            });
        }
        return LogFile::open(place);
    }
    create_directory_durably(&*place.disk, directory)?;
    for mark in &place.marks {
        let parent = mark.parent().unwrap_or(Path::new("."));
        create_directory_durably(&*place.disk, parent)?;
    }
    let created = LogFile::create(place)?;
    Ok((created, LogContents::default()))
}

fn config(settings: AgreementSettings) -> Result<Config, String> {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let patience = milliseconds(settings.patience);
    let config = Config {
        cluster_name: "kvorum".to_owned(),
        heartbeat_interval: milliseconds(settings.heartbeat),
        election_timeout_min: patience,
        election_timeout_max: patience.saturating_mul(2),
        install_snapshot_timeout: 10_000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.commands_between_snapshots),
        max_in_snapshot_log_to_keep: settings.commands_between_snapshots,
        ..Config::default()
    };
    config.validate().map_err(|error| error.to_string())
}
