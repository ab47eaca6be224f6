//! A node leaves a cluster and comes back empty, without an effect on clients of the other nodes
//!
//!
//! The others have its data when it is gone: all written data is checked then, and again at the end
//! of the run, when every replica is read directly.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Handle;

use crate::cluster::bystanders::{Bystanders, Seen};
use crate::cluster::fleet::Fleet;
use crate::cluster::machine::{self, Machine};
use crate::cluster::survey;
use crate::cluster::writers::Knowledge;

/// The time for which clients work before the change.
const BEFORE: Duration = Duration::from_millis(300);

/// Makes the last machine leave, and join again on an empty disk.
pub(super) fn leave_and_return(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let mut leaver = fleet.machines.pop().context("no machines")?;
    let mut seen = Seen::default();
    let gone = leave(fleet, &leaver, runtime, known, (&mut seen, seed));
    let gone = gone.and_then(|took| {
        leaver.stop()?;
        leaver.wipe()?;
        leaver.start()?;
        Ok(took)
    });
    fleet.machines.push(leaver);
    let gone = gone.context("leaving")?;
    let back = come_back(fleet, runtime, known, (&mut seen, seed)).context("joining again")?;
    Ok(format!(
        "{}; gone after {} ms, back after {} ms",
        seen.outline(),
        gone.as_millis(),
        back.as_millis()
    ))
}

fn leave(
    fleet: &mut Fleet,
    leaver: &Machine,
    runtime: &Handle,
    known: &mut Knowledge,
    (seen, seed): (&mut Seen, u64),
) -> anyhow::Result<Duration> {
    let nodes = fleet.addresses();
    let bystanders = Bystanders::start(runtime, &nodes, known, seed);
    thread::sleep(BEFORE);
    let first = fleet.machines.first().context("no machines")?;
    let name = machine::name(leaver.number);
    let took = first
        .admin(&["cluster", "leave", &name])
        .and_then(|_| first.admin(&["cluster", "plan"]))
        .and_then(|_| first.admin(&["cluster", "commit"]))
        .and_then(|_| fleet.await_members());
    bystanders.finish(runtime, known, seen)?;
    let took = took?;
    for node in nodes {
        runtime.block_on(survey::require_known(node, known))?;
    }
    Ok(took)
}

fn come_back(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    (seen, seed): (&mut Seen, u64),
) -> anyhow::Result<Duration> {
    let (newcomer, others) = fleet.machines.split_last().context("no machines")?;
    let others: Vec<_> = others.iter().map(Machine::protobuf).collect();
    let bystanders = Bystanders::start(runtime, &others, known, seed);
    thread::sleep(BEFORE);
    let took = newcomer
        .admin(&["cluster", "join", &machine::name(0)])
        .and_then(|_| newcomer.admin(&["cluster", "plan"]))
        .and_then(|_| newcomer.admin(&["cluster", "commit"]))
        .and_then(|_| fleet.await_members());
    bystanders.finish(runtime, known, seen)?;
    took
}
