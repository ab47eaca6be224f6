//! The stores of a node with one backend become parts of stores of several, when it starts with `multi`.
//!
//! Nothing is copied: the directory of a store moves below that of a store of several, under the name of
//! the default backend, and gets a card there. The new store continues under the identity of its part.
//! So the node's record of its stores, the leases of its vnodes and their hash trees stay valid,
//! and other nodes are not affected.
//!
//! A note names the stores that are being taken over, from before the first change until the file `engine`
//! names `multi`. After a crash, the next start continues. A start with another configuration is
//! refused meanwhile: the stores that have moved would count as missing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use kvorum_backend::{Belonging, FoundStore, HINTS_LABEL, StoreId};
use kvorum_backend_leveldb::has_slow;
use kvorum_backend_multi::{KnownChild, is_store, make_store_of};
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, read_file, replace_file};
use kvorum_member::known_stores;
use kvorum_settings::{Settings, StorageBackend};

use crate::data_directory::{DataDirectory, EngineFile};
use crate::engine_names::{MEMORY, MULTI, engine_of, find_of, name_of};
use crate::store_roots::{StoreRoots, noted_root, partitions_in, store_in};

/// The note, in the data directory.
const NOTE_NAME: &str = "taking_over";
const NOTE_TITLE: &str = "kvorum stores that become parts of stores of several";
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Takes over the stores of an earlier run with one backend, if the configuration has several and the
/// default one is of the same engine.
///
/// # Errors
/// Those of the disk; stores that cannot be taken over, with the steps that help.
pub(crate) fn settle(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
) -> anyhow::Result<()> {
    let taking_over = match TakingOver::noted(disk, data)? {
        Some(noted) => {
            noted.check_continues(data, settings)?;
            noted
        }
        None => match TakingOver::due(disk, data, settings)? {
            Some(due) => due,
            None => return Ok(()),
        },
    };
    let context = || {
        format!(
            "take over the stores in {}",
            taking_over.engine_root.display()
        )
    };
    taking_over
        .carry_out(disk, data, settings)
        .with_context(context)
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TakingOver {
    /// The engine of the stores, as `storage_backend` names it.
    engine: &'static str,
    /// The name of its backend among several.
    backend: String,
    /// The directory of the stores of partitions.
    engine_root: PathBuf,
}

/// A store to be taken over.
struct Store {
    from: PathBuf,
    /// The directory of the store that it becomes a part of.
    whole: PathBuf,
    label: String,
    identity: StoreId,
    erased: StoreId,
}

impl TakingOver {
    /// The change that the configuration requires; `None` without stores of one backend to be taken
    /// over.
    fn due(
        disk: &dyn Disk,
        data: &DataDirectory,
        settings: &Settings,
    ) -> anyhow::Result<Option<Self>> {
        let EngineFile::Whole(left) = data.engine_left(disk)? else {
            return Ok(None);
        };
        let is_single = ![MEMORY, MULTI].contains(&&*left.engine);
        let engine = engine_of(&left.engine).filter(|_| is_single);
        let (Some(engine), StorageBackend::Multi) = (engine, settings.node.storage_backend) else {
            return Ok(None);
        };
        let mut of_engine = settings.clone();
        of_engine.node.storage_backend = engine;
        let noted = noted_root(disk, data.path(), name_of(engine))?;
        let root = noted.or_else(|| StoreRoots::of(&of_engine).map(|it| it.own));
        let multi = &settings.multi;
        let default = multi.backends.get(multi.default_number());
        let (Some(engine_root), Some(default)) = (root, default) else {
            return Ok(None);
        };
        let due = Self {
            engine: name_of(engine),
            backend: default.name.clone(),
            engine_root,
        };
        if default.settings.node.storage_backend != engine {
            due.refuse_other_default(disk, settings)?;
            return Ok(None);
        }
        let stores = due.stores(disk, data, settings)?;
        if stores.is_empty() {
            return Ok(None);
        }
        due.check_is_possible(disk, data, settings, &stores)?;
        due.write_note(disk, data)?;
        Ok(Some(due))
    }

    /// Refuses to start if a backend other than the default has this engine, since the operator's intent is
    /// not clear. If no backend has it, the node begins with empty stores as with any other engine.
    fn refuse_other_default(&self, disk: &dyn Disk, settings: &Settings) -> anyhow::Result<()> {
        let mut backends = settings.multi.backends.iter();
        let other = backends.find(|it| name_of(it.settings.node.storage_backend) == self.engine);
        let Some(other) = other else {
            return Ok(());
        };
        if partitions_in(disk, &self.engine_root)?.is_empty() {
            return Ok(());
        }
        bail!(
            "the stores of {} in {} can become those of the default backend alone: set \
             multi_backend.default = {}, start, and move the data with `kvorum admin backend migrate`. If the \
             other nodes are to fill empty stores instead, move that directory away",
            self.engine,
            self.engine_root.display(),
            other.name
        );
    }

    fn check_is_possible(
        &self,
        disk: &dyn Disk,
        data: &DataDirectory,
        settings: &Settings,
        stores: &[Store],
    ) -> anyhow::Result<()> {
        let several = several_root(settings)?;
        let hints = data.hints(MULTI);
        let mut earlier = store_in(disk, &several, |it| is_store(disk, it))?;
        if earlier.is_none() && is_store(disk, &hints)? {
            earlier = Some(hints);
        }
        if let Some(earlier) = earlier {
            bail!(
                "{} is a store from an earlier time with several backends, and would be mixed with the stores \
                 of {}: move {} and {} away, and start again",
                earlier.display(),
                self.engine,
                several.display(),
                data.hints(MULTI).display()
            );
        }
        for store in stores {
            if has_slow(disk, &store.from)? {
                bail!(
                    "{} has old tables on another device (leveldb.tiered), which a part of several backends \
                     cannot have: start with storage_backend = {} and without several backends, or have the \
                     other nodes fill empty stores (move {} away)",
                    store.from.display(),
                    self.engine,
                    self.engine_root.display()
                );
            }
        }
        Ok(())
    }

    fn check_continues(&self, data: &DataDirectory, settings: &Settings) -> anyhow::Result<()> {
        let backends = settings.multi.backends.iter();
        let mut of_engine =
            backends.filter(|it| name_of(it.settings.node.storage_backend) == self.engine);
        let is_several = settings.node.storage_backend == StorageBackend::Multi;
        ensure!(
            is_several && of_engine.any(|it| it.name == self.backend),
            "the change of storage_backend from {0} to multi was interrupted half way ({1}): start with \
             storage_backend = multi and multi_backend.{2}.storage_backend = {0} again",
            self.engine,
            data.path().join(NOTE_NAME).display(),
            self.backend
        );
        Ok(())
    }

    /// Each part is repeatable. Cards come first, so that a directory is recognised after an
    /// operator has moved it to another device.
    fn carry_out(
        &self,
        disk: &dyn Disk,
        data: &DataDirectory,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let stores = self.stores(disk, data, settings)?;
        for store in &stores {
            let part = KnownChild {
                name: self.backend.clone(),
                engine: self.engine.to_owned(),
                identity: store.identity,
            };
            make_store_of(disk, &store.whole, &store.label, part, store.erased)?;
        }
        for store in &stores {
            self.rename(disk, store)?;
        }
        let hints = match data.engine_left(disk)? {
            EngineFile::Whole(left) => left.hints,
            EngineFile::Missing | EngineFile::Damaged => None,
        };
        data.note_engine(disk, MULTI, hints, &data.parts(disk, settings)?)?;
        disk.remove_file(&data.path().join(NOTE_NAME))?;
        disk.sync_directory(data.path())?;
        tracing::info!(
            event = "stores_taken_over",
            engine = self.engine,
            backend = %self.backend,
            stores = stores.len(),
        );
        Ok(())
    }

    fn rename(&self, disk: &dyn Disk, store: &Store) -> anyhow::Result<()> {
        let (from, to) = (&store.from, store.whole.join(&self.backend));
        ensure!(
            disk.info(&to)?.is_none(),
            "{} and {} are both there: remove the one that is not complete, and start again",
            from.display(),
            to.display()
        );
        let moved = disk.rename(from, &to);
        moved.with_context(|| {
            format!(
                "move {} to {}; if they are on two devices, move each directory of a partition by hand, to {} \
                 in the directory of its name, and start again",
                from.display(),
                to.display(),
                self.backend
            )
        })?;
        disk.sync_directory(&store.whole)?;
        if let Some(root) = from.parent() {
            disk.sync_directory(root)?;
        }
        Ok(())
    }

    /// The stores that have not moved yet: of partitions, and of hints.
    fn stores(
        &self,
        disk: &dyn Disk,
        data: &DataDirectory,
        settings: &Settings,
    ) -> anyhow::Result<Vec<Store>> {
        let known = identities(disk, settings)?;
        let several = several_root(settings)?;
        let mut stores = Vec::new();
        for from in partitions_in(disk, &self.engine_root)? {
            let label = from.file_name().unwrap_or_default().to_string_lossy();
            let (label, whole) = (label.clone().into_owned(), several.join(&*label));
            let identity = known.get(&label).copied();
            stores.extend(self.store(disk, from, whole, Belonging { label, identity })?);
        }
        let (from, whole) = (data.hints(self.engine), data.hints(MULTI));
        let belonging = Belonging {
            label: HINTS_LABEL.to_owned(),
            identity: None,
        };
        stores.extend(self.store(disk, from, whole, belonging)?);
        Ok(stores)
    }

    fn store(
        &self,
        disk: &dyn Disk,
        from: PathBuf,
        whole: PathBuf,
        belonging: Belonging,
    ) -> anyhow::Result<Option<Store>> {
        let find = engine_of(self.engine).and_then(find_of);
        let (Some(find), true) = (find, disk.info(&from)?.is_some()) else {
            return Ok(None);
        };
        let found = find(disk, &from, &belonging);
        match found.with_context(|| format!("look into {}", from.display()))? {
            FoundStore::Nothing => Ok(None),
            FoundStore::Store {
                identity, erased, ..
            } => Ok(Some(Store {
                from,
                whole,
                label: belonging.label,
                identity,
                erased,
            })),
            FoundStore::Unusable(why) => bail!(
                "{} cannot become a part of several backends as it is ({why}): start with storage_backend = {} \
                 and mend it, or move it away if it is to be filled from the other nodes",
                from.display(),
                self.engine
            ),
        }
    }

    fn noted(disk: &dyn Disk, data: &DataDirectory) -> anyhow::Result<Option<Self>> {
        let path = data.path().join(NOTE_NAME);
        if disk.info(&path)?.is_none() {
            return Ok(None);
        }
        let bytes = read_file(disk, &path, NOTE_BYTES_MAX)?;
        let noted = decode(NOTE_TITLE, &bytes).and_then(|(_, body)| Self::parse(&body));
        let noted = noted.with_context(|| {
            format!(
                "the file {} is damaged, which says which stores become parts of several backends: see that \
                 each directory of a partition is in `multi` or in the directory of its engine, and restore \
                 the file, or the data directory, from a backup",
                path.display()
            )
        })?;
        Ok(Some(noted))
    }

    fn write_note(&self, disk: &dyn Disk, data: &DataDirectory) -> anyhow::Result<()> {
        let path = data.path().join(NOTE_NAME);
        let body = self.body();
        // The directories that move are taken from the note, after it was read back.
        ensure!(
            Self::parse(&body).as_ref() == Some(self),
            "the path {} cannot be noted: it has a line break or no Unicode",
            self.engine_root.display()
        );
        replace_file(disk, &path, &encode(NOTE_TITLE, 1, &body))
            .with_context(|| format!("write {}", path.display()))
    }

    fn body(&self) -> String {
        format!(
            "engine {}\nbackend {}\nstores {}\n",
            self.engine,
            self.backend,
            self.engine_root.display()
        )
    }

    fn parse(body: &str) -> Option<Self> {
        let mut lines = body.lines();
        let engine = engine_of(lines.next()?.strip_prefix("engine ")?)?;
        let backend = lines.next()?.strip_prefix("backend ")?.to_owned();
        let engine_root = lines.next()?.strip_prefix("stores ")?.into();
        lines.next().is_none().then_some(Self {
            engine: name_of(engine),
            backend,
            engine_root,
        })
    }
}

/// The stores in the node's record, by the names of their directories.
fn identities(disk: &dyn Disk, settings: &Settings) -> anyhow::Result<BTreeMap<String, StoreId>> {
    let directory = &settings.node.ring_state_dir;
    if disk.info(directory)?.is_none() {
        return Ok(BTreeMap::new());
    }
    let recorded = known_stores(disk, directory)
        .with_context(|| format!("look into {}", directory.display()))?;
    let named = recorded.iter().flat_map(|recorded| {
        let stores = recorded.stores.iter();
        stores.map(move |(partition, identity)| (partition.index_decimal(recorded.size), *identity))
    });
    Ok(named.collect())
}

/// The directory of the stores of several backends.
fn several_root(settings: &Settings) -> anyhow::Result<PathBuf> {
    let roots = StoreRoots::of(settings).context("stores of several backends have files")?;
    Ok(roots.own)
}

#[cfg(test)]
#[path = "taking_over_test.rs"]
mod tests;
