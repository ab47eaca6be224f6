//! The scene: the nodes, their states, and the present meaning of an action. Pure.
//!
//! The scene follows from the orders; [`crate::observation`] has the nodes' views.

use std::collections::{BTreeMap, BTreeSet};

use crate::script::{Action, NodeNumber};

/// The most nodes: keys choose a node by one digit.
const NODES_MAX: NodeNumber = 9;

/// The least number of nodes, since keys have three replicas.
const NODES_MIN: usize = 3;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its process is starting.
    Starting,
    /// It is starting, and becoming a member.
    Joining,
    /// It serves.
    Up,
    /// It was killed.
    Killed,
    /// It hands over its partitions.
    Leaving,
}

impl Stage {
    /// The state in one word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Stage::Starting => "starting",
            Stage::Joining => "joining",
            Stage::Up => "up",
            Stage::Killed => "killed",
            Stage::Leaving => "leaving",
        }
    }
}

/// The reason why an action is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Impossible at present: another action has to come first.
    No(String),
    /// Not yet: a node is joining or leaving.
    NotYet(String),
}

impl Refusal {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Refusal::No(reason) | Refusal::NotYet(reason) => reason,
        }
    }
}

/// An order about processes or the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Kill a node with SIGKILL.
    Kill(NodeNumber),
    /// Start a killed node on its files.
    Start(NodeNumber),
    /// Cut the network between these nodes and the others.
    Cut(BTreeSet<NodeNumber>),
    /// Heal the network.
    Mend,
    /// Start a new node, which joins.
    Add(NodeNumber),
    /// Make a node leave, and stop it.
    Remove(NodeNumber),
    /// End the load.
    End,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A node serves.
    Up(NodeNumber),
    /// A killed node did not start.
    NotStarted(NodeNumber),
    /// A node has left, or never became a member.
    Gone(NodeNumber),
    /// A node stays a member.
    Stays(NodeNumber),
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    nodes: BTreeMap<NodeNumber, Stage>,
    /// One side of the cut.
    cut: Option<BTreeSet<NodeNumber>>,
    selected: Option<NodeNumber>,
    /// The node that was killed last; the next one is a different node.
    victim: NodeNumber,
}

impl Scene {
    /// Nodes 1 to `count`, all up.
    pub(crate) fn of(count: NodeNumber) -> Self {
        Self {
            nodes: (1..=count).map(|node| (node, Stage::Up)).collect(),
            ..Self::default()
        }
    }

    /// The nodes.
    pub(crate) fn nodes(&self) -> &BTreeMap<NodeNumber, Stage> {
        &self.nodes
    }

    /// The nodes that serve.
    pub(crate) fn up(&self) -> Vec<NodeNumber> {
        self.in_stage(Stage::Up)
    }

    /// True if a node is on the first side of a cut; `None` without a cut.
    pub(crate) fn is_on_first_side(&self, node: NodeNumber) -> Option<bool> {
        self.cut.as_ref().map(|side| side.contains(&node))
    }

    /// True if the network is cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Number of nodes on the other side of a cut.
    pub(crate) fn across(&self, node: NodeNumber) -> usize {
        let own = self.is_on_first_side(node);
        let all = self.nodes.keys();
        all.filter(|other| self.is_on_first_side(**other) != own)
            .count()
    }

    /// True if nothing is broken and no node is joining or leaving.
    pub(crate) fn is_whole(&self) -> bool {
        self.cut.is_none() && self.nodes.values().all(|stage| *stage == Stage::Up)
    }

    /// The reason why the scene is not whole.
    pub(crate) fn hindrance(&self) -> Option<String> {
        let mut nodes = self.nodes.iter();
        let other = nodes.find(|(_, stage)| **stage != Stage::Up);
        let other = other.map(|(node, stage)| format!("node {node} is {}", stage.word()));
        other.or_else(|| self.cut.as_ref().map(|_| "the network is cut".to_owned()))
    }

    /// The chosen node.
    pub(crate) fn selected(&self) -> Option<NodeNumber> {
        self.selected
    }

    /// Chooses a node, or clears the choice if it was chosen before.
    pub(crate) fn select(&mut self, node: NodeNumber) {
        let is_there = self.nodes.contains_key(&node) && self.selected != Some(node);
        self.selected = is_there.then_some(node);
    }

    /// The orders of an action in this scene.
    ///
    /// # Errors
    /// The reason why it cannot be done.
    pub(crate) fn decide(&mut self, action: Action) -> Result<Vec<Order>, Refusal> {
        match action {
            Action::Kill(node) => self.kill(node),
            Action::Cut => self.cut(),
            Action::Heal => self.heal(),
            Action::Add => self.add(),
            Action::Remove(node) => self.remove(node),
            Action::End => Ok(vec![Order::End]),
        }
    }

    /// Records the outcome of an order.
    pub(crate) fn note(&mut self, outcome: &Outcome) {
        match *outcome {
            Outcome::Up(node) | Outcome::Stays(node) => self.set(node, Stage::Up),
            Outcome::NotStarted(node) => self.set(node, Stage::Killed),
            Outcome::Gone(node) => {
                self.nodes.remove(&node);
                self.selected = self.selected.filter(|selected| *selected != node);
            }
        }
    }

    fn kill(&mut self, node: Option<NodeNumber>) -> Result<Vec<Order>, Refusal> {
        let up = self.up();
        let selected = self.selected.filter(|node| up.contains(node));
        let next = up.iter().find(|node| **node > self.victim).or(up.first());
        let node = node.or(selected).or(next.copied());
        let node = self.require_up(node)?;
        if up.len() == 1 {
            return no(format!("node {node} is the last one that is up"));
        }
        self.set(node, Stage::Killed);
        self.victim = node;
        Ok(vec![Order::Kill(node)])
    }

    fn cut(&mut self) -> Result<Vec<Order>, Refusal> {
        if self.cut.is_some() {
            return no("the network is cut already");
        }
        let half = self.nodes.len() / 2;
        let side: BTreeSet<NodeNumber> = self.nodes.keys().take(half).copied().collect();
        self.cut = Some(side.clone());
        Ok(vec![Order::Cut(side)])
    }

    fn heal(&mut self) -> Result<Vec<Order>, Refusal> {
        let mut orders = Vec::new();
        if self.cut.take().is_some() {
            orders.push(Order::Mend);
        }
        for node in self.in_stage(Stage::Killed) {
            self.set(node, Stage::Starting);
            orders.push(Order::Start(node));
        }
        if orders.is_empty() {
            return no("nothing is broken");
        }
        Ok(orders)
    }

    fn add(&mut self) -> Result<Vec<Order>, Refusal> {
        self.require_calm()?;
        let free = (1..=NODES_MAX).find(|node| !self.nodes.contains_key(node));
        let Some(node) = free else {
            return no(format!("{NODES_MAX} nodes are as many as fit here"));
        };
        self.set(node, Stage::Joining);
        Ok(vec![Order::Add(node)])
    }

    fn remove(&mut self, node: Option<NodeNumber>) -> Result<Vec<Order>, Refusal> {
        self.require_calm()?;
        if self.nodes.len() <= NODES_MIN {
            return no(format!("keys have three replicas: {NODES_MIN} nodes stay"));
        }
        let node = node.or(self.selected).or(self.up().last().copied());
        let node = self.require_up(node)?;
        self.set(node, Stage::Leaving);
        Ok(vec![Order::Remove(node)])
    }

    fn require_up(&self, node: Option<NodeNumber>) -> Result<NodeNumber, Refusal> {
        let Some(node) = node else {
            return no("no node is up");
        };
        match self.nodes.get(&node) {
            Some(Stage::Up) => Ok(node),
            Some(Stage::Killed) => no(format!("node {node} is killed")),
            Some(stage) => not_yet(node, *stage),
            None => no(format!("there is no node {node}")),
        }
    }

    /// Refuses changes of the members during a cut, another change, or while a node is killed.
    fn require_calm(&self) -> Result<(), Refusal> {
        if self.cut.is_some() || !self.in_stage(Stage::Killed).is_empty() {
            return no("heal first: members change while all nodes see each other");
        }
        let busy = self.nodes.iter().find(|(_, stage)| **stage != Stage::Up);
        busy.map_or(Ok(()), |(node, stage)| not_yet(*node, *stage))
    }

    fn in_stage(&self, wanted: Stage) -> Vec<NodeNumber> {
        let nodes = self.nodes.iter();
        let wanted = nodes.filter(|(_, stage)| **stage == wanted);
        wanted.map(|(node, _)| *node).collect()
    }

    fn set(&mut self, node: NodeNumber, stage: Stage) {
        self.nodes.insert(node, stage);
    }
}

fn no<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::No(reason.into()))
}

fn not_yet<T>(node: NodeNumber, stage: Stage) -> Result<T, Refusal> {
    let reason = format!("node {node} is still {}", stage.word());
    Err(Refusal::NotYet(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: Action = Action::Kill(None);
    const REMOVE: Action = Action::Remove(None);

    fn assert_no(decided: &Result<Vec<Order>, Refusal>, reason: &str) {
        let Err(Refusal::No(said)) = decided else {
            panic!("{decided:?}");
        };
        assert!(said.contains(reason), "{said}");
    }

    #[test]
    fn another_node_is_killed_each_time_unless_one_is_chosen() {
        let mut scene = Scene::of(5);
        assert_eq!(scene.decide(KILL), Ok(vec![Order::Kill(1)]));
        assert_eq!(scene.decide(KILL), Ok(vec![Order::Kill(2)]));
        scene.select(5);
        assert_eq!(scene.decide(KILL), Ok(vec![Order::Kill(5)]));
        assert_eq!(scene.decide(KILL), Ok(vec![Order::Kill(3)]));
        assert_no(&scene.decide(KILL), "node 4 is the last one");
        assert_no(&scene.decide(Action::Kill(Some(2))), "node 2 is killed");
        assert_no(&scene.decide(Action::Kill(Some(6))), "no node 6");
    }

    #[test]
    fn a_heal_mends_the_network_and_starts_killed_nodes() {
        let mut scene = Scene::of(5);
        assert_no(&scene.decide(Action::Heal), "nothing is broken");
        scene.decide(Action::Kill(Some(3))).unwrap();
        let side = BTreeSet::from([1, 2]);
        assert_eq!(scene.decide(Action::Cut), Ok(vec![Order::Cut(side)]));
        assert_no(&scene.decide(Action::Cut), "cut already");
        assert_eq!(scene.is_on_first_side(3), Some(false));
        assert_eq!((scene.across(1), scene.across(3)), (3, 2));
        let orders = vec![Order::Mend, Order::Start(3)];
        assert_eq!(scene.decide(Action::Heal), Ok(orders));
        assert_eq!(scene.hindrance(), Some("node 3 is starting".to_owned()));
        assert!(!scene.is_whole());
        scene.note(&Outcome::Up(3));
        assert!(scene.is_whole());
    }

    #[test]
    fn members_change_one_after_the_other_and_while_nothing_is_broken() {
        let mut scene = Scene::of(5);
        scene.decide(Action::Cut).unwrap();
        assert_no(&scene.decide(Action::Add), "heal first");
        scene.decide(Action::Heal).unwrap();
        assert_eq!(scene.decide(Action::Add), Ok(vec![Order::Add(6)]));
        let reason = "node 6 is still joining".to_owned();
        assert_eq!(scene.decide(REMOVE), Err(Refusal::NotYet(reason)));
        scene.note(&Outcome::Up(6));
        assert_eq!(scene.decide(REMOVE), Ok(vec![Order::Remove(6)]));
        assert_eq!(scene.up(), [1, 2, 3, 4, 5], "it is asked no more");
        scene.note(&Outcome::Gone(6));
        scene.select(2);
        assert_eq!(scene.decide(REMOVE), Ok(vec![Order::Remove(2)]));
        scene.note(&Outcome::Gone(2));
        assert_eq!(scene.selected(), None);
        assert_eq!(scene.decide(Action::Add), Ok(vec![Order::Add(2)]));
        scene.note(&Outcome::Gone(2));
        scene.decide(REMOVE).unwrap();
        scene.note(&Outcome::Gone(5));
        assert_no(&scene.decide(REMOVE), "three replicas");
    }

    #[test]
    fn no_more_nodes_come_than_there_are_digits() {
        let mut scene = Scene::of(NODES_MAX);
        assert_no(&scene.decide(Action::Add), "9 nodes");
        assert_eq!(scene.nodes().len(), 9);
    }
}
