//! `bucket-defaults`: the properties of all buckets without a type, changed on all nodes at once.
//!
//! `buckets.default.*` of a configuration applies when a cluster is founded, and while a node is
//! alone. The nodes of a cluster agree on one set, since different files would give one bucket
//! different properties. These verbs show both and change the agreed set.

use std::fmt::Write as _;

use kvorum_cluster::{AgreedState as _, Command};
use kvorum_member::Member;
use kvorum_properties::{BucketProperties, PropertyOverlay};
use serde_json::{Map, Value, json};

use crate::request::AdminReply;

/// Proposes a change; the second argument is the answer if it is agreed on.
pub(crate) type Propose<'a> = &'a dyn Fn(Command, &str) -> AdminReply;

/// The agreed values, and those of this node's configuration.
pub(crate) fn show(member: &Member) -> AdminReply {
    let state = member.state().current();
    let whole =
        |overlay: &PropertyOverlay| BucketProperties::untyped_defaults().with(overlay).to_json();
    let agreed = whole(state.default_properties());
    let configured = whole(&configured(member));
    let text = table(&member.settings().name, &agreed, &configured);
    let differing: Vec<&String> = differing(&agreed, &configured).collect();
    let data = json!({"agreed": agreed, "configured": configured, "differing": differing});
    AdminReply::ok(text, data)
}

/// Proposes the values of this node's configuration.
pub(crate) fn apply(member: &Member, propose: Propose<'_>) -> AdminReply {
    let configured = configured(member);
    let done = "The defaults of buckets are those of this node's configuration, on all nodes";
    propose(Command::SetDefaultProperties(configured), done)
}

/// Proposes some values; the others stay.
pub(crate) fn set(member: &Member, change: &PropertyOverlay, propose: Propose<'_>) -> AdminReply {
    let state = member.state().current();
    let merged = state.default_properties().with(change);
    let after = match state.members().len() {
        1 => {
            "this node is alone and goes back to buckets.default.* of its configuration at its next \
             start: change it there as well"
        }
        _ => {
            "set buckets.default.* to the same in the configuration of every node, for new \
             clusters"
        }
    };
    let done = format!("The defaults of buckets are changed on all nodes; {after}");
    propose(Command::SetDefaultProperties(merged), &done)
}

/// The defaults of this node's configuration, with the agreed backend in place of its own.
fn configured(member: &Member) -> PropertyOverlay {
    let state = member.state().current();
    let own = &member.settings().default_properties;
    own.staying_in_backend_of(state.default_properties())
}

fn differing<'a>(
    agreed: &'a Map<String, Value>,
    configured: &'a Map<String, Value>,
) -> impl Iterator<Item = &'a String> {
    let names = agreed.keys();
    names.filter(|name| agreed.get(*name) != configured.get(*name))
}

fn table(node: &str, agreed: &Map<String, Value>, configured: &Map<String, Value>) -> String {
    let mut text = String::new();
    let word = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:<20} {:<24} configured on '{node}'",
        "property", "agreed"
    );
    for (name, value) in agreed {
        let (agreed, own) = (word(Some(value)), word(configured.get(name)));
        // Functions of Erlang have no line here: they are not defaults of a configuration.
        if value.is_object() {
            continue;
        }
        let own = if own == agreed { String::new() } else { own };
        let line = format!("{name:<20} {agreed:<24} {own}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if differing(agreed, configured).next().is_some() {
        text.push_str(
            "\nThe agreed values count. `kvorum admin bucket-defaults apply` makes those of this \
             node's configuration the agreed ones.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_beside_what_is_agreed() {
        let agreed = json!({"allow_mult": false, "n_val": 3, "linkfun": {"mod": "m", "fun": "f"}});
        let configured =
            json!({"allow_mult": true, "n_val": 3, "linkfun": {"mod": "m", "fun": "f"}});
        let text = table(
            "a@h",
            agreed.as_object().unwrap(),
            configured.as_object().unwrap(),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "allow_mult           false                    true"
        );
        assert_eq!(lines[2], "n_val                3");
        assert!(text.contains("bucket-defaults apply"), "{text}");
    }
}
