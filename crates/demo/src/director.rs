//! The director: carries out the play, observes, and shows. Other modules make the decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::{mpsc, watch};

use crate::fleet::Fleet;
use crate::keys::Press;
use crate::load::{Load, Targets};
use crate::observation::{Observation, TransfersView, Views};
use crate::picture::Phase;
use crate::reading_back::{self, Reading};
use crate::scene::{Order, Outcome, Refusal, Scene};
use crate::script::{Action, Cue, NodeNumber, Script};
use crate::show::{Audience, Show};

/// Time between two looks at the script.
const TICK: Duration = Duration::from_millis(100);
/// Time between two questions to all nodes.
const OBSERVATION_PAUSE: Duration = Duration::from_millis(400);
/// Consecutive observations that have to find the cluster whole.
const WHOLE_OBSERVATIONS: u32 = 2;
/// Length of the load after the last cue of a script.
pub(crate) const AFTER_SCRIPT: Duration = Duration::from_secs(15);
/// Time for forming the cluster, and for settling at the end.
const SETTLE_WAIT: Duration = Duration::from_secs(180);
/// Time for nodes to detect a cut before a script heals it.
const SILENCE_WAIT: Duration = Duration::from_secs(30);

/// Longer than any show, and short enough to be added to any time.
pub(crate) const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The play.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    pub(crate) nodes: NodeNumber,
    /// Length of the load.
    pub(crate) length: Duration,
    /// True if the load lasts longer when cues of the script are late.
    pub(crate) length_follows_script: bool,
    pub(crate) script: Script,
    pub(crate) is_screen: bool,
    pub(crate) has_keys: bool,
    pub(crate) is_json: bool,
}

/// The end of the play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) acknowledged: u64,
    pub(crate) lost: u64,
    pub(crate) judged: u64,
    pub(crate) failures: u64,
    pub(crate) keys: u64,
    /// Violations, one sentence each.
    pub(crate) findings: Vec<String>,
    pub(crate) is_interrupted: bool,
}

impl Ending {
    /// True if nothing was lost or found wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.lost == 0 && self.findings.is_empty() && !self.is_interrupted && self.acknowledged > 0
    }
}

/// An event for the director.
enum Event {
    Pressed(Press),
    Outcome(Outcome, String),
    /// The nodes' views of the cluster, and the number of disturbances when they were asked.
    Viewed(u64, Views),
    /// The nodes' transfers, and the number of disturbances when they were asked.
    Transfers(u64, TransfersView),
    ReadBack(Reading),
}

/// Runs the play.
///
/// # Errors
/// If the cluster cannot be formed.
pub(crate) async fn play(play: Play, fleet: Fleet) -> anyhow::Result<Ending> {
    let (events, heard) = mpsc::unbounded_channel();
    let presses = events.clone();
    let (is_screen, has_keys, is_json) = (play.is_screen, play.has_keys, play.is_json);
    let audience = Audience::welcome(is_screen, has_keys, is_json, move |press| {
        // A receiver that has gone is about to end.
        let _heard_or_ending = presses.send(Event::Pressed(press));
    })?;
    let mut director = Director::new(play, fleet, audience, events, heard);
    let played = director.perform().await;
    director.show.end();
    played
}

struct Director {
    play: Play,
    fleet: Fleet,
    show: Show,
    scene: Scene,
    load: Option<Load>,
    cues: Vec<Cue>,
    targets: watch::Sender<Targets>,
    /// The number of the present period in which the cluster is whole.
    whole: watch::Sender<Option<u64>>,
    whole_in_a_row: u32,
    wholes: u64,
    disturbances: Arc<AtomicU64>,
    observation: Observation,
    /// The number of disturbances when the nodes were asked.
    viewed_at: u64,
    is_silence_noted: bool,
    /// The beginning of the load, or of the demo before that.
    began: Instant,
    findings: Vec<String>,
    events: mpsc::UnboundedSender<Event>,
    heard: mpsc::UnboundedReceiver<Event>,
}

/// The reason why a wait is over.
enum Over {
    Interrupted,
    Reached,
    TooLate,
}

impl Director {
    fn new(
        play: Play,
        fleet: Fleet,
        audience: Audience,
        events: mpsc::UnboundedSender<Event>,
        heard: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        Self {
            show: Show::new(audience),
            scene: Scene::of(play.nodes),
            cues: play.script.clone().into_cues(),
            play,
            fleet,
            load: None,
            targets: watch::Sender::default(),
            whole: watch::Sender::new(None),
            whole_in_a_row: 0,
            wholes: 0,
            disturbances: Arc::default(),
            observation: Observation::default(),
            viewed_at: 0,
            is_silence_noted: false,
            began: Instant::now(),
            findings: Vec::new(),
            events,
            heard,
        }
    }

    async fn perform(&mut self) -> anyhow::Result<Ending> {
        if let Over::Interrupted = self.form().await? {
            return Ok(self.interrupted());
        }
        let load = Load::start(self.targets.subscribe(), self.whole.subscribe())?;
        self.load = Some(load);
        self.began = Instant::now();
        self.show.begin(Phase::Running);
        self.note("the load begins");
        if let Over::Interrupted = self.until_length_is_over().await {
            return Ok(self.interrupted());
        }
        if let Over::Interrupted = self.settle().await? {
            return Ok(self.interrupted());
        }
        self.read_back().await
    }

    /// Starts the nodes and makes them one cluster.
    async fn form(&mut self) -> anyhow::Result<Over> {
        self.note(format!("{} nodes start", self.play.nodes));
        let (fleet, nodes) = (self.fleet.clone(), self.play.nodes);
        let mut forming = tokio::task::spawn_blocking(move || fleet.form(nodes));
        let deadline = Instant::now() + SETTLE_WAIT;
        let formed = tokio::select! {
            formed = &mut forming => formed,
            over = self.until(deadline, |_| false) => match over {
                Over::Interrupted => return Ok(Over::Interrupted),
                Over::Reached | Over::TooLate => anyhow::bail!("the nodes do not start"),
            },
        };
        formed.context("forming the cluster died")??;
        self.note("they become one cluster");
        self.observe();
        self.retarget();
        let over = self.until(deadline, Self::is_whole).await;
        match over {
            Over::TooLate => anyhow::bail!("the cluster does not form: {}", self.hindrance()),
            Over::Reached => self.note("every key has its three replicas"),
            Over::Interrupted => {}
        }
        Ok(over)
    }

    /// Ends the load, heals, and waits until the cluster is whole.
    async fn settle(&mut self) -> anyhow::Result<Over> {
        self.show.begin(Phase::Settling);
        self.note("the load ends");
        self.cues.clear();
        if let Some(load) = &mut self.load {
            load.finish().await?;
        }
        let orders = self.scene.decide(Action::Heal).unwrap_or_default();
        orders.into_iter().for_each(|order| self.carry_out(order));
        let deadline = Instant::now() + SETTLE_WAIT;
        let over = self.until(deadline, Self::is_whole).await;
        if matches!(over, Over::TooLate) {
            let hindrance = self.hindrance();
            let seconds = SETTLE_WAIT.as_secs();
            self.find(format!("not whole again after {seconds} s: {hindrance}"));
        }
        Ok(over)
    }

    async fn read_back(&mut self) -> anyhow::Result<Ending> {
        self.show.begin(Phase::Reading);
        self.note("every key is read back");
        let load = self.load.take().context("no load")?;
        let (accounts, events) = (load.accounts().to_vec(), self.events.clone());
        let nodes: Vec<_> = self.targets.borrow().values().copied().collect();
        tokio::spawn(async move {
            let reading = reading_back::read_back(&accounts, &nodes).await;
            // A receiver that has gone was interrupted.
            let _heard_or_ending = events.send(Event::ReadBack(reading));
        });
        self.load = Some(load);
        let reading = loop {
            self.tick();
            let event = tokio::time::timeout(TICK, self.heard.recv()).await;
            match event {
                Ok(Some(Event::ReadBack(reading))) => break reading,
                Ok(Some(event)) => {
                    if self.hear(event) {
                        return Ok(self.interrupted());
                    }
                }
                Ok(None) => anyhow::bail!("nobody reads back"),
                Err(_nothing_happened) => {}
            }
        };
        Ok(self.ending(reading))
    }

    /// Continues until `deadline`, or until `is_reached` holds.
    async fn until(&mut self, deadline: Instant, is_reached: impl Fn(&Self) -> bool) -> Over {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                event = self.heard.recv() => {
                    if event.is_none_or(|event| self.hear(event)) {
                        return Over::Interrupted;
                    }
                }
                _ = tick.tick() => self.tick(),
            }
            if is_reached(self) {
                return Over::Reached;
            }
            if Instant::now() >= deadline {
                return Over::TooLate;
            }
        }
    }

    /// Continues to the end of the load; keys may change that time.
    async fn until_length_is_over(&mut self) -> Over {
        let never = self.began + LENGTH_MAX;
        self.until(never, |director| {
            director.began.elapsed() >= director.play.length
        })
        .await
    }

    /// Handles an event; true when everything has to end at once.
    fn hear(&mut self, event: Event) -> bool {
        match event {
            Event::Pressed(Press::Interrupt) => return true,
            // There is nothing to read back yet.
            Event::Pressed(Press::Act(Action::End)) if self.show.phase() == Phase::Forming => {
                return true;
            }
            Event::Pressed(Press::Act(action)) => self.act(action),
            Event::Pressed(Press::Select(node)) => self.scene.select(node),
            Event::Pressed(Press::Tour) => self.begin_tour(),
            Event::Outcome(outcome, note) => {
                self.disturb();
                self.scene.note(&outcome);
                self.note(note);
                self.retarget();
            }
            Event::Viewed(disturbances, views) => {
                self.observation.nodes = views;
                self.viewed_at = disturbances;
                self.note_silence();
            }
            Event::Transfers(disturbances, transfers) => {
                self.observation.transfers = transfers;
                self.judge_whole(disturbances);
            }
            Event::ReadBack(_) => {}
        }
        self.show();
        false
    }

    fn begin_tour(&mut self) {
        let elapsed = self.began.elapsed();
        if self.show.phase() == Phase::Running {
            let tour = Script::tour().delayed(elapsed);
            self.play.length = self
                .play
                .length
                .max(tour.length() + Duration::from_secs(15));
            self.cues = tour.into_cues();
            self.note("the tour begins");
        }
    }

    fn tick(&mut self) {
        self.follow_cues();
        self.look_after_nodes();
        self.show();
    }

    /// Carries out due cues. A cue that is not due blocks all later cues.
    fn follow_cues(&mut self) {
        let elapsed = self.began.elapsed();
        while let Some(cue) = self.cues.first().copied().filter(|cue| cue.at <= elapsed) {
            if self.show.phase() != Phase::Running || self.is_unseen_cut_healed_by(cue) {
                return;
            }
            match self.scene.decide(cue.action) {
                Ok(orders) => orders.into_iter().for_each(|order| self.carry_out(order)),
                Err(Refusal::NotYet(_)) => return,
                Err(Refusal::No(reason)) => self.note(format!("{}: {reason}", cue.action)),
            }
            self.cues.remove(0);
            // The load ends now, so this cue does not extend it, unlike others.
            if self.play.length_follows_script && cue.action != Action::End {
                self.play.length = self.play.length.max(elapsed + AFTER_SCRIPT);
            }
        }
    }

    /// True if this cue heals a cut that nodes have not detected yet; scripts wait, but not for
    /// ever.
    fn is_unseen_cut_healed_by(&self, cue: Cue) -> bool {
        let is_unseen = self.scene.is_cut() && !self.is_silence_noted;
        let is_awaited = self.began.elapsed() < cue.at + SILENCE_WAIT;
        cue.action == Action::Heal && is_unseen && is_awaited
    }

    /// Reports nodes that ended by themselves as findings.
    fn look_after_nodes(&mut self) {
        for node in self.scene.up() {
            let Ok(process) = self.fleet.node(node) else {
                continue;
            };
            if let Ok(Some(status)) = process.ended() {
                self.disturb();
                self.scene.note(&Outcome::NotStarted(node));
                let said = process.last_words();
                self.note(format!("node {node} ended by itself with {status}"));
                self.findings.push(format!(
                    "node {node} ended by itself with {status}; it said last:\n{said}"
                ));
                self.retarget();
            }
        }
    }

    fn act(&mut self, action: Action) {
        if self.show.phase() != Phase::Running {
            return;
        }
        match self.scene.decide(action) {
            Ok(orders) => orders.into_iter().for_each(|order| self.carry_out(order)),
            Err(refusal) => self.note(format!("{action}: {}", refusal.reason())),
        }
    }

    fn carry_out(&mut self, order: Order) {
        self.disturb();
        self.retarget();
        let fleet = self.fleet.clone();
        match order {
            Order::End => self.play.length = Duration::ZERO,
            Order::Cut(side) => {
                let names: Vec<String> = side.iter().map(ToString::to_string).collect();
                fleet.network.cut(side);
                self.note(format!(
                    "nothing passes between nodes {} and the others",
                    names.join(", ")
                ));
            }
            Order::Mend => {
                fleet.network.mend();
                self.note("the network is whole");
            }
            Order::Kill(node) => {
                self.note(format!("node {node} is killed"));
                tokio::task::spawn_blocking(move || fleet.node(node).map(|node| node.kill()));
            }
            Order::Start(node) => {
                self.note(format!("node {node} starts again"));
                self.report(
                    move || match fleet.node(node).and_then(|node| node.start()) {
                        Ok(()) => (Outcome::Up(node), format!("node {node} is back")),
                        Err(error) => (Outcome::NotStarted(node), format!("{error:#}")),
                    },
                );
            }
            Order::Add(node) => {
                self.note(format!("node {node} starts, and is to join"));
                self.report(move || add(&fleet, node));
            }
            Order::Remove(node) => {
                self.note(format!("node {node} is to leave"));
                let asking = self.load.as_ref().map(Load::asking);
                let is_asked = move || asking.as_ref().is_some_and(|asking| asking(node) > 0);
                self.report(move || remove(&fleet, node, is_asked));
            }
        }
    }

    /// Runs work on another thread; its outcome arrives as an event.
    fn report(&self, work: impl FnOnce() -> (Outcome, String) + Send + 'static) {
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let (outcome, note) = work();
            // A receiver that has gone is about to end.
            let _heard_or_ending = events.send(Event::Outcome(outcome, note));
        });
    }

    /// Asks all nodes repeatedly. For transfers, nodes ask one another, and wait for nodes that do
    /// not answer.
    fn observe(&self) {
        self.ask_again_and_again(|fleet, at| Event::Viewed(at, fleet.views()));
        self.ask_again_and_again(|fleet, at| Event::Transfers(at, fleet.transfers()));
    }

    fn ask_again_and_again(&self, ask: impl Fn(&Fleet, u64) -> Event + Send + 'static) {
        let (fleet, events) = (self.fleet.clone(), self.events.clone());
        let disturbances = Arc::clone(&self.disturbances);
        tokio::task::spawn_blocking(move || {
            loop {
                let before = disturbances.load(Ordering::SeqCst);
                if events.send(ask(&fleet, before)).is_err() {
                    return;
                }
                thread::sleep(OBSERVATION_PAUSE);
            }
        });
    }

    /// Invalidates earlier observations.
    fn disturb(&mut self) {
        self.disturbances.fetch_add(1, Ordering::SeqCst);
        self.whole_in_a_row = 0;
        self.whole.send_replace(None);
    }

    /// Decides whether the cluster is whole, from the nodes' answers since the last disturbance.
    fn judge_whole(&mut self, reported_at: u64) {
        let now = self.disturbances.load(Ordering::SeqCst);
        let is_current = reported_at == now && self.viewed_at == now;
        let nodes: Vec<NodeNumber> = self.scene.nodes().keys().copied().collect();
        let is_whole = is_current && self.scene.is_whole() && self.observation.is_whole(&nodes);
        self.whole_in_a_row = if is_whole { self.whole_in_a_row + 1 } else { 0 };
        let was_whole = self.whole.borrow().is_some();
        if self.is_whole() && !was_whole {
            self.wholes += 1;
            self.whole.send_replace(Some(self.wholes));
            if self.show.phase() == Phase::Running {
                self.note("all nodes see each other, and nothing is on its way");
            }
        } else if !self.is_whole() && was_whole {
            self.whole.send_replace(None);
        }
    }

    /// Notes, once for each cut, that the nodes have detected it.
    fn note_silence(&mut self) {
        let is_cut = self.scene.is_cut();
        let knows = |node: &NodeNumber| {
            let view = self.observation.nodes.get(node);
            view.is_some_and(|view| view.unreachable.len() >= self.scene.across(*node))
        };
        let all_know = is_cut && self.scene.up().iter().all(knows);
        if all_know && !self.is_silence_noted {
            self.note("neither half sees the other any more");
        }
        self.is_silence_noted = is_cut && (self.is_silence_noted || all_know);
    }

    fn is_whole(&self) -> bool {
        self.whole_in_a_row >= WHOLE_OBSERVATIONS
    }

    fn hindrance(&self) -> String {
        let nodes: Vec<NodeNumber> = self.scene.nodes().keys().copied().collect();
        let hindrance = self.scene.hindrance();
        hindrance.unwrap_or_else(|| self.observation.hindrance(&nodes))
    }

    /// Sets the nodes that the load may ask.
    fn retarget(&self) {
        let up = self.scene.up().into_iter();
        let address = |node| Some((node, self.fleet.node(node).ok()?.protobuf));
        self.targets.send_replace(up.filter_map(address).collect());
    }

    fn note(&mut self, note: impl Into<String>) {
        self.show.note(self.began.elapsed(), note.into());
    }

    fn find(&mut self, finding: String) {
        self.note(finding.clone());
        self.findings.push(finding);
    }

    fn show(&mut self) {
        let left = match self.show.phase() {
            Phase::Running => Some(self.play.length.saturating_sub(self.began.elapsed())),
            _ => None,
        };
        let (is_whole, hindrance) = (self.whole.borrow().is_some(), self.hindrance());
        let http = |node| self.fleet.node(node).map_or(0, |node| node.http.port());
        self.show.look(&crate::show::Look {
            elapsed: self.began.elapsed(),
            left,
            is_whole,
            hindrance,
            scene: &self.scene,
            observation: &self.observation,
            load: self.load.as_ref(),
            findings: self.findings.len(),
            http: &http,
        });
    }

    fn interrupted(&self) -> Ending {
        Ending {
            is_interrupted: true,
            ..self.ending(Reading::default())
        }
    }

    fn ending(&self, reading: Reading) -> Ending {
        let count = |of: fn(&Load) -> &AtomicU64| {
            let load = self.load.as_ref();
            load.map_or(0, |load| of(load).load(Ordering::SeqCst))
        };
        let mut findings = self.findings.clone();
        findings.extend(self.load.iter().flat_map(Load::findings));
        findings.extend(reading.findings);
        Ending {
            acknowledged: count(|load| &load.counts.acknowledged),
            judged: count(|load| &load.counts.judged),
            failures: count(|load| &load.counts.refused),
            lost: reading.lost.len() as u64,
            keys: reading.keys,
            findings,
            is_interrupted: false,
        }
    }
}

fn add(fleet: &Fleet, node: NodeNumber) -> (Outcome, String) {
    match fleet.add(node) {
        Ok(()) => (Outcome::Up(node), format!("node {node} has joined")),
        Err(error) => {
            fleet.discard(node);
            let note = format!("node {node} cannot join: {error:#}");
            (Outcome::Gone(node), note)
        }
    }
}

fn remove(fleet: &Fleet, node: NodeNumber, is_asked: impl Fn() -> bool) -> (Outcome, String) {
    match fleet.remove(node, is_asked) {
        Ok(()) => {
            let note = format!("node {node} has left and is stopped");
            (Outcome::Gone(node), note)
        }
        Err(error) => {
            let note = format!("node {node} cannot leave: {error:#}");
            (Outcome::Stays(node), note)
        }
    }
}
