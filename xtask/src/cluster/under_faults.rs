//! A cluster under load while machines and the network fail, and the check of its data.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvorum_client::{GetOptions, quorum};
use tokio::runtime::Handle;

use crate::cluster::fault::Step;
use crate::cluster::fleet::Fleet;
use crate::cluster::machine::Machine;
use crate::cluster::network::Weather;
use crate::cluster::survey::{self, Holding};
use crate::cluster::writers::{self, Expectation, KeyId, Knowledge};
use crate::console;

/// Writers at a time.
const WRITERS: u32 = 12;

/// The error for a write whose coordinating replica failed.
const IN_DOUBT: &str = "the server answers: timeout";

/// The number of reads of all keys until replicas are equal: a read that meets an outdated replica
/// repairs it, but only after its answer.
const REPAIR_ROUNDS: u32 = 3;

/// The number of times that a round is repeated after an error.
const REPAIR_ATTEMPTS: u32 = 3;

/// Kills a node; clients of the others must see no error.
pub(super) fn one_node_down(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let (_, others) = fleet.machines.split_first().context("no machines")?;
    let others: Vec<_> = others.iter().map(Machine::protobuf).collect();
    let writing = writers::start(runtime, 0..WRITERS, &others, Expectation::Whatever, seed);
    thread::sleep(Duration::from_millis(500));
    let first = fleet.machines.first_mut().context("no machines")?;
    first.kill();
    thread::sleep(Duration::from_secs(4));
    let started = first.start();
    thread::sleep(Duration::from_millis(500));
    let found = writing.finish(runtime)?;
    started?;
    let outline = found.outline();
    // The error reports that a write coordinated by the killed node may or may not have been made;
    // each writer has at most one.
    let in_doubt = found.refused.get(IN_DOUBT).copied().unwrap_or(0);
    let others = found.refused.values().sum::<u64>() - in_doubt;
    let is_undisturbed = in_doubt <= u64::from(WRITERS) && others == 0 && found.broken == 0;
    let sound = found.require_sound();
    known.add(found);
    sound?;
    ensure!(is_undisturbed, "{outline}");
    Ok(outline)
}

/// Runs the plan's steps under load, then reads from each node alone.
pub(super) fn steps(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    plan: &[Step],
    seed: u64,
) -> anyhow::Result<String> {
    let nodes = fleet.addresses();
    // New writers with new keys, since a ledger has one writer. The reads of half of them are
    // checked meanwhile.
    let start = |writers, expectation| writers::start(runtime, writers, &nodes, expectation, seed);
    let (usual, strict) = (WRITERS..WRITERS * 3 / 2, WRITERS * 3 / 2..2 * WRITERS);
    let usual = start(usual, Expectation::Whatever);
    let strict = start(strict, Expectation::Strict);
    let mut result = Ok(());
    for step in plan {
        let since = Instant::now();
        result = step.run(fleet).with_context(|| format!("in: {step}"));
        console::line(&format!(
            "        {step}; over after {} ms",
            since.elapsed().as_millis()
        ));
        if result.is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(300));
    }
    let mut found = usual.finish(runtime)?;
    let strict = strict.finish(runtime)?;
    let (by_usual, by_strict) = (found.acknowledged, strict.acknowledged);
    found.add(strict);
    let outline = found.outline();
    let sound = found.require_sound();
    known.add(found);
    result?;
    sound?;
    ensure!(
        by_usual > 0 && by_strict > 0,
        "nothing was acknowledged to some: {by_usual}, and with strict quorums {by_strict}"
    );
    Ok(format!("{outline}; strict: {by_strict} acknowledgements"))
}

/// Waits until no faults are left, and checks that all replicas become equal and correct.
pub(super) fn convergence(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    replicas: usize,
) -> anyhow::Result<String> {
    fleet.weather(&Weather::Fair)?;
    let settled = fleet.await_settled()?;
    let keys: Vec<KeyId> = known.ledgers.keys().copied().collect();
    let mut differing = Vec::new();
    for round in 1..=REPAIR_ROUNDS {
        for &node in &fleet.addresses() {
            repair(fleet, runtime, node, &keys)?;
        }
        let holdings = each_alone(fleet, runtime, &keys)?;
        differing = survey::differences(&holdings, replicas);
        if !differing.is_empty() {
            continue;
        }
        let wrong: Vec<String> = holdings
            .iter()
            .flat_map(|holding| survey::judge(&known.ledgers, holding))
            .collect();
        writers::require_none("values", &wrong)?;
        let expected = with_content(&holdings);
        for &node in &fleet.addresses() {
            let listed = runtime.block_on(survey::list(node, writers::BUCKET))?;
            let exact = survey::require_exact(&listed, &expected);
            exact.with_context(|| format!("listed by {node}"))?;
        }
        let first = fleet.addresses().first().copied().context("no machines")?;
        runtime.block_on(survey::resolve(first, known))?;
        return Ok(format!(
            "settled after {} ms, {} keys the same after {round} rounds of reads, {} listed",
            settled.as_millis(),
            keys.len(),
            expected.len()
        ));
    }
    writers::require_none("keys of which replicas differ", &differing)?;
    Ok(String::new())
}

/// Reads all replicas of all keys through a node, and again if another node was reported down
/// meanwhile.
fn repair(
    fleet: &mut Fleet,
    runtime: &Handle,
    node: SocketAddr,
    keys: &[KeyId],
) -> anyhow::Result<()> {
    let mut patience = REPAIR_ATTEMPTS;
    loop {
        // Strict writes leave no hints for a node that is down: reads bring them there.
        let all = GetOptions {
            r: Some(quorum::ALL),
            ..GetOptions::default()
        };
        let read = survey::read_all(node, keys.to_vec(), all);
        match runtime.block_on(read) {
            Err(_) if patience > 0 => patience -= 1,
            read => return read.map(drop),
        }
        fleet.await_settled()?;
    }
}

fn each_alone(fleet: &mut Fleet, runtime: &Handle, keys: &[KeyId]) -> anyhow::Result<Vec<Holding>> {
    fleet.weather(&Weather::Alone)?;
    fleet.await_alone()?;
    let mut holdings = Vec::new();
    for &node in &fleet.addresses() {
        let read = survey::read_all(node, keys.to_vec(), survey::alone());
        holdings.push(runtime.block_on(read)?);
    }
    fleet.weather(&Weather::Fair)?;
    fleet.await_settled()?;
    Ok(holdings)
}

fn with_content(holdings: &[Holding]) -> BTreeSet<Bytes> {
    let all = holdings.iter().flatten();
    let held = all.filter(|(_, siblings)| !siblings.is_empty());
    held.map(|(id, _)| Bytes::from(writers::name(*id)))
        .collect()
}
