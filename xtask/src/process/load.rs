//! Writers that record acknowledgements, and readers that compare the server with them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};
use kvorum_witness::{Lengths, attempt_of, value};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::process::history::{Content, History};

/// Connections that write at the same time.
const WRITERS: u32 = 16;

/// Keys of each writer: few, so that most writes overwrite.
const KEYS_OF_A_WRITER: u32 = 40;

/// The bucket of all writers.
const BUCKET: &[u8] = b"survivors";

/// All writers, with their records of all rounds.
pub(crate) struct Load {
    runtime: Runtime,
    histories: Vec<History>,
}

/// Running writers.
pub(crate) struct Writing {
    signals: Arc<Signals>,
    writers: Vec<JoinHandle<Written>>,
}

/// The state of the disk's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Power {
    /// The power is on: acknowledgements count.
    On,
    /// The power is being cut. A machine without power acknowledges nothing, so later
    /// acknowledgements do not count.
    Failing,
    /// The power is off. Attempts that start now must not be acknowledged at all.
    Off,
}

/// Signals to the running writers.
#[derive(Debug, Default)]
struct Signals {
    stop: AtomicBool,
    power: AtomicU8,
}

impl Signals {
    fn power_is(&self, power: Power) -> bool {
        self.power.load(Ordering::SeqCst) == power as u8
    }
}

/// A writer's results.
#[derive(Debug, Default)]
struct Written {
    history: History,
    /// Writes that a server without power for its disk acknowledged.
    impossible: u32,
}

/// The result of a verification.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) keys: usize,
    /// Impossible contents, one sentence each.
    pub(crate) losses: Vec<String>,
}

impl Load {
    /// Writers without a history.
    pub(crate) fn new() -> anyhow::Result<Load> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("starting the writers' runtime")?;
        let histories = (0..WRITERS).map(|_| History::default()).collect();
        Ok(Load { runtime, histories })
    }

    /// Starts every writer; each runs until its connection breaks.
    pub(crate) fn start(&mut self, server: SocketAddr, seed: u64) -> Writing {
        let signals = Arc::new(Signals::default());
        let writers = (0..WRITERS)
            .zip(self.histories.drain(..))
            .map(|(writer, history)| {
                let random = StdRng::seed_from_u64(seed ^ (u64::from(writer) << 32));
                let signals = Arc::clone(&signals);
                self.runtime
                    .spawn(write(server, writer, history, random, signals))
            })
            .collect();
        Writing { signals, writers }
    }

    /// Ends the writing and collects the writers' records.
    ///
    /// # Errors
    /// If a server without power acknowledged a write.
    pub(crate) fn finish(&mut self, writing: Writing) -> anyhow::Result<()> {
        writing.signals.stop.store(true, Ordering::SeqCst);
        let mut impossible = 0;
        for writer in writing.writers {
            let written = self.runtime.block_on(writer).context("a writer died")?;
            self.histories.push(written.history);
            impossible += written.impossible;
        }
        ensure!(
            impossible == 0,
            "{impossible} attempts were acknowledged that began after the power was cut"
        );
        Ok(())
    }

    /// The number of acknowledged writes and deletes.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.histories.iter().map(History::acknowledged).sum()
    }

    /// Writes one key outside the writers' ranges.
    ///
    /// # Errors
    /// If the server refuses the write, or does not answer.
    pub(crate) fn put_once(&self, server: SocketAddr) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            let mut client = Client::connect(server, &ClientSettings::default()).await?;
            let value = Bytes::from_static(&[7; 1_000]);
            client.put_value(BUCKET, b"of nobody", value).await?;
            Ok(())
        })
    }

    /// Reads and compares every key that was ever written; from here on only these contents count.
    pub(crate) fn verify(&mut self, server: SocketAddr) -> anyhow::Result<Survey> {
        self.survey(server, History::judge)
    }

    /// Reads and compares every key that was ever written. A refused write may be visible, and may
    /// be gone after a crash.
    pub(crate) fn look(&mut self, server: SocketAddr) -> anyhow::Result<Survey> {
        self.survey(server, History::compare)
    }

    fn survey(&mut self, server: SocketAddr, judge: Judge) -> anyhow::Result<Survey> {
        let mut survey = Survey::default();
        for (writer, history) in (0..WRITERS).zip(&mut self.histories) {
            self.runtime
                .block_on(verify(server, writer, history, judge, &mut survey))?;
        }
        Ok(survey)
    }
}

impl Writing {
    /// True when each writer's last attempt was refused, or its connection broke.
    pub(crate) fn is_over(&self) -> bool {
        self.writers.iter().all(JoinHandle::is_finished)
    }

    /// Signals the state of the power to the writers.
    pub(crate) fn set_power(&self, power: Power) {
        self.signals.power.store(power as u8, Ordering::SeqCst);
    }
}

impl Survey {
    /// # Errors
    /// The first few losses.
    pub(crate) fn require_no_loss(&self) -> anyhow::Result<()> {
        if self.losses.is_empty() {
            return Ok(());
        }
        let first: Vec<&str> = self.losses.iter().take(5).map(String::as_str).collect();
        bail!(
            "{} of {} keys: {}",
            self.losses.len(),
            self.keys,
            first.join("; ")
        );
    }
}

/// Writes and deletes until the connection breaks or until the signal to stop. A refused attempt
/// also ends the writer, since its effect is as unknown as after a broken connection.
async fn write(
    server: SocketAddr,
    writer: u32,
    history: History,
    mut random: StdRng,
    signals: Arc<Signals>,
) -> Written {
    let mut written = Written {
        history,
        impossible: 0,
    };
    let settings = ClientSettings {
        answer_timeout: Some(Duration::from_secs(20)),
        ..ClientSettings::default()
    };
    let Ok(mut client) = Client::connect(server, &settings).await else {
        return written;
    };
    while !signals.stop.load(Ordering::SeqCst) {
        let key = random.random_range(0..KEYS_OF_A_WRITER);
        let name = name(writer, key);
        let is_delete = random.random_ratio(1, 10);
        // An answer that there is nothing to delete needs no disk.
        let lacks_power = !is_delete && signals.power_is(Power::Off);
        let result = if is_delete {
            written.history.attempt_delete(key);
            client.delete_key(BUCKET, &name).await
        } else {
            let attempt = written.history.attempt_write(key);
            let value = Bytes::from(value(writer, key, attempt, Lengths::Varied));
            client.put_value(BUCKET, &name, value).await
        };
        if result.is_err() {
            break;
        }
        if signals.power_is(Power::On) {
            written.history.acknowledge(key);
        }
        written.impossible += u32::from(lacks_power);
    }
    written
}

/// A check of a key's contents.
type Judge = fn(&mut History, u32, Content) -> Result<(), String>;

async fn verify(
    server: SocketAddr,
    writer: u32,
    history: &mut History,
    judge: Judge,
    survey: &mut Survey,
) -> anyhow::Result<()> {
    let mut client = Client::connect(server, &ClientSettings::default())
        .await
        .context("connecting to verify")?;
    for key in history.keys() {
        let answer = client
            .get_key(BUCKET, &name(writer, key))
            .await
            .with_context(|| format!("reading key {key} of writer {writer}"))?;
        ensure!(
            answer.content.len() <= 1,
            "key {key} of writer {writer} has {} siblings in a bucket that allows none",
            answer.content.len()
        );
        survey.keys += 1;
        let observed = answer
            .content
            .first()
            .map(|content| attempt_of(writer, key, &content.value, Lengths::Varied))
            .transpose();
        let verdict = observed.and_then(|observed| judge(history, key, observed));
        if let Err(loss) = verdict {
            survey.losses.push(format!("writer {writer}: {loss}"));
        }
    }
    Ok(())
}

fn name(writer: u32, key: u32) -> Vec<u8> {
    format!("writer-{writer}/key-{key}").into_bytes()
}
