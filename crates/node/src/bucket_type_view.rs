//! `bucket-type` as Riak prints it: Erlang's terms in Riak's order, and why a change is refused.

use std::fmt::Write as _;

use kvorum_properties::PropertyErrors;
use serde_json::{Map, Value};

use crate::admin_request::AdminReply;

/// Why a verb's properties cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// They are no JSON.
    #[error("properties must be a JSON object of the form {{\"props\":{{...}}}}: {0}")]
    NoJson(serde_json::Error),
    /// It is another JSON.
    #[error("properties must be a JSON object of the form {{\"props\":{{...}}}}: it has no props")]
    NoProps,
    /// Some of them cannot be set.
    #[error("{0}")]
    Invalid(PropertyErrors),
}

/// The properties of a type that is to be created or updated cannot be taken.
pub(crate) fn unreadable(verb: &str, name: &str, problem: &Unreadable) -> AdminReply {
    let cannot = format!("Cannot {verb} bucket type {name}");
    let reply = AdminReply::refused(format!("{cannot}: {problem}"));
    match problem {
        Unreadable::NoJson(_) => reply.with_riak_text(format!("{cannot}: invalid json")),
        Unreadable::NoProps => {
            reply.with_riak_text(format!("{cannot}: no props field found in json"))
        }
        Unreadable::Invalid(errors) => {
            let doing = verb.trim_end_matches('e');
            reply.with_riak_text(format!("Error {doing}ing bucket type {name}:\n{errors}"))
        }
    }
}

/// The cluster refused to have a type created or updated.
pub(crate) fn refused(doing: &str, name: &str, reply: &AdminReply) -> AdminReply {
    let reason = reply.text.trim_start_matches("Invalid bucket properties: ");
    let riak = format!("Error {doing} bucket type {name}:\n{reason}");
    let explained = match reason {
        "not_active" => "it is not active: activate it first, or create it anew",
        "already_active" => "it is active already: update it instead",
        "no_default_update" => {
            "the default type is no type of its own: `kvorum admin bucket-defaults set` changes it"
        }
        other => other,
    };
    AdminReply::refused(format!("Error {doing} bucket type {name}: {explained}"))
        .with_riak_text(riak)
}

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

    /// Scripts look for "Error creating bucket type" and got the bare reason.
    #[test]
    fn a_refused_type_is_named_with_the_reason_beneath() {
        let reply = refused("updating", "maps", &AdminReply::refused("not_active"));
        assert_eq!(
            reply.riak.as_deref(),
            Some("Error updating bucket type maps:\nnot_active")
        );
        assert!(reply.text.contains("activate it first"), "{}", reply.text);
        let no_json = serde_json::from_str::<Value>("nonsense").unwrap_err();
        let reply = unreadable("create", "maps", &Unreadable::NoJson(no_json));
        assert_eq!(
            reply.riak.as_deref(),
            Some("Cannot create bucket type maps: invalid json")
        );
        let reply = unreadable("create", "maps", &Unreadable::NoProps);
        assert_eq!(
            reply.riak.as_deref(),
            Some("Cannot create bucket type maps: no props field found in json")
        );
    }

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
