//! Every property of the table: a running server's treatment of it over HTTP, over protocol buffers
//! and by its verb.
//!
//! Regression: hooks that never ran, an invalid consistency and seventeen other properties were
//! stored without effect and acknowledged without a warning.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bytes::Bytes;
use kvorum_client::{Client, pb};
use kvorum_properties::{Effect, PropertyOverlay};
use serde_json::{Value, json};

use crate::server::Site;

/// A value other than the default of a bucket and of a type, and other than the one that is kept.
fn other(property: &str) -> Value {
    match property {
        "n_val" => json!(2),
        "r" | "w" | "dw" | "pr" | "pw" | "rw" | "node_confirms" => json!("all"),
        "sync_on_write" => json!("all"),
        "basic_quorum" | "last_write_wins" | "write_once" | "consistent" => json!(true),
        "search" | "stat_tracked" | "aae_tree_exclude" => json!(true),
        "notfound_ok" | "repl" => json!(false),
        "young_vclock" | "old_vclock" | "small_vclock" | "big_vclock" => json!(7),
        "precommit" | "postcommit" => json!([{"mod": "m", "fun": "f"}]),
        "chash_keyfun" => json!({"mod": "riak_core_util", "fun": "chash_bucketonly_keyfun"}),
        "linkfun" => json!({"mod": "m", "fun": "f"}),
        "datatype" => json!("set"),
        "hll_precision" => json!(9),
        "expiry_secs" => json!(60),
        "backend" | "object_tag" | "search_index" => json!("x"),
        other => unreachable!("no value of {other}"),
    }
}

/// The change as a client's message; `None` if the protocol has no field for it.
fn message(property: &str) -> Option<pb::RpbBucketProps> {
    let mut props = pb::RpbBucketProps::default();
    let all = Some(kvorum_client::quorum::ALL);
    let function = || pb::RpbModFun {
        module: Bytes::from_static(b"m"),
        function: Bytes::from_static(b"f"),
    };
    let hook = || {
        vec![pb::RpbCommitHook {
            modfun: Some(function()),
            name: None,
        }]
    };
    match property {
        "n_val" => props.n_val = Some(2),
        "r" => props.r = all,
        "w" => props.w = all,
        "dw" => props.dw = all,
        "pr" => props.pr = all,
        "pw" => props.pw = all,
        "rw" => props.rw = all,
        "node_confirms" => props.node_confirms = all,
        "sync_on_write" => props.sync_on_write = Some(pb::RpbSyncOnWrite::All.into()),
        "basic_quorum" => props.basic_quorum = Some(true),
        "notfound_ok" => props.notfound_ok = Some(false),
        "allow_mult" => props.allow_mult = Some(false),
        "last_write_wins" => props.last_write_wins = Some(true),
        "young_vclock" => props.young_vclock = Some(7),
        "old_vclock" => props.old_vclock = Some(7),
        "small_vclock" => props.small_vclock = Some(7),
        "big_vclock" => props.big_vclock = Some(7),
        "precommit" => (props.precommit, props.has_precommit) = (hook(), Some(true)),
        "postcommit" => (props.postcommit, props.has_postcommit) = (hook(), Some(true)),
        "chash_keyfun" => {
            props.chash_keyfun = Some(pb::RpbModFun {
                module: Bytes::from_static(b"riak_core_util"),
                function: Bytes::from_static(b"chash_bucketonly_keyfun"),
            });
        }
        "linkfun" => props.linkfun = Some(function()),
        "datatype" => props.datatype = Some(Bytes::from_static(b"set")),
        "hll_precision" => props.hll_precision = Some(9),
        "consistent" => props.consistent = Some(true),
        "write_once" => props.write_once = Some(true),
        "backend" => props.backend = Some(Bytes::from_static(b"x")),
        "search" => props.search = Some(true),
        "search_index" => props.search_index = Some(Bytes::from_static(b"x")),
        "repl" => props.repl = Some(pb::rpb_bucket_props::RpbReplMode::False.into()),
        "aae_tree_exclude" => props.aae_tree_exclude = Some(true),
        "expiry_secs" => props.expiry_secs = Some(60),
        "dvv_enabled" | "stat_tracked" | "object_tag" => return None,
        other => unreachable!("no field of {other}"),
    }
    Some(props)
}

/// `allow_mult` is on for the buckets of these tests, and dots for those of types.
fn other_of_bucket(property: &str) -> Value {
    match property {
        "allow_mult" => json!(false),
        "dvv_enabled" => json!(true),
        property => other(property),
    }
}

fn other_of_type(property: &str) -> Value {
    match property {
        "allow_mult" | "dvv_enabled" => json!(false),
        property => other(property),
    }
}

/// Status line, headers and body of a request with a JSON body.
fn ask(site: &Site, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(site.http).unwrap();
    let len = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Chosen when a bucket type is created, and refused for existing ones.
const AT_CREATION: [&str; 2] = ["datatype", "write_once"];

fn over_http(site: &Site, property: &str, effect: Effect) {
    let path = format!("/buckets/http_{property}/props");
    let value = other_of_bucket(property);
    let body = json!({"props": {property: value}}).to_string();
    let answer = ask(site, "PUT", &path, &body);
    let named = answer.contains(&format!("X-Kvorum-Without-Effect: {property}\r\n"));
    let shown = ask(site, "GET", &path, "");
    let shown: Value = serde_json::from_str(shown.split_once("\r\n\r\n").unwrap().1).unwrap();
    let is_kept = shown["props"][property] == value;
    if effect == Effect::Guarded || AT_CREATION.contains(&property) {
        assert!(answer.starts_with("HTTP/1.1 400 "), "{property}: {answer}");
        let reasons: Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert!(!reasons[property].is_null(), "{property}: {answer}");
        assert!(!is_kept, "{property} is refused and kept");
    } else {
        assert!(answer.starts_with("HTTP/1.1 204 "), "{property}: {answer}");
        assert!(is_kept, "{property} is taken and not kept: {shown}");
        let is_harmless = matches!(effect, Effect::Harmless(_));
        assert_eq!(named, is_harmless, "{property}: {answer}");
    }
}

async fn over_protobuf(client: &mut Client, property: &str, effect: Effect) {
    let Some(props) = message(property) else {
        return;
    };
    let bucket = Bytes::from(format!("pb_{property}"));
    let before = client
        .bucket_properties(None, bucket.clone())
        .await
        .unwrap();
    let set = client
        .set_bucket_properties(None, bucket.clone(), props)
        .await;
    let after = client.bucket_properties(None, bucket).await.unwrap();
    if effect == Effect::Guarded || AT_CREATION.contains(&property) {
        let text = set.unwrap_err().to_string();
        assert!(text.contains(&format!("{{{property},")), "{text}");
        assert_eq!(before, after, "{property} is refused and kept");
    } else {
        set.unwrap();
        assert_ne!(before, after, "{property} is taken and not kept");
    }
}

fn by_the_verb(site: &Site, property: &str, effect: Effect) {
    let mut props = json!({property: other_of_type(property)});
    if property == "last_write_wins" {
        props["dvv_enabled"] = json!(false);
    }
    let words = json!({ "props": props }).to_string();
    let created = site.run(&["admin", "bucket-type", "create", property, &words]);
    let said = String::from_utf8_lossy(&created.stdout) + String::from_utf8_lossy(&created.stderr);
    let is_created = created.status.success();
    match effect {
        Effect::Guarded => {
            assert!(!is_created && said.contains(property), "{property}: {said}");
            assert!(
                said.contains("; "),
                "{property}: what to do is missing: {said}"
            );
        }
        Effect::Honoured => {
            assert!(is_created, "{property}: {said}");
            assert!(!said.contains(&format!("NOTE: {property}")), "{said}");
        }
        Effect::Harmless(because) => {
            assert!(is_created, "{property}: {said}");
            let note = format!("NOTE: {property} has no effect: {because}");
            assert!(said.contains(&note), "{property}: {said}");
        }
    }
}

#[tokio::test]
async fn every_property_is_honoured_refused_or_named() {
    let site = Site::new();
    let _server = site.start();
    let mut client = site.client().await;
    for &(property, effect) in PropertyOverlay::EFFECTS {
        over_http(&site, property, effect);
        over_protobuf(&mut client, property, effect).await;
        by_the_verb(&site, property, effect);
    }
    // Names that are read beside the properties and cannot be set.
    let body = r#"{"props":{"name":"other","claimant":"x","active":false,"n_val":3}}"#;
    let answer = ask(&site, "PUT", "/buckets/b/props", body);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let named = "X-Kvorum-Without-Effect: name, active, claimant\r\n";
    assert!(answer.contains(named), "{answer}");
    let shown = ask(&site, "GET", "/buckets/b/props", "");
    let shown = shown.split_once("\r\n\r\n").unwrap().1;
    let back = ask(&site, "PUT", "/buckets/b/props", shown);
    assert!(back.starts_with("HTTP/1.1 204 "), "{back}");
    assert!(!back.contains("X-Kvorum-Without-Effect"), "{back}");
    let words = [
        "admin",
        "bucket-type",
        "create",
        "t",
        r#"{"props":{"claimant":"x"}}"#,
    ];
    let said = String::from_utf8(site.run(&words).stdout).unwrap();
    assert!(said.contains("NOTE: claimant has no effect: "), "{said}");
}

/// A value as `advanced.config` has it.
fn erlang(property: &str) -> String {
    let value = match property {
        "allow_mult" | "dvv_enabled" => json!(true),
        "node_confirms" => json!(1),
        property => other(property),
    };
    match value {
        Value::String(word) => word,
        Value::Object(function) => {
            let part = |name: &str| function[name].as_str().unwrap_or_default().to_owned();
            format!("{{{}, {}}}", part("mod"), part("fun"))
        }
        Value::Array(_) => {
            "[{struct, [{<<\"mod\">>, <<\"m\">>}, {<<\"fun\">>, <<\"f\">>}]}]".to_owned()
        }
        value => value.to_string(),
    }
}

/// The same table for defaults in `advanced.config`. Regression: members were dropped silently, and
/// a function was refused that buckets could have.
#[test]
fn every_default_in_advanced_config_is_honoured_refused_or_named() {
    let site = Site::new();
    let write = |name: &str, text: &str| std::fs::write(site.path().join(name), text).unwrap();
    for &(property, effect) in PropertyOverlay::EFFECTS {
        let value = erlang(property);
        write("kvorum.conf", "");
        let props = format!("[{{default_bucket_props, [{{{property}, {value}}}]}}]");
        write("advanced.config", &format!("[{{riak_core, {props}}}]."));
        let output = site.run_alone(&["chkconfig", "--config", "kvorum.conf"]);
        let (said, why) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        let line = said
            .lines()
            .find(|line| line.contains("default_bucket_props"));
        let line = line.unwrap_or_default();
        match (property, effect) {
            // There are no such defaults: these are properties of types, or Riak has no such property.
            ("datatype" | "write_once" | "expiry_secs", _) | (_, Effect::Guarded) => {
                assert!(!output.status.success(), "{property}: {said}");
                assert!(
                    why.contains(&format!("default_bucket_props.{property}")),
                    "{why}"
                );
            }
            ("hll_precision", _) => {
                assert!(output.status.success(), "{property}: {why}");
                assert!(line.contains("HyperLogLogs are of bucket types"), "{line}");
            }
            ("stat_tracked", _) => {
                assert!(output.status.success(), "{property}: {why}");
                assert!(line.contains("figures of their own"), "{line}");
            }
            // The property is shown as it is set.
            ("dvv_enabled", _) | (_, Effect::Honoured) => {
                assert!(output.status.success(), "{property}: {why}");
                assert!(
                    line.contains("mapped to buckets.default."),
                    "{property}: {said}"
                );
            }
            (_, Effect::Harmless(because)) => {
                let name = format!("riak_core.default_bucket_props.{property} = ");
                assert!(line.contains(&name), "{property}: {said}");
                assert!(
                    line.contains(&format!("ignored because {because}")),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn defaults_that_place_and_sync_objects_reach_the_buckets() {
    let mut site = Site::new();
    site.settings.extend([
        "buckets.default.chash_keyfun=chash_bucketonly_keyfun".to_owned(),
        "buckets.default.sync_on_write=all".to_owned(),
    ]);
    let _server = site.start();
    let shown = ask(&site, "GET", "/buckets/b/props", "");
    let shown: Value = serde_json::from_str(shown.split_once("\r\n\r\n").unwrap().1).unwrap();
    let props = &shown["props"];
    assert_eq!(props["chash_keyfun"]["fun"], "chash_bucketonly_keyfun");
    assert_eq!(props["sync_on_write"], "all");
}

/// Regression: the property was kept without effect. It applies to a bucket, and to the buckets of
/// a type.
#[test]
fn a_tracked_bucket_has_figures_of_its_own() {
    let site = Site::new();
    let _server = site.start();
    let taken = |answer: &str| answer.starts_with("HTTP/1.1 204 ");
    let track = |is_tracked: bool| {
        let body = json!({"props": {"stat_tracked": is_tracked}}).to_string();
        assert!(taken(&ask(&site, "PUT", "/buckets/counted/props", &body)));
    };
    let metrics = || ask(&site, "GET", "/metrics", "");
    let family = "kvorum_bucket_";
    assert!(!metrics().contains(family));
    track(true);
    let props = r#"{"props":{"stat_tracked":true}}"#;
    let verb = ["admin", "bucket-type"];
    for words in [&["create", "tracked", props][..], &["activate", "tracked"]] {
        assert!(site.run(&[&verb[..], words].concat()).status.success());
    }
    // Figures are recorded once the property is noticed, within a second or at the next look.
    assert!(!metrics().contains(family));
    for path in [
        "/buckets/counted/keys/k",
        "/types/tracked/buckets/b/keys/k",
        "/buckets/other/keys/k",
    ] {
        assert!(taken(&ask(&site, "PUT", path, "\"value\"")), "{path}");
        ask(&site, "GET", path, "");
        ask(&site, "GET", path, "");
    }
    let shown = metrics();
    for sample in [
        "kvorum_bucket_gets_total{bucket_type=\"default\",bucket=\"counted\"} 2\n",
        "kvorum_bucket_puts_total{bucket_type=\"default\",bucket=\"counted\"} 1\n",
        "kvorum_bucket_get_time_seconds_count{bucket_type=\"tracked\",bucket=\"b\"} 2\n",
        "kvorum_bucket_get_siblings_bucket{bucket_type=\"tracked\",bucket=\"b\",le=\"1.0\"} 2\n",
    ] {
        assert!(shown.contains(sample), "{sample}");
    }
    assert!(!shown.contains("\"other\""));
    track(false);
    assert!(!metrics().contains("\"counted\""));
}

/// Objects are stored by their kind, so a bucket with objects keeps it.
#[test]
fn the_kind_of_objects_is_chosen_while_a_bucket_is_empty() {
    let site = Site::new();
    let _server = site.start();
    let props = "/buckets/kinds/props";
    let choose = |kind: &str| {
        let body = json!({"props": {"object_tag": kind}}).to_string();
        ask(&site, "PUT", props, &body)
    };
    let taken = |answer: &str| answer.starts_with("HTTP/1.1 204 ");
    let unknown = choose("nothing");
    assert!(unknown.contains("o_rkv or h or document"), "{unknown}");
    assert!(taken(&choose("h")));
    assert!(taken(&choose("document")), "it is still empty");
    let value = r#"{"kind":"task"}"#;
    let put = ask(&site, "PUT", "/buckets/kinds/keys/k", value);
    assert!(taken(&put), "{put}");
    let kept = choose("h");
    assert!(kept.starts_with("HTTP/1.1 400 "), "{kept}");
    assert!(kept.contains("while a bucket has objects"), "{kept}");
    assert!(taken(&choose("document")), "that is no change");
    let reset = ask(&site, "DELETE", props, "");
    assert!(reset.starts_with("HTTP/1.1 400 "), "{reset}");
    let got = ask(&site, "GET", "/buckets/kinds/keys/k", "");
    assert!(got.ends_with(value), "{got}");
    // A type keeps the properties of its creation.
    let create = [
        "admin",
        "bucket-type",
        "create",
        "docs",
        r#"{"props":{"object_tag":"document"}}"#,
    ];
    assert!(site.run(&create).status.success());
    assert!(
        site.run(&["admin", "bucket-type", "activate", "docs"])
            .status
            .success()
    );
    let update = [
        "admin",
        "bucket-type",
        "update",
        "docs",
        r#"{"props":{"object_tag":"h"}}"#,
    ];
    assert!(!site.run(&update).status.success());
}
