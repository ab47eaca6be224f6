//! Listings of keys and buckets, whole and streamed.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Response;
use crate::world::run;

/// All objects of a stream.
fn objects(response: &Response) -> Vec<Value> {
    assert!(response.is_complete);
    let stream = serde_json::Deserializer::from_slice(&response.body).into_iter();
    stream.map(|object| object.unwrap()).collect()
}

fn names(value: &Value) -> BTreeSet<String> {
    let list = value.as_array().unwrap().iter();
    list.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn keys_come_in_one_object_or_as_a_stream_that_ends_with_an_empty_one() {
    run(|world| async move {
        let mut client = world.client().await;
        let mut expected = BTreeSet::new();
        for number in 0..50 {
            client
                .put(&format!("/types/typed/buckets/b/keys/k%22{number}"), "v")
                .await;
            expected.insert(format!("k\"{number}"));
        }
        client.put("/types/typed/buckets/other/keys/k", "v").await;
        client.put("/types/typed/buckets/b/keys/gone", "v").await;
        client
            .ask("DELETE", "/types/typed/buckets/b/keys/gone", &[], b"")
            .await;

        let whole = client.get("/types/typed/buckets/b/keys?keys=true").await;
        assert_eq!(whole.status, 200);
        assert_eq!(whole.header("content-type"), Some("application/json"));
        assert_eq!(names(&whole.json()["keys"]), expected);
        assert_eq!(whole.json().as_object().unwrap().len(), 1);

        let stream = client.get("/types/typed/buckets/b/keys?keys=stream").await;
        assert_eq!(stream.header("transfer-encoding"), Some("chunked"));
        assert!(stream.chunks.len() > 2, "one chunk a vnode that has keys");
        let mut objects = objects(&stream);
        assert_eq!(objects.pop(), Some(json!({"keys": []})));
        assert!(
            objects
                .iter()
                .all(|object| !names(&object["keys"]).is_empty())
        );
        let streamed: BTreeSet<_> = objects
            .iter()
            .flat_map(|object| names(&object["keys"]))
            .collect();
        assert_eq!(streamed, expected);

        let neither = client.get("/types/typed/buckets/b/keys").await;
        assert_eq!((neither.status, neither.text()), (200, "{}"));
        let head = client
            .ask("HEAD", "/types/typed/buckets/b/keys?keys=true", &[], b"")
            .await;
        assert_eq!(head.status, 200);
        assert_eq!(
            client.get("/ping").await.text(),
            "OK",
            "the connection goes on"
        );
    });
}

#[test]
fn the_old_url_lists_keys_beside_properties_unless_those_are_declined() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/riak/b/k", "v").await;
        let both = client.get("/riak/b?keys=true").await.json();
        assert_eq!(both["keys"], json!(["k"]));
        assert_eq!(both["props"]["name"], "b");
        let keys = client.get("/riak/b?keys=true&props=false").await;
        assert_eq!(keys.text(), "{\"keys\":[\"k\"]}");
        let stream = objects(&client.get("/riak/b?keys=stream").await);
        assert_eq!(stream.len(), 3);
        assert_eq!(stream[0]["props"]["name"], "b");
        assert_eq!(stream[1..], [json!({"keys": ["k"]}), json!({"keys": []})]);
        let stream = objects(&client.get("/riak/b?keys=stream&props=false").await);
        assert_eq!(stream, [json!({"keys": ["k"]}), json!({"keys": []})]);
    });
}

#[test]
fn buckets_of_a_type_are_listed_under_every_form_of_url() {
    run(|world| async move {
        let mut client = world.client().await;
        for bucket in ["a", "b%2Fb", "c"] {
            for key in 0..5 {
                client.put(&format!("/riak/{bucket}/{key}"), "v").await;
            }
        }
        client.put("/types/typed/buckets/d/keys/k", "v").await;
        let untyped: BTreeSet<String> = ["a", "b/b", "c"].map(str::to_owned).into();
        for url in [
            "/riak?buckets=",
            "/buckets?buckets=",
            "/types/default/buckets?buckets=",
        ] {
            let whole = client.get(&format!("{url}true")).await;
            assert_eq!(names(&whole.json()["buckets"]), untyped, "{url}");
            let mut stream = objects(&client.get(&format!("{url}stream")).await);
            assert_eq!(stream.pop(), Some(json!({"buckets": []})));
            let streamed: Vec<String> = stream
                .iter()
                .flat_map(|object| names(&object["buckets"]))
                .collect();
            assert_eq!(streamed.len(), 3, "each once");
            assert_eq!(streamed.into_iter().collect::<BTreeSet<_>>(), untyped);
        }
        let typed = client.get("/types/typed/buckets?buckets=true").await;
        assert_eq!(typed.text(), "{\"buckets\":[\"d\"]}");
        assert_eq!(client.get("/buckets").await.status, 400);
    });
}

#[test]
fn a_listing_that_runs_out_of_time_says_so_in_its_form() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/k", "v").await;
        let whole = client.get("/buckets/b/keys?keys=true&timeout=0").await;
        assert_eq!((whole.status, whole.text()), (503, "request timed out\n"));
        let stream = objects(&client.get("/buckets/b/keys?keys=stream&timeout=0").await);
        assert_eq!(stream, [json!({"error": "timeout"})]);
        let stream = objects(&client.get("/buckets?buckets=stream&timeout=0").await);
        assert_eq!(stream, [json!({"error": "timeout"})]);
    });
}

#[test]
fn a_listing_too_large_to_hold_back_is_sent_as_it_comes() {
    run(|world| async move {
        let mut client = world.client().await;
        let long = "k".repeat(8_000);
        for number in 0..400 {
            client
                .put(&format!("/buckets/b/keys/{number}{long}"), "v")
                .await;
        }
        let whole = client.get("/buckets/b/keys?keys=true").await;
        assert!(whole.is_complete && whole.chunks.len() > 1);
        assert_eq!(names(&whole.json()["keys"]).len(), 400);
    });
}

#[test]
fn a_listing_that_runs_out_of_time_half_way_says_so_or_breaks_off() {
    run(|world| async move {
        let mut client = world.client().await;
        let long = "k".repeat(8_000);
        for number in 0..400 {
            client
                .put(&format!("/buckets/b/keys/{number}{long}"), "v")
                .await;
        }
        for mode in ["stream", "true"] {
            let mut lazy = world.client().await;
            let request =
                format!("GET /buckets/b/keys?keys={mode}&timeout=1000 HTTP/1.1\r\nHost: x\r\n\r\n");
            lazy.send(request.as_bytes()).await;
            world.runtime.sleep(Duration::from_secs(2)).await;
            let listing = lazy.receive(false).await.unwrap();
            assert_eq!(listing.status, 200);
            if mode == "stream" {
                assert_eq!(objects(&listing).pop(), Some(json!({"error": "timeout"})));
            } else {
                assert!(!listing.is_complete && lazy.is_closed);
            }
        }
    });
}

#[test]
fn names_that_are_no_text_do_not_break_a_listing() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/%FF%00", "v").await;
        assert_eq!(client.get("/buckets/b/keys/%FF%00").await.text(), "v");
        let whole = client.get("/buckets/b/keys?keys=true").await;
        let expected = json!({"keys": [], "percent_encoded_keys": ["%FF%00"]});
        assert_eq!(whole.json(), expected);
    });
}
