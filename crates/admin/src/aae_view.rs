//! `aae-status` and `tictacaae treestatus`: for each partition, the times of the last and of the
//! last complete comparison of its replicas, and the repaired keys; for each vnode, the state of
//! its trees.

use std::fmt::Write as _;
use std::time::Duration;

use kvorum_maintenance::bytes_text;
use kvorum_member::ExchangesReport;
use kvorum_ring::RingSize;
use serde_json::{Value, json};

/// All data, for programs; `report` is `None` if anti-entropy is off.
pub(crate) fn data(report: Option<&ExchangesReport>, size: RingSize) -> Value {
    let Some(report) = report else {
        return json!({"active": false, "exchanges": [], "trees": []});
    };
    let ago = |at: Option<u64>| at.map(|at| report.now_micros.saturating_sub(at) / 1_000_000);
    let index = |number: u16| size.partition(number).map(|it| it.index_decimal(size));
    let exchanges = report.targets.iter().map(|it| {
        json!({
            "partition": it.target.partition,
            "index": index(it.target.partition),
            "n_val": it.target.n,
            "compared_seconds_ago": ago(it.compared_at),
            "complete_seconds_ago": ago(it.complete_at),
            "complete_in_present_ring": it.is_complete_in_epoch,
            "under_way": it.is_under_way,
            "exchanges": it.exchanges,
            "keys_repaired_last": it.repaired_last,
            "keys_repaired_mean": it.repaired.checked_div(it.exchanges).unwrap_or(0),
            "keys_repaired_max": it.repaired_max,
            "keys_repaired": it.repaired,
        })
    });
    let trees = report.trees.iter().map(|it| {
        json!({
            "partition": it.partition.number(),
            "index": it.partition.index_decimal(size),
            "status": if it.trees.is_built { "built" } else { "building" },
            "built_seconds_ago": ago(it.built_at_micros),
            "builds": it.trees.builds,
            "were_kept": it.trees.were_kept,
            "trees": it.trees.trees,
            "keys": it.trees.keys,
            "memory_bytes": it.trees.memory_bytes,
            "leaves_corrected": it.trees.leaves_corrected,
        })
    });
    json!({
        "active": true,
        "enabled": report.is_enabled,
        "exchanges": exchanges.collect::<Vec<_>>(),
        "trees": trees.collect::<Vec<_>>(),
        "exchanges_total": report.exchanges,
        "exchanges_complete_total": report.exchanges_complete,
        "keys_repaired_total": report.keys_repaired,
        "repairs_failed_total": report.repairs_failed,
    })
}

/// The exchanges of this node, for operators.
pub(crate) fn exchanges_text(node: &str, data: &Value) -> String {
    let mut text = headline(node, data);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:>9} {:>5}  {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "partition", "n_val", "compared", "complete", "exchanges", "repaired", "last", "max"
    );
    for it in rows(data, "exchanges") {
        let _ = writeln!(
            text,
            "{:>9} {:>5}  {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}",
            it["partition"].to_string(),
            it["n_val"].to_string(),
            ago_text(&it["compared_seconds_ago"]),
            ago_text(&it["complete_seconds_ago"]),
            it["exchanges"].to_string(),
            it["keys_repaired"].to_string(),
            it["keys_repaired_last"].to_string(),
            it["keys_repaired_max"].to_string(),
        );
    }
    let _ = writeln!(
        text,
        "Times are ages. This node compares the preference lists whose first available replica it has."
    );
    text
}

/// The trees of this node, for operators.
pub(crate) fn trees_text(node: &str, data: &Value) -> String {
    let mut text = headline(node, data);
    let _ = writeln!(
        text,
        "{:>9}  {:<8} {:>10} {:>7} {:>12} {:>10} {:>16}",
        "partition", "status", "built ago", "builds", "keys", "memory", "leaves corrected"
    );
    for it in rows(data, "trees") {
        let memory = it["memory_bytes"].as_u64().unwrap_or(0);
        let _ = writeln!(
            text,
            "{:>9}  {:<8} {:>10} {:>7} {:>12} {:>10} {:>16}",
            it["partition"].to_string(),
            it["status"].as_str().unwrap_or_default(),
            ago_text(&it["built_seconds_ago"]),
            it["builds"].to_string(),
            it["keys"].to_string(),
            bytes_text(memory),
            it["leaves_corrected"].to_string(),
        );
    }
    text
}

/// The output of `riak admin aae-status`.
pub(crate) fn riak_text(data: &Value) -> String {
    let rule = "-".repeat(79);
    let title = |name: &str| format!("{name:=^79}\n");
    let index = |it: &Value| it["index"].as_str().unwrap_or_default().to_owned();
    let mut text = title(" Exchanges ");
    let _ = writeln!(
        text,
        "{:<49}  {:<12}  {:<12}\n{rule}",
        "Index", "Last (ago)", "All (ago)"
    );
    for it in rows(data, "exchanges") {
        let (last, all) = (
            ago_text(&it["compared_seconds_ago"]),
            ago_text(&it["complete_seconds_ago"]),
        );
        let _ = writeln!(text, "{:<49}  {last:<12}  {all:<12}", index(it));
    }
    let _ = write!(text, "\n{}", title(" Entropy Trees "));
    let _ = writeln!(text, "{:<49}  Built (ago)\n{rule}", "Index");
    for it in rows(data, "trees") {
        let _ = writeln!(
            text,
            "{:<49}  {}",
            index(it),
            ago_text(&it["built_seconds_ago"])
        );
    }
    let _ = write!(text, "\n{}", title(" Keys Repaired "));
    let _ = writeln!(
        text,
        "{:<49}  {:^8}  {:^8}  {:^8}\n{rule}",
        "Index", "Last", "Mean", "Max"
    );
    for it in rows(data, "exchanges") {
        let _ = writeln!(
            text,
            "{:<49}  {:^8}  {:^8}  {:^8}",
            index(it),
            it["keys_repaired_last"].to_string(),
            it["keys_repaired_mean"].to_string(),
            it["keys_repaired_max"].to_string(),
        );
    }
    text
}

fn headline(node: &str, data: &Value) -> String {
    if data["active"] == json!(false) {
        return format!(
            "Anti-entropy of '{node}' is off: tictacaae_active = passive in its configuration\n"
        );
    }
    let state = match data["enabled"].as_bool() {
        Some(true) => "on",
        _ => "disabled until `kvorum admin tictacaae enable` or the next start",
    };
    format!(
        "Anti-entropy of '{node}' is {state}; since the start: {} exchanges, {} of them complete, {} keys repaired, \
         {} repairs failed\n",
        data["exchanges_total"],
        data["exchanges_complete_total"],
        data["keys_repaired_total"],
        data["repairs_failed_total"]
    )
}

fn rows<'a>(data: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    data[name].as_array().into_iter().flatten()
}

/// A time in the largest unit that it fills, as Riak has it.
fn ago_text(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_u64() else {
        return "--".to_owned();
    };
    let seconds = Duration::from_secs(seconds).as_secs_f64();
    match seconds {
        0.0..60.0 => format!("{seconds:.1} s"),
        60.0..3_600.0 => format!("{:.1} min", seconds / 60.0),
        3_600.0..86_400.0 => format!("{:.1} hr", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Value {
        json!({
            "active": true, "enabled": true, "exchanges_total": 12, "exchanges_complete_total": 11,
            "keys_repaired_total": 7, "repairs_failed_total": 1,
            "exchanges": [{
                "partition": 1000, "index": "548063113999088594", "n_val": 3,
                "compared_seconds_ago": 90, "complete_seconds_ago": 7_200, "exchanges": 12,
                "keys_repaired_last": 2, "keys_repaired_mean": 1, "keys_repaired_max": 4,
                "keys_repaired": 7,
            }, {
                "partition": 3, "index": "0", "n_val": 5, "compared_seconds_ago": null,
                "complete_seconds_ago": null, "exchanges": 0, "keys_repaired_last": 0,
                "keys_repaired_mean": 0, "keys_repaired_max": 0, "keys_repaired": 0,
            }],
            "trees": [{
                "partition": 3, "index": "0", "status": "building", "built_seconds_ago": null,
                "builds": 0, "keys": 1_000_000, "memory_bytes": 1_060_000, "leaves_corrected": 2,
            }],
        })
    }

    #[test]
    fn operators_see_when_each_partition_was_compared_and_complete_and_what_was_repaired() {
        let text = exchanges_text("kvorum@host", &found());
        let line = text.lines().find(|it| it.contains("1000")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = ["1000", "3", "1.5", "min", "2.0", "hr", "12", "7", "2", "4"];
        assert_eq!(words, expected);
        assert!(text.contains("12 exchanges, 11 of them complete, 7 keys repaired"));
        assert!(
            text.lines().skip(1).all(|it| it.chars().count() <= 100),
            "{text}"
        );
        let text = trees_text("kvorum@host", &found());
        assert!(text.contains("building"), "{text}");
    }

    #[test]
    fn riaks_three_tables_are_there_and_what_is_not_known_is_two_dashes() {
        let text = riak_text(&found());
        for title in [" Exchanges ", " Entropy Trees ", " Keys Repaired "] {
            assert!(text.contains(title), "{text}");
        }
        assert!(text.starts_with("=================================="));
        let never = format!("{:<49}  {:<12}  {:<12}", "0", "--", "--");
        assert!(text.contains(&never), "{text}");
    }

    #[test]
    fn a_node_without_anti_entropy_says_so() {
        let size = RingSize::new(8).unwrap();
        let text = exchanges_text("kvorum@host", &data(None, size));
        assert!(text.contains("tictacaae_active = passive"), "{text}");
    }
}
