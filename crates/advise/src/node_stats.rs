//! Facts that a running node has measured, from `/stats` (ours or a Riak's) or `/metrics`.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::error::AdviseError;
use crate::facts::{Facts, Value};

const EXPECTED: &str = "statistics as /stats or /metrics gives them";
const METRIC_PREFIX: &str = "kvorum_";
/// Data types in the names of statistics.
const TYPES: [&str; 4] = ["counter", "set", "map", "hll"];

/// Reads either form and returns the facts about the workload.
///
/// # Errors
/// [`AdviseError::BadInput`].
pub fn facts_of_stats(text: &str) -> Result<Facts, AdviseError> {
    let numbers = match text.trim_start().starts_with('{') {
        true => from_stats(text)?,
        false => from_metrics(text),
    };
    let facts = facts_of(&numbers);
    match facts.is_empty() {
        false => Ok(facts),
        true => Err(AdviseError::BadInput {
            expected: EXPECTED,
            reason: "no reads or writes are counted in it".to_owned(),
        }),
    }
}

fn from_stats(text: &str) -> Result<BTreeMap<String, f64>, AdviseError> {
    let stats: Json = serde_json::from_str(text).map_err(|error| AdviseError::BadInput {
        expected: EXPECTED,
        reason: error.to_string(),
    })?;
    let entries = stats.as_object().into_iter().flatten();
    let numbers = entries.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
    Ok(numbers.collect())
}

/// Samples without labels. No others are needed.
fn from_metrics(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let name = name.strip_prefix(METRIC_PREFIX)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    });
    samples.collect()
}

fn facts_of(numbers: &BTreeMap<String, f64>) -> Facts {
    let from = "measured by the node";
    let get = |name: &str| {
        numbers
            .get(name)
            .copied()
            .filter(|number| number.is_finite())
    };
    let mut facts = Facts::default();
    // Requests for data types count only under the names of their type.
    let of_types = |name: &str| -> f64 {
        let of_type = |kind: &str| get(&format!("{name}_{kind}_total"));
        TYPES.into_iter().filter_map(of_type).sum()
    };
    let reads = get("node_gets_total").map(|plain| plain + of_types("node_gets"));
    let writes = get("node_puts_total").map(|plain| plain + of_types("node_puts"));
    if let (Some(reads), Some(writes)) = (reads, writes)
        && reads + writes > 0.0
    {
        facts.set(
            "write_share",
            Value::Number(writes / (reads + writes)),
            from,
        );
        let index_use = [
            "vnode_index_reads_total",
            "vnode_index_writes_postings_total",
        ];
        let index_use: f64 = index_use.into_iter().filter_map(get).sum();
        facts.set("uses_indexes", Value::Flag(index_use > 0.0), from);
        let listings = get("list_fsm_create_total").unwrap_or(0.0);
        // Occasional listings are housekeeping.
        let lists_keys = listings > (reads + writes) / 1000.0;
        facts.set("lists_keys", Value::Flag(lists_keys), from);
    }
    // The mean is given in `/stats`; `/metrics` has sum and count.
    let mean = get("node_get_fsm_objsize_mean").or_else(|| {
        let count = get("node_get_fsm_objsize_bytes_count").filter(|count| *count > 0.0)?;
        Some(get("node_get_fsm_objsize_bytes_sum")? / count)
    });
    if let Some(bytes) = mean.filter(|bytes| *bytes > 0.0) {
        facts.set(
            "value_bytes",
            Value::Number(bytes),
            "mean object size read, measured by the node",
        );
    }
    if let (Some(keys), Some(written)) = (get("store_keys"), get("vnode_puts_total"))
        && keys > 0.0
    {
        let from = "entries in the node's stores, copies included";
        facts.set("keys_per_node", Value::Number(keys), from);
        if written > keys {
            let share = 1.0 - keys / written;
            let from = "writes since the start, beyond one for each key";
            facts.set("overwrite_share", Value::Number(share), from);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_same_figures() {
        let stats = r#"{"node_gets_total": 900, "node_puts_total": 300, "vnode_index_reads_total": 2,
            "list_fsm_create_total": 1, "node_get_fsm_objsize_mean": 2000, "nodename": "n"}"#;
        let metrics = "# TYPE kvorum_node_gets counter\nkvorum_node_gets_total 900\n\
            kvorum_node_puts_total 300\nkvorum_vnode_index_reads_total 2\n\
            kvorum_list_fsm_create_total 1\nkvorum_node_get_fsm_objsize_bytes_count 10\n\
            kvorum_node_get_fsm_objsize_bytes_sum 20000.0\n# EOF\n";
        for text in [stats, metrics] {
            let facts = facts_of_stats(text).unwrap();
            assert_eq!(facts.number("write_share"), Some(0.25));
            assert_eq!(facts.number("value_bytes"), Some(2000.0));
            let flag = |name: &str| facts.get(name).unwrap().value;
            assert_eq!(flag("uses_indexes"), Value::Flag(true));
            assert_eq!(flag("lists_keys"), Value::Flag(false));
        }
    }

    #[test]
    fn requests_for_data_types_are_reads_and_writes() {
        let stats = r#"{"node_gets_total": 10, "node_gets_map_total": 20, "node_puts_total": 5,
            "node_puts_counter_total": 60, "node_puts_hll_total": 5}"#;
        let facts = facts_of_stats(stats).unwrap();
        assert_eq!(facts.number("write_share"), Some(0.7));
    }

    #[test]
    fn what_are_no_statistics_is_refused() {
        for text in [
            "",
            "{",
            "{}",
            "<html>",
            r#"{"node_gets_total": 0, "node_puts_total": 0}"#,
        ] {
            assert!(facts_of_stats(text).is_err(), "{text}");
        }
    }
}
