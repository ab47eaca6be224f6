//! Texts that scripts of Riak's operators parse: the verbs of `riak-admin` at a node alone, one by one.
//!
//! The texts have the lines and columns that Riak 3.2 prints for a node of this name and ring; the few that
//! differ from it are listed in docs/cluster.md.

use crate::server::{Site, free_address};

const NODE: &str = "riak1@127.0.0.1";

fn site() -> Site {
    let mut site = Site::new();
    site.settings = vec![
        format!("nodename={NODE}"),
        format!("listener.peer.internal={}", free_address()),
    ];
    site
}

/// Success of a verb under Riak's name, and its output.
fn riak_admin(site: &Site, words: &[&str]) -> (bool, String) {
    let output = site.run(&[&["admin"], words, &["--as-riak"]].concat());
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    (output.status.success(), text.trim_end().to_owned())
}

const MEMBER_STATUS: &str = "\
================================= Membership ==================================
Status     Ring    Pending    Node
-------------------------------------------------------------------------------
valid     100.0%      --      riak1@127.0.0.1
-------------------------------------------------------------------------------
Valid:1 / Leaving:0 / Exiting:0 / Joining:0 / Down:0";

const RING_STATUS: &str = "\
================================== Claimant ===================================
Claimant:  'riak1@127.0.0.1'
Status:     up
Ring Ready: true

============================== Ownership Handoff ==============================
No pending changes.

============================== Unreachable Nodes ==============================
All nodes are up and reachable";

const CLUSTER_STATUS: &str = "\
---- Cluster Status ----
Ring ready: true

+---------------------+------+-------+-----+-------+
|        node         |status| avail |ring |pending|
+---------------------+------+-------+-----+-------+
| (C) riak1@127.0.0.1 |valid |  up   |100.0|  --   |
+---------------------+------+-------+-----+-------+

Key: (C) = Claimant; availability marked with '!' is unexpected";

const PARTITIONS: &str = "\
Partitions owned by 'riak1@127.0.0.1':
+---------+-------------------------------------------------+--+
|  type   |                      index                      |id|
+---------+-------------------------------------------------+--+
| primary |                        0                        |0 |
| primary |182687704666362864775460604089535377456991567872 |1 |
| primary |365375409332725729550921208179070754913983135744 |2 |
| primary |548063113999088594326381812268606132370974703616 |3 |
| primary |730750818665451459101842416358141509827966271488 |4 |
| primary |913438523331814323877303020447676887284957839360 |5 |
| primary |1096126227998177188652763624537212264741949407232|6 |
| primary |1278813932664540053428224228626747642198940975104|7 |
|secondary|                       --                        |--|
| stopped |                       --                        |--|
+---------+-------------------------------------------------+--+";

const PARTITION: &str = "\
+------------------------------------------------+--+---------------+
|                     index                      |id|     node      |
+------------------------------------------------+--+---------------+
|548063113999088594326381812268606132370974703616|3 |riak1@127.0.0.1|
+------------------------------------------------+--+---------------+";

const HANDOFF_SUMMARY: &str = "\
Each cell indicates active transfers and, in parenthesis, the number of all known transfers.
The 'Total' column is the sum of the active transfers.
+-------------------+-----+---------+------+------+------+
|       Node        |Total|Ownership|Resize|Hinted|Repair|
+-------------------+-----+---------+------+------+------+
|  riak1@127.0.0.1  |  0  |         |      |      |      |
+-------------------+-----+---------+------+------+------+";

const TRANSFER_LIMIT: &str = "\
=============================== Transfer Limit ================================
Limit        Node
-------------------------------------------------------------------------------
    2        'riak1@127.0.0.1'
-------------------------------------------------------------------------------
Note: You can change transfer limits with 'riak-admin transfer_limit <limit>'
      and 'riak-admin transfer_limit <node> <limit>'";

const SHOWN: &str = "\
+---------------+--------------+
|     node      |transfer_limit|
+---------------+--------------+
|riak1@127.0.0.1|      3       |
+---------------+--------------+";

#[test]
fn verbs_print_what_riaks_scripts_parse() {
    let site = site();
    let server = site.start();
    for (words, wanted) in [
        (&["member-status"][..], MEMBER_STATUS),
        (&["ring-status"], RING_STATUS),
        (
            &["ringready"],
            "TRUE All nodes agree on the ring ['riak1@127.0.0.1']",
        ),
        (&["cluster", "status"], CLUSTER_STATUS),
        (&["cluster", "partitions"], PARTITIONS),
        (
            &["cluster", "partition-count"],
            "Cluster-wide partition-count: 8",
        ),
        (&["cluster", "partition", "id=3"], PARTITION),
        (&["cluster", "plan"], "There are no staged changes"),
        (&["cluster", "clear"], "Cleared staged cluster changes"),
        (&["handoff", "summary"], HANDOFF_SUMMARY),
        (&["handoff", "details"], "No ongoing transfers."),
        (
            &["handoff", "disable", "inbound"],
            "Handoff setting successfully updated",
        ),
        (
            &["handoff", "enable", "inbound"],
            "Handoff setting successfully updated",
        ),
        (&["transfers"], "No transfers active\n\nActive Transfers:"),
        (&["transfer-limit"], TRANSFER_LIMIT),
        (
            &["transfer-limit", "4"],
            "Setting transfer limit to 4 across the cluster",
        ),
        (
            &["transfer-limit", NODE, "2"],
            "Set transfer limit for 'riak1@127.0.0.1' to 2",
        ),
        (&["set", "transfer_limit=3"], "transfer_limit set to \"3\""),
        (&["show", "transfer_limit"], SHOWN),
        (&["services"], "[riak_kv]"),
        (&["bucket-type", "list"], "default (active)"),
        (&["bucket-type", "create", "maps"], "maps created"),
        (
            &["bucket-type", "list"],
            "default (active)\nmaps (not active)",
        ),
        (
            &["bucket-type", "activate", "maps"],
            "maps has been activated",
        ),
        (
            &["bucket-type", "update", "maps", "{\"props\":{\"n_val\":2}}"],
            "maps updated",
        ),
        (
            &["bucket-type", "create", "bad name", "{\"props\":{}}"],
            "bad name created",
        ),
        (
            &[
                "bucket-type",
                "create",
                "counters",
                "{\"props\":{\"datatype\":\"counter\"}}",
            ],
            "counters created",
        ),
        (
            &["bucket-type", "activate", "counters"],
            "counters has been activated",
        ),
        (
            &["bucket-type", "activate", "counters"],
            "counters has been activated",
        ),
    ] {
        assert_eq!(
            riak_admin(&site, words),
            (true, wanted.to_owned()),
            "{words:?}"
        );
    }
    server.stop();
}

#[test]
fn refusals_have_riaks_lines() {
    let site = site();
    let server = site.start();
    for (words, wanted) in [
        (
            &["cluster", "commit"][..],
            "You must verify the plan with 'riak-admin cluster plan' before committing",
        ),
        (
            &["cluster", "join", "nonode@127.0.0.1:1"],
            "Node nonode@127.0.0.1:1 is not reachable!",
        ),
        (
            &["cluster", "join", NODE],
            "Failed: This node cannot join itself in a cluster",
        ),
        (
            &["cluster", "leave"],
            "Failed: 'riak1@127.0.0.1' is the only member.",
        ),
        (
            &["cluster", "leave", "nonode@127.0.0.1"],
            "Failed: 'nonode@127.0.0.1' is not a member of the cluster.",
        ),
        (
            &["cluster", "force-remove", "nonode@127.0.0.1"],
            "Failed: 'nonode@127.0.0.1' is not a member of the cluster.",
        ),
        (
            &["cluster", "replace", "a@127.0.0.1", "b@127.0.0.1"],
            "Failed: 'a@127.0.0.1' is not a member of the cluster.",
        ),
        (
            &["down", "nonode@127.0.0.1"],
            "Failed: \"nonode@127.0.0.1\" is not a member of the cluster.",
        ),
        (
            &["cluster", "partition", "id=99"],
            "ERROR: Id 99 is invalid.",
        ),
        (&["show", "no.such.key"], "Invalid config keys: no.such.key"),
        (
            &["set", "ring_size=16"],
            "The following config keys are not settable: [\"ring_size\"]",
        ),
        (
            &["bucket-type", "status", "no_such_type"],
            "no_such_type is not an existing bucket type",
        ),
        (
            &["bucket-type", "activate", "no_such_type"],
            "no_such_type is not an existing bucket type",
        ),
        (
            &["bucket-type", "update", "no_such_type", "{\"props\":{}}"],
            "Error updating bucket type no_such_type:\nnot_active",
        ),
        (
            &["bucket-type", "create", "bad", "nonsense"],
            "Cannot create bucket type bad: invalid json",
        ),
        (
            &["bucket-type", "create", "bad", "{\"n_val\":1}"],
            "Cannot create bucket type bad: no props field found in json",
        ),
    ] {
        assert_eq!(
            riak_admin(&site, words),
            (false, wanted.to_owned()),
            "{words:?}"
        );
    }
    // A refusal under its own name names no node by an unknown identity.
    let output = site.run(&["admin", "cluster", "join", "nonode@127.0.0.1:1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("not_reachable"), "{text}");
    assert!(!text.contains("00000000-0000"), "{text}");
    server.stop();
}

/// The reasons were words for programs, such as `[{n_val,not_integer}]`, or sentences of our own.
#[test]
fn refused_types_have_the_sentences_of_riaks_console() {
    let site = site();
    let server = site.start();
    let datatype = |word: &str| format!("{{\"props\":{{\"datatype\":\"{word}\"}}}}");
    let (counter, set, list) = (datatype("counter"), datatype("set"), datatype("list"));
    assert!(riak_admin(&site, &["bucket-type", "create", "counters", &counter]).0);
    assert!(riak_admin(&site, &["bucket-type", "create", "new"]).0);
    assert!(riak_admin(&site, &["bucket-type", "activate", "counters"]).0);
    for (verb, name, properties, wanted) in [
        (
            "create",
            "bad",
            "{\"props\":{\"n_val\":0}}",
            "n_val must be an integer",
        ),
        (
            "create",
            "bad",
            "{\"props\":{\"n_val\":\"x\",\"r\":\"most\",\"allow_mult\":\"maybe\"}}",
            "n_val must be an integer\nr must be an integer or (one|quorum|all)\n\
             allow_mult should be \"true\" or \"false\"",
        ),
        (
            "create",
            "bad",
            &list,
            "list not supported for bucket datatype property",
        ),
        (
            "create",
            "bad",
            "{\"props\":{\"datatype\":\"set\",\"allow_mult\":false}}",
            "Data Type buckets must be allow_mult=true",
        ),
        // Riak creates a type with an unknown property.
        (
            "create",
            "bad",
            "{\"props\":{\"unknown\":1}}",
            "unknown: unknown_property",
        ),
        ("create", "default", "{\"props\":{}}", "default_type"),
        (
            "create",
            "any",
            "{\"props\":{}}",
            "The name 'any' may not be used for bucket types",
        ),
        (
            "create",
            "counters",
            "{\"props\":{\"n_val\":4}}",
            "already_active",
        ),
        (
            "update",
            "counters",
            &set,
            "set not supported for bucket datatype property",
        ),
        ("update", "new", "{\"props\":{\"n_val\":3}}", "not_active"),
        (
            "update",
            "default",
            "{\"props\":{\"n_val\":2}}",
            "no_default_update",
        ),
    ] {
        let doing = verb.trim_end_matches('e');
        let wanted = format!("Error {doing}ing bucket type {name}:\n{wanted}");
        assert_eq!(
            riak_admin(&site, &["bucket-type", verb, name, properties]),
            (false, wanted),
            "{verb} {name} {properties}"
        );
    }
    server.stop();
}
