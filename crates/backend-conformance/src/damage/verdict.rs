//! Answers that a damaged store may give, and the data that it has to keep from then on.

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_backend::{
    Backend, BackendError, Batch, Durability, ErrorKind, Lookup, ReadAt, StepBudget, Write,
};
use kvorum_disk::MemoryDisk;
use kvorum_encoding::StorageKey;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::kind::Damage;
use super::subject::{End, Subject};
use crate::disk_copy::copy_of;
use crate::history::{Observation, index_ranges};
use crate::model::Seen;
use crate::observe::{Absent, observe};
use crate::trial::filled;
use crate::violation::{ensure, unexpected};
use crate::{Checked, Violation, names};

/// Steps after which a task on a damaged store counts as endless.
const STEPS_MAX: usize = 3_000;
/// Writes after the damage.
const LATER_WRITES: usize = 6;
/// The first value that is put after the damage.
const LATER_VALUES_FROM: u32 = 1 << 24;

/// Head and body of a key; `None` when it is absent.
type Content = Option<(bytes::Bytes, bytes::Bytes)>;
/// Contents that some keys have to show.
type Expected = BTreeMap<StorageKey, Content>;

/// The most that damage may cost.
struct Price {
    keys_lost_max: Option<usize>,
    must_report: bool,
    absent: Absent,
}

impl Subject<'_> {
    pub(super) fn check_undamaged(&self) -> Checked {
        let disk = self.disk();
        let store = self.engine.open(&self.opening.on(disk.clone()));
        let store = store.map_err(|error| unexpected("opening again", &error))?;
        let price = Price {
            keys_lost_max: Some(0),
            must_report: true,
            absent: Absent::Hidden,
        };
        self.check_store(&*store, &price).map(|_| ())
    }

    pub(super) fn check(&self, path: &Path, damage: &Damage, rng: &mut ChaCha8Rng) -> Checked {
        let disk = self.disk();
        damage
            .apply(&disk, path)
            .map_err(|error| Violation::of_method(format!("damaging a file failed: {error}")))?;
        let price = self.price(path, damage);
        let store = match self.engine.open(&self.opening.on(disk.clone())) {
            Ok(store) => store,
            Err(error) => return check_refusal(&error, damage, &price),
        };
        if store.identity() != self.identity {
            // The identity shows that the files are another store's, or missing.
            return self.check_life_goes_on(store, &disk, Expected::new(), rng);
        }
        if self.end == End::Killed && self.engine.is_incomplete(&store.status()) {
            return self.check_incomplete(store, &disk, rng);
        }
        self.check_store(&*store, &price)?;
        check_upkeep_ends(&*store, self.now)?;
        let observed = self
            .check_store(&*store, &price)
            .map_err(|violation| violation.after("upkeep"))?;
        let read = self.read_right(&observed);
        self.check_life_goes_on(store, &disk, read, rng)
    }

    /// A store that is known to lack writes answers no reads before it is repaired as a whole. It
    /// invents no entries; it accepts writes and keeps them.
    fn check_incomplete(
        &self,
        store: Box<dyn Backend>,
        disk: &MemoryDisk,
        rng: &mut ChaCha8Rng,
    ) -> Checked {
        let at = ReadAt::may_block(self.now);
        for key in names::keys() {
            match store.get(&key, at) {
                Ok(Lookup::Found(entry)) => {
                    let seen = Seen::of(key, entry);
                    ensure(self.history.has_put(&seen), 15, || {
                        format!("{seen:?} was never put")
                    })?;
                }
                Ok(Lookup::Absent) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                other => {
                    return Err(Violation::of(15, format!("a get of {key:?} is {other:?}")));
                }
            }
        }
        check_upkeep_ends(&*store, self.now)?;
        self.check_life_goes_on(store, disk, Expected::new(), rng)
    }

    fn price(&self, path: &Path, damage: &Damage) -> Price {
        let flip_max = self.engine.keys_lost_per_flip_max();
        let keys_lost_max = match damage {
            Damage::Flip { .. } => Some(flip_max),
            // No written byte is lost.
            Damage::Appended { .. } => Some(flip_max.saturating_sub(1)),
            _ => None,
        };
        let must_report = match damage {
            _ if self.is_torn_end(path, damage) => false,
            Damage::Flip { .. } | Damage::Zeros { .. } => true,
            // An older store is consistent in itself: its owner has to detect it.
            _ => self.engine.reports_truncation() && path != self.opening.directory,
        };
        // An older entry stays until its successor is durable, and the lost entry may be the successor.
        let may_show =
            self.is_torn_end(path, damage) || self.engine.keys_collide(self.opening.variation);
        Price {
            keys_lost_max,
            must_report,
            absent: match may_show {
                true => Absent::MayShow,
                false => Absent::Hidden,
            },
        }
    }

    /// Every value shown was put under its key; older or missing values are reported, and are not too many.
    fn check_store(&self, store: &dyn Backend, price: &Price) -> Checked<Observation> {
        let is_whole_at_stake = price.is_whole_at_stake();
        let forgive = |call: &str, error: &BackendError| {
            // A fold of an index reports its gaps; a fold of objects leaves them to gets.
            let is_fold = call == "fold";
            ensure(
                error.kind() == ErrorKind::Corrupt && (!is_fold || is_whole_at_stake),
                15,
                || format!("{call} failed: {error}"),
            )
        };
        let observed = observe(store, self.now, price.absent, &forgive)?;
        let mut lost = names::KEYS - observed.present.len() - observed.absent.len();
        let mut unreported = Vec::new();
        for seen in observed.present.values() {
            ensure(self.history.has_put(seen), 15, || {
                format!("{seen:?} was never put")
            })?;
            if !self.is_latest(&observed, &seen.key) {
                unreported.push(&seen.key);
            }
        }
        self.check_indexes(&observed)?;
        let absent = observed.absent.iter();
        unreported.extend(absent.filter(|key| self.state.get(key, self.now).is_some()));
        lost += unreported.len();
        let status = store.status();
        let is_reported = !status.lost.is_empty();
        ensure(
            unreported.is_empty() || is_reported || !price.must_report,
            15,
            || format!("{unreported:?} are gone or old and nothing reports it"),
        )?;
        ensure(
            price.keys_lost_max.is_none_or(|most| lost <= most),
            15,
            || {
                format!(
                    "{lost} keys are lost instead of {:?}: {unreported:?} and those that cannot be read; lost ranges: {:?}",
                    price.keys_lost_max, status.lost
                )
            },
        )?;
        Ok(observed)
    }

    /// A successful fold of an index has every entry of the readable objects.
    fn check_indexes(&self, observed: &Observation) -> Checked {
        let folds = observed.index.iter().flatten();
        for (range, fold) in index_ranges().zip(folds) {
            let Some(seen) = fold else { continue };
            let mut expected = self.state.fold_index(&range, self.now);
            expected.retain(|entry| !seen.contains(entry) && self.is_latest(observed, &entry.1));
            ensure(expected.is_empty(), 15, || {
                format!("a fold of an index lacks {expected:?} and does not say so")
            })?;
        }
        Ok(())
    }

    fn is_latest(&self, observed: &Observation, key: &StorageKey) -> bool {
        let (seen, latest) = (observed.present.get(key), self.state.get(key, self.now));
        seen.zip(latest)
            .is_some_and(|(seen, latest)| (&latest.head, &latest.body) == (&seen.head, &seen.body))
    }

    /// The keys that show their latest value.
    fn read_right(&self, observed: &Observation) -> Expected {
        let right = observed.present.values();
        right
            .filter(|seen| self.is_latest(observed, &seen.key))
            .map(|seen| (seen.key.clone(), content(seen)))
            .collect()
    }

    /// Writes are accepted or refused; accepted ones, and keys read before, survive the death of
    /// the process.
    fn check_life_goes_on(
        &self,
        store: Box<dyn Backend>,
        disk: &MemoryDisk,
        mut expected: Expected,
        rng: &mut ChaCha8Rng,
    ) -> Checked {
        for number in 0..LATER_WRITES {
            let write = later_write(number, rng);
            let (key, content) = (write.key().clone(), content_of(&write));
            expected.remove(&key);
            if let Some(content) = put(&*store, write, content)? {
                expected.insert(key, content);
            }
        }
        if rng.random_bool(0.5) {
            check_upkeep_ends(&*store, self.now)?;
        }
        let killed = copy_of(disk);
        drop(store);
        let store = self.engine.open(&self.opening.on(killed));
        let store =
            store.map_err(|error| unexpected("opening after writes to a damaged store", &error))?;
        let at = ReadAt::may_block(self.now);
        let keys_collide = self.engine.keys_collide(self.opening.variation);
        for (key, content) in &expected {
            let found = store.get(key, at);
            let is_right = match (&found, content) {
                (Ok(Lookup::Found(entry)), Some((head, body))) => {
                    (&entry.head, &entry.body) == (head, body)
                }
                (Ok(Lookup::Absent), None) => true,
                // The key may be that of the damaged record.
                (Err(error), None) => keys_collide && error.kind() == ErrorKind::Corrupt,
                _ => false,
            };
            ensure(is_right, 5, || {
                format!("after damage and a death {key:?} is {found:?} instead of {content:?}")
            })?;
        }
        Ok(())
    }
}

impl Price {
    fn is_whole_at_stake(&self) -> bool {
        self.keys_lost_max.is_none_or(|most| most > names::KEYS)
    }
}

fn check_refusal(error: &BackendError, damage: &Damage, price: &Price) -> Checked {
    let is_clear = match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NewerFormat => true,
        // The file that locates the others is missing or another store's, so they are not this store's.
        ErrorKind::Denied => matches!(
            damage,
            Damage::Removed | Damage::Replaced { .. } | Damage::Exchanged { .. }
        ),
        _ => false,
    };
    ensure(is_clear && price.is_whole_at_stake(), 15, || {
        format!("opening failed: {error}")
    })
}

/// Upkeep of a damaged store ends and does not panic.
fn check_upkeep_ends(store: &dyn Backend, now: kvorum_backend::Timestamp) -> Checked {
    for task in store.maintenance_due(now) {
        let mut steps = 0;
        let budget = StepBudget { bytes: 50_000 };
        while let Ok(outcome) = store.maintenance_step(&task, budget, now)
            && !outcome.is_done
        {
            steps += 1;
            ensure(steps < STEPS_MAX, 17, || format!("{task:?} never ends"))?;
        }
    }
    Ok(())
}

fn content(seen: &Seen) -> Content {
    Some((seen.head.clone(), seen.body.clone()))
}

fn content_of(write: &Write) -> Content {
    match write {
        Write::Put { head, body, .. } => Some((head.clone(), body.clone())),
        Write::Remove { .. } => None,
    }
}

fn later_write(number: usize, rng: &mut ChaCha8Rng) -> Write {
    let key = names::key(rng.random_range(0..names::KEYS));
    if rng.random_bool(0.2) {
        return Write::remove(key);
    }
    let value = LATER_VALUES_FROM + u32::try_from(number).unwrap_or(0);
    let body = filled(!value, rng.random_range(0..900));
    Write::put(key, Default::default(), filled(value, 9), body)
}

/// The content when the write was acknowledged as durable; `None` when the write was refused.
fn put(store: &dyn Backend, write: Write, content: Content) -> Checked<Option<Content>> {
    let receipt = store.put(&Batch::of(write), Durability::Grouped);
    let waited = receipt.and_then(kvorum_backend::Receipt::wait);
    match waited {
        Ok(_) => Ok(Some(content)),
        Err(error) => ensure(
            matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied),
            15,
            || format!("a put to a damaged store failed: {error}"),
        )
        .map(|()| None),
    }
}
