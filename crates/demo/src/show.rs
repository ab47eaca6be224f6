//! The show: pictures of the run for its audience.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};

use crate::keys::{self, Press};
use crate::lines::Lines;
use crate::load::Load;
use crate::observation::Observation;
use crate::picture::{Cell, NodeRow, Phase, Picture, Rates};
use crate::scene::{Scene, Stage};
use crate::screen;
use crate::script::NodeNumber;

/// Time between two pictures on a terminal.
const FRAME: Duration = Duration::from_millis(200);
/// The period of rates.
const RATE_PERIOD: Duration = Duration::from_secs(1);
/// Seconds for which the numbers of writes are kept.
const HISTORY: usize = 300;
/// Longest wait for a key, and for the end of the thread that reads keys.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The audience of the show.
pub(crate) enum Audience {
    /// A user at a terminal.
    Screen(Box<Screen>),
    /// A reader of lines.
    Lines(Lines),
    /// A program that reads one document from standard output at the end; lines go to standard
    /// error.
    Program(Lines),
}

/// A terminal, which is restored when this is dropped.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: Option<Keys>,
}

/// The thread that reads keys.
struct Keys {
    stop: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

/// The sources of a picture.
pub(crate) struct Look<'a> {
    pub(crate) elapsed: Duration,
    pub(crate) left: Option<Duration>,
    pub(crate) is_whole: bool,
    pub(crate) hindrance: String,
    pub(crate) scene: &'a Scene,
    pub(crate) observation: &'a Observation,
    pub(crate) load: Option<&'a Load>,
    pub(crate) findings: usize,
    /// The port of a node's HTTP interface.
    pub(crate) http: &'a dyn Fn(NodeNumber) -> u16,
}

/// See the module's description.
pub(crate) struct Show {
    audience: Audience,
    picture: Picture,
    owners: Vec<Option<NodeNumber>>,
    operations: BTreeMap<NodeNumber, u64>,
    /// The counts of acknowledged, read and refused at the last rates.
    before: [u64; 3],
    rated: Instant,
    /// The error of the last failed request that was shown.
    failure: Option<String>,
    shown: Option<Instant>,
}

impl Audience {
    /// Prepares for an audience that may press keys and send signals. Must be called in the
    /// runtime.
    pub(crate) fn welcome(
        is_screen: bool,
        has_keys: bool,
        is_program: bool,
        heard: impl Fn(Press) + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            let mut signals = signal(kind).context("catch a signal")?;
            let heard = heard.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    heard(Press::Interrupt);
                }
            });
        }
        if is_program {
            return Ok(Self::Program(Lines::default()));
        }
        if !is_screen {
            return Ok(Self::Lines(Lines::default()));
        }
        let terminal = ratatui::try_init().context("take over the terminal")?;
        let keys = has_keys.then(|| Keys::look(heard));
        Ok(Self::Screen(Box::new(Screen { terminal, keys })))
    }
}

impl Keys {
    fn look(heard: impl Fn(Press) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looking = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                match event::poll(KEY_WAIT)
                    .and_then(|is_there| is_there.then(event::read).transpose())
                {
                    Ok(Some(Event::Key(key))) => {
                        if let Some(press) = keys::press(key) {
                            heard(press);
                        }
                    }
                    Ok(_) => {}
                    // The terminal is gone.
                    Err(_) => {
                        heard(Press::Interrupt);
                        return;
                    }
                }
            }
        });
        Self {
            stop,
            looking: Some(looking),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.stop.store(true, Ordering::SeqCst);
            let _ended = keys.looking.take().map(JoinHandle::join);
        }
        ratatui::restore();
    }
}

impl Show {
    pub(crate) fn new(audience: Audience) -> Self {
        Self {
            audience,
            picture: Picture::default(),
            owners: Vec::new(),
            operations: BTreeMap::new(),
            before: [0; 3],
            rated: Instant::now(),
            failure: None,
            shown: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.picture.phase
    }

    pub(crate) fn begin(&mut self, phase: Phase) {
        self.picture.phase = phase;
    }

    pub(crate) fn note(&mut self, at: Duration, note: String) {
        self.picture.notes.push((at, note));
    }

    /// Makes a picture, and shows it when it is due.
    pub(crate) fn look(&mut self, look: &Look<'_>) {
        self.take_rates(look.load);
        self.owners = look.observation.owners(&self.owners);
        let pending = look.observation.pending();
        let cells = self.owners.iter().enumerate();
        let cells = cells.map(|(partition, owner)| Cell {
            owner: *owner,
            next: pending.get(&partition).copied().flatten(),
        });
        let rows = self.rows(look);
        let picture = &mut self.picture;
        picture.ring = cells.collect();
        picture.elapsed = look.elapsed;
        picture.left = look.left;
        picture.is_whole = look.is_whole;
        picture.hindrance.clone_from(&look.hindrance);
        picture.findings = look.findings;
        picture
            .transfers
            .clone_from(&look.observation.transfers.active);
        picture.transfers_waiting = look.observation.transfers.waiting;
        picture.nodes = rows;
        self.show();
    }

    fn rows(&self, look: &Look<'_>) -> Vec<NodeRow> {
        let row = |(&number, stage): (&NodeNumber, &Stage)| {
            let view = look.observation.nodes.get(&number);
            let members = view.map_or(0, |view| view.members.len());
            let side = look.scene.is_on_first_side(number);
            NodeRow {
                number,
                state: match (self.picture.phase, view) {
                    (Phase::Forming, None) => Stage::Starting.word(),
                    _ => stage.word(),
                },
                is_selected: look.scene.selected() == Some(number),
                side: side.map(|is_first| if is_first { 'A' } else { 'B' }),
                sees: view.map(|view| (members - view.unreachable.len(), members)),
                partitions: self.owners.iter().filter(|it| **it == Some(number)).count(),
                hints: look
                    .observation
                    .transfers
                    .hints
                    .get(&number)
                    .copied()
                    .unwrap_or(0),
                operations: self.operations.get(&number).copied().unwrap_or(0),
                http: (look.http)(number),
            }
        };
        look.scene.nodes().iter().map(row).collect()
    }

    fn take_rates(&mut self, load: Option<&Load>) {
        let Some(load) = load else { return };
        let counts = &load.counts;
        let now = [&counts.acknowledged, &counts.reads, &counts.refused]
            .map(|count| count.load(Ordering::Relaxed));
        self.picture.acknowledged = now[0];
        self.picture.judged = counts.judged.load(Ordering::Relaxed);
        self.picture.siblings = counts.siblings.load(Ordering::Relaxed);
        self.picture.lost = load.lost();
        let since = self.rated.elapsed();
        if since < RATE_PERIOD {
            return;
        }
        let rate = |count: u64| {
            let per_second = count as f64 / since.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is not negative and far below 2^53"
            )]
            let rounded = per_second.round() as u64;
            rounded
        };
        if let Some(failure) = counts.take_failure()
            && self.failure.as_ref() != Some(&failure)
        {
            let text = failure.trim_start_matches("the server answers: ");
            let note = format!("a request failed: {text}");
            self.picture.notes.push((self.picture.elapsed, note));
            self.failure = Some(failure);
        }
        let [median, p99, longest] = counts.take_latencies();
        let mut history = std::mem::take(&mut self.picture.rates.history);
        history.push(rate(now[0] - self.before[0]));
        let old = history.len().saturating_sub(HISTORY);
        history.drain(..old);
        self.picture.rates = Rates {
            writes: rate(now[0] - self.before[0]),
            reads: rate(now[1] - self.before[1]),
            failures: rate(now[2] - self.before[2]),
            median,
            p99,
            longest,
            history,
        };
        let by_node = counts.take_by_node().into_iter();
        self.operations = by_node.map(|(node, count)| (node, rate(count))).collect();
        (self.before, self.rated) = (now, Instant::now());
    }

    fn show(&mut self) {
        match &mut self.audience {
            Audience::Lines(lines) => lines.show(&self.picture, &mut io::stdout()),
            Audience::Program(lines) => lines.show(&self.picture, &mut io::stderr()),
            Audience::Screen(screen) => {
                if self.shown.is_some_and(|shown| shown.elapsed() < FRAME) {
                    return;
                }
                self.shown = Some(Instant::now());
                // A signal reports the loss of the terminal.
                let _shown_or_gone = screen
                    .terminal
                    .draw(|frame| screen::draw(frame, &self.picture));
            }
        }
    }

    /// Restores the terminal.
    pub(crate) fn end(&mut self) {
        if let Audience::Screen(_) = self.audience {
            self.audience = Audience::Lines(Lines::after(&self.picture));
        }
    }
}
