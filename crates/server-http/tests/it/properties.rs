//! Properties of buckets and of bucket types.

use serde_json::json;

use crate::world::run;

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[test]
fn properties_of_a_bucket_are_set_read_and_taken_back() {
    run(|world| async move {
        let mut client = world.client().await;
        for (url, type_mult) in [
            ("/buckets/b/props", false),
            ("/types/typed/buckets/b/props", true),
        ] {
            let read = client.get(url).await;
            assert_eq!(
                (read.status, read.header("content-type")),
                (200, Some("application/json"))
            );
            let props = read.json()["props"].clone();
            assert_eq!(props["name"], "b");
            assert_eq!(props["n_val"], 3);
            assert_eq!(props["w"], "quorum");
            assert_eq!(props["allow_mult"], type_mult);
            let fun = json!({"mod": "riak_core_util", "fun": "chash_std_keyfun"});
            assert_eq!(props["chash_keyfun"], fun);

            let change = br#"{"props":{"n_val":2,"allow_mult":true,"dvv_enabled":true,"w":1,"name":"ignored"}}"#;
            let stored = client.ask("PUT", url, &[JSON], change).await;
            assert_eq!((stored.status, &stored.body[..]), (204, &b""[..]));
            let props = client.get(url).await.json()["props"].clone();
            assert_eq!(
                (&props["n_val"], &props["w"], &props["r"]),
                (&json!(2), &json!(1), &json!("quorum"))
            );
            assert_eq!(
                (&props["allow_mult"], &props["name"]),
                (&json!(true), &json!("b"))
            );

            assert_eq!(client.ask("DELETE", url, &[], b"").await.status, 204);
            let props = client.get(url).await.json()["props"].clone();
            assert_eq!(
                (&props["n_val"], &props["allow_mult"]),
                (&json!(3), &json!(type_mult))
            );
        }
    });
}

#[test]
fn the_old_url_shows_and_sets_the_same_properties() {
    run(|world| async move {
        let mut client = world.client().await;
        let stored = client
            .ask("PUT", "/riak/b", &[JSON], br#"{"props":{"n_val":5}}"#)
            .await;
        assert_eq!(stored.status, 204);
        let old = client.get("/riak/b").await;
        assert_eq!(old.json(), client.get("/buckets/b/props").await.json());
        assert_eq!(old.json()["props"]["n_val"], 5);
        assert_eq!(client.get("/riak/b?props=true").await.json(), old.json());
        assert_eq!(client.ask("HEAD", "/riak/b", &[], b"").await.status, 200);
    });
}

#[test]
fn properties_of_a_type_are_set_for_all_of_its_buckets() {
    run(|world| async move {
        let mut client = world.client().await;
        let url = "/types/typed/props";
        let props = client.get(url).await.json()["props"].clone();
        assert_eq!(
            (&props["active"], &props["claimant"]),
            (&json!(true), &json!("riak@127.0.0.1"))
        );
        assert!(props.get("name").is_none());
        let stored = client
            .ask("PUT", url, &[JSON], br#"{"props":{"n_val":4}}"#)
            .await;
        assert_eq!(stored.status, 204);
        let bucket = client.get("/types/typed/buckets/any/props").await.json();
        assert_eq!(bucket["props"]["n_val"], 4);
        assert_eq!(client.get("/types/default/props").await.status, 200);
    });
}

#[test]
fn what_cannot_be_set_is_refused_with_reasons() {
    run(|world| async move {
        let mut client = world.client().await;
        let url = "/buckets/b/props";
        let shape = "bucket PUT must be a JSON object of the form:";
        for body in [
            "",
            "nonsense",
            "[]",
            "{}",
            "{\"props\":[]}",
            "{\"props\":{}",
            "\"props\"",
        ] {
            let refused = client.ask("PUT", url, &[JSON], body.as_bytes()).await;
            assert_eq!(refused.status, 400, "{body}");
            assert!(
                refused.text().starts_with(shape),
                "{body}: {}",
                refused.text()
            );
        }
        let body = br#"{"props":{"n_val":"many","allow_mult":"maybe","r":"few","nonsense":1}}"#;
        let refused = client.ask("PUT", url, &[JSON], body).await;
        assert_eq!(
            (refused.status, refused.header("content-type")),
            (400, Some("application/json"))
        );
        let reasons = json!({
            "n_val": "not_integer", "allow_mult": "not_boolean", "r": "not_valid_quorum",
            "nonsense": "unknown_property",
        });
        assert_eq!(refused.json(), reasons);
        let body = br#"{"props":{"datatype":"counter"}}"#;
        let refused = client
            .ask("PUT", "/types/typed/buckets/b/props", &[JSON], body)
            .await;
        assert_eq!(refused.status, 400);
        assert!(refused.json().get("datatype").is_some());

        let body = br#"{"props":{"n_val":2}}"#;
        for content_type in ["text/plain", "application/json-patch", "nonsense"] {
            let refused = client
                .ask("PUT", url, &[("Content-Type", content_type)], body)
                .await;
            assert_eq!(refused.status, 415, "{content_type}");
        }
        assert_eq!(client.ask("PUT", url, &[], body).await.status, 415);
        assert_eq!(client.get(url).await.json()["props"]["n_val"], 3);

        let unknown = client
            .ask("PUT", "/types/unknown/props", &[JSON], body)
            .await;
        assert_eq!((unknown.status, unknown.text()), (400, "\"not_active\""));
        for (method, url) in [
            ("GET", "/types/unknown/props"),
            ("GET", "/types/inactive/buckets/b/props"),
            ("DELETE", "/types/unknown/buckets/b/props"),
        ] {
            assert_eq!(
                client.ask(method, url, &[JSON], body).await.status,
                404,
                "{method} {url}"
            );
        }
        for (url, atom) in [
            ("/types/unknown/buckets/b/props", "\"no_type\""),
            ("/types/default/props", "\"no_default_update\""),
        ] {
            let refused = client.ask("PUT", url, &[JSON], body).await;
            assert_eq!((refused.status, refused.text()), (400, atom), "{url}");
        }
    });
}

/// Regression: a hook that never runs, an unknown consistency and a missing backend were stored and
/// acknowledged. A property without effect was accepted without a warning.
#[test]
fn nothing_is_taken_silently() {
    run(|world| async move {
        let mut client = world.client().await;
        let url = "/buckets/b/props";
        for (change, property, words) in [
            (
                r#"{"precommit":[{"mod":"m","fun":"f"}]}"#,
                "precommit",
                "commit hooks",
            ),
            (
                r#"{"postcommit":[{"name":"f"}]}"#,
                "postcommit",
                "commit hooks",
            ),
            (r#"{"consistent":true}"#, "consistent", "strong consistency"),
            (r#"{"backend":"elsewhere"}"#, "backend", "memory"),
        ] {
            let body = format!("{{\"props\":{change}}}");
            for url in [url, "/types/typed/props", "/types/typed/buckets/b/props"] {
                let refused = client.ask("PUT", url, &[JSON], body.as_bytes()).await;
                assert_eq!(refused.status, 400, "{change}");
                let reason = refused.json()[property].as_str().unwrap().to_owned();
                assert!(reason.contains(words), "{reason}");
            }
        }
        let body = br#"{"props":{"precommit":[],"backend":"memory","n_val":2}}"#;
        let taken = client.ask("PUT", url, &[JSON], body).await;
        let named = taken.header("x-kvorum-without-effect");
        assert_eq!((taken.status, named), (204, None));
        let body = br#"{"props":{"search_index":"i","old_vclock":7,"n_val":2}}"#;
        let taken = client.ask("PUT", url, &[JSON], body).await;
        let named = taken.header("x-kvorum-without-effect");
        assert_eq!(
            (taken.status, named),
            (204, Some("old_vclock, search_index"))
        );
        // The second time nothing changes.
        let taken = client.ask("PUT", url, &[JSON], body).await;
        assert_eq!(taken.header("x-kvorum-without-effect"), None);
    });
}

#[test]
fn typed_buckets_show_what_their_type_is() {
    run(|world| async move {
        let mut client = world.client().await;
        let url = "/types/typed/buckets/b/props";
        let props = client.get(url).await.json()["props"].clone();
        assert_eq!(props["active"], true);
        assert_eq!(props["claimant"], "riak@127.0.0.1");
        assert!(props.get("write_once").is_none() && props.get("repl").is_none());
        let untyped = client.get("/buckets/b/props").await.json()["props"].clone();
        assert_eq!(
            (&untyped["write_once"], &untyped["repl"]),
            (&json!(false), &json!(true))
        );
        assert!(untyped.get("active").is_none());
        for (change, property) in [
            (r#"{"claimant":"x"}"#, "claimant"),
            (r#"{"active":false}"#, "active"),
        ] {
            let body = format!("{{\"props\":{change}}}");
            let refused = client.ask("PUT", url, &[JSON], body.as_bytes()).await;
            assert_eq!(refused.status, 400, "{change}");
            assert!(refused.json().get(property).is_some());
        }
        let body = br#"{"props":{"active":true,"r":1}}"#;
        assert_eq!(client.ask("PUT", url, &[JSON], body).await.status, 204);
    });
}
