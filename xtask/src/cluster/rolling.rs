//! The restart of all nodes, one after the other, under load.
//!
//! Clients of the other nodes are not affected: none of their requests fails because a replica or a
//! write's coordinator stops in the middle. A client of the stopping node loses its connection but
//! no acknowledged write, and continues at another node.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::runtime::Handle;

use crate::cluster::bystanders::{Bystanders, Seen};
use crate::cluster::fleet::Fleet;
use crate::cluster::writers::{self, Expectation, Knowledge, Writing};

/// Clients of the stopping node.
const MOVED: Range<u32> = 208..212;

/// The time for which clients work before a node stops.
const BEFORE: Duration = Duration::from_millis(300);

/// Restarts every node.
pub(super) fn restart(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    one_by_one(fleet, runtime, known, seed, |fleet, number| {
        let machine = fleet.machine(number)?;
        machine.stop()?;
        machine.start()?;
        machine.wait_for_service()?;
        fleet.await_settled().map(drop)
    })
}

/// Makes a change for which nodes have to stop, node by node. `change` returns when the node is
/// back and the next one may stop.
pub(super) fn one_by_one(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
    change: impl Fn(&mut Fleet, usize) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut seen = Seen::default();
    for number in 0..fleet.machines.len() {
        let mut nodes = fleet.addresses();
        nodes.rotate_left(number);
        let load = Load::start(runtime, &nodes, known, seed)?;
        thread::sleep(BEFORE);
        let changed = change(fleet, number);
        let unnoticed = load.finish(runtime, known, &mut seen);
        // If both failed, the change's error is the cause.
        changed
            .and(unnoticed)
            .with_context(|| format!("at node {}", number + 1))?;
    }
    Ok(seen.outline())
}

/// Clients of all nodes, while the first node stops and comes back.
struct Load {
    bystanders: Bystanders,
    moved: Vec<Writing>,
}

impl Load {
    fn start(
        runtime: &Handle,
        nodes: &[SocketAddr],
        known: &mut Knowledge,
        seed: u64,
    ) -> anyhow::Result<Load> {
        let (_, others) = nodes.split_first().context("no machines")?;
        let bystanders = Bystanders::start(runtime, others, known, seed);
        // Clients are started one by one, since the first client of a range gets the first node of
        // the list.
        let moved = MOVED.map(|it| {
            let usual = Expectation::Whatever;
            writers::go_on(runtime, it..it + 1, nodes, usual, seed, known)
        });
        Ok(Load {
            moved: moved.collect(),
            bystanders,
        })
    }

    fn finish(
        self,
        runtime: &Handle,
        known: &mut Knowledge,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let mut found = Knowledge::default();
        for writing in self.moved {
            found.add(writing.finish(runtime)?);
        }
        let (outline, refusals, broken) = (found.outline(), found.refused.len(), found.broken);
        let sound = found.require_sound();
        known.add(found);
        self.bystanders.finish(runtime, known, seen)?;
        sound?;
        let broken_max = u64::from(MOVED.end - MOVED.start);
        ensure!(
            refusals == 0 && broken <= broken_max,
            "clients of the node that stopped saw more than the end of their connections: {outline}"
        );
        Ok(())
    }
}
