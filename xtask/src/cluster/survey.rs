//! The answers of nodes at the end of a run: of each node alone, and of all nodes for lists of
//! keys.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvorum_client::{ErrorKind, GetOptions, pb};
use kvorum_witness::{Ledger, Siblings};
use tokio::task::JoinSet;

use crate::cluster::writers::{self, Expectation, KeyId, Knowledge};

/// The number of connections for reads of one node.
const READERS: usize = 8;

/// The errors of nodes that have no replica and do not reach any.
const NO_REPLICA: [&str; 2] = ["all_nodes_down", "insufficient_vnodes"];

/// The replicas of one node, without keys that it lacks.
pub(super) type Holding = BTreeMap<KeyId, Siblings>;

/// Reads keys from one node. With the options of [`alone`], and the node cut off, the answers are
/// its own replicas.
pub(super) async fn read_all(
    node: SocketAddr,
    keys: Vec<KeyId>,
    options: GetOptions,
) -> anyhow::Result<Holding> {
    let mut readers = JoinSet::new();
    for part in keys.chunks(keys.len().div_ceil(READERS).max(1)) {
        readers.spawn(read_part(node, part.to_vec(), options.clone()));
    }
    let mut holding = Holding::new();
    while let Some(part) = readers.join_next().await {
        holding.extend(part.context("a reader died")??);
    }
    Ok(holding)
}

/// Options with which a node that reaches no other answers with its own replica.
pub(super) fn alone() -> GetOptions {
    GetOptions {
        r: Some(1),
        pr: Some(0),
        notfound_ok: Some(true),
        basic_quorum: Some(false),
        sloppy_quorum: Some(false),
        ..GetOptions::default()
    }
}

async fn read_part(
    node: SocketAddr,
    keys: Vec<KeyId>,
    options: GetOptions,
) -> anyhow::Result<Holding> {
    let mut client = writers::connect(node).await.context("connecting")?;
    let mut holding = Holding::new();
    for id in keys {
        let answer = writers::read(&mut client, id, &options).await;
        match answer {
            Ok(Ok((siblings, _))) => {
                holding.insert(id, siblings);
            }
            Ok(Err(foreign)) => bail!("{node}: {foreign}"),
            Err(error) if error.kind() == ErrorKind::Server && has_no_replica(&error) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| writers::finding(id, &format!("read from {node}")));
            }
        }
    }
    Ok(holding)
}

fn has_no_replica(error: &kvorum_client::Error) -> bool {
    let text = error.to_string();
    NO_REPLICA.iter().any(|it| text.contains(it))
}

/// Reads all known keys from a quorum of primaries, through one node.
///
/// # Errors
/// If an answer is impossible.
pub(super) async fn require_known(node: SocketAddr, known: &Knowledge) -> anyhow::Result<()> {
    let keys = known.ledgers.keys().copied().collect();
    let holding = read_all(node, keys, Expectation::Strict.get()).await?;
    let (read, all) = (holding.len(), known.ledgers.len());
    ensure!(read == all, "{node} answered for {read} of {all} keys");
    let wrong = judge(&known.ledgers, &holding);
    writers::require_none("values", &wrong).with_context(|| format!("read from {node}"))
}

/// Keys with differing replicas, each with the replicas of all nodes.
pub(super) fn differences(holdings: &[Holding], replicas: usize) -> Vec<String> {
    let keys: BTreeSet<&KeyId> = holdings.iter().flat_map(BTreeMap::keys).collect();
    let mut differing = Vec::new();
    for id in keys {
        let all: Vec<(usize, &Siblings)> = holdings
            .iter()
            .enumerate()
            .filter_map(|(node, holding)| Some((node + 1, holding.get(id)?)))
            .collect();
        let is_same = all.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if !is_same || all.len() < replicas {
            differing.push(writers::finding(*id, &format!("the nodes have {all:?}")));
        }
    }
    differing
}

/// The impossible contents of a node.
pub(super) fn judge(ledgers: &BTreeMap<KeyId, Ledger>, holding: &Holding) -> Vec<String> {
    let wrong = |(id, siblings): (&KeyId, &Siblings)| {
        let ledger = ledgers.get(id);
        let wrong = ledger.map_or_else(Vec::new, |ledger| ledger.judge(siblings));
        let id = *id;
        wrong
            .into_iter()
            .map(move |wrong| writers::finding(id, &wrong.to_string()))
    };
    holding.iter().flat_map(wrong).collect()
}

/// The keys of a bucket in a node's list, which must have every key once.
pub(super) async fn list(
    node: SocketAddr,
    bucket: &'static [u8],
) -> anyhow::Result<BTreeSet<Bytes>> {
    let mut client = writers::connect(node).await.context("connecting")?;
    let request = pb::RpbListKeysReq {
        bucket: Bytes::from_static(bucket),
        timeout: Some(5000),
        r#type: None,
    };
    let answers = client.list_keys(&request).await.context("listing")?;
    let keys = answers.collect().await.context("listing")?;
    let set: BTreeSet<Bytes> = keys.iter().cloned().collect();
    ensure!(
        set.len() == keys.len(),
        "{} of {} keys are listed twice",
        keys.len() - set.len(),
        keys.len()
    );
    Ok(set)
}

/// # Errors
/// If the list differs from the existing keys.
pub(super) fn require_exact(
    listed: &BTreeSet<Bytes>,
    expected: &BTreeSet<Bytes>,
) -> anyhow::Result<()> {
    let missing: Vec<_> = expected.difference(listed).take(5).collect();
    let extra: Vec<_> = listed.difference(expected).take(5).collect();
    ensure!(
        listed == expected,
        "{} keys are listed of {}; missing {missing:?}, too many {extra:?}",
        listed.len(),
        expected.len(),
    );
    Ok(())
}

/// Replaces the siblings of every key by one value, with the context of a fresh read.
pub(super) async fn resolve(node: SocketAddr, known: &mut Knowledge) -> anyhow::Result<()> {
    let mut client = writers::connect(node).await.context("connecting")?;
    for (id, ledger) in &mut known.ledgers {
        let read = writers::read(&mut client, *id, &GetOptions::default()).await;
        let (siblings, context) = read
            .context("reading to resolve")?
            .map_err(anyhow::Error::msg)?;
        let attempt = ledger.attempt(false, siblings);
        let put = writers::put(&mut client, *id, context.as_deref(), attempt).await;
        put.context("resolving")?;
        ledger.acknowledge();
        let read = writers::read(&mut client, *id, &GetOptions::default()).await;
        let (siblings, _) = read
            .context("reading what was resolved")?
            .map_err(anyhow::Error::msg)?;
        ensure!(
            siblings == Siblings::from([attempt]),
            "{}",
            writers::finding(
                *id,
                &format!("it holds {siblings:?} after write {attempt} replaced all")
            )
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_differ_or_are_too_few_are_reported() {
        let one = Holding::from([((0, 1), Siblings::from([1]))]);
        let other = Holding::from([((0, 1), Siblings::from([2]))]);
        assert!(differences(&[one.clone(), one.clone()], 2).is_empty());
        assert_eq!(differences(&[one.clone(), other], 2).len(), 1);
        assert_eq!(differences(&[one, Holding::new()], 2).len(), 1);
    }
}
