//! The last reading: every written key, compared with all acknowledged writes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvorum_client::Client;
use kvorum_witness::Wrong;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::account::{self, Account, KeyId};
use crate::load;

/// Number of reads of a key before a failure or a missing write counts.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// The results of the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) keys: u64,
    /// Acknowledged writes that are missing.
    pub(crate) lost: BTreeSet<(KeyId, u64)>,
    /// Other violations, and keys that cannot be read.
    pub(crate) findings: Vec<String>,
}

/// Reads every key of every account, each through one of `nodes`.
pub(crate) async fn read_back(accounts: &[Arc<Mutex<Account>>], nodes: &[SocketAddr]) -> Reading {
    let mut readers = JoinSet::new();
    for (turn, account) in accounts.iter().enumerate() {
        let (account, nodes) = (Arc::clone(account), nodes.to_vec());
        readers.spawn(async move { read_account(&account, &nodes, turn).await });
    }
    let mut reading = Reading::default();
    while let Some(part) = readers.join_next().await {
        match part {
            Ok(part) => {
                reading.keys += part.keys;
                reading.lost.extend(part.lost);
                reading.findings.extend(part.findings);
            }
            Err(error) => reading.findings.push(format!("a reader died: {error}")),
        }
    }
    reading
}

async fn read_account(account: &Mutex<Account>, nodes: &[SocketAddr], turn: usize) -> Reading {
    let keys: Vec<KeyId> = account.lock().keys().collect();
    let mut reader = Reader {
        nodes,
        turn,
        client: None,
    };
    let mut reading = Reading::default();
    for key in keys {
        reading.keys += 1;
        let mut outcome = reader.look(account, key).await;
        for _ in 1..ATTEMPTS {
            if matches!(&outcome, Ok(wrong) if wrong.is_empty()) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            outcome = reader.look(account, key).await;
        }
        match outcome {
            Err(error) => reading.findings.push(error),
            Ok(wrong) => {
                for wrong in wrong {
                    reading.findings.push(account::finding(key, wrong));
                    if let Wrong::Lost(write) = wrong {
                        reading.lost.insert((key, write));
                    }
                }
            }
        }
    }
    reading
}

struct Reader<'a> {
    nodes: &'a [SocketAddr],
    turn: usize,
    client: Option<Client>,
}

impl Reader<'_> {
    /// The violations of a key, or the reason why it cannot be read.
    async fn look(&mut self, account: &Mutex<Account>, key: KeyId) -> Result<Vec<Wrong>, String> {
        let failed = |error: kvorum_client::Error| {
            format!("key {} of writer {} cannot be read: {error}", key.1, key.0)
        };
        let client = match &mut self.client {
            Some(client) if client.is_usable() => client,
            client => {
                self.turn += 1;
                let turn = self.turn.checked_rem(self.nodes.len());
                let node = turn.map(|turn| self.nodes[turn]);
                let node = node.ok_or("no node is up")?;
                client.insert(load::connect(node).await.map_err(failed)?)
            }
        };
        let (siblings, _) = load::read(client, key).await.map_err(failed)??;
        Ok(account.lock().verdict(key, &siblings))
    }
}
