//! The share of a run's gets that could find anything, beside the share that did.
//!
//! The published comparisons counted misses as successes, which makes an empty store look fast. So
//! every run reports both numbers: the share that its keys allow, computed from their law, and the
//! share that was found.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::configuration::scaled_keys;
use crate::key_generator::KeyLaw;
use crate::run_record::{Hits, OperationTotals, RunRecord};
use kvorum_erlang_terms::{Term, parse_term};

/// The effect of an operation on keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Reads a key that the generator draws.
    Get,
    /// Writes a key that the generator draws.
    Write,
    /// Reads a key that this worker has written before.
    GetOwn,
    /// Writes a key that the same worker may read.
    WriteOwn,
    /// Neither reads single keys nor writes keys that could be read.
    None,
}

/// The effect of an operation by its driver and its name, if these determine it.
fn part_of(driver: &str, label: &str) -> Option<Part> {
    let part = match driver {
        "nhs" => return part_of_nhs(label),
        "riakc_pb" => match label {
            "get" => Part::Get,
            "put" | "update" | "update-with2i" => Part::Write,
            "query-postcode" | "query-dob" | "pause-minute" | "listkeys" => Part::None,
            _ => return None,
        },
        "http_raw" => match label {
            "get" => Part::Get,
            "put" | "update" => Part::Write,
            "stat" => Part::None,
            _ => return None,
        },
        _ => return None,
    };
    Some(part)
}

/// The effect of an operation of `nhs`, whose operations exist over both protocols.
fn part_of_nhs(label: &str) -> Option<Part> {
    let name = label
        .strip_suffix("-http")
        .or_else(|| label.strip_suffix("-pb"))
        .unwrap_or(label);
    match name {
        "get" => Some(Part::Get),
        "update-with2i" => Some(Part::Write),
        "get-unique" | "alwaysget" => Some(Part::GetOwn),
        "put-unique" | "alwaysget-updatewith2i" | "alwaysget-updatewithout2i" => {
            Some(Part::WriteOwn)
        }
        "postcodequery" | "dobquery" | "list-keys" => Some(Part::None),
        // A removal, or a label that the file defines: no figure is better than a wrong one.
        _ => None,
    }
}

/// The share of gets of a whole load that could find something; `None` if its operations or keys do
/// not determine it. `written_before` counts the writes of the warm-up.
pub fn hits_of(record: &RunRecord, written_before: &IndexMap<String, u64>) -> Option<Hits> {
    let mut sums = Sums::default();
    for (label, totals) in &record.totals {
        let part = part_of(&record.driver, label)?;
        sums.add(
            part,
            totals,
            written_before.get(label).copied().unwrap_or(0),
        );
    }
    let gets = sums.drawn_gets + sums.own_gets;
    if gets == 0 {
        return None;
    }
    let law = if sums.drawn_gets > 0 {
        Some(KeyLaw::of(&keys(&record.configuration, record.scale)?)?)
    } else {
        None
    };
    let all_writes = sums.writes + sums.before + sums.own_writes;
    let (from, to) = (float(sums.before), float(sums.before + sums.writes));
    let drawn = law.as_ref().map_or(0.0, |law| law.hit_share(from, to));
    let possible = float(sums.drawn_gets) * drawn + float(sums.own_gets);
    Some(Hits {
        distinct_keys: law.and_then(|law| law.distinct_keys()),
        writes: all_writes,
        gets,
        found: gets.saturating_sub(sums.misses),
        possible_share: possible / float(gets),
    })
}

/// Operations by part.
#[derive(Default)]
struct Sums {
    drawn_gets: u64,
    own_gets: u64,
    misses: u64,
    writes: u64,
    before: u64,
    own_writes: u64,
}

impl Sums {
    fn add(&mut self, part: Part, totals: &OperationTotals, before: u64) {
        match part {
            Part::Get => self.drawn_gets += totals.count,
            Part::GetOwn => self.own_gets += totals.count,
            Part::Write => {
                self.writes += totals.count;
                self.before += before;
            }
            Part::WriteOwn => self.own_writes += totals.count + before,
            Part::None => {}
        }
        if matches!(part, Part::Get | Part::GetOwn) {
            self.misses += totals.misses;
        }
    }
}

/// The key generator with the run's scale.
fn keys(configuration: &BTreeMap<String, String>, scale: f64) -> Option<Term> {
    let text = configuration.get("key_generator")?;
    Some(scaled_keys(&parse_term(text).ok()?, scale))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a number of operations needs no more than a float's precision"
)]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(driver: &str, keys: &str, totals: &[(&str, u64, u64)]) -> RunRecord {
        let totals = totals.iter().map(|(label, count, misses)| {
            let totals = OperationTotals {
                count: *count,
                misses: *misses,
                ..OperationTotals::default()
            };
            ((*label).to_owned(), totals)
        });
        RunRecord {
            driver: driver.to_owned(),
            scale: 0.01,
            configuration: BTreeMap::from([("key_generator".to_owned(), keys.to_owned())]),
            totals: totals.collect(),
            ..RunRecord::default()
        }
    }

    fn hits(record: &RunRecord) -> Option<Hits> {
        hits_of(record, &IndexMap::new())
    }

    #[test]
    fn what_can_be_found_follows_from_scaled_keys_and_writes() {
        let totals = [("get", 5000, 4000), ("update", 1000, 0)];
        let run = run("riakc_pb", "{uniform_int, 100000}", &totals);
        let found = hits(&run).unwrap();
        assert_eq!(found.distinct_keys, Some(1000.0));
        assert_eq!((found.gets, found.found, found.writes), (5000, 1000, 1000));
        // The mean of 1 - e^-x for x from 0 to 1.
        assert!((found.possible_share - 0.3679).abs() < 1e-3);
        let warm = hits_of(&run, &IndexMap::from([("update".to_owned(), 1000)])).unwrap();
        assert!((warm.possible_share - 0.7675).abs() < 1e-3);
    }

    #[test]
    fn the_gets_of_2010_cannot_find_anything() {
        let totals = [("get", 10_000, 10_000), ("update", 20_000, 0)];
        let run = run("http_raw", "{random_dynamo_style_string, 35000}", &totals);
        let found = hits(&run).unwrap();
        assert_eq!(found.found, 0);
        assert!(found.possible_share > 0.0 && found.possible_share < 1e-70);
        assert_eq!(found.distinct_keys, Some(2_f64.powi(256)));
    }

    #[test]
    fn gets_of_what_was_written_can_all_find_it() {
        let totals = [("get-unique", 300, 1), ("put-unique", 100, 0)];
        let found = hits(&run("nhs", "x", &totals)).unwrap();
        assert_eq!(found.possible_share, 1.0);
        assert_eq!((found.writes, found.found), (100, 299));
    }

    #[test]
    fn nothing_is_reported_where_the_names_do_not_decide_it() {
        let law = "{uniform_int, 1000}";
        for (driver, totals) in [
            ("riakc_pb", vec![("get", 5, 0), ("delete", 5, 0)]),
            ("riakc_pb", vec![("mine", 5, 0)]),
            ("riakc_pb", vec![("put", 5, 0)]),
            ("2i", vec![("get-pb", 5, 0)]),
        ] {
            assert_eq!(hits(&run(driver, law, &totals)), None, "{driver}");
        }
        let totals = [("get", 5, 0), ("put", 5, 0)];
        assert_eq!(
            hits(&run("riakc_pb", "{sequential_int, 10}", &totals)),
            None
        );
    }
}
