//! Faults of single messages between nodes: lost, delivered twice, overtaken by later ones.
//!
//! The faults act between connections and a node's services, and not in the network: connections
//! are ordered streams, on which a message is lost only with all that follow. They imitate the
//! effects of streams. A broken stream loses requests and answers. A clogged stream delivers a
//! request after its sender has repeated it over another stream, so that it arrives twice. Requests
//! on one stream are cut into fragments that take turns, are carried out side by side, and overtake
//! one another.
//!
//! A put that a replica coordinates is never repeated, so it does not arrive twice. It gets its dot
//! when it is carried out, so a second time would be a second write. Its sender tries it again only
//! when it was certainly not carried out (`kvorum-coordinator`, `writing`).

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kvorum_agreement::Agreement;
use kvorum_peer::{Caller, Lane, Message, PeerService, Served};
use kvorum_ring::NodeId;
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::Operation;
use kvorum_vnode::wire::{PeerRequest, WireMessage, decode_request};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::draw::Draw;
use crate::fault::FaultKind;
use crate::trace::Trace;

/// The present faults of messages, for all nodes.
pub(crate) struct Messages {
    runtime: Runtime,
    trace: Arc<Trace>,
    disturbances: Mutex<BTreeMap<usize, Disturbance>>,
}

/// One fault, while it lasts and while messages that it delays are under way.
#[derive(Debug)]
pub(crate) struct Disturbance {
    pub(crate) kind: FaultKind,
    /// The node whose messages it hits; `None` for all.
    pub(crate) to: Option<u8>,
    /// Percentage of messages that it hits.
    pub(crate) percent: u64,
    /// The longest delay.
    pub(crate) late_max: Duration,
    /// Decides which messages it hits.
    pub(crate) draw: Draw,
    /// False when no further message is hit.
    pub(crate) lasts: bool,
    /// Messages that were lost, arrived twice, or were overtaken.
    pub(crate) hits: u64,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    RequestLost,
    AnswerLost,
    Twice { after: Duration },
    HeldBack { by: Duration },
}

impl Messages {
    pub(crate) fn new(runtime: Runtime, trace: Arc<Trace>) -> Self {
        Self {
            runtime,
            trace,
            disturbances: Mutex::default(),
        }
    }

    /// Begins a fault.
    pub(crate) fn begin(&self, fault: usize, disturbance: Disturbance) {
        self.disturbances.lock().insert(fault, disturbance);
    }

    /// Ends the hits of a fault; messages that it holds back stay under way.
    pub(crate) fn let_be(&self, fault: usize) {
        if let Some(disturbance) = self.disturbances.lock().get_mut(&fault) {
            disturbance.lasts = false;
        }
    }

    /// Ends a fault; returns the number of messages that it hit.
    pub(crate) fn end(&self, fault: usize) -> u64 {
        let disturbance = self.disturbances.lock().remove(&fault);
        disturbance.map_or(0, |it| it.hits)
    }

    /// The fate of a message to a node, with the fault that decides it; `None` without a fault.
    fn fate(&self, to: u8, message: &Message) -> Option<(usize, Fate)> {
        let mut disturbances = self.disturbances.lock();
        disturbances.iter_mut().find_map(|(fault, disturbance)| {
            let concerns = disturbance.lasts && disturbance.to.is_none_or(|it| it == to);
            let fate = concerns.then(|| disturbance.draw_fate(message)).flatten();
            fate.map(|fate| (*fault, fate))
        })
    }

    fn note_hit(&self, fault: usize, what: &str) {
        if let Some(disturbance) = self.disturbances.lock().get_mut(&fault) {
            disturbance.hits += 1;
        }
        let at = self.runtime.now().elapsed();
        self.trace.note(at, &format!("fault {fault}: {what}"));
    }
}

impl Disturbance {
    fn draw_fate(&mut self, message: &Message) -> Option<Fate> {
        if !self.draw.chance(self.percent) {
            return None;
        }
        let late_max = u64::try_from(self.late_max.as_millis()).unwrap_or(1);
        let late = Duration::from_millis(self.draw.between(1, late_max));
        match self.kind {
            FaultKind::LateNews => Agreement::serves(message).then_some(Fate::RequestLost),
            FaultKind::LostMessages if self.draw.chance(50) => Some(Fate::RequestLost),
            FaultKind::LostMessages => Some(Fate::AnswerLost),
            FaultKind::DoubledMessages if is_new_write(message) => None,
            FaultKind::DoubledMessages => Some(Fate::Twice { after: late }),
            _ => Some(Fate::HeldBack { by: late }),
        }
    }
}

/// True for a put, or an operation on a data type, that the receiver coordinates: it is never sent
/// twice.
fn is_new_write(message: &Message) -> bool {
    let (head, body) = (message.head.clone(), message.body.clone());
    let Ok(PeerRequest::Replica { request, .. }) = decode_request(&WireMessage { head, body })
    else {
        return false;
    };
    matches!(
        request.operation,
        Operation::Coordinate { .. } | Operation::Apply { .. }
    )
}

/// A node's services, behind the faults of messages to them.
pub(crate) struct Front {
    number: u8,
    runtime: Runtime,
    messages: Arc<Messages>,
    service: Arc<dyn PeerService>,
    delivered: Delivered,
}

/// Number of messages that were delivered, by the connection on which they came.
#[derive(Clone, Default)]
struct Delivered(Arc<Mutex<BTreeMap<(NodeId, Lane), u64>>>);

impl Delivered {
    fn count(&self, caller: Caller) -> u64 {
        let counts = self.0.lock();
        counts
            .get(&(caller.node, caller.lane))
            .copied()
            .unwrap_or(0)
    }

    fn count_in(&self, caller: Caller) {
        *self.0.lock().entry((caller.node, caller.lane)).or_default() += 1;
    }
}

/// A delivery of a message, which may happen twice.
#[derive(Clone)]
struct Delivery {
    runtime: Runtime,
    service: Arc<dyn PeerService>,
    delivered: Delivered,
    caller: Caller,
    message: Message,
    /// The time for which its sender waits, from its arrival.
    wait: Duration,
}

impl Delivery {
    fn deliver(self) -> Served {
        self.delivered.count_in(self.caller);
        let deadline = self.runtime.now().plus(self.wait);
        self.service.handle(self.caller, self.message, deadline)
    }

    /// Delivers the message; returns the answer if it comes in time. `None` also for "overload".
    async fn answer(self) -> Option<Message> {
        let (runtime, wait) = (self.runtime.clone(), self.wait);
        match self.deliver() {
            Served::Now(answer) => Some(answer),
            Served::Later(answer) => runtime.timeout(wait, answer).await.ok(),
            Served::Overload => None,
        }
    }
}

impl PeerService for Front {
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served {
        let fate = self.messages.fate(self.number, &message);
        let delivery = Delivery {
            runtime: self.runtime.clone(),
            service: self.service.clone(),
            delivered: self.delivered.clone(),
            caller,
            message,
            wait: deadline.since(self.runtime.now()),
        };
        let Some((fault, fate)) = fate else {
            return delivery.deliver();
        };
        let way = format!("from {} on {}", caller.node, caller.lane.name());
        match fate {
            Fate::RequestLost => {
                self.messages
                    .note_hit(fault, &format!("a request {way} is lost"));
                Served::Later(Box::pin(pending()))
            }
            Fate::AnswerLost => {
                self.messages
                    .note_hit(fault, &format!("the answer to a request {way} is lost"));
                Served::Later(Box::pin(async move {
                    let _lost = delivery.answer().await;
                    pending().await
                }))
            }
            Fate::Twice { after } => self.twice(delivery, fault, after, way),
            Fate::HeldBack { by } => self.held_back(delivery, fault, by, way),
        }
    }
}

impl Front {
    /// A front before the services of the node with this number.
    pub(crate) fn new(
        number: u8,
        runtime: Runtime,
        messages: Arc<Messages>,
        service: Arc<dyn PeerService>,
    ) -> Self {
        Self {
            number,
            runtime,
            messages,
            service,
            delivered: Delivered::default(),
        }
    }

    /// Delivers the message now and once more later. The first answer counts. A request that is
    /// refused because of an overload is not delivered again: that answer means that nothing was
    /// done.
    fn twice(&self, first: Delivery, fault: usize, after: Duration, way: String) -> Served {
        let (second, runtime) = (first.clone(), self.runtime.clone());
        let (sender, mut answers) = mpsc::unbounded_channel();
        let served = first.deliver();
        if matches!(served, Served::Overload) {
            return served;
        }
        let (answered, messages) = (sender.clone(), self.messages.clone());
        self.runtime.spawn("second delivery", async move {
            runtime.sleep(after).await;
            messages.note_hit(fault, &format!("a request {way} comes twice"));
            if let Some(answer) = second.answer().await {
                // A caller with an answer needs no other.
                let _first_or_second = answered.send(answer);
            }
        });
        let answer = match served {
            Served::Later(answer) => answer,
            at_once => return at_once,
        };
        // Dropped with the request if its sender cancels it; later deliveries still follow.
        Served::Later(Box::pin(async move {
            let first = async move {
                let _first_or_second = sender.send(answer.await);
                pending::<()>().await;
            };
            let mut first = std::pin::pin!(first);
            let answer = std::future::poll_fn(|context| {
                let _never = first.as_mut().poll(context);
                answers.poll_recv(context)
            });
            match answer.await {
                Some(answer) => answer,
                None => pending().await,
            }
        }))
    }

    /// Delivers the message later, behind messages that arrive on its connection meanwhile, even if
    /// its sender no longer waits: a sent message arrives.
    fn held_back(&self, delivery: Delivery, fault: usize, by: Duration, way: String) -> Served {
        let (runtime, messages) = (self.runtime.clone(), self.messages.clone());
        let before = delivery.delivered.count(delivery.caller);
        let (sender, mut answers) = mpsc::unbounded_channel();
        self.runtime.spawn("late delivery", async move {
            runtime.sleep(by).await;
            if delivery.delivered.count(delivery.caller) > before {
                messages.note_hit(fault, &format!("a request {way} is overtaken"));
            }
            if let Some(answer) = delivery.answer().await {
                // A caller that has gone needs no answer.
                let _waits_or_not = sender.send(answer);
            }
        });
        Served::Later(Box::pin(async move {
            match answers.recv().await {
                Some(answer) => answer,
                None => pending().await,
            }
        }))
    }
}
