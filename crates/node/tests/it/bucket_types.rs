//! Bucket types over three servers: a bucket counted and dropped, properties taken back, and the type
//! removed when no server holds a key of it.

use serde_json::Value;

use crate::cluster::{admin, answer, cluster_of_three, json, until};
use crate::server::Site;

const KEYS: usize = 50;

fn put(site: &Site, key: usize) {
    let request = format!(
        "PUT /types/maps/buckets/users/keys/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nvalue"
    );
    until(&format!("{key} is put"), || {
        answer(site, &request).starts_with("HTTP/1.1 204")
    });
}

fn keys(site: &Site) -> Value {
    json(site, &["bucket", "count", "maps/users"])["keys"].clone()
}

/// The output of a verb that fails.
fn refusal(site: &Site, words: &[&str]) -> String {
    let output = site.run(&[&["admin"], words].concat());
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_type_known(site: &Site) -> bool {
    let request = "GET /types/maps/props HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    answer(site, request).starts_with("HTTP/1.1 200")
}

#[test]
fn a_type_is_emptied_and_removed() {
    let (sites, _servers) = cluster_of_three();
    admin(&sites[0], &["bucket-type", "create", "maps"]);
    admin(&sites[0], &["bucket-type", "activate", "maps"]);
    for site in &sites {
        until("all servers have the type", || is_type_known(site));
    }
    for key in 0..KEYS {
        put(&sites[key % 3], key);
    }
    // A replica that no quorum waited for has a key a moment later.
    for site in &sites {
        until("all keys are counted", || keys(site) == KEYS);
    }

    // A type with keys stays, and the refusal names the nodes with keys.
    let remove = ["bucket-type", "remove", "maps"];
    until("the removal is refused for its keys", || {
        refusal(&sites[1], &remove).contains("keys of bucket 'users'")
    });
    for site in &sites {
        until("the type is in use again", || is_type_known(site));
    }
    assert_eq!(keys(&sites[2]), KEYS);

    let tried = json(&sites[0], &["bucket", "drop", "maps/users", "--dry-run"]);
    assert_eq!(
        (&tried["keys"], &tried["done"]),
        (&KEYS.into(), &true.into())
    );
    assert_eq!(keys(&sites[0]), KEYS);
    let dropped = json(&sites[0], &["bucket", "drop", "maps/users"]);
    assert_eq!(dropped["deleted"], KEYS, "{dropped}");
    assert_eq!(
        (&dropped["failed"], &dropped["done"]),
        (&0.into(), &true.into())
    );
    until("no key is left", || keys(&sites[1]) == 0);
    let again = admin(&sites[1], &["bucket", "drop", "maps/users"]);
    assert_eq!(again.trim(), "maps/users: 0 keys deleted");

    until("the type is removed", || {
        sites[2]
            .run(&[&["admin"], &remove[..]].concat())
            .status
            .success()
    });
    for site in &sites {
        until("the type is unknown", || !is_type_known(site));
    }
    let unknown = refusal(&sites[0], &remove);
    assert!(unknown.contains("not an existing bucket type"), "{unknown}");
    let unknown = refusal(&sites[0], &["bucket", "count", "maps/users"]);
    assert!(unknown.contains("cannot be counted"), "{unknown}");
}

#[test]
fn properties_of_a_type_are_taken_back() {
    let site = Site::new();
    let _server = site.start();
    let chosen = "{\"props\":{\"datatype\":\"set\",\"n_val\":5,\"r\":1}}";
    admin(&site, &["bucket-type", "create", "sets", chosen]);
    let reset = ["bucket-type", "reset", "sets"];
    let refused = refusal(&site, &[&reset[..], &["--as-riak"]].concat());
    assert_eq!(
        refused.trim(),
        "Error updating bucket type sets: not_active"
    );
    admin(&site, &["bucket-type", "activate", "sets"]);
    let property = |name: &str| {
        let status = json(&site, &["bucket-type", "status", "sets"]);
        status["props"][name].clone()
    };
    let one = admin(&site, &[&reset[..], &["r"]].concat());
    assert_eq!(one.trim(), "r of sets reset");
    assert_eq!(
        (property("r"), property("n_val")),
        ("quorum".into(), 5.into())
    );
    assert_eq!(admin(&site, &reset).trim(), "sets reset");
    assert_eq!(
        (property("n_val"), property("datatype")),
        (3.into(), "set".into())
    );
    let kept = refusal(&site, &[&reset[..], &["datatype"]].concat());
    assert!(kept.contains("a reset keeps it"), "{kept}");
}
