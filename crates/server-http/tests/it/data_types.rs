//! Data types and the counters of Riak 1.4. The answers of a real node are among the transcripts of the
//! conformance tests; the tests here are for everything else.

use serde_json::json;

use crate::world::run;

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
const SET: &str = "/types/sets/buckets/b/datatypes/k";

#[test]
fn a_set_is_updated_and_fetched() {
    run(|world| async move {
        let mut client = world.client().await;
        let missing = client.get(SET).await;
        assert_eq!(
            (missing.status, missing.text()),
            (404, r#"{"type":"set","error":"notfound"}"#)
        );
        let added = client
            .ask("POST", SET, JSON, br#"{"add_all":["b","a"]}"#)
            .await;
        assert_eq!((added.status, added.text()), (204, ""));
        let fetched = client.get(SET).await;
        assert_eq!(fetched.status, 200);
        assert_eq!(fetched.json()["value"], json!(["a", "b"]));
        let context = fetched.json()["context"].as_str().unwrap().to_owned();
        let remove = json!({"remove": "a", "context": context}).to_string();
        let path = format!("{SET}?returnbody=true&include_context=false");
        let removed = client.ask("POST", &path, JSON, remove.as_bytes()).await;
        assert_eq!(removed.text(), r#"{"type":"set","value":["b"]}"#);
    });
}

#[test]
fn a_key_is_made_for_an_operation_without_one() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/types/sets/buckets/b/datatypes";
        let made = client.ask("POST", path, JSON, br#"{"add":"a"}"#).await;
        assert_eq!(made.status, 201);
        let object = made.header("location").unwrap().to_owned();
        let key = object.strip_prefix("/types/sets/buckets/b/keys/").unwrap();
        let fetched = client.get(&format!("{path}/{key}")).await;
        assert_eq!(fetched.json()["value"], json!(["a"]));
        let plain = client.get(&object).await;
        assert_eq!(plain.header("content-type"), Some("application/riak_set"));
        assert_eq!(plain.body[..2], [69, 2]);
        assert_eq!(client.get(path).await.status, 404);
    });
}

/// Riak times out on each of these.
#[test]
fn a_context_that_was_not_given_out_is_refused_at_once() {
    run(|world| async move {
        let mut client = world.client().await;
        client.ask("POST", SET, JSON, br#"{"add":"a"}"#).await;
        let forged = br#"{"remove":"a","context":"AAAA"}"#;
        let refused = client.ask("POST", SET, JSON, forged).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text().starts_with("Invalid context: "));
        assert_eq!(client.get(SET).await.json()["value"], json!(["a"]));
    });
}

#[test]
fn an_older_counter_counts_in_a_bucket_that_keeps_siblings() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/buckets/counted/counters/k";
        let refused = client.ask("POST", path, &[], b"1").await;
        let text = "Counters require bucket property 'allow_mult=true'";
        assert_eq!((refused.status, refused.text()), (409, text));
        let props = br#"{"props":{"allow_mult":true}}"#;
        client
            .ask("PUT", "/buckets/counted/props", JSON, props)
            .await;
        assert_eq!(client.get(path).await.status, 404);
        let counted = client.ask("POST", path, &[], b"+12").await;
        assert_eq!(counted.status, 204);
        let path = "/buckets/counted/counters/k?returnvalue=true";
        let counted = client.ask("POST", path, &[], b"-2").await;
        assert_eq!((counted.status, counted.text()), (200, "10"));
        for bad in [
            &b""[..],
            b"1.5",
            b" 1",
            b"one",
            b"170141183460469231731687303715884105728",
        ] {
            assert_eq!(client.ask("POST", path, &[], bad).await.status, 400);
        }
        assert_eq!(client.get(path).await.text(), "10");
    });
}
