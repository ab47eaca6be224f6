//! Folds over keys under Riak's URLs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::Client;
use crate::world::run;

/// A path with a filter.
fn filtered(path: &str, filter: &Value) -> String {
    let encoded = STANDARD.encode(filter.to_string());
    let encoded = encoded.replace('+', "%2B").replace('=', "%3D");
    format!("{path}?filter={encoded}")
}

async fn fill(client: &mut Client) {
    for key in ["k1", "k2", "k3", "k4"] {
        client
            .put(&format!("/buckets/b/keys/{key}"), "some value")
            .await;
    }
    for value in ["1", "2", "3"] {
        client.put("/types/typed/buckets/b/keys/sib", value).await;
    }
    client.put("/types/typed/buckets/b/keys/one", "v").await;
}

async fn dispatched(client: &mut Client, path: &str, filter: Value) -> Value {
    let answer = client.get(&filtered(path, &filter)).await;
    assert_eq!(answer.status, 200, "{path} {filter}");
    answer.json()["dispatched_count"].clone()
}

#[test]
fn statistics_and_keys_that_stand_out_are_found_in_a_bucket() {
    run(|world| async move {
        let mut client = world.client().await;
        fill(&mut client).await;
        let stats = client.get("/objectstats/buckets/b").await;
        assert_eq!(stats.header("content-type"), Some("application/json"));
        let stats = stats.json();
        assert_eq!(stats["total_count"], 4);
        assert!(stats["total_size"].as_u64().unwrap() > 40);
        assert_eq!(stats["siblings"], json!({"1": 4}));
        let typed = client.get("/objectstats/types/typed/buckets/b").await;
        assert_eq!(typed.json()["siblings"], json!({"1": 1, "3": 1}));
        let empty = client.get("/objectstats/buckets/none").await.json();
        let nothing = json!({"total_count": 0, "total_size": 0, "sizes": [], "siblings": []});
        assert_eq!(empty, nothing);
        let range = json!({"key_range": {"start": "k2", "end": "k3"}});
        let ranged = filtered("/objectstats/buckets/b", &range);
        assert_eq!(client.get(&ranged).await.json()["total_count"], 2);
        let past = json!({"date_range": {"start": 1, "end": 2}});
        let past = filtered("/objectstats/buckets/b", &past);
        assert_eq!(client.get(&past).await.json(), nothing);

        let siblings = "/siblings/types/typed/buckets/b/counts";
        let many = client.get(&format!("{siblings}/1")).await.json();
        assert_eq!(many, json!({"results": [{"key": "sib", "value": 3}]}));
        let more = client.get(&format!("{siblings}/3")).await.json();
        assert_eq!(more, json!({"results": []}));
        let large = client.get("/objectsizes/buckets/b/sizes/5").await.json();
        assert_eq!(large["results"].as_array().unwrap().len(), 4);
        assert_eq!(large["results"][0]["key"], "k1");
    });
}

#[test]
fn tombstones_are_shown_counted_and_reaped() {
    run(|world| async move {
        let mut client = world.client().await;
        fill(&mut client).await;
        client.ask("DELETE", "/buckets/b/keys/k1", &[], b"").await;
        let read = client.get("/buckets/b/keys/k1").await;
        let clock = read.header("x-riak-vclock").unwrap();
        let codes: Vec<u8> = clock.bytes().collect();
        let graves = client.get("/tombs/buckets/b").await.json();
        let expected = json!({"bucket": "b", "key": "k1", "clock": codes});
        assert_eq!(graves, json!({"keys-clocks": [expected]}));
        let (reap, erase) = ("/reap/buckets/b", "/erase/buckets/b");
        let count = || json!({"change_method": "count"});
        assert_eq!(dispatched(&mut client, reap, count()).await, 1);
        assert_eq!(dispatched(&mut client, reap, json!({})).await, 1);
        assert_eq!(dispatched(&mut client, erase, count()).await, 3);
        let local = json!({"change_method": "local"});
        assert_eq!(dispatched(&mut client, reap, local).await, 1);
        let gone = client.get("/buckets/b/keys/k1").await;
        assert_eq!((gone.status, gone.header("x-riak-vclock")), (404, None));
        let job = json!({
            "change_method": {"job_id": 1},
            "key_range": {"start": "k2", "end": "k2"},
        });
        assert_eq!(dispatched(&mut client, erase, job).await, 1);
        let erased = client.get("/buckets/b/keys/k2").await;
        assert_eq!(
            (erased.status, erased.header("x-riak-deleted")),
            (404, Some("true"))
        );
        assert_eq!(client.get("/buckets/b/keys/k3").await.status, 200);
        let repair = "/rangerepair/types/typed/buckets/b";
        assert_eq!(dispatched(&mut client, repair, json!({})).await, 2);
    });
}

#[test]
fn a_head_request_changes_nothing() {
    run(|world| async move {
        let mut client = world.client().await;
        fill(&mut client).await;
        let local = json!({"change_method": "local"});
        let path = filtered("/erase/buckets/b", &local);
        let head = client.ask("HEAD", &path, &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(client.get("/buckets/b/keys/k1").await.status, 200);
    });
}

#[test]
fn trees_and_clocks_of_ranges_are_shown() {
    run(|world| async move {
        let mut client = world.client().await;
        fill(&mut client).await;
        let clocks = client.get("/rangetrees/types/typed/buckets/b/keysclocks");
        let clocks = clocks.await.json();
        let shown = clocks["keys-clocks"].as_array().unwrap();
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[0]["bucket-type"], "typed");
        assert_eq!(shown[0]["key"], "one");
        let tree = client.get("/rangetrees/buckets/b/trees/xxsmall").await;
        let tree = tree.json()["tree"].clone();
        let empty = client.get("/rangetrees/buckets/none/trees/xxsmall").await;
        let empty = empty.json()["tree"].clone();
        assert_eq!(tree["level2"].as_object().unwrap().len(), 16);
        assert_ne!(tree["level1"], empty["level1"]);
        // The base64 of sixteen numbers of four bytes, all zero.
        let zeros = STANDARD.encode([0; 64]);
        let codes: Vec<u8> = zeros.bytes().collect();
        assert_eq!(empty["level1"], json!(codes));
        let seeded = filtered(
            "/rangetrees/buckets/b/trees/xxsmall",
            &json!({"hash_iv": 5}),
        );
        let seeded = client.get(&seeded).await.json()["tree"].clone();
        assert_ne!(seeded["level1"], tree["level1"]);
    });
}

#[test]
fn the_buckets_of_all_types_are_listed() {
    run(|world| async move {
        let mut client = world.client().await;
        fill(&mut client).await;
        let buckets = client.get("/aaebucketlist?nval=3").await.json();
        let expected = json!({"results": [
            {"bucket": "b"},
            {"bucket-type": "typed", "bucket": "b"},
        ]});
        assert_eq!(buckets, expected);
    });
}

#[test]
fn what_cannot_be_asked_is_refused_in_riaks_words() {
    run(|world| async move {
        let mut client = world.client().await;
        let siblings = "sibling_count requires integer for count";
        let sizes = "object_size requires integer for size";
        for (path, expected) in [
            (
                "/siblings/buckets/b/counts/x",
                format!("{siblings}. Value \"x\" invalid"),
            ),
            (
                "/siblings/buckets/b/counts/0",
                format!("{siblings}. Value 0 invalid"),
            ),
            (
                "/siblings/buckets/b/counts/-1",
                format!("{siblings}. Value -1 invalid"),
            ),
            (
                "/objectsizes/buckets/b/sizes/x",
                format!("{sizes}. Value \"x\" invalid"),
            ),
            (
                "/rangetrees/buckets/b/trees/huge",
                "Invalid treesize \"huge\"".to_owned(),
            ),
            ("/aaebucketlist?nval=x", "Invalid n_val \"x\"".to_owned()),
            ("/aaebucketlist?nval=0", "Invalid n_val \"0\"".to_owned()),
            (
                "/objectstats/buckets/b?filter=",
                "Invalid range filter []".to_owned(),
            ),
            (
                "/objectstats/buckets/b?filter=!!!",
                "Invalid range filter \"!!!\"".to_owned(),
            ),
        ] {
            let refused = client.get(path).await;
            assert_eq!(
                (refused.status, refused.text()),
                (400, &expected[..]),
                "{path}"
            );
        }
        let unknown = client.get("/objectstats/types/none/buckets/b").await;
        assert_eq!(unknown.status, 404);
        let posted = client
            .ask("POST", "/objectstats/buckets/b", &[], b"{}")
            .await;
        assert_eq!(
            (posted.status, posted.header("allow")),
            (405, Some("GET, HEAD"))
        );
        let accept = [("Accept", "text/plain")];
        let plain = client
            .ask("GET", "/objectstats/buckets/b", &accept, b"")
            .await;
        assert_eq!(plain.status, 406);
        let queued = client.get("/rangerepl/buckets/b/queuename/q").await;
        assert_eq!(queued.status, 501);
        assert!(
            queued.text().contains("no replication"),
            "{}",
            queued.text()
        );
    });
}
