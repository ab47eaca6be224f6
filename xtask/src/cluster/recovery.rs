//! Most nodes are lost for good, and the cluster continues with the remaining ones.
//!
//! Clients are served meanwhile. The remaining nodes recover the cluster and remove the lost nodes.
//! Meanwhile the lost nodes come back on their data, all at once: they are a majority of the former
//! cluster, and must not change the present one.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvorum_client::GetOptions;
use tokio::runtime::Handle;

use crate::cluster::fleet::Fleet;
use crate::cluster::machine::{self, Machine};
use crate::cluster::survey;
use crate::cluster::writers::{self, Expectation, KeyId, Knowledge};

/// The number of remaining nodes, of five.
const LEFT: usize = 2;

/// The time for which clients write without any failure.
const UNDISTURBED: Duration = Duration::from_secs(1);

/// The bucket type that the lost nodes create when they are back, which must not reach the others.
const GHOSTS: &str = "ghosts";

/// Loses three of five machines, and recovers with the others.
pub(super) fn recovery(
    fleet: &mut Fleet,
    runtime: &Handle,
    before: &Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let mut ghosts = fleet.machines.split_off(LEFT);
    ghosts.iter_mut().for_each(Machine::kill);
    let left = fleet.addresses();
    let first = left.first().copied().context("no machines")?;
    let writing = writers::start(runtime, 24..36, &left, Expectation::Whatever, seed);
    let since = Instant::now();
    let recovered = recover(fleet);
    let took = since.elapsed();
    let mut known = writing.finish(runtime)?;
    recovered?;
    known.require_sound()?;
    let outline = known.outline();
    ensure!(
        known.acknowledged > 0,
        "nothing was acknowledged: {outline}"
    );

    ghosts.iter_mut().try_for_each(Machine::launch)?;
    remove(fleet, &ghosts)?;
    known.add(undisturbed(runtime, &left, seed)?);
    ghosts.iter_mut().try_for_each(Machine::await_answer)?;
    haunt(runtime, &ghosts)?;
    for machine in &fleet.machines {
        let types = machine.admin(&["bucket-type", "list"])?;
        let number = machine.number + 1;
        ensure!(!types.contains(GHOSTS), "it got to node {number}: {types}");
    }
    let listed = runtime.block_on(survey::list(first, GHOSTS.as_bytes()))?;
    ensure!(
        listed.is_empty(),
        "writes to the lost nodes are listed: {listed:?}"
    );
    let of_today = require_kept(runtime, first, &known, 0)?;
    let kept = require_kept(runtime, first, before, before.ledgers.len() / 2)?;
    Ok(format!(
        "recovered after {} ms, {outline}; {of_today} new keys, {kept} of {} earlier keys",
        took.as_millis(),
        before.ledgers.len()
    ))
}

/// Makes the first machine continue alone, and the second follow.
fn recover(fleet: &mut Fleet) -> anyhow::Result<()> {
    let first = machine::name(0);
    let verbs: [&[&str]; LEFT] = [
        &["cluster", "recover", "--force"],
        &["cluster", "recover", "--follow", &first],
    ];
    for (machine, verb) in fleet.machines.iter_mut().zip(verbs) {
        machine.admin(verb)?;
        machine.await_end()?;
        machine.start()?;
    }
    Ok(())
}

/// Removes the lost nodes, and waits until every key has a replica on each of the remaining ones.
fn remove(fleet: &mut Fleet, ghosts: &[Machine]) -> anyhow::Result<()> {
    let first = fleet.machines.first().context("no machines")?;
    for ghost in ghosts {
        first.admin(&["cluster", "force-remove", &machine::name(ghost.number)])?;
    }
    first.admin(&["cluster", "plan"])?;
    first.admin(&["cluster", "commit"])?;
    fleet.await_settled().map(drop)
}

/// Lets the lost nodes reach agreement, and accept writes of clients.
fn haunt(runtime: &Handle, ghosts: &[Machine]) -> anyhow::Result<()> {
    let ghost = ghosts.first().context("no machines")?;
    ghost.admin(&["bucket-type", "create", GHOSTS])?;
    let put = async {
        let mut client = writers::connect(ghost.protobuf()).await?;
        let boo = Bytes::from_static(b"boo");
        client.put_value(GHOSTS.as_bytes(), b"ghost", boo).await
    };
    runtime.block_on(put).context("writing to a lost node")
}

/// Runs clients of the recovered nodes, which must have no errors.
fn undisturbed(runtime: &Handle, nodes: &[SocketAddr], seed: u64) -> anyhow::Result<Knowledge> {
    let writing = writers::start(runtime, 36..42, nodes, Expectation::Current, seed);
    thread::sleep(UNDISTURBED);
    let found = writing.finish(runtime)?;
    found.require_sound()?;
    let is_undisturbed = found.refused.is_empty() && found.broken == 0;
    let outline = found.outline();
    ensure!(
        is_undisturbed && found.acknowledged > 0,
        "clients saw errors: {outline}"
    );
    Ok(found)
}

/// Reads the known keys; returns the number of unchanged keys.
///
/// # Errors
/// If more keys have changed than may have had all replicas on lost nodes.
fn require_kept(
    runtime: &Handle,
    node: SocketAddr,
    known: &Knowledge,
    lost_max: usize,
) -> anyhow::Result<usize> {
    let keys: Vec<KeyId> = known.ledgers.keys().copied().collect();
    let all = keys.len();
    let read = survey::read_all(node, keys, GetOptions::default());
    let mut holding = runtime.block_on(read)?;
    if lost_max > 0 {
        holding.retain(|_, siblings| !siblings.is_empty());
    }
    writers::require_none("values", &survey::judge(&known.ledgers, &holding))?;
    let kept = holding.len();
    ensure!(kept + lost_max >= all, "{kept} of {all} keys are there");
    Ok(kept)
}
