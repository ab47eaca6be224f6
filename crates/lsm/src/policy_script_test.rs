//! Merge policies as golden scripts (`policy_scripts/`): tables of a store by their ranges and
//! sizes, and the merges that a policy selects.
//!
//! | command | meaning |
//! |---|---|
//! | `leveled`, `doubling` | an empty store of six levels, of four doubling levels; the unit is 100 bytes |
//! | `flush FROM TO BYTES [removals=N] [expired=TIME]` | a new table of level 0 |
//! | `table LEVEL FROM TO BYTES ...` | a table of that level |
//! | `at TIME`, `room BYTES` | time passes; a merge may write so much |
//! | `merge` | does the most wanted merge; its table has the bytes of all inputs |
//! | `settle` | merges until no merge is wanted |
//! | `levels`, `pressure` | the tables; the pressure on writers, in thousandths |

use bytes::Bytes;
use kvorum_golden::{Stage, play_scripts};

use crate::doubling::DoublingLevels;
use crate::leveled::Leveled;
use crate::policy::{Pick, Policy, PolicySettings, Shape, TableShape};

const UNIT_BYTES: u64 = 100;
/// The most merges of a script.
const MERGES_MAX: usize = 100;

#[test]
fn policies_want_the_merges_of_their_scripts() {
    play_scripts("policy_scripts", || Store::new(&Leveled, 6, 2));
}

struct Store {
    policy: &'static dyn Policy,
    settings: PolicySettings,
    shape: Shape,
    now: u64,
    last_number: u64,
}

impl Stage for Store {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["leveled"] => *self = Self::new(&Leveled, 6, 2),
            ["doubling"] => {
                let levels = DoublingLevels::tree_levels(4);
                *self = Self::new(&DoublingLevels, levels, 8);
            }
            ["flush", ref facts @ ..] => self.add(0, facts)?,
            ["table", level, ref facts @ ..] => {
                let level = usize::try_from(number(level)?).unwrap_or(usize::MAX);
                self.add(level, facts)?;
            }
            ["at", time] => self.now = number(time)?,
            ["room", bytes] => self.settings.room_bytes = number(bytes)?,
            ["merge"] => return Ok(vec![self.merge().unwrap_or("nothing to merge".into())]),
            ["settle"] => return self.settle(),
            ["levels"] => return Ok(self.levels()),
            ["pressure"] => {
                let backlog = self.policy.backlog(&self.shape, &self.settings);
                return Ok(vec![backlog.pressure_permille.to_string()]);
            }
            _ => return Err(format!("no command is called {line}")),
        }
        Ok(Vec::new())
    }
}

impl Store {
    fn new(policy: &'static dyn Policy, levels: usize, level_zero_tables: usize) -> Self {
        Self {
            policy,
            settings: PolicySettings {
                levels,
                level_zero_tables,
                base_bytes: UNIT_BYTES,
                multiplier: 4,
                table_bytes_max: UNIT_BYTES,
                ..PolicySettings::default()
            },
            shape: Shape {
                levels: vec![Vec::new(); levels],
            },
            now: 0,
            last_number: 0,
        }
    }

    fn add(&mut self, level: usize, facts: &[&str]) -> Result<(), String> {
        let [from, to, bytes, options @ ..] = facts else {
            return Err("expected FROM TO BYTES".to_owned());
        };
        self.last_number += 1;
        let bytes = number(bytes)?;
        let mut table = TableShape {
            number: self.last_number,
            bytes,
            smallest: Bytes::copy_from_slice(from.as_bytes()),
            largest: Bytes::copy_from_slice(to.as_bytes()),
            entries: bytes,
            removals: 0,
            half_expired_at: None,
            expired_at: None,
            is_misplaced: false,
        };
        for option in options {
            match option.split_once('=') {
                Some(("removals", count)) => table.removals = number(count)?,
                Some(("expired", time)) => table.expired_at = Some(number(time)?),
                _ => return Err(format!("a table has no {option}")),
            }
        }
        let tables = self.shape.levels.get_mut(level);
        let tables = tables.ok_or_else(|| format!("there is no level {level}"))?;
        insert(tables, level, table);
        Ok(())
    }

    /// Does the most wanted merge, and describes it.
    fn merge(&mut self) -> Option<String> {
        let picks = self.policy.picks(&self.shape, &self.settings, self.now);
        let pick = picks.into_iter().next()?;
        let mut inputs = Vec::new();
        for (level, numbers) in [(pick.level, &pick.inputs), (pick.output, &pick.below)] {
            let tables = &mut self.shape.levels[level];
            inputs.extend(tables.extract_if(.., |it| numbers.contains(&it.number)));
        }
        let said = self.said(&pick, &inputs);
        let outputs = match pick.is_move {
            true => inputs,
            false => self.merged(inputs, &pick).into_iter().collect(),
        };
        for table in outputs {
            insert(&mut self.shape.levels[pick.output], pick.output, table);
        }
        Some(said)
    }

    fn said(&self, pick: &Pick, inputs: &[TableShape]) -> String {
        let names = |numbers: &[u64]| {
            let of = |number: &u64| inputs.iter().find(|it| it.number == *number);
            let names: Vec<String> = numbers.iter().filter_map(of).map(name).collect();
            names.join(" ")
        };
        let does = if pick.is_move { "move" } else { "merge" };
        let with = match &pick.below[..] {
            [] => String::new(),
            below => format!(" with {}", names(below)),
        };
        format!(
            "{does} {} of level {}{with} to level {} for {:?}",
            names(&pick.inputs),
            pick.level,
            pick.output,
            pick.reason,
        )
    }

    /// One table with the bytes of all inputs, as if nothing was overwritten. Expired tables are
    /// left out.
    fn merged(&mut self, inputs: Vec<TableShape>, pick: &Pick) -> Option<TableShape> {
        self.last_number += 1;
        let is_last = pick.output + 1 == self.settings.levels;
        let mut left = inputs
            .into_iter()
            .filter(|it| it.expired_at.is_none_or(|at| at > self.now));
        let mut merged = left.next()?;
        for table in left {
            merged.bytes += table.bytes;
            merged.entries += table.entries;
            merged.removals += table.removals;
            merged.smallest = merged.smallest.min(table.smallest);
            merged.largest = merged.largest.max(table.largest);
        }
        if is_last {
            merged.bytes -= merged.removals;
            merged.entries -= merged.removals;
            merged.removals = 0;
        }
        merged.number = self.last_number;
        Some(merged)
    }

    fn settle(&mut self) -> Result<Vec<String>, String> {
        let mut said = Vec::new();
        while let Some(merge) = self.merge() {
            said.push(merge);
            if said.len() > MERGES_MAX {
                return Err("merges without an end".to_owned());
            }
        }
        Ok(said)
    }

    fn levels(&self) -> Vec<String> {
        let levels = self.shape.levels.iter().enumerate();
        let used = levels.filter(|(_, tables)| !tables.is_empty());
        used.map(|(level, tables)| {
            let names: Vec<String> = tables.iter().map(name).collect();
            format!("level {level}: {}", names.join(" "))
        })
        .collect()
    }
}

/// Level 0 is newest first, the others are in key order.
fn insert(tables: &mut Vec<TableShape>, level: usize, table: TableShape) {
    match level {
        0 => tables.insert(0, table),
        _ => {
            tables.push(table);
            tables.sort_by(|one, other| one.smallest.cmp(&other.smallest));
        }
    }
}

fn name(table: &TableShape) -> String {
    let key = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let (from, to) = (key(&table.smallest), key(&table.largest));
    format!("{}({from}-{to}, {})", table.number, table.bytes)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
