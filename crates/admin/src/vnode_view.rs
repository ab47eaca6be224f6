//! `vnode-status` for operators: a line for each vnode, and beneath it the problems of some.

use std::fmt::Write as _;

use kvorum_maintenance::{bytes_text, counted};
use serde_json::Value;

/// A table of the vnodes' fields, at most 100 columns wide; `backends` has the backends of a node
/// with several.
pub(crate) fn text(node: &str, backends: Option<&str>, vnodes: &[Value]) -> String {
    let engine = vnodes.iter().find_map(|it| it["backend"].as_str());
    let engine = engine.map_or_else(String::new, |engine| match backends {
        Some(several) => format!(", {engine}: {several}"),
        None => format!(", {engine}"),
    });
    let mut text = format!("Vnodes of '{node}'{engine}\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:>9}  {:<8} {:<8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}",
        "partition",
        "state",
        "complete",
        "keys",
        "live",
        "garbage",
        "disk",
        "memory",
        "gets",
        "puts"
    );
    for vnode in vnodes {
        let _ = writeln!(text, "{}", line(vnode).trim_end());
    }
    for vnode in vnodes {
        for problem in problems(vnode) {
            let _ = writeln!(text, "partition {}: {problem}", vnode["partition"]);
        }
    }
    text
}

fn line(vnode: &Value) -> String {
    let word = |name: &str| vnode[name].as_str().unwrap_or_default().to_owned();
    let count = |name: &str| vnode[name].as_u64().map_or_else(String::new, short);
    let bytes = |name: &str| vnode[name].as_u64().map_or_else(String::new, bytes_text);
    let complete = match vnode["complete"].as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    };
    format!(
        "{:>9}  {:<8} {complete:<8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}",
        vnode["partition"].to_string(),
        word("state"),
        count("keys"),
        bytes("live_bytes"),
        bytes("garbage_bytes"),
        bytes("disk_bytes"),
        bytes("memory_bytes"),
        count("gets"),
        count("puts"),
    )
}

/// A count in at most seven characters.
fn short(count: u64) -> String {
    match count {
        0..10_000_000 => count.to_string(),
        10_000_000..1_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

fn problems(vnode: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, what) in [("error", "not open"), ("unwritable", "takes no writes")] {
        if let Some(why) = vnode[name].as_str() {
            problems.push(format!("{what}: {why}"));
        }
    }
    let damaged = vnode["damaged_reads"].as_u64().unwrap_or(0);
    if damaged > 0 {
        problems.push(format!("{} met damage", counted(damaged, "read")));
    }
    for lost in vnode["lost"].as_array().into_iter().flatten() {
        let text = |name: &str| lost[name].as_str().unwrap_or_default().to_owned();
        problems.push(format!(
            "lost {} bytes of {} from {} on, which held {}",
            lost["len"],
            text("file"),
            lost["offset"],
            text("held")
        ));
    }
    problems
}

/// The same as Riak prints it.
pub(crate) fn riak_text(vnodes: &[Value]) -> String {
    let rule = "-".repeat(43);
    let mut text = format!("Vnode status information\n{rule}\n\n");
    for vnode in vnodes {
        let word = |name: &str| vnode[name].as_str().unwrap_or_default();
        let backend = match word("backend") {
            "" => "undefined".to_owned(),
            engine => format!("riak_kv_{engine}_backend"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "VNode: {}\nBackend: {backend}", word("index"));
        let _ = match vnode["keys"].as_u64() {
            Some(keys) => writeln!(text, "Status: \n[{{key_count,{keys}}}]"),
            None => writeln!(text, "Status: \n{{state,{}}}", word("state")),
        };
        if let Some(actor) = vnode["actor"].as_str() {
            let _ = writeln!(text, "Status: \n{{vnodeid,<<\"{actor}\">>}}");
            let _ = writeln!(text, "Status: \n{{counter,{}}}", vnode["counter"]);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vnodes() -> [Value; 2] {
        [
            json!({
                "partition": 3, "state": "open", "complete": true, "index": "548063113999088594",
                "backend": "bitcask", "keys": 12_345_678, "live_bytes": 1_u64 << 40, "garbage_bytes": 0,
                "disk_bytes": 5_000, "memory_bytes": 5_000, "gets": 1, "puts": 99_999_999_u64,
                "damaged_reads": 0, "lost": [], "actor": "ab", "counter": 7,
            }),
            json!({"partition": 1000, "state": "failed", "index": "0", "error": "it is not there"}),
        ]
    }

    #[test]
    fn the_table_fits_in_100_columns_and_has_no_long_integers() {
        let text = text("kvorum@127.0.0.1", None, &vnodes());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
            assert!(!line.contains("548063113999088594"), "{line}");
        }
        assert!(
            text.contains("partition 1000: not open: it is not there"),
            "{text}"
        );
    }

    #[test]
    fn several_backends_are_named_in_the_heading() {
        let several = Some("bc (bitcask, default), mem (memory)");
        let mut vnodes = vnodes();
        vnodes[0]["backend"] = "multi".into();
        let text = text("n@h", several, &vnodes);
        let heading = "Vnodes of 'n@h', multi: bc (bitcask, default), mem (memory)\n";
        assert!(text.starts_with(heading), "{text}");
    }

    #[test]
    fn under_riaks_name_vnodes_are_reported_by_their_index() {
        let text = riak_text(&vnodes());
        assert!(text.starts_with("Vnode status information\n"), "{text}");
        assert!(
            text.contains(
                "VNode: 548063113999088594\nBackend: riak_kv_bitcask_backend\nStatus: \n"
            ),
            "{text}"
        );
        assert!(text.contains("{counter,7}"), "{text}");
    }
}
