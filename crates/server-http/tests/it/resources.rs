//! The small resources: ping, the list of resources, statistics, metrics, preference lists.

use crate::world::run;

#[test]
fn ping_says_ok() {
    run(|world| async move {
        let mut client = world.client().await;
        let answer = client.get("/ping").await;
        assert_eq!((answer.status, answer.text()), (200, "OK"));
        assert_eq!(answer.header("content-type"), Some("text/html"));
        let head = client.ask("HEAD", "/ping", &[], b"").await;
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, Some("2"))
        );
    });
}

#[test]
fn the_root_lists_what_is_there_and_nothing_else() {
    run(|world| async move {
        let mut client = world.client().await;
        let json = client
            .ask("GET", "/", &[("Accept", "application/json")], b"")
            .await;
        assert_eq!(json.header("content-type"), Some("application/json"));
        let mut names: Vec<String> = json.json().as_object().unwrap().keys().cloned().collect();
        names.sort();
        let expected = [
            "riak_kv_wm_bucket_type",
            "riak_kv_wm_buckets",
            "riak_kv_wm_counter",
            "riak_kv_wm_crdt",
            "riak_kv_wm_index",
            "riak_kv_wm_keylist",
            "riak_kv_wm_link_walker",
            "riak_kv_wm_mapred",
            "riak_kv_wm_object",
            "riak_kv_wm_ping",
            "riak_kv_wm_preflist",
            "riak_kv_wm_props",
            "riak_kv_wm_stats",
        ];
        assert_eq!(names, expected);
        assert!(json.text().contains("\"riak_kv_wm_object\":\"/buckets\""));
        assert!(json.text().contains("\"riak_kv_wm_object\":\"/riak\""));
        let html = client.get("/").await;
        assert_eq!(html.header("content-type"), Some("text/html"));
        assert!(
            html.text()
                .contains("<li><a href=\"/ping\">riak_kv_wm_ping</a></li>")
        );
        let links = html.header("link").unwrap();
        assert!(links.contains("</buckets>; rel=\"riak_kv_wm_buckets\","));
        assert_eq!(
            client
                .ask("GET", "/", &[("Accept", "image/png")], b"")
                .await
                .status,
            406
        );
    });
}

#[test]
fn statistics_come_in_their_order_as_json_or_as_text() {
    run(|world| async move {
        let mut client = world.client().await;
        let json = client.get("/stats").await;
        assert_eq!(json.header("content-type"), Some("application/json"));
        let compact = "{\"vnode_gets\":3,\"riak_kv_version\":\"3.4.0\",\"ring_members\":[\"riak@127.0.0.1\"]}";
        assert_eq!(json.text(), compact);
        let text = client
            .ask("GET", "/stats", &[("Accept", "text/plain")], b"")
            .await;
        assert_eq!(text.header("content-type"), Some("text/plain"));
        assert!(text.text().starts_with("{\n  \"vnode_gets\": 3,\n"));
        assert_eq!(
            client
                .ask("GET", "/stats", &[("Accept", "text/html")], b"")
                .await
                .status,
            406
        );
    });
}

#[test]
fn metrics_are_open_metrics() {
    run(|world| async move {
        let metrics = world.client().await.get("/metrics").await;
        let content_type = metrics.header("content-type").unwrap();
        assert!(content_type.starts_with("application/openmetrics-text"));
        assert_eq!(metrics.text(), "# EOF\n");
    });
}

#[test]
fn the_preference_list_names_partitions_and_nodes() {
    run(|world| async move {
        let mut client = world.client().await;
        for path in [
            "/buckets/b/keys/k/preflist",
            "/types/typed/buckets/b/keys/k/preflist",
        ] {
            let answer = client.get(path).await;
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let list = answer.json()["preflist"].as_array().unwrap().clone();
            // The ring gives a key n_val consecutive partitions. A single node keeps one copy, but
            // clients see all three.
            let numbers: Vec<u64> = list
                .iter()
                .map(|place| place["partition"].as_u64().unwrap())
                .collect();
            let first = numbers[0];
            assert_eq!(numbers, [first, (first + 1) % 64, (first + 2) % 64]);
            for place in &list {
                assert_eq!(place["node"], "riak@127.0.0.1");
                assert_eq!(place["primary"], true);
            }
        }
    });
}
