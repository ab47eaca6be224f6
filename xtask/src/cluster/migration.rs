//! The published migration from bitcask to leveldb, node by node, while clients write, read and list.
//!
//! The steps are those of `docs/cluster.md`: stop, change `storage_backend`, check, start, and wait
//! until the stores are complete and no transfer is in progress, before the next node. Clients of
//! the other nodes must not be affected.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::cluster::fleet::{self, Fleet};
use crate::cluster::machine::Machine;
use crate::cluster::rolling;
use crate::cluster::survey;
use crate::cluster::writers::Knowledge;
use crate::process::backend::Setting;

const BEFORE: Setting = ("storage_backend", "bitcask");
const AFTER: Setting = ("storage_backend", "leveldb");

/// The message of a node that has data for another node, and so keeps its old backend.
const REFUSAL: &str = "objects wait there for other nodes";

/// The number of attempts for a node with such data.
const ATTEMPTS: u32 = 3;

/// Far more than necessary; the machine may be busy.
const WITHIN: Duration = Duration::from_secs(120);

/// Migrates every node, and checks the data afterwards.
pub(super) fn migration(
    fleet: &mut Fleet,
    runtime: &Handle,
    known: &mut Knowledge,
    seed: u64,
) -> anyhow::Result<String> {
    fleet.await_settled()?;
    let outline = rolling::one_by_one(fleet, runtime, known, seed, |fleet, number| {
        migrate(fleet, number)?;
        let machine = fleet.machine(number)?;
        machine.wait_for_service()?;
        await_whole(machine)?;
        fleet.await_settled().map(drop)
    })?;
    for node in fleet.addresses() {
        runtime.block_on(survey::require_known(node, known))?;
    }
    Ok(outline)
}

/// Makes a node continue with the other backend. The node refuses while its store has hints for
/// another node, as after a false report that the other was down. Then it runs as before until the
/// hints are handed over.
fn migrate(fleet: &mut Fleet, number: usize) -> anyhow::Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let machine = fleet.machine(number)?;
        machine.stop()?;
        machine.set(AFTER)?;
        machine.check_configuration()?;
        match machine.start() {
            Err(error) if attempts < ATTEMPTS && format!("{error:#}").contains(REFUSAL) => {}
            started => return started,
        }
        machine.kill();
        machine.set(BEFORE)?;
        machine.start()?;
        fleet.await_settled()?;
    }
}

/// Waits until every store of a node has the new backend and is complete.
fn await_whole(machine: &Machine) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let said = fleet::status(machine, "vnode-status")?;
        let is_whole = |it: &Value| it["complete"] == true && it["backend"] == AFTER.1;
        if said.as_array().is_some_and(|all| all.iter().all(is_whole)) {
            return Ok(());
        }
        ensure!(start.elapsed() < WITHIN, "its stores are not whole: {said}");
        thread::sleep(Duration::from_millis(200));
    }
}
