//! Replicas as maps with trees, for tests. They answer the questions of exchanges in any order.

use std::collections::BTreeMap;

use kvorum_encoding::{StorageKey, checksum};
use kvorum_tictac::{HASH_VERSION, LeafHash, Tree, TreeSize, folded_root};

use crate::entry_summary::EntrySummary;
use crate::exchange::{Exchange, ExchangeRequest};
use crate::exchange_event::{
    BranchesAnswer, ExchangeEffect, ExchangeEvent, KeysAnswer, RootAnswer,
};
use crate::outcome::Outcome;

/// Pseudorandom numbers from a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    pub(crate) fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(crate) fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// An entry: the later one by (`order`, `value`) wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) order: u64,
    pub(crate) value: u64,
    pub(crate) expiry: Option<u64>,
}

impl Entry {
    fn hash(&self, key: &StorageKey) -> LeafHash {
        LeafHash::new(key.as_bytes(), [(1, self.order)], self.value, false)
    }
}

pub(crate) fn key(number: u64) -> StorageKey {
    let bucket = number % 3;
    let address = format!("\0\u{1}b{bucket}\0\u{1}k{number:06}");
    StorageKey::from_encoded(address.into_bytes())
}

pub(crate) fn segment(key: &StorageKey) -> u32 {
    checksum(key.as_bytes())
}

pub(crate) struct Replica {
    pub(crate) entries: BTreeMap<StorageKey, Entry>,
    pub(crate) tree: Tree,
    pub(crate) is_building: bool,
    pub(crate) is_down: bool,
    pub(crate) hash_version: u8,
    /// Its clock is ahead of the world's by this much.
    pub(crate) clock_ahead: u64,
}

impl Replica {
    fn new(size: TreeSize) -> Self {
        Self {
            entries: BTreeMap::new(),
            tree: Tree::new(size),
            is_building: false,
            is_down: false,
            hash_version: HASH_VERSION,
            clock_ahead: 0,
        }
    }

    pub(crate) fn put(&mut self, key: &StorageKey, entry: Entry) {
        let old = self.entries.insert(key.clone(), entry);
        let old = old.map(|it| it.hash(key));
        self.tree.change(segment(key), old, Some(entry.hash(key)));
    }

    /// Stores an object as a replica does: the later one stays.
    pub(crate) fn receive(&mut self, key: &StorageKey, entry: Entry) {
        if self.entries.get(key).is_none_or(|own| *own < entry) {
            self.put(key, entry);
        }
    }

    /// Builds the tree of the stored entries that have not expired.
    pub(crate) fn rebuild(&mut self, size: TreeSize, now: u64) {
        self.tree = Tree::new(size);
        for (key, entry) in &self.entries {
            if entry.expiry.is_none_or(|it| it > now) {
                self.tree.change(segment(key), None, Some(entry.hash(key)));
            }
        }
    }

    fn recount(&mut self, size: TreeSize, leaves: &[u32], now: u64) {
        // A leaf of a smaller size is several leaves of the tree.
        let mut fresh = Tree::new(self.tree.size());
        for (key, entry) in &self.entries {
            if entry.expiry.is_none_or(|it| it > now) {
                fresh.change(segment(key), None, Some(entry.hash(key)));
            }
        }
        for leaf in 0..self.tree.size().leaves() {
            if leaves.binary_search(&(leaf & (size.leaves() - 1))).is_ok() {
                self.tree.correct(leaf, fresh.leaf(leaf));
            }
        }
    }

    fn root(&self) -> RootAnswer {
        if self.is_down {
            return RootAnswer::Failed;
        }
        RootAnswer::Root {
            size: self.tree.size(),
            hash_version: self.hash_version,
            root: self.tree.root().to_vec(),
            is_building: self.is_building,
        }
    }

    fn branches(&self, size: TreeSize, branches: &[u32]) -> BranchesAnswer {
        if self.is_down || self.tree.size() < size {
            return BranchesAnswer::Failed;
        }
        let folded = self.tree.clone().folded_to(size);
        let leaves = |number: &u32| folded.branch(*number as usize).to_vec();
        BranchesAnswer::Branches {
            branches: branches.iter().map(leaves).collect(),
            is_building: self.is_building,
        }
    }
}

/// The replicas of one preference list.
pub(crate) struct World {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) size: TreeSize,
    pub(crate) now: u64,
    pub(crate) last_order: u64,
    pub(crate) effects_done: usize,
    pub(crate) repairs_at_once: usize,
}

impl World {
    pub(crate) fn new(replicas: usize, size: TreeSize) -> Self {
        Self {
            replicas: (0..replicas).map(|_| Replica::new(size)).collect(),
            size,
            now: 1000,
            last_order: 0,
            effects_done: 0,
            repairs_at_once: 0,
        }
    }

    /// A new entry, later than all earlier ones.
    pub(crate) fn fresh(&mut self) -> Entry {
        self.last_order += 1;
        Entry {
            order: self.last_order,
            value: self.last_order * 7,
            expiry: None,
        }
    }

    pub(crate) fn write_everywhere(&mut self, number: u64) {
        let entry = self.fresh();
        for replica in &mut self.replicas {
            replica.put(&key(number), entry);
        }
    }

    pub(crate) fn request(&self) -> ExchangeRequest {
        ExchangeRequest {
            replicas: self.replicas.len(),
            limits: crate::ExchangeLimits::default(),
            hint: None,
            after: None,
            turn: 0,
        }
    }

    pub(crate) fn are_equal(&self) -> bool {
        let first = &self.replicas[0].entries;
        self.replicas.iter().all(|it| it.entries == *first)
    }

    pub(crate) fn are_trees_equal(&self) -> bool {
        let sizes = self.replicas.iter().map(|it| it.tree.size());
        let size = sizes.min().unwrap();
        let mut roots = self
            .replicas
            .iter()
            .map(|it| folded_root(it.tree.root(), size));
        let first = roots.next();
        roots.all(|root| Some(root) == first)
    }

    /// Runs an exchange to its end, and calls `meanwhile` before each effect.
    pub(crate) fn exchange(
        &mut self,
        request: ExchangeRequest,
        draw: &mut Draw,
        mut meanwhile: impl FnMut(&mut Self, &ExchangeEffect, &mut Draw),
    ) -> Outcome {
        let mut effects = Vec::new();
        let mut exchange = Exchange::start(request, &mut effects);
        loop {
            assert!(!effects.is_empty(), "an exchange that waits for nothing");
            self.note_repairs(&effects);
            let effect = effects.swap_remove(draw.place(effects.len()));
            if let ExchangeEffect::End(outcome) = effect {
                let is_recount = |it: &ExchangeEffect| matches!(it, ExchangeEffect::Recount { .. });
                assert!(effects.iter().all(is_recount), "{effects:?}");
                effects.into_iter().for_each(|it| _ = self.carry_out(it));
                return outcome;
            }
            self.effects_done += 1;
            meanwhile(self, &effect, draw);
            if let Some(event) = self.carry_out(effect) {
                exchange.step(event, &mut effects);
            }
        }
    }

    fn note_repairs(&mut self, effects: &[ExchangeEffect]) {
        let is_repair = |it: &&ExchangeEffect| matches!(it, ExchangeEffect::Repair { .. });
        let repairs = effects.iter().filter(is_repair).count();
        self.repairs_at_once = self.repairs_at_once.max(repairs);
    }

    pub(crate) fn carry_out(&mut self, effect: ExchangeEffect) -> Option<ExchangeEvent> {
        Some(match effect {
            ExchangeEffect::AskRoot { replica } => ExchangeEvent::Root {
                replica,
                answer: self.replicas[replica].root(),
            },
            ExchangeEffect::AskBranches {
                replica,
                size,
                branches,
            } => ExchangeEvent::Branches {
                replica,
                answer: self.replicas[replica].branches(size, &branches),
            },
            ExchangeEffect::AskKeys {
                replica,
                size,
                leaves,
                hint,
                after,
                keys_max,
            } => {
                let is_wanted = |key: &StorageKey, entry: &Entry| {
                    let leaf = size.leaf_of(segment(key));
                    leaves.binary_search(&leaf).is_ok()
                        && hint.as_ref().is_none_or(|it| it.admits(key, entry.order))
                        && after.as_ref().is_none_or(|it| key > it)
                };
                let own = &self.replicas[replica];
                let entries = own
                    .entries
                    .iter()
                    .filter(|(key, entry)| is_wanted(key, entry));
                let mut seen: Vec<EntrySummary> =
                    entries.map(|(key, entry)| seen(key, entry)).collect();
                let is_cut = seen.len() > keys_max;
                seen.truncate(keys_max);
                let answer = match own.is_down {
                    true => KeysAnswer::Failed,
                    false => KeysAnswer::Keys {
                        seen,
                        is_cut,
                        now: self.now + own.clock_ahead,
                    },
                };
                ExchangeEvent::Keys { replica, answer }
            }
            ExchangeEffect::Pause => ExchangeEvent::PauseOver,
            ExchangeEffect::Repair { key } => {
                let is_mended = self.repair(&key);
                ExchangeEvent::Repaired { key, is_mended }
            }
            ExchangeEffect::Recount {
                replica,
                size,
                leaves,
            } => {
                let now = self.now;
                self.replicas[replica].recount(size, &leaves, now);
                return None;
            }
            ExchangeEffect::End(_) => return None,
        })
    }

    /// Repairs like read repair: all replicas that are up get the latest entry.
    fn repair(&mut self, key: &StorageKey) -> bool {
        let up = || self.replicas.iter().filter(|it| !it.is_down);
        let latest = up().filter_map(|it| it.entries.get(key)).max().copied();
        if let Some(latest) = latest {
            for replica in self.replicas.iter_mut().filter(|it| !it.is_down) {
                replica.receive(key, latest);
            }
        }
        self.replicas.iter().all(|it| !it.is_down)
    }
}

fn seen(key: &StorageKey, entry: &Entry) -> EntrySummary {
    EntrySummary {
        key: key.clone(),
        segment: segment(key),
        version: u64::from(entry.hash(key).get()) | entry.order << 32,
        modified: entry.order,
        expiry: entry.expiry,
    }
}
