//! A restart of all nodes, one after the other, under load.
//!
//! Clients of the others notice nothing: no request of theirs fails because a replica, or the node that was
//! to coordinate a write, goes in the middle of it. A client of the node that stops has its connection
//! ended, and nothing that it had been told is lost; it goes on at another node.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::runtime::Handle;

use crate::cluster::bystanders::{Bystanders, Seen};
use crate::cluster::fleet::Fleet;
use crate::cluster::writers::{self, Expectation, Knowledge, Writing};

/// Clients of the node that stops.
const MOVED: Range<u32> = 208..212;

/// How long clients are at work before a node stops.
const BEFORE: Duration = Duration::from_millis(300);

/// Restarts every node.
pub(super) fn restart(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    let mut seen = Seen::default();
    for number in 0..fleet.machines.len() {
        restart_one(fleet, runtime, known, &mut seen, (number, seed))
            .with_context(|| format!("restarting node {}", number + 1))?;
    }
    Ok(seen.outline())
}

fn restart_one(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seen: &mut Seen,
    (number, seed): (usize, u64),
) -> anyhow::Result<()> {
    let mut nodes = fleet.addresses();
    nodes.rotate_left(number);
    let (_, others) = nodes.split_first().context("no machines")?;
    let bystanders = Bystanders::start(runtime, others, known, seed);
    // One by one, for the first node of the list is whose client the first of a range is.
    let moved: Vec<Writing> = MOVED
        .map(|it| {
            let usual = Expectation::Whatever;
            writers::go_on(runtime, it..it + 1, &nodes, usual, seed, known)
        })
        .collect();
    thread::sleep(BEFORE);
    let machine = fleet.machines.get_mut(number).context("no such machine")?;
    let restarted = machine
        .stop()
        .and_then(|()| machine.start())
        .and_then(|()| machine.wait_for_service())
        .and_then(|()| fleet.await_settled());
    let mut found = Knowledge::default();
    for writing in moved {
        found.add(writing.finish(runtime)?);
    }
    let finished = bystanders.finish(runtime, known, seen);
    let (outline, refusals, broken) = (found.outline(), found.refused.len(), found.broken);
    known.add(found);
    restarted?;
    finished?;
    let broken_max = u64::from(MOVED.end - MOVED.start);
    ensure!(
        refusals == 0 && broken <= broken_max,
        "clients of the node that stopped saw more than the end of their connections: {outline}"
    );
    Ok(())
}
