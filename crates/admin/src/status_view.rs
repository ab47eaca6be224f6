//! `status` as Riak prints it: a line for each statistic, by name, with Erlang's terms.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// All statistics of a node.
pub(crate) fn riak_text(node: &str, values: &Map<String, Value>) -> String {
    let rule = "-".repeat(43);
    let mut text = format!("1-minute stats for '{node}'\n{rule}\n");
    let mut names: Vec<&String> = values.keys().collect();
    names.sort();
    for name in names {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} : {}", term(name, &values[name]));
    }
    text
}

/// A value as an Erlang term: names of nodes are atoms, versions and the like binaries.
fn term(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) if name == "nodename" => format!("'{text}'"),
        Value::String(text) if name == "storage_backend" => text.clone(),
        Value::String(text) => format!("<<\"{text}\">>"),
        Value::Array(values) => {
            let terms: Vec<String> = values.iter().map(element).collect();
            format!("[{}]", terms.join(","))
        }
        value => value.to_string(),
    }
}

/// An element of a list: the name of a node, or a disk with its size in KB and its use in percent.
fn element(value: &Value) -> String {
    match value {
        Value::String(node) => format!("'{node}'"),
        Value::Object(disk) => {
            format!("{{{},{},{}}}", disk["id"], disk["size"], disk["used"])
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_stand_by_name_as_erlang_writes_them() {
        let values = json!({
            "vnode_puts": 3, "nodename": "a@h", "ring_members": ["a@h", "b@h"],
            "ring_ownership": "[{'a@h',8}]", "storage_backend": "riak_kv_bitcask_backend",
            "connected_nodes": [], "disk": [{"id": "/", "size": 4, "used": 50}],
        });
        assert_eq!(
            riak_text("a@h", values.as_object().unwrap()),
            "\
1-minute stats for 'a@h'
-------------------------------------------
connected_nodes : []
disk : [{\"/\",4,50}]
nodename : 'a@h'
ring_members : ['a@h','b@h']
ring_ownership : <<\"[{'a@h',8}]\">>
storage_backend : riak_kv_bitcask_backend
vnode_puts : 3
"
        );
    }
}
