//! Several servers on this machine as one cluster.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kvorum_runtime::ProductionOptions;
use serde_json::Value;

use crate::server::{Binary, Server, Site, free_address};

/// Far more than necessary; the machine may be busy.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

/// The replicas of a key if there are enough nodes.
const REPLICAS: usize = 3;

/// Servers on this machine; if there are several, each has a share of the cores.
pub(crate) struct Neighbours {
    pub(crate) sites: Vec<Site>,
    pub(crate) servers: Vec<Server>,
    /// The address of the first server for other nodes.
    first: SocketAddr,
}

impl Neighbours {
    /// Starts this many servers below `directory`, each as a separate cluster.
    pub(crate) fn start(
        binary: &Binary,
        directory: &Path,
        count: usize,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Neighbours> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (count > 1).then(|| ProductionOptions::workers_of_each(cores, count));
        let (mut sites, mut servers, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=count {
            let directory = directory.join(format!("node{number}"));
            fs::create_dir_all(&directory).context("making a node's directory")?;
            let peer = free_address()?;
            let site = site(binary, &directory, number, peer, threads, settings)?;
            servers.push(site.start()?);
            sites.push(site);
            peers.push(peer);
        }
        let first = peers.first().copied().context("no nodes")?;
        Ok(Neighbours {
            sites,
            servers,
            first,
        })
    }

    /// Joins the servers to one cluster, and waits until it is settled.
    pub(crate) fn join(&self) -> anyhow::Result<()> {
        let (first, others) = self.sites.split_first().context("no nodes")?;
        let name = format!("node1@127.0.0.1:{}", self.first.port());
        for site in others {
            site.run(&["admin", "cluster", "join", &name])?;
        }
        first.run(&["admin", "cluster", "plan"])?;
        first.run(&["admin", "cluster", "commit"])?;
        self.await_settled()
    }

    /// Waits until every node reports that nothing moves, sees every other one, and has all
    /// replicas.
    pub(crate) fn await_settled(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        for site in &self.sites {
            while !is_settled(site)? {
                ensure!(
                    start.elapsed() < SETTLED_WITHIN,
                    "the cluster is not settled within {SETTLED_WITHIN:?}"
                );
                thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }

    /// Stops all servers.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let mut servers = self.servers.into_iter();
        servers.try_for_each(|server| server.stop().map(drop))
    }
}

fn site(
    binary: &Binary,
    directory: &Path,
    number: usize,
    peer: SocketAddr,
    threads: Option<NonZeroUsize>,
    settings: &[(&str, &str)],
) -> anyhow::Result<Site> {
    let (name, peer) = (format!("node{number}@127.0.0.1"), peer.to_string());
    let mut all = vec![("nodename", &*name), ("listener.peer.internal", &*peer)];
    let threads = threads.map(|threads| threads.to_string());
    if let Some(threads) = &threads {
        all.push(("worker_threads", threads));
    }
    all.extend_from_slice(settings);
    Site::new(binary, directory, &all)
}

fn is_settled(site: &Site) -> anyhow::Result<bool> {
    let text = site.run(&["admin", "ring-status", "--json"])?;
    let ring: Value = serde_json::from_str(&text).context("reading a ring's status")?;
    let is_empty = |name: &str| ring[name].as_array().is_some_and(Vec::is_empty);
    let is_complete = ring["settled"] == true && ring["replicas_max"] == REPLICAS;
    Ok(is_complete && is_empty("pending") && is_empty("unreachable"))
}
