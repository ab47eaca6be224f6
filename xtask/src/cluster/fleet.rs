//! The machines of one cluster together: starting, joining, waiting until they are settled.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::cluster::machine::{self, Machine, Workshop};
use crate::cluster::network::{self, Weather};
use crate::process::backend::Setting;

/// Far more than necessary; the machine may be busy.
const WITHIN: Duration = Duration::from_secs(120);

/// The time for which a cluster has to be settled before it counts as settled.
const SETTLED_FOR: Duration = Duration::from_secs(1);

/// The final number of replicas of every key.
pub(super) const REPLICAS: usize = 3;

/// The setting for a cluster whose nodes authenticate each other.
pub(super) const ENCRYPTED: Setting = ("cluster.tls", "on");

/// The machines of one cluster.
pub(super) struct Fleet {
    pub(super) machines: Vec<Machine>,
}

impl Fleet {
    /// Starts this many machines, each as a separate cluster.
    pub(super) fn start(
        workshop: &Workshop,
        count: usize,
        settings: &[Setting],
    ) -> anyhow::Result<Fleet> {
        let _ = std::fs::remove_dir_all(&workshop.directory); // of the run before, if there was one
        let machines = (0..count).map(|number| Machine::new(workshop, number, settings));
        let machines = machines.collect::<anyhow::Result<_>>()?;
        let mut fleet = Fleet { machines };
        if settings.contains(&ENCRYPTED) {
            fleet.issue_certificates()?;
        }
        fleet.start_all()?;
        Ok(fleet)
    }

    /// Makes the first machine create an authority, and gives each a certificate.
    fn issue_certificates(&self) -> anyhow::Result<()> {
        let first = self.machines.first().context("a fleet without machines")?;
        first.admin(&["tls", "init"])?;
        for machine in self.machines.iter().skip(1) {
            let (name, out) = (machine::name(machine.number), machine.tls_directory());
            let out = out.to_str().context("a directory that is not UTF-8")?;
            first.admin(&["tls", "issue", &name, "--out", out])?;
        }
        Ok(())
    }

    /// Switches on all machines at the same time.
    pub(super) fn start_all(&mut self) -> anyhow::Result<()> {
        self.machines.iter_mut().try_for_each(Machine::launch)?;
        self.machines.iter_mut().try_for_each(Machine::await_answer)
    }

    /// Joins all machines to the first, and commits the plan.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        let first = machine::name(0);
        for machine in self.machines.iter().skip(1) {
            machine.admin(&["cluster", "join", &first])?;
        }
        let first = self.machines.first().context("a fleet without machines")?;
        first.admin(&["cluster", "plan"])?;
        first.admin(&["cluster", "commit"]).map(drop)
    }

    /// Waits until every node sees every other, nothing moves, keys have all their replicas, and no
    /// node keeps hints. This must hold for [`SETTLED_FOR`], since news of a node that was down
    /// spreads for a while after its return.
    pub(super) fn await_settled(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut since = None;
        loop {
            match self.unsettled()? {
                None => {
                    let since: Instant = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= SETTLED_FOR {
                        return Ok(since - start);
                    }
                }
                Some(error) if start.elapsed() > WITHIN => {
                    return Err(error.context(format!("not settled within {WITHIN:?}")));
                }
                Some(_) => since = None,
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the members of the cluster are exactly these machines, in the view of each, and
    /// all are settled.
    pub(super) fn await_members(&mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let expected = self.machines.iter().map(|it| machine::name(it.number));
        let expected: BTreeSet<String> = expected.collect();
        for machine in &self.machines {
            loop {
                let said = status(machine, "member-status")?;
                if valid_members(&said) == Some(expected.clone()) {
                    break;
                }
                ensure!(
                    start.elapsed() < WITHIN,
                    "node {} shows the members {said}, expected {expected:?}",
                    machine.number + 1
                );
                thread::sleep(Duration::from_millis(200));
            }
        }
        let changed = start.elapsed();
        Ok(changed + self.await_settled()?)
    }

    /// The report of a node that is not settled, if there is one.
    fn unsettled(&mut self) -> anyhow::Result<Option<anyhow::Error>> {
        let mut unsettled = None;
        let replicas = REPLICAS.min(self.machines.len());
        for machine in &mut self.machines {
            machine.require_alive()?;
            unsettled = is_settled(machine, replicas).err().or(unsettled);
        }
        Ok(unsettled)
    }

    /// Waits until no node sees any other.
    pub(super) fn await_alone(&self) -> anyhow::Result<()> {
        let others = self.machines.len() - 1;
        let start = Instant::now();
        for machine in &self.machines {
            while unreachable(machine)? < others {
                let number = machine.number + 1;
                ensure!(
                    start.elapsed() < WITHIN,
                    "node {number} still reaches another"
                );
                thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// The machine with a number.
    pub(super) fn machine(&mut self, number: usize) -> anyhow::Result<&mut Machine> {
        self.machines.get_mut(number).context("no such machine")
    }

    /// The nodes' addresses for clients.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.machines.iter().map(Machine::protobuf).collect()
    }

    /// Sets the weather between the machines.
    pub(super) fn weather(&self, weather: &Weather) -> anyhow::Result<()> {
        network::set(weather, self.machines.len())
    }
}

/// The output of an admin verb for a machine.
pub(super) fn status(machine: &Machine, verb: &str) -> anyhow::Result<Value> {
    let text = machine.admin(&[verb, "--json"])?;
    serde_json::from_str(&text).with_context(|| format!("reading the output of {verb}"))
}

/// The members in the output of `member-status`, if all of them are full ones.
fn valid_members(said: &Value) -> Option<BTreeSet<String>> {
    let named = said.as_array()?.iter().map(|member| {
        let is_valid = member["status"] == "valid";
        member["node"].as_str().filter(|_| is_valid)
    });
    named.map(|name| name.map(str::to_owned)).collect()
}

/// The number of nodes that a machine does not reach.
fn unreachable(machine: &Machine) -> anyhow::Result<usize> {
    let ring = status(machine, "ring-status")?;
    Ok(ring["unreachable"].as_array().map_or(0, Vec::len))
}

fn is_settled(machine: &Machine, replicas: usize) -> anyhow::Result<()> {
    let ring = status(machine, "ring-status")?;
    let is_empty = |name: &str| ring[name].as_array().is_some_and(Vec::is_empty);
    let is_complete = ring["settled"] == true && ring["replicas_max"] == replicas;
    if !is_complete || !is_empty("pending") || !is_empty("unreachable") {
        bail!("node {} shows {ring}", machine.number + 1);
    }
    let transfers = status(machine, "transfers")?;
    let hinted = transfers["hinted"]
        .as_array()
        .context("no hints are reported")?;
    if hinted.iter().any(|kept| kept["objects"] != 0) {
        bail!("hints are kept: {transfers}");
    }
    Ok(())
}
