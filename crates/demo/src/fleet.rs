//! All nodes together: forming the cluster, asking nodes, adding and removing a node.
//!
//! All calls block, like the admin interface; use threads that may block.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::Program;
use crate::network::Network;
use crate::node::Node;
use crate::observation::{NodeView, TransfersView, Views};
use crate::script::NodeNumber;

/// Time for a change of the members: nodes may be killed or cut off meanwhile.
const CHANGE_WAIT: Duration = Duration::from_secs(60);
/// Time for partitions to move, in a change or in the previous one.
const MOVE_WAIT: Duration = Duration::from_secs(300);
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// All nodes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fleet {
    program: Program,
    directory: PathBuf,
    /// Workers of each node, also of nodes that are added later.
    workers: NonZeroUsize,
    /// Runtime of the relays.
    runtime: Handle,
    pub(crate) network: Network,
    nodes: Arc<Mutex<Nodes>>,
}

#[derive(Default)]
struct Nodes {
    all: BTreeMap<NodeNumber, Arc<Node>>,
    /// True when no further node may be started.
    is_over: bool,
}

impl Fleet {
    /// A fleet without nodes. Nodes will be below `directory`, with this many `workers` each.
    pub(crate) fn new(
        program: &Program,
        directory: &Path,
        workers: NonZeroUsize,
        runtime: &Handle,
    ) -> Self {
        Self {
            program: program.clone(),
            directory: directory.to_owned(),
            workers,
            runtime: runtime.clone(),
            network: Network::whole(),
            nodes: Arc::default(),
        }
    }

    pub(crate) fn node(&self, number: NodeNumber) -> anyhow::Result<Arc<Node>> {
        let node = self.nodes.lock().all.get(&number).cloned();
        node.with_context(|| format!("there is no node {number}"))
    }

    /// All nodes, except perhaps one.
    fn but(&self, except: Option<NodeNumber>) -> Vec<Arc<Node>> {
        let nodes = self.nodes.lock();
        let others = nodes.all.values();
        let others = others.filter(|node| Some(node.number) != except);
        others.cloned().collect()
    }

    /// Starts nodes 1 to `count` and makes them one cluster.
    pub(crate) fn form(&self, count: NodeNumber) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let starting = (1..=count).map(|number| scope.spawn(move || self.begin(number)));
            let starting: Vec<_> = starting.collect();
            starting.into_iter().try_for_each(|starting| {
                let started = starting.join();
                started.map_or_else(|_| bail!("a start died"), |started| started.map(drop))
            })
        })?;
        let all = self.but(None);
        let (first, others) = all.split_first().context("no nodes")?;
        for node in others {
            node.ask(&["join", &first.call_name()])?;
        }
        first.ask(&["plan"])?;
        first.ask(&["commit"]).map(drop)
    }

    /// Starts a new node, which is alone.
    fn begin(&self, number: NodeNumber) -> anyhow::Result<Arc<Node>> {
        let (program, network) = (&self.program, &self.network);
        let configured = Node::configure(number, &self.directory, program, network, self.workers);
        let node = Arc::new(self.runtime.block_on(configured)?);
        // The node is inserted before it runs, so that the end of the demo ends it as well.
        self.insert(Arc::clone(&node))?;
        let started = node.start();
        started.with_context(|| format!("start node {number}"))?;
        let members = node.ask(&["member-status"])?;
        let own = row_of(&members, &node.name());
        let id = own.and_then(|row| row["id"].as_str()?.parse().ok());
        let id = id.context("a node without its own identity")?;
        self.network.introduce(id, number);
        Ok(node)
    }

    fn insert(&self, node: Arc<Node>) -> anyhow::Result<()> {
        let mut nodes = self.nodes.lock();
        if nodes.is_over {
            bail!("the demo has ended");
        }
        nodes.all.insert(node.number, node);
        Ok(())
    }

    /// Starts a node and makes it a member.
    pub(crate) fn add(&self, number: NodeNumber) -> anyhow::Result<()> {
        let node = self.begin(number)?;
        let name = node.name();
        let join = |other: &Node| node.ask(&["join", &other.call_name()]).map(drop);
        self.with_another(number, CHANGE_WAIT, join)?;
        self.commit(number, |members| is_valid(members, &name))?;
        until(CHANGE_WAIT, "it is no member yet", || {
            let members = node.ask(&["member-status"]).unwrap_or_default();
            is_valid(&members, &name)
        })
    }

    /// Makes a node leave, and stops it. Waits until `is_asked` is false, since a node that has
    /// left has no data for clients.
    pub(crate) fn remove(
        &self,
        number: NodeNumber,
        is_asked: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let node = self.node(number)?;
        until(CHANGE_WAIT, "it is still asked", || !is_asked())?;
        let name = node.name();
        let leave = |other: &Node| other.ask(&["leave", &name]).map(drop);
        self.with_another(number, CHANGE_WAIT, leave)?;
        self.commit(number, |members| !is_valid(members, &name))?;
        until(MOVE_WAIT, "it still has partitions", || {
            self.is_gone(number, &name)
        })?;
        self.discard(number);
        Ok(())
    }

    /// Stops a node and removes its files.
    pub(crate) fn discard(&self, number: NodeNumber) {
        let node = self.nodes.lock().all.remove(&number);
        if let Some(node) = node {
            node.stop();
            node.remove_directory();
        }
    }

    /// Plans and commits the staged changes through any node but `except`, until `is_done` holds.
    /// An answer may be lost, and a change has to wait for the moves of the previous change.
    fn commit(&self, except: NodeNumber, is_done: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        self.with_another(except, MOVE_WAIT, |other| {
            if is_done(&other.ask(&["member-status"])?) {
                return Ok(());
            }
            let plan = other.ask(&["plan"])?;
            if let Some(reason) = plan["reason"].as_str() {
                bail!("{reason}");
            }
            other.ask(&["commit"]).map(drop)
        })
    }

    /// Asks one node after the other, without `except`, until one succeeds.
    fn with_another(
        &self,
        except: NodeNumber,
        wait: Duration,
        work: impl Fn(&Node) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + wait;
        loop {
            let mut failure = None;
            for other in self.but(Some(except)) {
                match work(&other) {
                    Ok(()) => return Ok(()),
                    Err(error) => failure = Some(error),
                }
            }
            if Instant::now() >= deadline {
                return Err(failure.context("no other node")?);
            }
            thread::sleep(LOOK_PERIOD);
        }
    }

    /// True if `name` is no longer a member for any node that answers.
    fn is_gone(&self, number: NodeNumber, name: &str) -> bool {
        let others = self.but(Some(number));
        let others = others
            .iter()
            .filter_map(|other| other.ask(&["member-status"]).ok());
        let others: Vec<Value> = others.collect();
        !others.is_empty() && others.iter().all(|it| row_of(it, name).is_none())
    }

    /// The views of all nodes that answer.
    pub(crate) fn views(&self) -> Views {
        let all = self.but(None);
        let views = all
            .iter()
            .filter_map(|node| Some((node.number, view(node).ok()?)));
        views.collect()
    }

    /// The transfers of all nodes, as one of the members reports them.
    pub(crate) fn transfers(&self) -> TransfersView {
        let all = self.but(None);
        let answer = all.iter().find_map(|node| {
            // A node that has not joined yet, or has left, has no other members to ask.
            let members = node.ask(&["member-status"]).ok()?;
            let is_alone = members.as_array()?.len() < 2;
            (!is_alone).then(|| node.ask(&["transfers"]).ok())?
        });
        answer.as_ref().map(TransfersView::of).unwrap_or_default()
    }

    /// Kills all nodes; no node can be started afterwards.
    pub(crate) fn end(&self) {
        let nodes = {
            let mut nodes = self.nodes.lock();
            nodes.is_over = true;
            std::mem::take(&mut nodes.all)
        };
        for node in nodes.values() {
            node.end();
        }
    }
}

fn view(node: &Node) -> anyhow::Result<NodeView> {
    let ring = node.ask(&["ring-status"])?;
    let partitions = node.ask(&["partitions"])?;
    let members = node.ask(&["member-status"])?;
    Ok(NodeView::of(&ring, &partitions, &members))
}

/// True if a node is a member that is neither joining nor leaving.
fn is_valid(members: &Value, name: &str) -> bool {
    row_of(members, name).is_some_and(|row| row["status"] == "valid")
}

fn row_of<'a>(members: &'a Value, name: &str) -> Option<&'a Value> {
    members.as_array()?.iter().find(|row| row["node"] == name)
}

fn until(wait: Duration, otherwise: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + wait;
    while !holds() {
        if Instant::now() >= deadline {
            bail!("{otherwise}, after {} s", wait.as_secs());
        }
        thread::sleep(LOOK_PERIOD);
    }
    Ok(())
}
