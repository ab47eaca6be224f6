//! `show` and `set`: the values of keys of the configuration, in the form of Riak's table, and the
//! only key that can be changed while the node runs.

use kvorum_settings::Configuration;
use serde_json::{Map, Value, json};

use crate::admin_client;
use kvorum_admin::framed;
use kvorum_admin::{AdminReply, AdminRequest};

/// The only key that can be changed while the node runs; its value comes from the node.
const TRANSFER_LIMIT: &str = "transfer_limit";

/// The values of this node's next start, and the present ones if they can differ.
pub(crate) fn reply(configuration: &Configuration, keys: &[String]) -> AdminReply {
    let unknown: Vec<&str> = keys
        .iter()
        .map(String::as_str)
        .filter(|key| value_of(configuration, key).is_none())
        .collect();
    if !unknown.is_empty() {
        let invalid = format!("Invalid config keys: {} ", unknown.join(" "));
        return AdminReply::refused(format!("{invalid}(`kvorum describe` lists all keys)"))
            .with_riak_text(invalid);
    }
    let node = &configuration.settings.node.nodename;
    let mut cells = vec![node.clone()];
    let mut values = Map::new();
    for key in keys {
        let value = value_of(configuration, key).unwrap_or_default();
        let value = match key.as_str() {
            TRANSFER_LIMIT => running_limit(configuration).unwrap_or(value),
            _ => value,
        };
        cells.push(value.clone());
        values.insert(key.clone(), value.into());
    }
    let header: Vec<&str> = std::iter::once("node")
        .chain(keys.iter().map(String::as_str))
        .collect();
    let text = format!("{}\n", framed(&header, &[cells]));
    AdminReply::ok(text, json!({"node": node, "values": Value::Object(values)}))
}

/// Sets keys of the node that runs until its next start, each given as `KEY=VALUE`.
pub(crate) fn set(
    configuration: &Configuration,
    assignments: &[String],
) -> anyhow::Result<AdminReply> {
    let parted = |it: &String| match it.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (it.clone(), String::new()),
    };
    let parted: Vec<(String, String)> = assignments.iter().map(parted).collect();
    let fixed = parted.iter().filter(|(key, _)| key != TRANSFER_LIMIT);
    let fixed: Vec<&str> = fixed.map(|(key, _)| key.as_str()).collect();
    if !fixed.is_empty() {
        return Ok(not_settable(&fixed));
    }
    let Some((_, limit)) = parted.last() else {
        return Ok(AdminReply::refused("nothing is to be set"));
    };
    let node = &configuration.settings.node.nodename;
    let words = ["transfer-limit", node, limit].map(str::to_owned).to_vec();
    let reply = admin_client::ask(&configuration.settings, &AdminRequest::Cluster { words })?;
    Ok(match reply.is_ok {
        true => reply.with_riak_text(format!("{TRANSFER_LIMIT} set to \"{limit}\"")),
        false => reply,
    })
}

fn not_settable(keys: &[&str]) -> AdminReply {
    AdminReply::refused(format!(
        "{} cannot be set while the node runs: change the configuration file and restart the node; \
         {TRANSFER_LIMIT} can",
        keys.join(", ")
    ))
    .with_riak_text(format!(
        "The following config keys are not settable: {keys:?}\n"
    ))
}

fn value_of(configuration: &Configuration, key: &str) -> Option<String> {
    let entry = configuration.effective.iter().find(|it| it.name == key)?;
    Some(
        entry
            .value
            .clone()
            .unwrap_or_else(|| "undefined".to_owned()),
    )
}

/// The present limit of the node, if it runs.
fn running_limit(configuration: &Configuration) -> Option<String> {
    let request = AdminRequest::Cluster {
        words: vec!["transfer-limit".to_owned()],
    };
    let reply = admin_client::ask(&configuration.settings, &request).ok()?;
    let limits = reply.data["limits"].as_array()?;
    let own = &configuration.settings.node.nodename;
    let limit = limits.iter().find(|it| it["node"] == own.as_str())?;
    Some(limit["limit"].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_to(keys: &[&str]) -> AdminReply {
        let configuration = Configuration::load("nodename = a@h", &["ring_size=8"]).unwrap();
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        reply(&configuration, &keys)
    }

    #[test]
    fn values_stand_in_riaks_table() {
        let reply = reply_to(&["ring_size"]);
        assert_eq!(
            reply.text,
            "+----+---------+\n|node|ring_size|\n+----+---------+\n|a@h |    8    |\n+----+---------+\n\n"
        );
        assert_eq!(reply.data["values"]["ring_size"], "8");
    }

    #[test]
    fn a_key_that_needs_a_restart_is_refused_by_name() {
        let configuration = Configuration::load("nodename = a@h", &["ring_size=8"]).unwrap();
        let keys = ["transfer_limit=3".to_owned(), "ring_size=16".to_owned()];
        let reply = set(&configuration, &keys).unwrap();
        assert!(!reply.is_ok && reply.text.starts_with("ring_size cannot be set"));
        assert_eq!(
            reply.riak.as_deref(),
            Some("The following config keys are not settable: [\"ring_size\"]\n")
        );
    }

    #[test]
    fn a_key_that_is_not_there_is_named() {
        let reply = reply_to(&["ring_size", "no.such.key"]);
        assert!(!reply.is_ok && reply.text.starts_with("Invalid config keys: no.such.key"));
    }
}
