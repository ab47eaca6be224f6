//! The trace of a run as one number: two runs of a seed are equal if their numbers are.

use std::time::Duration;

use parking_lot::Mutex;

/// A record of events; cheap enough to note every request.
#[derive(Debug, Default)]
pub struct Trace {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    hash: u64,
    events: u64,
    /// The last part of the run that began, with its time.
    part: (&'static str, Duration),
    /// The events in words, for comparing two runs.
    kept: Option<Vec<String>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            part: ("the start", Duration::ZERO),
            kept: None,
        }
    }
}

impl Trace {
    /// A trace that also keeps its events, if wanted.
    pub fn new(is_kept: bool) -> Self {
        let trace = Self::default();
        trace.state.lock().kept = is_kept.then(Vec::new);
        trace
    }

    /// Notes an event.
    pub fn note(&self, at: Duration, event: &str) {
        let mut state = self.state.lock();
        // FNV-1a over the time and the words.
        let time = u64::try_from(at.as_micros())
            .unwrap_or(u64::MAX)
            .to_le_bytes();
        for byte in time.iter().chain(event.as_bytes()) {
            state.hash = (state.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.events += 1;
        if let Some(kept) = &mut state.kept {
            kept.push(format!("{:>10} us  {event}", at.as_micros()));
        }
    }

    /// Notes the beginning of a part of the run.
    pub fn begin_part(&self, at: Duration, part: &'static str) {
        self.note(at, part);
        self.state.lock().part = (part, at);
    }

    /// The last part that began, with its time: a run that does not end is stuck in it.
    pub fn part(&self) -> (&'static str, Duration) {
        self.state.lock().part
    }

    /// The number.
    pub fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// The kept events.
    pub fn take_kept(&self) -> Vec<String> {
        let mut state = self.state.lock();
        state.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
