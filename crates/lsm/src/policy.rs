//! What a policy of merging is asked, and in which words: shapes of stores, picks, debts.
//!
//! A policy says which tables to merge: a function of sizes and key ranges, and of nothing else, so
//! that it can be run over stores that do not exist. `leveled` is one. It keeps nothing
//! between two calls; what a merge has begun is the mechanism's.

use std::fmt;

use bytes::Bytes;
use kvorum_disk::Headroom;

/// New entries that are this part of all are worth a flush and a merge where puts are refused: for each byte
/// that is freed, no more than so many are copied.
const WORTH_PART: u64 = 32;
/// The same where removals are soon refused too.
const WORTH_PART_FOR_REMOVALS: u64 = 256;

/// A rule by which tables are merged. It is asked once for a task or a step, never for a key.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The merges that are due, most wanted first; `now` in microseconds.
    fn picks(&self, shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick>;

    /// What the store owes.
    fn debt(&self, shape: &Shape, settings: &PolicySettings) -> Debt;
}

/// When tables are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Levels, level 0 included.
    pub levels: usize,
    /// Level 0 is merged when it has this many tables.
    pub level_zero_tables: usize,
    /// The first level in use below level 0 is to hold at most this many bytes.
    pub base_bytes: u64,
    /// Each level is to hold so many times what the one above holds.
    pub multiplier: u64,
    /// A table with at least this many removals is merged downwards, so that the space of what they
    /// remove is free, if they are a tenth of the entries that are read for it; `None` for only when
    /// they are half of the table.
    pub removals_trigger: Option<u64>,
    /// Tables are rewritten when half of what they hold is expired. Otherwise only those of which
    /// everything is are worked on.
    pub rewrites_expired: bool,
    /// A merge starts another table when one has this many bytes.
    pub table_bytes_max: u64,
    /// From this many tables on level 0 on, putting pays for merging.
    pub slow_from_tables: usize,
    /// With this many tables on level 0, putting pays as much as can be asked.
    pub slowest_at_tables: usize,
    /// What a merge may write before anything that it replaces is removed. Where that is little, merges are as
    /// small as that asks for.
    pub room_bytes: u64,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            levels: 7,
            level_zero_tables: 4,
            base_bytes: 128 << 20,
            multiplier: 8,
            removals_trigger: None,
            rewrites_expired: true,
            table_bytes_max: 64 << 20,
            slow_from_tables: 8,
            slowest_at_tables: 20,
            room_bytes: u64::MAX,
        }
    }
}

/// What the policy has to know of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Its number.
    pub number: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The lowest key.
    pub smallest: Bytes,
    /// The highest key.
    pub largest: Bytes,
    /// Entries, removals included.
    pub entries: u64,
    /// Entries and marks that only say that something is gone.
    pub removals: u64,
    /// When about half of it is expired, in microseconds; `None` for never.
    pub half_expired_at: Option<u64>,
    /// When everything in it is expired, in microseconds; `None` for never.
    pub expired_at: Option<u64>,
    /// It lies in the directory where tables of its level do not belong.
    pub is_misplaced: bool,
}

impl TableShape {
    pub(crate) fn overlaps(&self, from: &Bytes, to: &Bytes) -> bool {
        self.smallest <= *to && *from <= self.largest
    }
}

/// The tables of each level. Level 0 newest first, the others in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The levels.
    pub levels: Vec<Vec<TableShape>>,
}

/// Why tables are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The level holds too much.
    Size,
    /// Much of a table is removals.
    Removals,
    /// Much of a table is expired.
    Expired,
    /// It belongs in the other of two directories.
    Misplaced,
}

/// A merge that would do good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Why.
    pub reason: Reason,
    /// How much the level is over its target, in percent of it; 100 is "full".
    pub score_percent: u64,
    /// The level that the merge relieves.
    pub level: usize,
    /// Its tables that take part, in the level's order.
    pub inputs: Vec<u64>,
    /// The level that the result goes to. The same one when a table of the last level is rewritten, or
    /// one goes to the other directory.
    pub output: usize,
    /// Tables of that level that take part.
    pub below: Vec<u64>,
    /// What is read, in bytes.
    pub bytes: u64,
}

impl Pick {
    /// True when the table need not be rewritten: nothing below has keys in common with it.
    pub fn is_move(&self) -> bool {
        let is_one = self.level > 0 && self.inputs.len() == 1;
        self.reason == Reason::Size && is_one && self.below.is_empty() && self.output > self.level
    }
}

/// What a store owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    /// Bytes to be read and written before every level is within its target.
    pub bytes: u64,
    /// How hard writers should feel it, in thousandths: 0 not at all, 1000 as hard as can be.
    pub pressure_permille: u64,
}

/// The tables of level 0 by layers: those that follow each other in key order are one.
pub fn layers<T>(zero: &[T], range: impl Fn(&T) -> (&Bytes, &Bytes)) -> impl Iterator<Item = &[T]> {
    zero.chunk_by(move |one, next| range(one).1 < range(next).0)
}

/// The part of all entries that new ones have to be for a flush and a merge where puts are refused.
pub fn worth_part(headroom: &Headroom) -> u64 {
    match headroom.is_short_for_removals() {
        true => WORTH_PART_FOR_REMOVALS,
        false => WORTH_PART,
    }
}

/// True when merging level 0 for the sake of space is worth what it costs: it has such a part of all entries.
pub fn is_zero_worth_merging(shape: &Shape, worth_part: u64) -> bool {
    let entries = |it: &[TableShape]| it.iter().map(|it| it.entries).sum::<u64>();
    let all: u64 = shape.levels.iter().map(|it| entries(it)).sum();
    let zero = entries(tables(shape, 0));
    zero > 0 && zero.saturating_mul(worth_part) >= all
}

pub(crate) fn tables(shape: &Shape, level: usize) -> &[TableShape] {
    shape.levels.get(level).map_or(&[], Vec::as_slice)
}
