//! Golden scripts for the machines of gets and puts, in `scripts/get` and `scripts/put`.
//!
//! A line with a bar begins a request: its replicas by the number of their node, a star for a
//! fallback, and its options. Each later line is an event, with its effects below it. Events and
//! effects name replicas by their places in the list. The test of each machine lists its words.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_golden::{Stage, play_scripts};
use kvorum_object::{ActorId, Clock, Content, Dot, Object, Resolution, Stored, Timestamp, Write};
use kvorum_ring::{Epoch, NodeId, PreferenceList, Replica, RingSize, Role};

use crate::error::RequestError;

/// A machine as scripts see it.
pub(crate) trait Machine {
    /// Takes one event and returns its effects as text.
    fn take(&mut self, event: &str) -> Vec<String>;
}

/// Starts a machine from the first line of its request and returns its first effects.
pub(crate) type Start = fn(&Header) -> (Box<dyn Machine>, Vec<String>);

/// The machine that a script has begun.
struct Requests {
    start: Start,
    machine: Option<Box<dyn Machine>>,
}

/// Plays all scripts of a folder.
#[track_caller]
pub(crate) fn play(folder: &str, start: Start) {
    play_scripts(folder, || Requests {
        start,
        machine: None,
    });
}

impl Stage for Requests {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let effects = if line.contains('|') {
            let (machine, effects) = (self.start)(&Header::parse(line));
            self.machine = Some(machine);
            effects
        } else {
            let machine = self.machine.as_mut().ok_or("no request has begun")?;
            machine.take(line)
        };
        Ok(match effects.is_empty() {
            true => Vec::new(),
            false => vec![effects.join(", ")],
        })
    }
}

/// `node node* ... | name=number word ...`: the replicas and the options of the request.
pub(crate) struct Header {
    pub(crate) replicas: PreferenceList,
    settings: Vec<String>,
}

impl Header {
    pub(crate) fn parse(line: &str) -> Self {
        let (nodes, settings) = line.split_once('|').unwrap();
        let nodes = nodes.split_whitespace().enumerate();
        let replicas = nodes.map(|(slot, text)| replica(slot, text)).collect();
        let settings = settings.split_whitespace().map(str::to_owned).collect();
        Self { replicas, settings }
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        let prefix = format!("{name}=");
        let found = self.settings.iter().find_map(|it| it.strip_prefix(&prefix));
        found.map(|number| number.parse().unwrap())
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.settings.iter().any(|setting| setting == word)
    }
}

fn replica(slot: usize, text: &str) -> Replica {
    let (node, role) = match text.strip_suffix('*') {
        Some(node) => (node, Role::Fallback),
        None => (text, Role::Primary),
    };
    let number: u8 = node.parse().unwrap();
    let ring = RingSize::new(64).unwrap();
    Replica {
        partition: ring.partition(u16::try_from(slot).unwrap()).unwrap(),
        node: NodeId::from_bytes([number; 16]),
        role,
        epoch: Epoch::FIRST,
    }
}

/// `slot: what` as its two parts.
pub(crate) fn slot_and_what(event: &str) -> Option<(usize, &str)> {
    let (slot, what) = event.split_once(": ")?;
    Some((slot.parse().unwrap(), what))
}

/// Objects of one key by name: `old`; `new` and `rival`, concurrent writes over `old`; `grave`, a
/// tombstone over `old`; `both`, siblings of `new` and `rival`; and `chosen`, which is `both` where
/// no siblings are kept.
pub(crate) fn object(name: &str) -> Option<Arc<Object>> {
    let old = || write("old", &Clock::new(), (1, 1));
    let over_old = |name, dot| write(name, old().clock(), dot);
    let both = |resolution| {
        let (new, rival) = (over_old("new", (1, 2)), over_old("rival", (2, 1)));
        kvorum_object::merge(new, rival, resolution)
    };
    let object = match name {
        "old" => old(),
        "new" => over_old("new", (1, 2)),
        "rival" => over_old("rival", (2, 1)),
        "grave" => over_old("", (3, 1)),
        "both" => both(Resolution::KeepSiblings),
        "chosen" => both(Resolution::NewestWins),
        _ => return None,
    };
    Some(Arc::new(object))
}

fn write(value: &'static str, context: &Clock, dot: (u64, u64)) -> Object {
    let mut content = Content::tombstone();
    content.metadata.deleted = value.is_empty();
    content.value = Bytes::from_static(value.as_bytes());
    let write = Write {
        context,
        content,
        dot: Dot {
            actor: ActorId(dot.0),
            counter: dot.1,
        },
        now: Timestamp::from_micros(10 * dot.1),
        resolution: Resolution::KeepSiblings,
    };
    kvorum_object::update(Stored::Absent, write).unwrap()
}

/// The siblings of an object by name.
pub(crate) fn name_of(object: &Object) -> String {
    let name = |sibling: &kvorum_object::Sibling| match &sibling.value[..] {
        b"" => "grave".to_owned(),
        value => String::from_utf8_lossy(value).into_owned(),
    };
    let names: Vec<String> = object.siblings().iter().map(name).collect();
    names.join("+")
}

/// Failures by name.
pub(crate) fn failure(name: &str) -> RequestError {
    match name {
        "overload" => RequestError::Overload,
        "full" => RequestError::DiskFull("no room".into()),
        "modified" => RequestError::Modified,
        "unknown" => RequestError::OutcomeUnknown,
        "unreachable" => RequestError::AllNodesDown,
        "broken" => RequestError::Storage("broken".into()),
        other => panic!("no failure is called {other}"),
    }
}
