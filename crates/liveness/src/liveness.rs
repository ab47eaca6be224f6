//! The driver: events in, messages and timers out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{BufMut as _, Bytes, BytesMut};
use kvorum_peer::{Lane, Message, Peers};
use kvorum_ring::NodeId;
use kvorum_runtime::{Runtime, TaskGuard};
use tokio::sync::mpsc;

use crate::detector::{Detector, Event, Wanted};
use crate::settings::LivenessSettings;

/// The first byte of every message of this service.
const SERVICE: u8 = b'L';

/// A message of this service without content: only the answer to it counts.
const QUESTION: &[u8] = &[SERVICE];

/// Maximum of events that wait for the detector. More wait only if it is stuck, and they are
/// outdated.
const EVENTS_MAX: usize = 10_000;

/// The nodes that seem to be up. Cheap to clone.
#[derive(Clone)]
pub struct Liveness {
    events: mpsc::Sender<Event>,
    up: Arc<ArcSwap<BTreeSet<NodeId>>>,
    _driving: Arc<TaskGuard<()>>,
}

impl Liveness {
    /// Starts the detector. `generation` must be higher than in any earlier run of this node, as is
    /// the time in microseconds unless clocks jump. A node that others mistake for an earlier run
    /// takes a higher one.
    pub fn start(
        runtime: &Runtime,
        peers: Peers,
        node: NodeId,
        generation: u64,
        settings: LivenessSettings,
    ) -> Self {
        let (events, waiting) = mpsc::channel(EVENTS_MAX);
        let up = Arc::new(ArcSwap::from_pointee(BTreeSet::from([node])));
        let driver = Driver {
            runtime: runtime.clone(),
            peers,
            detector: Detector::new(node, generation, runtime.random_u64(), &settings),
            events: events.downgrade(),
            up: up.clone(),
            settings,
        };
        let driving = runtime.spawn("liveness", driver.run(waiting));
        Self {
            events,
            up,
            _driving: Arc::new(driving.abort_on_drop()),
        }
    }

    /// True for a member that seems to be up. Cheap, since every request calls it.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.up.load().contains(&node)
    }

    /// The members that seem to be up, this node included.
    pub fn up(&self) -> Arc<BTreeSet<NodeId>> {
        self.up.load_full()
    }

    /// Gives the detector the members.
    pub fn follow_members(&self, members: BTreeSet<NodeId>) {
        self.send(Event::Members(members));
    }

    /// True for messages of this service.
    pub fn serves(message: &Message) -> bool {
        message.head.first() == Some(&SERVICE)
    }

    /// Handles another node's message. The answer to it is empty, as is the answer to a question.
    pub fn hear(&self, message: &Message) {
        if Self::serves(message) && message.head.len() > QUESTION.len() {
            self.send(Event::Heard(message.head.slice(1..)));
        }
    }

    /// Announces that this node leaves, so that the others need not detect it.
    pub fn leave(&self) {
        self.send(Event::Leave);
    }

    fn send(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            tracing::warn!(event = "liveness_event_dropped");
        }
    }
}

struct Driver {
    runtime: Runtime,
    peers: Peers,
    detector: Detector,
    /// The events for timers, without keeping the detector running.
    events: mpsc::WeakSender<Event>,
    up: Arc<ArcSwap<BTreeSet<NodeId>>>,
    settings: LivenessSettings,
}

impl Driver {
    async fn run(mut self, mut waiting: mpsc::Receiver<Event>) {
        self.greet_again();
        self.ask_again();
        while let Some(event) = waiting.recv().await {
            match event {
                Event::Announce => self.greet_again(),
                Event::Ask => self.ask_again(),
                _ => {}
            }
            let wanted = self.detector.take(event);
            self.publish();
            self.carry_out(wanted);
        }
    }

    fn greet_again(&self) {
        self.after(self.settings.greeting_period, Event::Announce);
    }

    fn ask_again(&self) {
        self.after(self.settings.question_period, Event::Ask);
    }

    fn publish(&self) {
        let up = self.detector.up();
        let before = self.up.load();
        if **before == up {
            return;
        }
        for node in up.difference(&before) {
            tracing::info!(event = "node_up", node = %node);
        }
        for node in before.difference(&up) {
            tracing::warn!(event = "node_down", node = %node);
        }
        self.up.store(Arc::new(up));
    }

    fn carry_out(&self, wanted: Wanted) {
        for (node, data) in wanted.messages {
            self.send(node, &data);
        }
        for (timer, after) in wanted.timers {
            self.after(after, Event::TimeOut(timer));
        }
        for node in wanted.questions {
            self.ask(node);
        }
    }

    /// Asks a node for an answer. An answer after the next questions still shows that the node can
    /// be reached.
    fn ask(&self, node: NodeId) {
        let (peers, events) = (self.peers.clone(), self.events.clone());
        let patience = self.settings.question_period * self.settings.unanswered_max;
        let deadline = self.runtime.now().plus(patience);
        self.runtime.spawn("liveness question", async move {
            let question = Message::of_head(Bytes::from_static(QUESTION));
            let answer = peers.request(node, Lane::Control, question, deadline);
            if let (Ok(_), Some(events)) = (answer.await, events.upgrade()) {
                // A stopped detector needs no answer.
                let _sent_or_gone = events.send(Event::Answered(node)).await;
            }
        });
    }

    /// Sends a message, or gives up after a probe's period: by then the detector counts it as lost.
    fn send(&self, node: NodeId, data: &Bytes) {
        let mut head = BytesMut::with_capacity(1 + data.len());
        head.put_u8(SERVICE);
        head.put_slice(data);
        let peers = self.peers.clone();
        let deadline = self.runtime.now().plus(self.settings.probe_period);
        self.runtime.spawn("liveness message", async move {
            let message = Message::of_head(head.freeze());
            let sent = peers.request(node, Lane::Control, message, deadline).await;
            if let Err(error) = sent {
                tracing::trace!(event = "liveness_message_lost", error = %error);
            }
        });
    }

    fn after(&self, duration: Duration, event: Event) {
        let (events, runtime) = (self.events.clone(), self.runtime.clone());
        self.runtime.spawn("liveness timer", async move {
            runtime.sleep(duration).await;
            if let Some(events) = events.upgrade() {
                // A stopped detector needs no timer.
                let _sent_or_gone = events.send(event).await;
            }
        });
    }
}
