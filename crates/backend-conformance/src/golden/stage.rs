//! One store under a script: executes a command and returns its replies.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{
    Backend, Batch, Durability, Fields, IndexEntry, Lease, OldEntry, ReadAt, Reading, Result,
    Snapshot, StepBudget, StoreId, Tag, Timestamp, Write,
};
use kvorum_disk::{CrashOptions, MemoryDisk};

use crate::{EngineUnderTest, Opening};

use super::fold_words::{Fold, IndexQuery};
use super::print::{self, Batches};
use super::words::{self, Words};

/// The most steps of upkeep of a script's store.
const STEPS_MAX: usize = 10_000;
/// Rounds over due tasks, which may cause others.
const ROUNDS: usize = 4;
/// The budget of a step.
const STEP_BYTES: u64 = 1 << 20;

/// The replies to a command, or the error of the script.
type Replies = std::result::Result<Vec<String>, String>;

/// One store under a script.
pub(super) struct Stage<'a> {
    engine: &'a dyn EngineUnderTest,
    disk: MemoryDisk,
    opening: Opening,
    /// A closed store stays present, for commands that it refuses.
    store: Option<Box<dyn Backend>>,
    is_closed: bool,
    now: Timestamp,
    batches: Batches,
    identity: StoreId,
    snapshots: BTreeMap<String, Box<dyn Snapshot>>,
    held: Vec<Arc<dyn Any + Send + Sync>>,
}

impl kvorum_golden::Stage for Stage<'_> {
    fn take(&mut self, line: &str) -> Replies {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "put" | "remove" => self.put(line, Durability::Buffered),
            "grouped" => self.put(rest, Durability::Grouped),
            "default" => self.put(rest, Durability::BackendDefault),
            "keys" | "heads" | "entries" | "buckets" => self.fold(verb, rest),
            "reopen" | "kill" | "crash" | "open" => self.open_again(verb, rest),
            _ => self.take_other(verb, rest),
        }
    }
}

impl<'a> Stage<'a> {
    /// Opens a new store on a disk of its own.
    pub(super) fn open(
        engine: &'a dyn EngineUnderTest,
        variation: u32,
    ) -> std::result::Result<Self, String> {
        let disk = MemoryDisk::new();
        let drawn = AtomicU64::new(1);
        let opening = Opening {
            disk: Arc::new(disk.clone()),
            directory: PathBuf::from("vnodes/17"),
            variation,
            draw: Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed)),
        };
        let store = engine.open(&opening).map_err(|error| error.to_string())?;
        Ok(Self {
            engine,
            disk,
            opening,
            is_closed: false,
            now: Timestamp(0),
            batches: Batches::default(),
            identity: store.identity(),
            snapshots: BTreeMap::new(),
            held: Vec::new(),
            store: Some(store),
        })
    }

    fn take_other(&mut self, verb: &str, rest: &str) -> Replies {
        let mut words = Words::of(rest);
        let replies = match verb {
            "at" => self.at(&mut words),
            "get" => self.get(&words::key(words.first()?)?),
            "head" => self.head(&words::key(words.first()?)?),
            "snapshot" => self.snapshot(&mut words),
            "release" => self.release(words.first()?),
            "sequence" => self.sequence(words.first()?),
            "index" => self.index(&mut words),
            "backup" => self.backup(words.first()?),
            _ => self.ask_store(verb),
        }?;
        words.end()?;
        Ok(replies)
    }

    /// Commands without words.
    fn ask_store(&mut self, verb: &str) -> Replies {
        let store = self.store()?;
        let replies = match verb {
            "sync" => reply(store.sync().map(|it| self.batches.up_to(it))),
            "durable" => vec![self.batches.up_to(store.durable())],
            "empty" => reply(store.is_empty(self.now).map(|it| it.to_string())),
            "status" => vec![print::status(&store.status())],
            "maintain" => silent(maintain(store, self.now)),
            "close" => self.close()?,
            "counts" => vec![self.counts()?],
            "identity" => self.identity()?,
            "erase" => self.erase()?,
            other => return Err(format!("no command is called {other}")),
        };
        Ok(replies)
    }

    fn store(&self) -> std::result::Result<&dyn Backend, String> {
        self.store
            .as_deref()
            .ok_or_else(|| "the store did not open".into())
    }

    fn at(&mut self, words: &mut Words<'_>) -> Replies {
        self.now = Timestamp(words::number(words.first()?)?);
        Ok(Vec::new())
    }

    fn put(&mut self, text: &str, durability: Durability) -> Replies {
        let writes: std::result::Result<_, String> = text.split(';').map(write).collect();
        let batch = Batch { writes: writes? };
        let receipt = self.store()?.put(&batch, durability);
        let sequence = receipt.and_then(kvorum_backend::Receipt::wait);
        Ok(reply(sequence.map(|sequence| self.batches.add(sequence))))
    }

    fn get(&self, key: &kvorum_encoding::StorageKey) -> Replies {
        let store = self.store()?;
        self.read(|at| {
            let found = store.get(key, at)?;
            Ok(print::lookup(found, |entry| {
                format!(
                    "{}{}{}{}",
                    self.batches.named(entry.sequence),
                    print::fields(&entry.fields),
                    print::named_bytes("head", &entry.head),
                    print::named_bytes("body", &entry.body),
                )
            }))
        })
    }

    fn head(&self, key: &kvorum_encoding::StorageKey) -> Replies {
        let store = self.store()?;
        self.read(|at| {
            let found = store.head(key, at)?;
            Ok(print::lookup(found, |entry| {
                format!(
                    "{}{}{} body_len={}",
                    self.batches.named(entry.sequence),
                    print::fields(&entry.fields),
                    print::named_bytes("head", &entry.head),
                    entry.body_len,
                )
            }))
        })
    }

    /// Reads from memory, and then with permission to wait: the first read may have no answer.
    fn read(&self, read: impl Fn(ReadAt) -> Result<String>) -> Replies {
        let at = |reading| ReadAt {
            reading,
            now: self.now,
        };
        let cached = reply(read(at(Reading::CachedOnly)));
        let mut replies = reply(read(at(Reading::MayBlock)));
        if cached != replies && cached != ["would block"] {
            replies.extend(cached.iter().map(|it| format!("from memory: {it}")));
        }
        Ok(replies)
    }

    fn fold(&self, verb: &str, rest: &str) -> Replies {
        let mut words = Words::of(rest);
        let of = words.value("of");
        let fold = Fold::parse(verb, &mut words, self.now)?;
        words.end()?;
        let printed = match of {
            Some(name) => fold.print(self.held_snapshot(name)?, &self.batches),
            None => self
                .store()?
                .snapshot(Lease::Unlimited)
                .and_then(|snapshot| fold.print(&*snapshot, &self.batches)),
        };
        Ok(printed.unwrap_or_else(|error| vec![print::error(&error)]))
    }

    fn held_snapshot(&self, name: &str) -> std::result::Result<&dyn Snapshot, String> {
        let held = self.snapshots.get(name);
        held.map(|it| &**it)
            .ok_or_else(|| format!("no snapshot is called {name}"))
    }

    fn snapshot(&mut self, words: &mut Words<'_>) -> Replies {
        let name = words.first()?;
        let lease = match words.number("until")? {
            Some(end) => Lease::Until(Timestamp(end)),
            None => Lease::Unlimited,
        };
        let taken = self.store()?.snapshot(lease);
        Ok(silent(taken.map(|snapshot| {
            self.snapshots.insert(name.to_owned(), snapshot);
        })))
    }

    fn release(&mut self, name: &str) -> Replies {
        let released = self.snapshots.remove(name);
        released.ok_or_else(|| format!("no snapshot is called {name}"))?;
        Ok(Vec::new())
    }

    fn sequence(&self, name: &str) -> Replies {
        let sequence = self.held_snapshot(name)?.sequence();
        Ok(vec![self.batches.up_to(sequence)])
    }

    fn index(&self, words: &mut Words<'_>) -> Replies {
        let query = IndexQuery::parse(words)?;
        let indexes = self.store()?.indexes().ok_or("no indexes")?;
        let printed = query.print(indexes, self.now);
        Ok(printed.unwrap_or_else(|error| vec![print::error(&error)]))
    }

    fn counts(&self) -> std::result::Result<String, String> {
        let counts = self.store()?.indexes().ok_or("no indexes")?.counts();
        Ok(format!(
            "writes={} postings_written={} deletes={} postings_deleted={}",
            counts.writes, counts.postings_written, counts.deletes, counts.postings_deleted
        ))
    }

    fn identity(&mut self) -> Replies {
        let identity = self.store()?.identity();
        let is_same = std::mem::replace(&mut self.identity, identity) == identity;
        Ok(vec![if is_same { "the same" } else { "another" }.into()])
    }

    fn close(&mut self) -> Replies {
        let closed = self.store()?.close();
        self.is_closed = true;
        Ok(silent(closed))
    }

    fn erase(&mut self) -> Replies {
        let erased = self.store()?.erase();
        self.batches.forget();
        Ok(silent(erased))
    }

    fn backup(&mut self, name: &str) -> Replies {
        let backups = self.store()?.backups().ok_or("no backups")?;
        let made = backups.backup(Path::new(name));
        Ok(silent(made.map(|backup| self.held.extend(backup.held))))
    }

    /// Drops the store and opens its files again, or a backup.
    fn open_again(&mut self, verb: &str, name: &str) -> Replies {
        self.snapshots.clear();
        let store = self.store.take().ok_or("the store did not open")?;
        let is_closed = std::mem::take(&mut self.is_closed);
        let closed = match verb {
            "reopen" | "open" if !is_closed => store.close(),
            _ => Ok(()),
        };
        drop(store);
        if verb == "crash" {
            self.disk.crash(CrashOptions::nothing_unsynced());
        }
        if verb == "open" {
            self.opening.directory = PathBuf::from(name);
        }
        let opened = closed.and_then(|()| self.engine.open(&self.opening));
        Ok(silent(opened.map(|store| {
            self.batches.forget_behind(store.durable());
            self.store = Some(store);
        })))
    }
}

fn write(text: &str) -> std::result::Result<Write, String> {
    let mut words = Words::of(text);
    let verb = words.first()?;
    let key = words::key(words.first()?)?;
    let write = match verb {
        "remove" => Write::remove(key),
        "put" => Write::Put {
            key,
            fields: fields(&mut words)?,
            head: words::bytes(words.value("head").unwrap_or_default())?,
            body: words::bytes(words.value("body").unwrap_or_default())?,
            index_entries: index_entries(words.value("index").unwrap_or_default())?,
            old: OldEntry::UNKNOWN,
        },
        other => return Err(format!("no write is called {other}")),
    };
    words.end()?;
    Ok(write)
}

fn fields(words: &mut Words<'_>) -> std::result::Result<Fields, String> {
    let narrow = |error: std::num::TryFromIntError| error.to_string();
    let segment = words.number("segment")?.unwrap_or(0);
    let tag = words.number("tag")?.unwrap_or(0);
    Ok(Fields {
        segment: u32::try_from(segment).map_err(narrow)?,
        last_modified: Timestamp(words.number("modified")?.unwrap_or(0)),
        expiry: words.number("expiry")?.map(Timestamp),
        tag: Tag(u8::try_from(tag).map_err(narrow)?),
    })
}

fn index_entries(text: &str) -> std::result::Result<Vec<IndexEntry>, String> {
    let entry = |text: &str| {
        let (field, term) = text
            .split_once(':')
            .ok_or_else(|| format!("expected field:term, got {text}"))?;
        Ok(IndexEntry {
            field: words::bytes(field)?,
            term: words::bytes(term)?,
        })
    };
    let entries = text.split(',').filter(|text| !text.is_empty());
    entries.map(entry).collect()
}

/// Does all due upkeep, and the tasks that it causes.
fn maintain(store: &dyn Backend, now: Timestamp) -> Result<()> {
    for _ in 0..ROUNDS {
        for task in store.maintenance_due(now) {
            let mut steps = 0;
            let budget = StepBudget { bytes: STEP_BYTES };
            while !store.maintenance_step(&task, budget, now)?.is_done {
                steps += 1;
                assert!(steps < STEPS_MAX, "{task:?} never ends");
            }
        }
    }
    Ok(())
}

/// A reply of one line.
fn reply(result: Result<String>) -> Vec<String> {
    vec![result.unwrap_or_else(|error| print::error(&error))]
}

/// No reply, unless the command failed.
fn silent(result: Result<()>) -> Vec<String> {
    let failed = result.err();
    failed.iter().map(print::error).collect()
}
