//! Facts of a workload from the `run.json` of a load test.

use serde_json::Value as Json;

use crate::error::AdviseError;
use crate::facts::{Facts, Value};

const EXPECTED: &str = "a run.json of kvorum bench";
const FORMAT: u64 = 1;

/// A run of a load test.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchResult {
    /// Its name.
    pub name: String,
    /// The engine of the server, if known.
    pub backend: Option<String>,
    /// Operations of all kinds per second.
    pub operations_per_second: f64,
    /// Time in which 99 % of the writes were done, in microseconds; the slowest kind of write counts.
    pub write_p99_us: Option<f64>,
    /// The facts about the workload.
    pub facts: Facts,
}

/// The sort of an operation, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Read,
    Insert,
    Update,
    Delete,
}

impl BenchResult {
    /// Reads a `run.json`.
    ///
    /// # Errors
    /// [`AdviseError::BadInput`].
    pub fn parse(text: &str) -> Result<Self, AdviseError> {
        let bad = |reason: String| AdviseError::BadInput {
            expected: EXPECTED,
            reason,
        };
        let run: Json = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        match run.get("format").and_then(Json::as_u64) {
            Some(FORMAT) => {}
            Some(other) => return Err(bad(format!("format {other}; this version reads format 1"))),
            None => return Err(bad("it has no format".to_owned())),
        }
        let text_of = |name: &str| run.get(name).and_then(Json::as_str).map(str::to_owned);
        let totals = run.get("totals").and_then(Json::as_object);
        let totals = totals.ok_or_else(|| bad("it has no totals".to_owned()))?;
        let mut counts = Counts::default();
        let mut write_p99_us: Option<f64> = None;
        for (name, figures) in totals {
            let sort = sort_of(name);
            let count = figures.get("count").and_then(Json::as_f64).unwrap_or(0.0);
            counts.add(sort, count);
            counts.uses_indexes |= count > 0.0 && uses_indexes(name);
            let p99_us = figures.get("p99_us").and_then(Json::as_f64);
            if matches!(sort, Sort::Insert | Sort::Update) && count > 0.0 {
                write_p99_us = [write_p99_us, p99_us]
                    .into_iter()
                    .flatten()
                    .reduce(f64::max);
            }
        }
        let name = text_of("name").unwrap_or_else(|| "without a name".to_owned());
        let mut facts = counts.facts(&name);
        let from = format!("run {name}");
        if let Some(configuration) = run.get("configuration").and_then(Json::as_object) {
            let term = |key: &str| configuration.get(key).and_then(Json::as_str);
            if let Some(bytes) = term("value_generator").and_then(value_bytes) {
                facts.set("value_bytes", Value::Number(bytes), &from);
            }
            if let Some(keys) = term("key_generator").and_then(keys) {
                // The configuration is unscaled: the run had this number of keys times its scale.
                let scale = run.get("scale").and_then(Json::as_f64).unwrap_or(1.0);
                facts.set("keys", Value::Number((keys * scale).round()), &from);
            }
        }
        if let Some(durability) = text_of("durability") {
            facts.set("synced", Value::Flag(durability != "none"), &from);
        }
        let rate = run.get("operations_per_second").and_then(Json::as_f64);
        Ok(Self {
            name,
            backend: text_of("backend"),
            operations_per_second: rate.unwrap_or(0.0),
            write_p99_us,
            facts,
        })
    }
}

#[derive(Default)]
struct Counts {
    reads: f64,
    inserts: f64,
    updates: f64,
    uses_indexes: bool,
    deletes: f64,
}

impl Counts {
    fn add(&mut self, sort: Sort, count: f64) {
        *match sort {
            Sort::Read => &mut self.reads,
            Sort::Insert => &mut self.inserts,
            Sort::Update => &mut self.updates,
            Sort::Delete => &mut self.deletes,
        } += count;
    }

    fn facts(&self, name: &str) -> Facts {
        let from = format!("run {name}");
        let mut facts = Facts::default();
        let writes = self.inserts + self.updates + self.deletes;
        let all = writes + self.reads;
        if all > 0.0 {
            facts.set("write_share", Value::Number(writes / all), &from);
            facts.set("uses_indexes", Value::Flag(self.uses_indexes), &from);
        }
        if writes > 0.0 {
            let share = (self.updates + self.deletes) / writes;
            facts.set("overwrite_share", Value::Number(share), &from);
        }
        facts
    }
}

/// The published drivers name each operation after its effect.
fn sort_of(name: &str) -> Sort {
    let has = |word: &str| name.contains(word);
    if has("update") {
        Sort::Update
    } else if has("delete") {
        Sort::Delete
    } else if has("put") || has("insert") {
        Sort::Insert
    } else {
        Sort::Read
    }
}

/// True if an operation queries or writes index entries.
fn uses_indexes(name: &str) -> bool {
    let name = name.replace("without2i", "");
    ["2i", "index", "query"]
        .iter()
        .any(|word| name.contains(word))
}

/// The typical length of values, from the generator as an Erlang term.
fn value_bytes(term: &str) -> Option<f64> {
    let numbers = numbers(term);
    let first = *numbers.first()?;
    let second = numbers.get(1).copied();
    if term.contains("fixed_") {
        Some(first)
    } else if term.contains("uniform_") {
        Some(f64::midpoint(first, second?))
    } else if term.contains("exponential_") || term.contains("semi_compressible") {
        // The minimum plus the mean of the random part. Some values are larger by a factor.
        let mean = first + second?;
        Some(match numbers.get(2..4) {
            Some([factor, probability]) => mean * (1.0 - probability + factor * probability),
            _ => mean,
        })
    } else {
        None
    }
}

/// The number of keys, from the generator as an Erlang term: the largest number in it.
fn keys(term: &str) -> Option<f64> {
    numbers(term).into_iter().reduce(f64::max)
}

fn numbers(term: &str) -> Vec<f64> {
    let words = term.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
    words
        .filter_map(|word| word.parse().ok())
        .filter(|number: &f64| number.is_finite())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{
        "format": 1, "name": "test1", "backend": "bitcask", "durability": "none",
        "configuration": {
            "key_generator": "{int_to_bin_bigendian,{eightytwenty_int,60000000}}",
            "value_generator": "{semi_compressible,8000,8000,10,0.1}"
        },
        "scale": 0.01,
        "totals": {
            "get": {"count": 600, "p99_us": 900},
            "update": {"count": 300, "p99_us": 12000},
            "put_unique": {"count": 100, "p99_us": 9000}
        },
        "operations_total": 1000, "operations_per_second": 5000.5
    }"#;

    #[test]
    fn a_run_has_sizes_shares_and_figures() {
        let run = BenchResult::parse(RUN).unwrap();
        assert_eq!(run.backend.as_deref(), Some("bitcask"));
        assert_eq!(run.write_p99_us, Some(12000.0));
        assert_eq!(run.facts.number("write_share"), Some(0.4));
        assert_eq!(run.facts.number("overwrite_share"), Some(0.75));
        assert_eq!(run.facts.number("value_bytes"), Some(30_400.0));
        assert_eq!(run.facts.number("keys"), Some(600_000.0));
        let flag = |name: &str| run.facts.get(name).unwrap().value;
        assert_eq!(flag("uses_indexes"), Value::Flag(false));
        assert_eq!(flag("synced"), Value::Flag(false));
    }

    #[test]
    fn operations_are_reported_by_their_names() {
        for (name, sort, indexes) in [
            ("alwaysget_pb", Sort::Read, false),
            ("alwaysget_updatewith2i", Sort::Update, true),
            ("alwaysget_updatewithout2i", Sort::Update, false),
            ("put_unique", Sort::Insert, false),
            ("postcodequery_http", Sort::Read, true),
            ("delete", Sort::Delete, false),
        ] {
            assert_eq!(
                (sort_of(name), uses_indexes(name)),
                (sort, indexes),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_no_run_is_refused() {
        for text in ["", "[]", "{}", r#"{"format": 2}"#, r#"{"format": 1}"#] {
            let parsed = BenchResult::parse(text);
            assert!(
                matches!(parsed, Err(AdviseError::BadInput { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn generators_give_the_length_of_values() {
        assert_eq!(value_bytes("{fixed_bin,1000}"), Some(1000.0));
        assert_eq!(value_bytes("{uniform_bin,100,300}"), Some(200.0));
        assert_eq!(value_bytes("{exponential_bin,100,900}"), Some(1000.0));
        assert_eq!(value_bytes("{function,m,f,[]}"), None);
    }
}
