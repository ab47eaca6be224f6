//! The interface of merge policies: shapes of stores, picks, and backlogs.
//!
//! A policy selects the tables to merge, from sizes and key ranges alone, so that tests can run it
//! over simulated stores. `leveled` and `doubling` are policies. A policy has no state between two
//! calls; merges in progress belong to the mechanism.

use std::fmt;

use bytes::Bytes;
use kvorum_disk::Headroom;

/// While puts are refused, new entries are worth a flush and a merge if they are at least all
/// entries divided by this number: at most this many bytes are copied for each byte freed.
const WORTH_PART: u64 = 32;
/// The same while removals are nearly refused too.
const WORTH_PART_FOR_REMOVALS: u64 = 256;

/// A rule for selecting merges. It is called once for a task or a step, never for a key.
pub trait Policy: fmt::Debug + Send + Sync {
    /// The meaning of its stores' levels.
    fn layout(&self) -> Layout;

    /// The due merges, most wanted first; `now` in microseconds.
    fn picks(&self, shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick>;

    /// The backlog of the store.
    fn backlog(&self, shape: &Shape, settings: &PolicySettings) -> Backlog;

    /// Bytes of merging, read and written, charged to each byte put for each level with a due
    /// merge. `None` if puts pay only for a backlog.
    fn share_per_byte(&self) -> Option<u64> {
        None
    }

    /// True when a merge may begin while the merges of `begun` are in progress.
    fn may_begin(&self, _pick: &Pick, begun: &[&Pick]) -> bool {
        begun.is_empty()
    }
}

/// The meaning of a store's levels. The manifest records it, and an opening uses the recorded
/// layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Each level is one run. Its size is a multiple of the level above.
    #[default]
    Multiples,
    /// Three levels in a row are one level of up to three runs, which may be twice as large as
    /// those above.
    Doubling,
}

/// Rules for merging tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Levels, level 0 included.
    pub levels: usize,
    /// Level 0 is merged when it has this many tables.
    pub level_zero_tables: usize,
    /// The target of the first level in use below level 0, in bytes, is at most this.
    pub base_bytes: u64,
    /// The target size of each level, as a multiple of the level above.
    pub multiplier: u64,
    /// A table with at least this many removals is merged downwards to free the space of removed
    /// entries, if a tenth of the entries that the merge reads are removals. `None`: only tables
    /// with at least half removals are.
    pub removals_trigger: Option<u64>,
    /// True: tables are rewritten when half of their contents is expired. False: only when all is.
    pub rewrites_expired: bool,
    /// A merge starts another table when the present one has this many bytes.
    pub table_bytes_max: u64,
    /// With more than this many tables on level 0, puts pay for merging.
    pub slow_from_tables: usize,
    /// With this many tables on level 0, a put pays the maximum.
    pub slowest_at_tables: usize,
    /// Bytes that a merge may write before one of its inputs is removed. A small value makes small
    /// merges.
    pub room_bytes: u64,
    /// Set while puts are refused for want of space: the share of newer entries that makes a merge
    /// worth its cost, as in [`worth_part`]. Used by doubling levels.
    pub worth_part: Option<u64>,
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
            worth_part: None,
        }
    }
}

/// The facts of a table that policies use.
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
    /// Entries and marks that are removals.
    pub removals: u64,
    /// The time when about half of it is expired, in microseconds; `None` for never.
    pub half_expired_at: Option<u64>,
    /// The time when all of it is expired, in microseconds; `None` for never.
    pub expired_at: Option<u64>,
    /// The table is in the wrong one of two directories.
    pub is_misplaced: bool,
}

impl TableShape {
    pub(crate) fn overlaps(&self, from: &Bytes, to: &Bytes) -> bool {
        self.smallest <= *to && *from <= self.largest
    }
}

/// The tables of each level: level 0 newest first, the others in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The levels.
    pub levels: Vec<Vec<TableShape>>,
}

/// Reason of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The level is over its target.
    Size,
    /// Much of a table is removals.
    Removals,
    /// Much of a table is expired.
    Expired,
    /// It belongs in the other of two directories.
    Misplaced,
}

/// A useful merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its reason.
    pub reason: Reason,
    /// The level's size in percent of its target.
    pub score_percent: u64,
    /// The level that the merge relieves.
    pub level: usize,
    /// Its tables that are merged, in the level's order.
    pub inputs: Vec<u64>,
    /// The level of the result: the same level when a table is rewritten there.
    pub output: usize,
    /// Tables of that level that are merged too.
    pub below: Vec<u64>,
    /// Bytes that the merge reads.
    pub bytes: u64,
    /// The tables change their level without a rewrite: on the way are no older entries that they
    /// overlap, and no run that they would join.
    pub is_move: bool,
}

/// The backlog of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes to read and write until every level is within its target.
    pub bytes: u64,
    /// The pressure on writers, in thousandths, from 0 to 1000.
    pub pressure_permille: u64,
}

/// The layers of level 0. Consecutive tables in key order, without common keys, are one layer.
pub fn layers<T>(zero: &[T], range: impl Fn(&T) -> (&Bytes, &Bytes)) -> impl Iterator<Item = &[T]> {
    zero.chunk_by(move |one, next| range(one).1 < range(next).0)
}

/// The least share of new entries for a flush and a merge while puts are refused: one divided by
/// this.
pub fn worth_part(headroom: &Headroom) -> u64 {
    match headroom.is_short_for_removals() {
        true => WORTH_PART_FOR_REMOVALS,
        false => WORTH_PART,
    }
}

/// True when merging level 0 for space repays its cost: level 0 has at least this part of all
/// entries.
pub fn is_zero_worth_merging(shape: &Shape, worth_part: u64) -> bool {
    let entries = |it: &[TableShape]| it.iter().map(|it| it.entries).sum::<u64>();
    let all: u64 = shape.levels.iter().map(|it| entries(it)).sum();
    let zero = entries(tables(shape, 0));
    zero > 0 && zero.saturating_mul(worth_part) >= all
}

/// The pressure of level 0's tables on writers, in thousandths.
pub(crate) fn pressure_permille(layers: usize, settings: &PolicySettings) -> u64 {
    let slow = layers.saturating_sub(settings.slow_from_tables) as u64;
    let span = settings
        .slowest_at_tables
        .saturating_sub(settings.slow_from_tables)
        .max(1) as u64;
    (1000 * slow / span).min(1000)
}

/// True when a table is due to be rewritten for its expired entries.
pub(crate) fn is_expired(table: &TableShape, settings: &PolicySettings, now: u64) -> bool {
    let at = match settings.rewrites_expired {
        true => table.half_expired_at.or(table.expired_at),
        false => table.expired_at,
    };
    at.is_some_and(|it| it <= now)
}

/// The most bytes that a merge writes before one of its inputs is removed: the tables of one part,
/// which ends at the end of a table of the level below.
pub(crate) fn part_bytes(shape: &Shape, output: usize, settings: &PolicySettings) -> u64 {
    let longest = tables(shape, output).iter().map(|it| it.bytes).max();
    settings
        .table_bytes_max
        .saturating_add(longest.unwrap_or(0))
}

/// The tables of level 0 to merge downwards: all, or as many of the oldest as there is room for. If
/// there is no room for the oldest, the smallest table with no older table beneath it on the level.
pub(crate) fn of_level_zero<'a>(
    shape: &'a Shape,
    output: usize,
    settings: &PolicySettings,
) -> Vec<&'a TableShape> {
    let zero = tables(shape, 0);
    let mut needed = part_bytes(shape, output, settings);
    let oldest_first = zero.iter().rev();
    let fitting = oldest_first.take_while(|table| {
        needed = needed.saturating_add(table.bytes);
        needed <= settings.room_bytes
    });
    let count = fitting.count();
    if count > 0 {
        return zero[zero.len() - count..].iter().collect();
    }
    let is_oldest = |(at, table): &(usize, &TableShape)| {
        let mut older = zero[at + 1..].iter();
        !older.any(|it| it.overlaps(&table.smallest, &table.largest))
    };
    let alone = zero.iter().enumerate().filter(is_oldest);
    let smallest = alone.min_by_key(|(_, table)| table.bytes);
    smallest.into_iter().map(|(_, table)| table).collect()
}

/// Tables of a level with keys in this range, both ends included.
pub(crate) fn overlapping<'a>(
    shape: &'a Shape,
    level: usize,
    smallest: &Bytes,
    largest: &Bytes,
) -> Vec<&'a TableShape> {
    let tables = tables(shape, level).iter();
    tables.filter(|it| it.overlaps(smallest, largest)).collect()
}

pub(crate) fn level_bytes(shape: &Shape, level: usize) -> u64 {
    tables(shape, level).iter().map(|it| it.bytes).sum()
}

pub(crate) fn zero_layers(shape: &Shape) -> usize {
    layers(tables(shape, 0), |it| (&it.smallest, &it.largest)).count()
}

pub(crate) fn tables(shape: &Shape, level: usize) -> &[TableShape] {
    shape.levels.get(level).map_or(&[], Vec::as_slice)
}
