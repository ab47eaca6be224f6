//! Drivers that open a storage engine inside this process, to measure it without a network, a
//! server, or a second process.
//!
//! The caller supplies the engines, so that this crate names none. Calls block their thread, so
//! there are never more calls at once than the run has threads.

mod store_set;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Batch, Durability, Durable, Fields, Lookup, ReadAt, Timestamp, Write,
};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};

use super::{Draws, Driver, Ended, Outcome, Plan, actions};
use crate::configuration::{Configuration, ConfigurationError};
use crate::settings::Operation;
use kvorum_erlang_terms::Term;
use store_set::StoreSet;
pub(crate) use store_set::microseconds_now;

/// An engine that can be opened in this process.
pub struct Engine {
    /// Its name, which is also the driver's name.
    pub name: &'static str,
    /// The driver's name in basho_bench, if it differs.
    pub other_driver: Option<&'static str>,
    /// basho_bench's key for the directory; `embedded_dir` works for every engine.
    pub directory_key: Option<&'static str>,
    /// basho_bench's key for the number of stores; `embedded_instances` works for every engine.
    pub instances_key: Option<&'static str>,
    /// Opens or creates a store in an existing directory.
    pub open: OpenStore,
}

/// Opens a store, or returns the reason why it cannot.
pub type OpenStore = fn(&Path) -> Result<Arc<dyn Backend>, String>;

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Get { must_exist: bool },
    Head,
    Put,
    Update,
    Delete,
    Merge,
}

/// The driver as configured, with its stores open.
pub struct EmbeddedPlan {
    actions: Vec<Action>,
    stores: Arc<StoreSet>,
    durability: Durability,
    bucket: Bucket,
}

/// Facts about the engine of a run.
#[derive(Clone)]
pub struct Embedded {
    /// The engine's name.
    pub engine: &'static str,
    /// The promise of an acknowledged write: `none` or `grouped`.
    pub durability: &'static str,
    /// The directory of its files.
    pub directory: PathBuf,
    /// The stores, for their own figures.
    pub stores: Vec<Arc<dyn Backend>>,
}

/// The engine for a driver's name.
pub fn engine_of<'table>(engines: &'table [Engine], driver: &str) -> Option<&'table Engine> {
    engines
        .iter()
        .find(|engine| engine.name == driver || engine.other_driver == Some(driver))
}

impl EmbeddedPlan {
    /// Reads the driver's keys and opens the stores.
    pub fn open(
        configuration: &Configuration,
        operations: &[Operation],
        engine: &Engine,
    ) -> anyhow::Result<(Self, Embedded)> {
        let actions = actions(configuration, operations, action)?;
        let durability = configuration.convert("embedded_durability", durability)?;
        let (durability, durability_name) = durability.unwrap_or((Durability::Buffered, "none"));
        let directory = directory(configuration, engine)?;
        let stores = instances(configuration, engine)?;
        let stores = (1..=stores)
            .map(|number| open(engine, &directory.join(format!("instance.{number}"))))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let embedded = Embedded {
            engine: engine.name,
            durability: durability_name,
            directory,
            stores: stores.clone(),
        };
        let plan = Self {
            actions,
            stores: StoreSet::with_upkeep(stores)?,
            durability,
            bucket: Bucket::new(Bytes::from_static(b"test")),
        };
        Ok((plan, embedded))
    }
}

fn open(engine: &Engine, directory: &Path) -> anyhow::Result<Arc<dyn Backend>> {
    let refused = |reason: String| {
        anyhow::anyhow!(
            "cannot open {} in {}: {reason}",
            engine.name,
            directory.display()
        )
    };
    std::fs::create_dir_all(directory).map_err(|error| refused(error.to_string()))?;
    (engine.open)(directory).map_err(refused)
}

fn directory(
    configuration: &Configuration,
    engine: &Engine,
) -> Result<PathBuf, ConfigurationError> {
    let path = |term: &Term| {
        let text = term.as_text().filter(|text| !text.is_empty());
        text.map(PathBuf::from)
            .ok_or_else(|| "expected a path".to_owned())
    };
    let own = match engine.directory_key {
        Some(key) => configuration.convert(key, path)?,
        None => None,
    };
    let general = configuration.convert("embedded_dir", path)?;
    Ok(general.or(own).unwrap_or_else(|| PathBuf::from(".")))
}

fn instances(configuration: &Configuration, engine: &Engine) -> Result<u32, ConfigurationError> {
    let own = match engine.instances_key {
        Some(key) => configuration.integer(key, 1..=4096, 1)?,
        None => 1,
    };
    configuration.integer("embedded_instances", 1..=4096, own)
}

fn durability(term: &Term) -> Result<(Durability, &'static str), String> {
    match term.as_atom() {
        Some("none") => Ok((Durability::Buffered, "none")),
        Some("grouped") => Ok((Durability::Grouped, "grouped")),
        _ => Err("expected none or grouped".to_owned()),
    }
}

fn action(operation: &Term) -> Result<Action, String> {
    match operation.as_atom().unwrap_or_default() {
        "get" => Ok(Action::Get { must_exist: false }),
        "get_existing" => Ok(Action::Get { must_exist: true }),
        "head" => Ok(Action::Head),
        "put" => Ok(Action::Put),
        "update" => Ok(Action::Update),
        "delete" => Ok(Action::Delete),
        "merge" => Ok(Action::Merge),
        _ => Err(
            "expected get, get_existing, head, put, update, delete or merge with an embedded \
             driver"
                .to_owned(),
        ),
    }
}

impl Plan for EmbeddedPlan {
    type Worker = EmbeddedDriver;

    fn worker(&self, id: u32) -> EmbeddedDriver {
        EmbeddedDriver {
            actions: self.actions.clone(),
            store: self.stores.of_worker(id),
            stores: Arc::clone(&self.stores),
            durability: self.durability,
            bucket: self.bucket.clone(),
        }
    }

    fn why_without_effect(key: &str) -> Option<&'static str> {
        match key {
            "bitcask_flags"
            | "bitcask_sync_interval"
            | "eleveldb_config"
            | "hanoidb_flags"
            | "hanoidb_sync_interval"
            | "innostore_config" => {
                Some("the engine runs with its own defaults; see embedded_durability")
            }
            _ => None,
        }
    }
}

/// One worker and the store that it works on.
pub struct EmbeddedDriver {
    actions: Vec<Action>,
    store: Arc<dyn Backend>,
    /// Keeps the upkeep running as long as there are workers.
    stores: Arc<StoreSet>,
    durability: Durability,
    bucket: Bucket,
}

impl Driver for EmbeddedDriver {
    async fn connect(&mut self) -> Result<(), String> {
        Ok(())
    }

    async fn run(&mut self, operation: usize, draws: &mut Draws) -> Ended {
        match self.actions.get(operation) {
            Some(Action::Get { must_exist }) => self.get(*must_exist, draws),
            Some(Action::Head) => self.head(draws),
            Some(Action::Put) => self.put(draws).await,
            Some(Action::Update) => self.update(draws).await,
            Some(Action::Delete) => self.delete(draws).await,
            Some(Action::Merge) => {
                self.stores.work_off(&*self.store)?;
                Ok(Outcome::Done)
            }
            None => Ok(Outcome::Silent),
        }
    }
}

impl EmbeddedDriver {
    fn storage_key(&self, key: &Bytes) -> StorageKey {
        let key = Key::new(key.clone());
        StorageKey::new(&BucketType::default_type(), &self.bucket, &key)
    }

    fn get(&self, must_exist: bool, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        Ok(match self.store.get(&self.storage_key(&key), read_at())? {
            Lookup::Found(entry) => draws.judge(&key, [&entry.body[..]]),
            Lookup::Absent | Lookup::WouldBlock if must_exist => Outcome::failed("notfound"),
            Lookup::Absent | Lookup::WouldBlock => draws.judge_absent(&key),
        })
    }

    fn head(&self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        Ok(match self.store.head(&self.storage_key(&key), read_at())? {
            Lookup::Found(_) => Outcome::Done,
            Lookup::Absent | Lookup::WouldBlock => draws.judge_absent(&key),
        })
    }

    async fn put(&self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        self.store_value(&key, draws).await
    }

    /// Reads, then writes a new value; one sample covers both.
    async fn update(&self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.reads(&key);
        let judgement = match self.store.get(&self.storage_key(&key), read_at())? {
            Lookup::Found(entry) => draws.judge(&key, [&entry.body[..]]),
            Lookup::Absent | Lookup::WouldBlock => draws.judge_absent(&key),
        };
        judgement.go_on()?;
        self.store_value(&key, draws).await
    }

    async fn store_value(&self, key: &Bytes, draws: &mut Draws) -> Ended {
        let fields = Fields {
            last_modified: Timestamp(microseconds_now()),
            ..Fields::default()
        };
        let value = draws.value(key);
        let write = Write::put(self.storage_key(key), fields, Bytes::new(), value);
        self.write(Batch::of(write)).await
    }

    async fn delete(&self, draws: &mut Draws) -> Ended {
        let key = draws.key()?;
        draws.removes(&key);
        let batch = Batch::of(Write::remove(self.storage_key(&key)));
        self.write(batch).await
    }

    async fn write(&self, batch: Batch) -> Ended {
        let ticket = match self.store.put(&batch, self.durability)?.durable {
            Durable::Already => return Ok(Outcome::Done),
            Durable::After(ticket) => ticket,
        };
        if ticket.is_driven() {
            ticket.await?;
        } else {
            // Waits on another thread, so that the writes of other workers join the group.
            let waiting = tokio::task::spawn_blocking(move || ticket.wait());
            waiting.await.map_err(|_| Outcome::failed("crash"))??;
        }
        Ok(Outcome::Done)
    }
}

fn read_at() -> ReadAt {
    ReadAt::may_block(Timestamp(microseconds_now()))
}

impl From<BackendError> for Outcome {
    fn from(error: BackendError) -> Self {
        Self::Failed(Term::Binary(error.to_string().into_bytes()))
    }
}
