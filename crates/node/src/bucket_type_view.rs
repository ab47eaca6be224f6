//! `bucket-type status` as Riak prints it: Erlang's terms in Riak's order.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Properties of a type, or of buckets without type, which have no claimant.
pub(crate) fn riak_text(
    name: &str,
    is_active: bool,
    properties: &Map<String, Value>,
    claimant: Option<&str>,
) -> String {
    let word = match is_active {
        true => "is active",
        false => "has been created and may be activated",
    };
    let mut text = format!("{name} {word}\n\n");
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort();
    // Riak lists those of types from the end.
    if claimant.is_some() {
        names.reverse();
    }
    let own = ["active", "claimant", "name"];
    for property in names.into_iter().filter(|it| !own.contains(&it.as_str())) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{property}: {}",
            term(property, &properties[property])
        );
    }
    if let Some(claimant) = claimant {
        let _ = writeln!(text, "active: {is_active}\nclaimant: '{claimant}'");
    }
    text
}

/// A value as an Erlang term.
fn term(property: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|it| term(property, it)).collect();
            format!("[{}]", values.join(","))
        }
        Value::Object(members) => {
            let word = |name: &str| {
                members
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let (module, function) = (word("mod"), word("fun"));
            match property {
                "linkfun" => format!("{{modfun,{module},{function}}}"),
                _ => format!("{{{module},{function}}}"),
            }
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_is_shown_as_riak_shows_it() {
        let properties = json!({
            "allow_mult": true, "n_val": 3, "w": "quorum", "precommit": [],
            "linkfun": {"mod": "riak_kv_wm_link_walker", "fun": "mapreduce_linkfun"},
            "chash_keyfun": {"mod": "riak_core_util", "fun": "chash_std_keyfun"},
        });
        let properties = properties.as_object().unwrap();
        assert_eq!(
            riak_text("maps", false, properties, Some("a@h")),
            "\
maps has been created and may be activated

w: quorum
precommit: []
n_val: 3
linkfun: {modfun,riak_kv_wm_link_walker,mapreduce_linkfun}
chash_keyfun: {riak_core_util,chash_std_keyfun}
allow_mult: true
active: false
claimant: 'a@h'
"
        );
        let text = riak_text("default", true, properties, None);
        assert!(
            text.starts_with("default is active\n\nallow_mult: true\n"),
            "{text}"
        );
    }
}
