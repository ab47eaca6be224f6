//! Levelled merging, with sizes that follow the last level. The last level is as large as its
//! contents. Each level above has a fixed part of the next level's size as its target, and the
//! first level with a small enough target is the first in use. So nine tenths of any amount of data
//! are on the last level, and space amplification stays near one ninth. With fixed sizes the last
//! level is nearly empty most of the time, with as much garbage as live entries.
//!
//! Level 0 holds flushed tables, which overlap, newest first. All of them are merged at once: after
//! a partial merge, reads would still look at the same number of tables. If there is not room for
//! all, the oldest tables are merged first. On a small disk a flush writes several tables without
//! common keys, which count as one.

use crate::policy::{
    Backlog, Layout, Pick, Policy, PolicySettings, Reason, Shape, TableShape, is_expired,
    level_bytes, of_level_zero, overlapping, part_bytes, pressure_permille, tables, zero_layers,
};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leveled;

impl Policy for Leveled {
    fn layout(&self) -> Layout {
        Layout::Multiples
    }

    fn picks(&self, shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick> {
        picks(shape, settings, now)
    }

    fn backlog(&self, shape: &Shape, settings: &PolicySettings) -> Backlog {
        backlog(shape, settings)
    }
}

/// The target size of each level, in bytes; 0 for levels that are not in use.
fn targets(shape: &Shape, settings: &PolicySettings) -> Vec<u64> {
    let last = last_level(settings);
    let mut targets = vec![0; last + 1];
    let mut target = level_bytes(shape, last).max(settings.base_bytes);
    let mut level = last;
    targets[last] = target;
    while level > 1 && target > settings.base_bytes {
        level -= 1;
        target /= settings.multiplier.max(2);
        targets[level] = target.max(1);
    }
    targets
}

/// The first level below level 0 that is in use.
fn base_level(shape: &Shape, settings: &PolicySettings) -> usize {
    let targets = targets(shape, settings);
    targets
        .iter()
        .position(|it| *it > 0)
        .unwrap_or(last_level(settings))
}

/// The due merges, most wanted first.
fn picks(shape: &Shape, settings: &PolicySettings, now: u64) -> Vec<Pick> {
    let mut picks: Vec<Pick> = size_picks(shape, settings).collect();
    picks.sort_by_key(|pick| std::cmp::Reverse(pick.score_percent));
    if picks.is_empty() {
        picks.extend(garbage_pick(shape, settings, now));
    }
    if picks.is_empty() {
        picks.extend(misplaced_pick(shape));
    }
    picks
}

/// The backlog of the store.
fn backlog(shape: &Shape, settings: &PolicySettings) -> Backlog {
    let targets = targets(shape, settings);
    let zero = zero_layers(shape);
    let mut bytes = 0;
    // The excess of a level is merged with the tables that it overlaps, and is then an excess of
    // the next level.
    let mut carried = match zero >= settings.level_zero_tables {
        true => level_bytes(shape, 0),
        false => 0,
    };
    let base = base_level(shape, settings);
    for (level, target) in targets.iter().enumerate().skip(1) {
        if carried > 0 && level >= base {
            let below = level_bytes(shape, level);
            let share = match level == base {
                true => below,
                false => below.min(carried * settings.multiplier),
            };
            bytes += 2 * (carried + share);
        }
        let is_last = level == last_level(settings);
        // Levels above the base have the target 0, so that nothing stays there.
        let held = level_bytes(shape, level) + carried;
        if !is_last {
            carried = held.saturating_sub(*target);
        }
    }
    Backlog {
        bytes,
        pressure_permille: pressure_permille(zero, settings),
    }
}

fn last_level(settings: &PolicySettings) -> usize {
    settings.levels.max(2) - 1
}

fn size_picks<'a>(
    shape: &'a Shape,
    settings: &'a PolicySettings,
) -> impl Iterator<Item = Pick> + 'a {
    let targets = targets(shape, settings);
    let base = base_level(shape, settings);
    (0..last_level(settings)).filter_map(move |level| {
        let held = level_bytes(shape, level);
        let percent = if level == 0 {
            let by_count = 100 * zero_layers(shape) / settings.level_zero_tables.max(1);
            by_count as u64
        } else if level < base {
            // No longer in use: drained before anything else grows.
            if held > 0 { 1_000 } else { 0 }
        } else {
            (100 * held).checked_div(targets[level]).unwrap_or(0)
        };
        let is_over = match level {
            0 => percent >= 100,
            _ => held > targets[level],
        };
        if !is_over {
            return None;
        }
        let output = next_below(shape, level, base);
        let inputs: Vec<&TableShape> = match level {
            0 => of_level_zero(shape, output, settings),
            _ => cheapest(shape, level, output, settings)
                .into_iter()
                .collect(),
        };
        pick(shape, Reason::Size, percent, level, &inputs, output)
    })
}

/// The level that tables go down to: the first with entries, or the base level.
fn next_below(shape: &Shape, level: usize, base: usize) -> usize {
    let mut unused = level + 1..base;
    let next = unused.find(|it| !tables(shape, *it).is_empty());
    next.unwrap_or(base.max(level + 1))
}

/// The table that moves down with the least to rewrite for its size, preferably one for which there
/// is room. A removal counts double, since it frees the removed entry.
fn cheapest<'a>(
    shape: &'a Shape,
    level: usize,
    output: usize,
    settings: &PolicySettings,
) -> Option<&'a TableShape> {
    let part_bytes = part_bytes(shape, output, settings);
    let lacks_room =
        |table: &TableShape| part_bytes.saturating_add(table.bytes) > settings.room_bytes;
    tables(shape, level).iter().min_by_key(|table| {
        let below = tables(shape, output);
        let first = below.partition_point(|it| it.largest < table.smallest);
        let overlapping = below[first..]
            .iter()
            .take_while(|it| it.smallest <= table.largest);
        let overlap: u64 = overlapping.map(|it| it.bytes).sum();
        let removals = table.bytes * table.removals / table.entries.max(1);
        let cost = 1000 * (overlap + table.bytes) / (table.bytes + removals).max(1);
        (lacks_room(table), cost)
    })
}

fn pick(
    shape: &Shape,
    reason: Reason,
    score_percent: u64,
    level: usize,
    inputs: &[&TableShape],
    output: usize,
) -> Option<Pick> {
    let smallest = inputs.iter().map(|it| &it.smallest).min()?;
    let largest = inputs.iter().map(|it| &it.largest).max()?;
    let below = match output == level {
        true => Vec::new(),
        false => overlapping(shape, output, smallest, largest),
    };
    // No table below has keys in common with it, so it need not be rewritten.
    let is_alone = level > 0 && inputs.len() == 1 && below.is_empty();
    Some(Pick {
        is_move: reason == Reason::Size && is_alone && output > level,
        reason,
        score_percent,
        level,
        inputs: inputs.iter().map(|it| it.number).collect(),
        output,
        bytes: inputs.iter().chain(&below).map(|it| it.bytes).sum(),
        below: below.iter().map(|it| it.number).collect(),
    })
}

/// The merge for garbage: a table with mostly removals or expired entries is merged into the next
/// level, or on the last level rewritten in place.
fn garbage_pick(shape: &Shape, settings: &PolicySettings, now: u64) -> Option<Pick> {
    let last = last_level(settings);
    for level in (1..=last).rev() {
        for table in tables(shape, level) {
            let output = (level + 1).min(last);
            let is_mostly_removals = 2 * table.removals > table.entries;
            let frees_enough =
                || is_mostly_removals || frees_enough(shape, &[table], output, settings);
            let reason = if is_expired(table, settings, now) {
                Reason::Expired
            } else if level < last && frees_enough() {
                Reason::Removals
            } else {
                continue;
            };
            return pick(shape, reason, 0, level, &[table], output);
        }
    }
    let output = next_below(shape, 0, base_level(shape, settings));
    let zero = of_level_zero(shape, output, settings);
    let reason = if zero.iter().all(|it| is_expired(it, settings, now)) {
        Reason::Expired
    } else if frees_enough(shape, &zero, output, settings) {
        Reason::Removals
    } else {
        return None;
    };
    pick(shape, reason, 0, 0, &zero, output)
}

/// The rewrite of a table on its own level, into the directory where it belongs.
fn misplaced_pick(shape: &Shape) -> Option<Pick> {
    let levels = shape.levels.iter().enumerate().skip(1);
    let mut misplaced = levels.filter_map(|(level, tables)| {
        let table = tables.iter().find(|it| it.is_misplaced)?;
        pick(shape, Reason::Misplaced, 0, level, &[table], level)
    });
    misplaced.next()
}

/// True when the removals of these tables repay the bytes read to merge them.
fn frees_enough(
    shape: &Shape,
    inputs: &[&TableShape],
    output: usize,
    settings: &PolicySettings,
) -> bool {
    let removals: u64 = inputs.iter().map(|it| it.removals).sum();
    if settings.removals_trigger.is_none_or(|it| removals < it) {
        return false;
    }
    let smallest = inputs.iter().map(|it| &it.smallest).min();
    let largest = inputs.iter().map(|it| &it.largest).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else {
        return false;
    };
    let below = overlapping(shape, output, smallest, largest);
    let read = inputs.iter().chain(&below).map(|it| it.entries);
    10 * removals >= read.sum()
}

#[cfg(test)]
#[path = "leveled_test.rs"]
mod leveled_test;
