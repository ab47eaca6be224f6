//! Transfers as golden scripts (`scripts/`): the questions of one machine, and the answers to them.
//!
//! | command | meaning |
//! |---|---|
//! | `from P ...` | begins to fill partition 3 from these vnodes |
//! | `go`, `noted`, `stored`, `not stored`, `after SECONDS` | events of the receiver's own side; time passes |
//! | `admitted EPOCH` | the budget lets the next question pass |
//! | `page KEY ... [last] [but KEY] [of epoch N] [of another session]` | the source answers with these keys; one after `but` was sent and did not come |
//! | `large KEY [last]`, `piece BYTES`, `piece` | the source answers with a large object, and with pieces of it; the last piece has all remaining bytes |
//! | `forgotten`, `later`, `unanswered` | the source has dropped the session, is not ready, does not answer |
//!
//! Each reply is the machine's next action.

use std::collections::BTreeMap;

use kvorum_golden::{Stage, play_scripts};
use kvorum_object::{ActorId, Clock, Content as ObjectContent, Dot, Timestamp};
use kvorum_ring::Partition;

use super::*;
use crate::transfer_id::{TransferKind, Wanted};

/// The length of the value of a large object, in bytes.
const LARGE_BYTES: usize = 10_000;

#[test]
fn transfers_go_as_their_scripts_say() {
    play_scripts("scripts", || Transfer {
        machine: None,
        now: Moment::default(),
        asked: None,
        epoch: Epoch::FIRST,
        chains: BTreeMap::new(),
        large: Bytes::new(),
        sent: 0,
    });
}

/// A machine, and a source that answers as the script says.
struct Transfer {
    machine: Option<Machine>,
    now: Moment,
    /// The session and the epoch of the last question.
    asked: Option<Session>,
    epoch: Epoch,
    /// The entries that the source has sent, by session and page.
    chains: BTreeMap<(u64, u32), Chain>,
    /// The body of the large object, and the number of its bytes that were sent.
    large: Bytes,
    sent: usize,
}

impl Stage for Transfer {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["from", ref sources @ ..] => {
                self.begin(sources)?;
                return Ok(Vec::new());
            }
            ["after", seconds] => {
                let seconds = Duration::from_secs(number(seconds)?);
                self.now = self.now.plus(seconds);
                return Ok(Vec::new());
            }
            _ => {}
        }
        let event = self.event(&words)?;
        let machine = self.machine.as_mut().ok_or("no transfer has begun")?;
        let effect = machine.step(event, self.now);
        if let Effect::Ask(Question::Page(PageQuestion { session, epoch, .. })) = &effect {
            (self.asked, self.epoch) = (Some(*session), *epoch);
        }
        Ok(vec![print(&effect)])
    }
}

impl Transfer {
    fn begin(&mut self, sources: &[&str]) -> Result<(), String> {
        let mut legs = Vec::new();
        for source in sources {
            legs.push(Leg {
                source: partition(number(source)?)?,
                wanted: Wanted::All,
            });
        }
        let id = TransferId {
            kind: TransferKind::Ownership,
            partition: partition(3)?,
            epoch: Epoch::new(5),
        };
        let progress = Progress::none(&legs);
        let settings = TransferSettings::default();
        self.machine = Some(Machine::new(id, legs, progress, 1, settings, self.now));
        Ok(())
    }

    fn event(&mut self, words: &[&str]) -> Result<Event, String> {
        Ok(match *words {
            ["go"] => Event::Go,
            ["noted"] => Event::Noted,
            ["stored"] => Event::Stored,
            ["not", "stored"] => Event::NotStored("the disk is full".to_owned()),
            ["admitted", epoch] => Event::Admitted(Epoch::new(number(epoch)?)),
            ["forgotten"] => Event::SessionUnknown,
            ["unanswered"] => Event::Unanswered("no answer".to_owned()),
            ["later"] => Event::Later {
                wait: Duration::from_secs(1),
                reason: "it has not learned of the move".to_owned(),
            },
            ["page", ref rest @ ..] => Event::Page(self.page(rest)?),
            ["large", key] => Event::Page(self.large_page(key, false)?),
            ["large", key, "last"] => Event::Page(self.large_page(key, true)?),
            ["piece"] => self.piece(usize::MAX)?,
            ["piece", bytes] => {
                let bytes = usize::try_from(number(bytes)?).unwrap_or(usize::MAX);
                self.piece(bytes)?
            }
            _ => return Err(format!("no command is called {words:?}")),
        })
    }

    /// The page that answers the last question, with the entries that were sent.
    fn answer(&mut self, sent: &[Entry], content: Content) -> Result<Page, String> {
        let session = self.asked.ok_or("no page was asked for")?;
        let before = session.sequence.checked_sub(1);
        let before = before.and_then(|it| self.chains.get(&(session.number, it)));
        let mut total = before.copied().unwrap_or_default();
        for entry in sent {
            total = total.with(entry.key.as_bytes(), object(&entry.key, 5).clock());
        }
        self.chains
            .insert((session.number, session.sequence), total);
        Ok(Page {
            session,
            epoch: self.epoch,
            total,
            keys_about: 100,
            is_last: false,
            through: sent.last().map(|entry| entry.key.clone()),
            content,
        })
    }

    fn page(&mut self, words: &[&str]) -> Result<Page, String> {
        let is_option = |word: &&&str| ["last", "but", "of"].contains(*word);
        let keys = words.iter().take_while(|it| !is_option(it)).count();
        let (keys, mut options) = words.split_at(keys);
        let mut sent: Vec<Entry> = keys.iter().map(|text| entry(text)).collect();
        let entries = sent.clone();
        if let ["but", lost, rest @ ..] = options {
            sent.push(entry(lost));
            sent.sort_by(|one, other| one.key.cmp(&other.key));
            options = rest;
        }
        let mut page = self.answer(&sent, Content::Entries(entries))?;
        while let [option, rest @ ..] = options {
            options = match (*option, rest) {
                ("last", rest) => {
                    page.is_last = true;
                    rest
                }
                ("of", ["epoch", epoch, rest @ ..]) => {
                    page.epoch = Epoch::new(number(epoch)?);
                    rest
                }
                ("of", ["another", "session", rest @ ..]) => {
                    page.session.number += 100;
                    rest
                }
                _ => return Err(format!("a page has no option {option}")),
            };
        }
        Ok(page)
    }

    fn large_page(&mut self, text: &str, is_last: bool) -> Result<Page, String> {
        let sent = entry(text);
        let encoded = object(&sent.key, LARGE_BYTES).encode();
        (self.large, self.sent) = (encoded.body, 0);
        let content = Content::Large {
            key: sent.key.clone(),
            head: encoded.head,
            body_len: self.large.len() as u64,
        };
        let page = self.answer(&[sent], content)?;
        Ok(Page { is_last, ..page })
    }

    fn piece(&mut self, bytes_max: usize) -> Result<Event, String> {
        let session = self.asked.ok_or("no page was asked for")?;
        let from = self.sent;
        let to = self.large.len().min(from.saturating_add(bytes_max));
        self.sent = to;
        Ok(Event::Piece {
            session,
            offset: from as u64,
            bytes: self.large.slice(from..to),
        })
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn partition(number: u64) -> Result<Partition, String> {
    let number = u16::try_from(number).ok();
    let partition = number.and_then(Partition::of_number);
    partition.ok_or_else(|| "no partition has this number".to_owned())
}

fn entry(text: &str) -> Entry {
    let key = StorageKey::from_encoded(text.as_bytes().to_vec());
    let encoded = object(&key, 5).encode();
    Entry {
        key,
        head: encoded.head,
        body: encoded.body,
    }
}

/// The object of a key; its clock does not depend on the length of its value.
fn object(key: &StorageKey, value_len: usize) -> Object {
    let counter = key.as_bytes().iter().map(|byte| u64::from(*byte)).sum();
    let dot = Dot {
        actor: ActorId(7),
        counter,
    };
    let mut clock = Clock::new();
    clock.observe(dot, Timestamp::from_micros(counter));
    let content = ObjectContent {
        value: vec![b'v'; value_len].into(),
        ..ObjectContent::default()
    };
    Object::as_is(clock, content, Timestamp::from_micros(counter))
}

fn print(effect: &Effect) -> String {
    match effect {
        Effect::Admit { bytes } => format!("admit {bytes} bytes"),
        Effect::Ask(Question::Page(asked)) => {
            let behind = asked
                .after
                .as_ref()
                .map(|it| format!(" behind {}", name(it)));
            let session = asked.session;
            format!(
                "ask {} for page {} of session {}{}",
                session.source,
                session.sequence,
                session.number,
                behind.unwrap_or_default(),
            )
        }
        Effect::Ask(Question::Piece { offset, .. }) => format!("ask for bytes from {offset}"),
        Effect::Ask(question) => format!("ask {question:?}"),
        Effect::Store(objects) => {
            let names: Vec<String> = objects.iter().map(|(key, _)| name(key)).collect();
            format!("store {}", names.join(" "))
        }
        Effect::Note => "note".to_owned(),
        Effect::Pause(wait, None) => format!("pause for {} ms", wait.as_millis()),
        Effect::Pause(wait, Some(reason)) => {
            format!("pause for {} ms: {reason}", wait.as_millis())
        }
        Effect::Rest(reason) => format!("rest: {reason}"),
        Effect::Finish => "finish".to_owned(),
    }
}

fn name(key: &StorageKey) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}
