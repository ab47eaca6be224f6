//! `bucket-type` as Riak prints it: Erlang's terms in Riak's order, and why a change is refused.

use std::fmt::Write as _;

use kvorum_cluster::Refusal;
use serde_json::{Map, Value};

use crate::request::AdminReply;

/// The answer to a verb that creates or updates a type: a refusal names the type and the mistakes in its
/// properties.
pub(crate) fn changed(verb: &str, name: &str, properties: &str, reply: AdminReply) -> AdminReply {
    if reply.is_ok {
        return reply;
    }
    let cannot = format!("Cannot {verb} bucket type {name}");
    let read: Result<Value, _> = serde_json::from_str(properties);
    let riak = match &read {
        _ if properties.trim().is_empty() => None,
        Err(_) => Some(format!("{cannot}: invalid json")),
        Ok(read) if !read["props"].is_object() => {
            Some(format!("{cannot}: no props field found in json"))
        }
        Ok(_) => None,
    };
    if let Some(riak) = riak {
        return AdminReply::refused(format!("{cannot}: {}", reply.text)).with_riak_text(riak);
    }
    let doing = verb.trim_end_matches('e');
    let error = format!("Error {doing}ing bucket type {name}:");
    let reason = reply.text.trim_start_matches(INVALID);
    let riak = reply.riak.as_deref().unwrap_or(reason);
    AdminReply::refused(format!("{error} {}", explained(reason)))
        .with_riak_text(format!("{error}\n{riak}"))
}

/// The answer to a reset: Riak's console prints the name of the type and the reason in one line.
pub(crate) fn reset(name: &str, reply: AdminReply) -> AdminReply {
    if reply.is_ok {
        return reply;
    }
    let error = format!("Error updating bucket type {name}:");
    let reason = reply.text.trim_start_matches(INVALID);
    let riak = reply.riak.as_deref().unwrap_or(reason);
    AdminReply::refused(format!("{error} {}", explained(reason)))
        .with_riak_text(format!("{error} {riak}"))
}

/// The refusal of a change, with Riak's words for it.
pub(crate) fn refused(refusal: &Refusal) -> AdminReply {
    let text = refusal.to_string();
    let riak = match refusal {
        Refusal::InvalidProperties(errors) => errors.console_text(),
        Refusal::ReservedTypeName { bucket_type } if bucket_type.is_default() => {
            "default_type".to_owned()
        }
        Refusal::ReservedTypeName { bucket_type } => {
            format!("The name '{bucket_type}' may not be used for bucket types")
        }
        _ => text.trim_start_matches(INVALID).to_owned(),
    };
    AdminReply::refused(text).with_riak_text(riak)
}

/// Opening of the message about invalid properties.
const INVALID: &str = "Invalid bucket properties: ";

/// The text for Riak's word for a reason.
fn explained(reason: &str) -> &str {
    match reason {
        "not_active" => "it is not active: activate it first, or create it anew",
        "already_active" => "it is active already: update it instead",
        "no_default_update" => {
            "the default type is no type of its own: `kvorum admin bucket-defaults set` changes it"
        }
        other => other,
    }
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
    // Riak lists properties of types in reverse order.
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

    /// Regression: scripts look for "Error creating bucket type", but got only the reason.
    #[test]
    fn a_refused_type_is_named_with_the_reason_beneath() {
        let refused = |verb, properties, reason| {
            let reply = changed(verb, "maps", properties, AdminReply::refused(reason));
            assert!(!reply.is_ok && reply.text.contains("maps"));
            reply.riak.unwrap().into_string()
        };
        let unset = "{\"props\":{}}";
        for (properties, reason, wanted) in [
            (
                unset,
                "not_active",
                "Error updating bucket type maps:\nnot_active",
            ),
            (
                "",
                "Invalid bucket properties: not_active",
                "Error updating bucket type maps:\nnot_active",
            ),
            (
                "nonsense",
                "no JSON",
                "Cannot update bucket type maps: invalid json",
            ),
            (
                "{\"n_val\":1}",
                "no props",
                "Cannot update bucket type maps: no props field found in json",
            ),
        ] {
            assert_eq!(refused("update", properties, reason), wanted);
        }
        let created = refused("create", unset, "already_active");
        assert_eq!(created, "Error creating bucket type maps:\nalready_active");
        let granted = changed("create", "maps", "", AdminReply::ok("done", Value::Null));
        assert_eq!((granted.text.as_str(), granted.riak), ("done", None));
    }

    #[test]
    fn a_refused_reset_is_one_line() {
        let refused = AdminReply::refused("Invalid bucket properties: not_active");
        let reply = reset("maps", refused);
        assert!(!reply.is_ok && reply.text.contains("activate it first"));
        let riak = reply.riak.unwrap().into_string();
        assert_eq!(riak, "Error updating bucket type maps: not_active");
        assert_eq!(
            reset("maps", AdminReply::ok("maps reset", Value::Null)).text,
            "maps reset"
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
