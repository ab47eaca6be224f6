//! Doubling levels: a run of level k has at most 2^k units, and two runs are merged into one of the
//! next level. Each byte that is put is charged a fixed number of bytes of merging for each level,
//! so that no put ever waits for a merge to end.
//!
//! The unit is [`PolicySettings::base_bytes`], about the size of a flushed table. Level 0 is the tree's own:
//! flushed tables, newest first. Each level below it takes three of the tree's levels, one for each
//! possible run:
//!
//! ```text
//! level   tree's levels, newest run first     a run has at most
//! 0       0                                   1 unit (a flush)
//! 1       1 = C   2 = B   3 = A               2 units
//! 2       4 = C   5 = B   6 = A               4 units
//! k       3k-2    3k-1    3k                  2^k units; on the last level, anything
//! ```
//!
//! So a deeper level of the tree is older, as everywhere, and readers and the manifest need no
//! special case.
//!
//! # Rules
//!
//! - On level 0 the oldest flushes are merged when they exceed one unit, or are many. The result is
//!   a run of level 1.
//! - On each other level, B is merged into A, one piece of its key range at a time. Each piece is a
//!   merge of its own, so that a restart loses little and little space is needed. C takes runs that
//!   arrive meanwhile.
//! - A run A of more than 2^k units becomes the newest run of the next level. Its tables are not
//!   rewritten: the move is an entry of the manifest. A run that overwrites and removals have made
//!   smaller stays.
//!
//! # The bound
//!
//! Time is counted in flushed bytes. A flush counts as an eighth of a unit at least, since eight
//! flushes are merged even if they are small. A level with a due merge gets [`SHARE_PER_BYTE`]
//! bytes of merging for each byte that is put. Then no level below 0 ever needs a fourth run:
//!
//! - A run that arrives at level k has more than 2^(k-1) units. Each flushed byte arrives there once. So
//!   without delays runs would come at least 2^(k-1) units apart.
//! - A merge on level k reads A and B, at most 2^k units each, and a quarter of B again, where
//!   pieces of B's range share tables of A: at most 2.25 * 2^k units. It writes at most as much. At
//!   nine bytes for one the merge ends within 2 * 2.25 * 2^k / 9 = 2^(k-1) units of time.
//! - So merges end at least as fast as runs come, and delays do not add up on a level. They add up
//!   from level to level: a run is late by at most 1/2 + 1 + 2 + ... + 2^(k-2), which is less than
//!   2^(k-1) units.
//! - The time from a run's arrival without delays to the end of its merge into A is less than
//!   2^(k-1) units of delay and 2^(k-1) of merging: less than twice the time between two runs. So
//!   at most two runs wait at any time: B and C.
//!
//! A put of n bytes into a store that uses the levels 1 to K therefore pays for at most 9 * (K + 1) * n bytes of
//! merging, read and written together, and a get looks into at most 3 * K runs and the flushes on level 0. The
//! simulation in `doubling_test.rs` asserts both bounds. Most puts pay less: without overwrites
//! each byte is read and written once on each level, mostly by upkeep before a put has to.

use crate::policy::{
    Backlog, Layout, Pick, Policy, PolicySettings, Reason, Shape, TableShape, is_expired, layers,
    level_bytes, of_level_zero, overlapping, part_bytes, pressure_permille, tables, zero_layers,
};

/// Levels of the tree that one level takes.
const RUNS: usize = 3;
/// Bytes of merging, read and written, for each byte that is put and each level with a due merge.
pub const SHARE_PER_BYTE: u64 = 9;
/// A flush counts as at least one unit divided by this number, and this many flushes of any size
/// are merged.
pub(crate) const SMALL_FLUSH_PART: u64 = 8;
/// A piece of B has at least the bytes of this many tables, if B has. One table of A at the piece's
/// end may have to be read again for the next piece: at most a quarter of the piece.
const PIECE_TABLES: u64 = 4;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct DoublingLevels;

impl DoublingLevels {
    /// The levels of the tree for this many levels below level 0.
    pub const fn tree_levels(levels: usize) -> usize {
        1 + RUNS * levels
    }
}

impl Policy for DoublingLevels {
    fn layout(&self) -> Layout {
        Layout::Doubling
    }

    fn picks(&self, shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick> {
        picks(shape, settings, now)
    }

    fn backlog(&self, shape: &Shape, settings: &PolicySettings) -> Backlog {
        backlog(shape, settings)
    }

    fn share_per_byte(&self) -> Option<u64> {
        Some(SHARE_PER_BYTE)
    }

    /// Merges of different levels run side by side, but no two on one level.
    fn may_begin(&self, pick: &Pick, begun: &[&Pick]) -> bool {
        begun.iter().all(|it| {
            let taken = [it.level, it.output];
            !taken.contains(&pick.level) && !taken.contains(&pick.output)
        })
    }
}

/// The tree's levels of one level, the first below level 0 being 1.
#[derive(Clone, Copy)]
struct Slots {
    level: u32,
}

impl Slots {
    fn a(self) -> usize {
        RUNS * self.level as usize
    }

    fn b(self) -> usize {
        self.a() - 1
    }

    fn c(self) -> usize {
        self.a() - 2
    }

    /// The free place for a run that is newer than all runs of the level.
    fn free(self, shape: &Shape) -> Option<usize> {
        let is_free = |it: &usize| tables(shape, *it).is_empty();
        let free = (self.c()..=self.a()).take_while(is_free);
        free.last()
    }

    fn bytes_max(self, settings: &PolicySettings) -> u64 {
        let is_last = self.level >= last_level(settings);
        let doubled = 1_u64.checked_shl(self.level).unwrap_or(u64::MAX);
        match is_last {
            true => u64::MAX,
            false => settings.base_bytes.max(1).saturating_mul(doubled),
        }
    }
}

fn last_level(settings: &PolicySettings) -> u32 {
    let levels = settings.levels.saturating_sub(1) / RUNS;
    u32::try_from(levels.max(1)).unwrap_or(u32::MAX)
}

fn all_slots(settings: &PolicySettings) -> impl DoubleEndedIterator<Item = Slots> + use<> {
    (1..=last_level(settings)).map(|level| Slots { level })
}

fn picks(shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick> {
    if let Some(pick) = space_pick(shape, settings) {
        return vec![pick];
    }
    // The deepest first: a run that moves down leaves its place to the next.
    let moves = all_slots(settings).rev();
    let mut picks: Vec<Pick> = moves
        .filter_map(|it| move_pick(shape, settings, it))
        .collect();
    picks.extend(zero_pick(shape, settings));
    picks.extend(all_slots(settings).filter_map(|it| merge_pick(shape, settings, it)));
    if picks.is_empty() {
        let garbage = expired_pick(shape, settings, now)
            .or_else(|| removals_pick(shape, settings))
            .or_else(|| left_over_pick(shape));
        picks.extend(garbage);
    }
    picks
}

fn backlog(shape: &Shape, settings: &PolicySettings) -> Backlog {
    let of_zero = zero_pick(shape, settings).map_or(0, |it| it.bytes);
    let of_levels = all_slots(settings).map(|it| merge_bytes(shape, it));
    Backlog {
        bytes: 2 * (of_zero + of_levels.sum::<u64>()),
        pressure_permille: pressure_permille(zero_layers(shape), settings),
    }
}

/// Bytes that merges read until the level has a single run.
fn merge_bytes(shape: &Shape, slots: Slots) -> u64 {
    let [a, b, c] = [slots.a(), slots.b(), slots.c()].map(|it| level_bytes(shape, it));
    let Some(first) = tables(shape, slots.b()).first() else {
        return 0;
    };
    // Pieces of B are merged in key order: tables of A before the rest of B are done.
    let rest = tables(shape, slots.a()).iter();
    let rest = rest.filter(|it| it.largest >= first.smallest);
    let rest: u64 = rest.map(|it| it.bytes).sum();
    let of_c = if c > 0 { a + b + c } else { 0 };
    b + rest + of_c
}

/// The move of a run: to a free place of its level, to the next level, or, for the oldest run of a
/// store with less data than before, up to the level of its size.
fn move_pick(shape: &Shape, settings: &PolicySettings, slots: Slots) -> Option<Pick> {
    let is_free = |level: usize| tables(shape, level).is_empty();
    let [a, b, c] = [slots.a(), slots.b(), slots.c()];
    let is_too_large = level_bytes(shape, a) > slots.bytes_max(settings);
    if is_free(a) {
        let newer = [b, c].into_iter().find(|it| !is_free(*it))?;
        return Some(moved(shape, newer, a));
    }
    if is_too_large && is_free(b) {
        let next = Slots {
            level: slots.level + 1,
        };
        return next.free(shape).map(|to| moved(shape, a, to));
    }
    if is_free(b) && !is_free(c) {
        return Some(moved(shape, c, b));
    }
    rise(shape, settings, slots).map(|to| moved(shape, a, to))
}

/// A place on a level above that fits the oldest run of a store better, if no run is between the
/// two.
fn rise(shape: &Shape, settings: &PolicySettings, slots: Slots) -> Option<usize> {
    let a = slots.a();
    let is_oldest = shape.levels.iter().skip(a + 1).all(Vec::is_empty);
    let bytes = level_bytes(shape, a);
    let newer = (0..a).rev().find(|it| !tables(shape, *it).is_empty());
    let newer = newer.unwrap_or(0);
    let mut above = all_slots(settings).take_while(|it| it.level < slots.level);
    let fitting = above.find(|it| it.a() > newer && bytes <= it.bytes_max(settings));
    fitting.filter(|_| is_oldest).map(Slots::a)
}

fn moved(shape: &Shape, from: usize, to: usize) -> Pick {
    Pick {
        reason: Reason::Size,
        score_percent: 100,
        level: from,
        inputs: tables(shape, from).iter().map(|it| it.number).collect(),
        output: to,
        below: Vec::new(),
        bytes: 0,
        is_move: true,
    }
}

/// The merge of the oldest flushes when together they exceed a unit, or are many.
fn zero_pick(shape: &Shape, settings: &PolicySettings) -> Option<Pick> {
    let output = Slots { level: 1 }.free(shape)?;
    let oldest = oldest_flushes(shape, output, settings);
    let bytes: u64 = oldest.iter().map(|it| it.bytes).sum();
    let is_many = zero_layers(shape) >= settings.level_zero_tables;
    if oldest.is_empty() || (bytes <= settings.base_bytes && !is_many) {
        return None;
    }
    // A single flush of that size is a run by itself.
    let is_move = layers(&oldest, |it| (&it.smallest, &it.largest)).count() == 1;
    Some(Pick {
        is_move,
        bytes: if is_move { 0 } else { bytes },
        ..merged(shape, Reason::Size, 0, &oldest, output)
    })
}

/// The fewest of the oldest flushes that together exceed a unit; fewer if there is no room for
/// them.
fn oldest_flushes<'a>(
    shape: &'a Shape,
    output: usize,
    settings: &PolicySettings,
) -> Vec<&'a TableShape> {
    let zero = tables(shape, 0);
    let flushes: Vec<&[TableShape]> = layers(zero, |it| (&it.smallest, &it.largest)).collect();
    let mut needed = part_bytes(shape, output, settings);
    let (mut taken, mut bytes) = (0, 0);
    for flush in flushes.iter().rev() {
        let flush_bytes: u64 = flush.iter().map(|it| it.bytes).sum();
        needed = needed.saturating_add(flush_bytes);
        let has_room = taken == 0 || needed <= settings.room_bytes;
        if bytes > settings.base_bytes || !has_room {
            break;
        }
        bytes += flush_bytes;
        taken += flush.len();
    }
    zero[zero.len() - taken..].iter().collect()
}

/// The merge of a piece of B into A.
fn merge_pick(shape: &Shape, settings: &PolicySettings, slots: Slots) -> Option<Pick> {
    let (a, b) = (slots.a(), slots.b());
    let is_due = !tables(shape, a).is_empty() && !tables(shape, b).is_empty();
    is_due.then(|| piece(shape, settings, Reason::Size, b, a))?
}

/// The first tables of a run, in key order, with the tables of an older run that they overlap:
/// enough for a piece, or fewer if there is no room. The smallest table if there is no room for the
/// first.
fn piece(
    shape: &Shape,
    settings: &PolicySettings,
    reason: Reason,
    from: usize,
    to: usize,
) -> Option<Pick> {
    let run = tables(shape, from);
    let piece_bytes = settings.table_bytes_max.saturating_mul(PIECE_TABLES);
    let mut needed = part_bytes(shape, to, settings);
    let mut bytes = 0_u64;
    let fitting = run.iter().take_while(|table| {
        let is_short = bytes < piece_bytes;
        needed = needed.saturating_add(table.bytes);
        bytes = bytes.saturating_add(table.bytes);
        is_short && needed <= settings.room_bytes
    });
    let mut inputs: Vec<&TableShape> = fitting.collect();
    if inputs.is_empty() {
        inputs.extend(run.iter().min_by_key(|it| it.bytes));
    }
    (!inputs.is_empty()).then(|| merged(shape, reason, from, &inputs, to))
}

/// These tables with the tables of the other level that they overlap.
fn merged(
    shape: &Shape,
    reason: Reason,
    level: usize,
    inputs: &[&TableShape],
    output: usize,
) -> Pick {
    let smallest = inputs.iter().map(|it| &it.smallest).min();
    let largest = inputs.iter().map(|it| &it.largest).max();
    let below = match (smallest, largest) {
        (Some(smallest), Some(largest)) if output != level => {
            overlapping(shape, output, smallest, largest)
        }
        _ => Vec::new(),
    };
    Pick {
        reason,
        score_percent: 100,
        level,
        inputs: inputs.iter().map(|it| it.number).collect(),
        output,
        bytes: inputs.iter().chain(&below).map(|it| it.bytes).sum(),
        below: below.iter().map(|it| it.number).collect(),
        is_move: false,
    }
}

/// The levels of the tree that have tables, newest first.
fn used(shape: &Shape) -> Vec<usize> {
    let levels = shape.levels.iter().enumerate();
    let used = levels.filter(|(_, tables)| !tables.is_empty());
    used.map(|(level, _)| level).collect()
}

/// The merge for space. While puts are refused for lack of space, the newest run is merged into the
/// run below it until one run is left, if that is worth the work: superseded entries take space
/// until then.
fn space_pick(shape: &Shape, settings: &PolicySettings) -> Option<Pick> {
    let part = settings.worth_part?;
    let entries =
        |level: &usize| -> u64 { tables(shape, *level).iter().map(|it| it.entries).sum() };
    let used = used(shape);
    let (oldest, newer) = used.split_last()?;
    let newer_entries: u64 = newer.iter().map(entries).sum();
    let all = newer_entries + entries(oldest);
    if newer_entries == 0 || newer_entries.saturating_mul(part) < all {
        return None;
    }
    into_next(shape, settings, Reason::Size, *used.first()?, *used.get(1)?)
}

fn into_next(
    shape: &Shape,
    settings: &PolicySettings,
    reason: Reason,
    from: usize,
    to: usize,
) -> Option<Pick> {
    if from > 0 {
        return piece(shape, settings, reason, from, to);
    }
    let zero = of_level_zero(shape, to, settings);
    (!zero.is_empty()).then(|| merged(shape, reason, 0, &zero, to))
}

/// The rewrite in place of a table that is mostly expired.
fn expired_pick(shape: &Shape, settings: &PolicySettings, now: u64) -> Option<Pick> {
    let levels = 1..shape.levels.len();
    let of_level = |level: usize| {
        let mut tables = tables(shape, level).iter();
        let table = tables.find(|it| is_expired(it, settings, now))?;
        Some(merged(shape, Reason::Expired, level, &[table], level))
    };
    levels.rev().find_map(of_level).or_else(|| {
        let zero: Vec<&TableShape> = tables(shape, 0).iter().collect();
        let is_over = !zero.is_empty() && zero.iter().all(|it| is_expired(it, settings, now));
        let output = Slots { level: 1 }.free(shape).filter(|_| is_over)?;
        Some(merged(shape, Reason::Expired, 0, &zero, output))
    })
}

/// The merge of a run with mostly or sufficiently many removals into the runs below that have the
/// removed entries, if the removals repay the bytes read.
fn removals_pick(shape: &Shape, settings: &PolicySettings) -> Option<Pick> {
    let used = used(shape);
    let frees = |level: usize, pick: &Pick| -> bool {
        let run = tables(shape, level).iter();
        let run = run.filter(|it| pick.inputs.contains(&it.number));
        let (removals, entries) = run.fold((0, 0), |(removals, entries), it| {
            (removals + it.removals, entries + it.entries)
        });
        let below = tables(shape, pick.output).iter();
        let below = below.filter(|it| pick.below.contains(&it.number));
        let read = entries + below.map(|it| it.entries).sum::<u64>();
        let is_enough = settings.removals_trigger.is_some_and(|it| removals >= it);
        (2 * removals > entries || is_enough) && 10 * removals >= read
    };
    used.windows(2).rev().find_map(|pair| {
        let pick = into_next(shape, settings, Reason::Removals, pair[0], pair[1])?;
        frees(pair[0], &pick).then_some(pick)
    })
}

/// The rewrite of the oldest run to drop removals that have nothing left to remove.
fn left_over_pick(shape: &Shape) -> Option<Pick> {
    let oldest = used(shape).last().copied()?;
    let is_left_over = |it: &&TableShape| 2 * it.removals > it.entries;
    let table = tables(shape, oldest).iter().find(is_left_over)?;
    if oldest > 0 {
        return Some(merged(shape, Reason::Removals, oldest, &[table], oldest));
    }
    let zero: Vec<&TableShape> = tables(shape, 0).iter().collect();
    let output = Slots { level: 1 }.free(shape)?;
    Some(merged(shape, Reason::Removals, 0, &zero, output))
}

#[cfg(test)]
#[path = "doubling_test.rs"]
mod doubling_test;
