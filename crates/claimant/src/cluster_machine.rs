//! The machine of the cluster's log: its input is commands as JSON, its output the state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_agreement::Machine;
use kvorum_cluster::{ClusterState, Command, apply};
use serde::{Deserialize, Serialize};

use crate::shown_state::ShownState;

/// A command of the log.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Logged {
    /// The first command: the state of a new cluster, as JSON. Ignored when there is a state.
    Found(String),
    /// A change, as JSON.
    Change(String),
}

/// The result of a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Applied {
    /// The command was applied; the state has this version now.
    Version(u64),
    /// The command does not fit the state.
    Refused(String),
}

/// The state of the cluster that follows from the log.
pub struct ClusterMachine {
    shown: Arc<ShownState>,
    /// False until there is a state: a joining node has none before it receives it.
    is_founded: AtomicBool,
}

impl ClusterMachine {
    /// A machine without a state. It publishes each of its states in `shown`.
    pub fn new(shown: Arc<ShownState>) -> Self {
        Self {
            shown,
            is_founded: AtomicBool::new(false),
        }
    }

    /// The state, once there is one.
    pub fn state(&self) -> Option<Arc<ClusterState>> {
        self.is_founded().then(|| self.shown.current())
    }

    /// True once there is a state.
    pub fn is_founded(&self) -> bool {
        self.is_founded.load(Ordering::Acquire)
    }

    /// The state for readers.
    pub fn shown(&self) -> &Arc<ShownState> {
        &self.shown
    }

    pub(crate) fn founding(state: &ClusterState) -> Result<String, kvorum_cluster::DecodeError> {
        Ok(line(&Logged::Found(state.to_json()?)))
    }

    pub(crate) fn change(command: &Command) -> String {
        line(&Logged::Change(command.to_json()))
    }

    fn publish(&self, state: ClusterState) -> u64 {
        let version = state.version();
        self.shown.show(state);
        self.is_founded.store(true, Ordering::Release);
        version
    }

    fn carry_out(&self, text: &str) -> Applied {
        let logged: Logged = match serde_json::from_str(text) {
            Ok(logged) => logged,
            Err(error) => return Applied::Refused(error.to_string()),
        };
        let made = match (logged, self.state()) {
            (Logged::Found(_), Some(state)) => return Applied::Version(state.version()),
            (Logged::Change(_), None) => {
                return Applied::Refused("the cluster is not founded yet".into());
            }
            (Logged::Found(json), None) => {
                ClusterState::from_json(&json).map_err(|error| error.to_string())
            }
            (Logged::Change(json), Some(state)) => Command::from_json(&json)
                .map_err(|error| error.to_string())
                .and_then(|command| apply(&state, command).map_err(|refusal| refusal.to_string())),
        };
        match made {
            Ok(state) => Applied::Version(self.publish(state)),
            Err(reason) => Applied::Refused(reason),
        }
    }
}

fn line<T: Serialize>(value: &T) -> String {
    // Text in an enum always has a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

impl Machine for ClusterMachine {
    fn apply(&self, command: &str) -> String {
        line(&self.carry_out(command))
    }

    fn state(&self) -> Vec<u8> {
        let json = Self::state(self).and_then(|state| state.to_json().ok());
        json.unwrap_or_default().into_bytes()
    }

    fn restore(&self, state: &[u8]) -> Result<(), String> {
        if state.is_empty() {
            return Ok(());
        }
        let text = std::str::from_utf8(state).map_err(|error| error.to_string())?;
        let state = ClusterState::from_json(text).map_err(|error| error.to_string())?;
        self.publish(state);
        Ok(())
    }
}
