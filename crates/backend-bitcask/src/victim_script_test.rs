//! Merges of bitcask as golden scripts (`merge_scripts/`): segments with their garbage, and the
//! rounds of merges that follow.
//!
//! | command | meaning |
//! |---|---|
//! | `segment N MIB garbage=PERCENT [entries=PERCENT]` | a finished segment with this share of garbage among its bytes, and among its entries if that differs |
//! | `output N MIB garbage=PERCENT` | the segment that copies go to |
//! | `aim MIB` | the length at which segments are finished |
//! | `set NAME VALUE` | a setting: a percentage, or a size in MiB |
//! | `round` | the segments of the next round, best first, and their urgency where the store has too much garbage |
//! | `merge` | begins a round and merges its first segment: nothing of it is left |

use kvorum_golden::{Stage, play_scripts};

use super::*;

const MIB: u64 = 1 << 20;
const ENTRIES: u64 = 1_000;

#[test]
fn rounds_are_chosen_as_the_scripts_say() {
    play_scripts("merge_scripts", || Store {
        segments: Vec::new(),
        output: None,
        aim: 2_048 * MIB,
        settings: MergeSettings::default(),
    });
}

struct Store {
    segments: Vec<Candidate>,
    output: Option<Candidate>,
    aim: u64,
    settings: MergeSettings,
}

impl Stage for Store {
    fn take(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["segment", ref facts @ ..] => self.segments.push(candidate(facts)?),
            ["output", ref facts @ ..] => self.output = Some(candidate(facts)?),
            ["aim", mib] => self.aim = number(mib)? * MIB,
            ["set", name, value] => self.set(name, number(value)?)?,
            ["round"] => return Ok(self.said()),
            ["merge"] => {
                let first = self.round().into_iter().next();
                self.segments.retain(|it| Some(it.number) != first);
                let said = first.map_or("nothing".to_owned(), |it| format!("segment {it}"));
                return Ok(vec![said]);
            }
            _ => return Err(format!("no command is called {line}")),
        }
        Ok(Vec::new())
    }
}

impl Store {
    fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        let settings = &mut self.settings;
        let percent = u8::try_from(value);
        match (name, percent) {
            ("fragmentation_trigger", Ok(it)) => settings.fragmentation_trigger_percent = it,
            ("fragmentation_threshold", Ok(it)) => settings.fragmentation_threshold_percent = it,
            ("store_garbage_trigger", Ok(it)) => settings.store_garbage_trigger_percent = it,
            ("garbage_bytes_trigger", _) => settings.garbage_bytes_trigger = value * MIB,
            ("garbage_bytes_threshold", _) => settings.garbage_bytes_threshold = value * MIB,
            ("small_file_threshold", _) => settings.small_file_threshold_bytes = value * MIB,
            _ => {
                return Err(format!(
                    "no setting is called {name}, or {value} is too large"
                ));
            }
        }
        Ok(())
    }

    fn whole(&self) -> WholeStore {
        let all = || self.segments.iter().chain(&self.output);
        WholeStore {
            bytes: all().map(|it| it.bytes).sum(),
            garbage_bytes: all().map(|it| it.garbage_bytes).sum(),
            file_bytes_aim: self.aim,
        }
    }

    fn round(&self) -> Vec<u32> {
        choose_round(&self.segments, self.output, self.whole(), &self.settings)
    }

    fn said(&self) -> Vec<String> {
        let round: Vec<String> = self.round().iter().map(ToString::to_string).collect();
        let mut said = match &round[..] {
            [] => vec!["nothing".to_owned()],
            round => vec![format!("segments {}", round.join(" "))],
        };
        let urgency = urgency(self.whole(), &self.settings);
        said.extend(urgency.map(|it| format!("urgency {it:?}")));
        said
    }
}

fn candidate(facts: &[&str]) -> Result<Candidate, String> {
    let [segment, mib, garbage, options @ ..] = facts else {
        return Err("expected N MIB garbage=PERCENT".to_owned());
    };
    let percent_of = |fact: &str, name: &str| {
        let percent = fact
            .strip_prefix(name)
            .ok_or_else(|| format!("expected {name}"))?;
        number(percent)
    };
    let garbage_percent = percent_of(garbage, "garbage=")?;
    let entries_percent = match options {
        [] => garbage_percent,
        [entries] => percent_of(entries, "entries=")?,
        _ => return Err(format!("a segment has no {options:?}")),
    };
    let bytes = number(mib)? * MIB;
    Ok(Candidate {
        number: u32::try_from(number(segment)?).map_err(|error| error.to_string())?,
        bytes,
        garbage_bytes: bytes * garbage_percent / 100,
        records: ENTRIES,
        garbage_records: ENTRIES * entries_percent / 100,
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
