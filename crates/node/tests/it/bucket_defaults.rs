//! Defaults of buckets over three servers: changed for all by one command. A server with another
//! configuration has no effect on them until an operator proposes its values.
//!
//! Regression: each server used the properties of the cluster's foundation for ever, against its
//! file.

use serde_json::Value;

use crate::cluster::{admin, answer, cluster_of_three, json, until};
use crate::server::Site;

/// A property of a bucket that has none of its own, as this server's clients see it.
fn property(site: &Site, name: &str) -> Value {
    let request = "GET /buckets/other/props HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = answer(site, request);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let properties: Value = serde_json::from_str(body).unwrap();
    properties["props"][name].clone()
}

fn until_all_have(sites: &[Site], name: &str, value: &Value) {
    for site in sites {
        until(&format!("{name} is {value} on every server"), || {
            property(site, name) == *value
        });
    }
}

#[test]
fn one_command_changes_the_defaults_of_all_servers() {
    let (mut sites, mut servers) = cluster_of_three();
    until_all_have(&sites, "allow_mult", &true.into());
    let change = "{\"props\":{\"allow_mult\":false,\"pr\":1}}";
    let said = admin(&sites[1], &["bucket-defaults", "set", change]);
    assert!(said.contains("changed on all nodes"), "{said}");
    until_all_have(&sites, "allow_mult", &false.into());
    until_all_have(&sites, "pr", &1.into());
    // Properties that were not named stay.
    assert_eq!(property(&sites[0], "n_val"), 3);

    // A server with another configuration uses the agreed values, and shows both.
    servers.pop().unwrap().stop();
    sites[2].settings.push("buckets.default.pw=2".to_owned());
    servers.push(sites[2].start());
    assert_eq!(property(&sites[2], "pw"), 0);
    let shown = json(&sites[2], &["bucket-defaults", "show"]);
    assert_eq!(
        (&shown["agreed"]["pw"], &shown["configured"]["pw"]),
        (&0.into(), &2.into())
    );
    let differing = shown["differing"].as_array().unwrap();
    assert!(differing.contains(&"pw".into()), "{shown}");

    // The operator's command makes all of its values agreed.
    until("a node leads", || {
        json(&sites[2], &["cluster", "plan"])["behind"].is_null()
    });
    admin(&sites[2], &["bucket-defaults", "apply"]);
    until_all_have(&sites, "pw", &2.into());
    until_all_have(&sites, "allow_mult", &true.into());
    until_all_have(&sites, "pr", &0.into());
    let refused = sites[0].run(&[
        "admin",
        "bucket-defaults",
        "set",
        "{\"props\":{\"consistent\":true}}",
    ]);
    let said = String::from_utf8(refused.stdout).unwrap();
    assert!(
        !refused.status.success() && said.contains("consistent"),
        "{said}"
    );
    assert_eq!(property(&sites[1], "pw"), 2);
}
