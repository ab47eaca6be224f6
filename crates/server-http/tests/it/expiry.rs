//! Objects with a time of expiry: until then answers show it, and then the objects are gone.

use std::time::Duration;

use crate::client::Client;
use crate::world::run;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const TTL: &str = "X-Kvorum-TTL";
const EXPIRES_AT: &str = "X-Kvorum-Expires-At";
/// A minute after the world's start.
const DATE: &str = "Thu, 01 Jan 2026 00:01:00 GMT";

async fn put(client: &mut Client, path: &str, headers: &[(&str, &str)], value: &str) -> u16 {
    let headers = [&[TEXT], headers].concat();
    let answer = client.ask("PUT", path, &headers, value.as_bytes()).await;
    answer.status
}

#[test]
fn an_object_is_gone_when_the_time_has_come_that_its_client_gave_it() {
    run(|world| async move {
        let mut client = world.client().await;
        for (path, header) in [
            ("/buckets/b/keys/ttl", (TTL, "60")),
            ("/types/single/buckets/b/keys/date", (EXPIRES_AT, DATE)),
        ] {
            assert_eq!(put(&mut client, path, &[header], "v").await, 204, "{path}");
            let read = client.get(path).await;
            assert_eq!((read.status, read.text()), (200, "v"), "{path}");
            assert_eq!(read.header("x-kvorum-expires-at"), Some(DATE), "{path}");
        }
        client.put("/buckets/b/keys/lasting", "v").await;
        let lasting = client.get("/buckets/b/keys/lasting").await;
        assert_eq!(lasting.header("x-kvorum-expires-at"), None);
        // A write without expiry removes it.
        let vclock = client.get("/buckets/b/keys/ttl").await;
        let vclock = vclock.header("x-riak-vclock").unwrap().to_owned();
        let path = "/buckets/b/keys/kept";
        assert_eq!(put(&mut client, path, &[(TTL, "60")], "v").await, 204);
        let seen = client.get(path).await;
        let seen = seen.header("x-riak-vclock").unwrap().to_owned();
        let update = [("X-Riak-Vclock", seen.as_str())];
        assert_eq!(put(&mut client, path, &update, "again").await, 204);
        world.runtime.sleep(Duration::from_secs(61)).await;
        for path in ["/buckets/b/keys/ttl", "/types/single/buckets/b/keys/date"] {
            assert_eq!(client.get(path).await.status, 404, "{path}");
        }
        assert_eq!(client.get(path).await.text(), "again");
        // The expired object does not come back, even for clients that have seen it.
        let update = [("X-Riak-Vclock", vclock.as_str()), (TTL, "60")];
        let path = "/buckets/b/keys/ttl";
        assert_eq!(put(&mut client, path, &update, "new").await, 204);
        let read = client.get(path).await;
        assert_eq!((read.status, read.text()), (200, "new"));
    });
}

#[test]
fn siblings_stay_together_until_the_last_of_them_has_expired() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/types/typed/buckets/b/keys/k";
        put(&mut client, path, &[(TTL, "60")], "short").await;
        put(&mut client, path, &[(TTL, "120")], "long").await;
        let accept = [("Accept", "multipart/mixed")];
        world.runtime.sleep(Duration::from_secs(61)).await;
        let both = client.ask("GET", path, &accept, b"").await;
        assert_eq!(both.status, 300);
        let shown = both.text().matches("X-Kvorum-Expires-At: Thu").count();
        assert_eq!(shown, 2, "{}", both.text());
        world.runtime.sleep(Duration::from_secs(60)).await;
        assert_eq!(client.get(path).await.status, 404);
    });
}

#[test]
fn an_end_that_cannot_be_read_is_refused_and_nothing_is_stored() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/buckets/b/keys/k";
        for headers in [
            &[(TTL, "0")][..],
            &[(TTL, "-1")],
            &[(TTL, "1.5")],
            &[(TTL, "")],
            &[(EXPIRES_AT, "tomorrow")],
            &[(TTL, "60"), (EXPIRES_AT, DATE)],
        ] {
            let status = put(&mut client, path, headers, "v").await;
            assert_eq!(status, 400, "{headers:?}");
            assert_eq!(client.get(path).await.status, 404, "{headers:?}");
        }
        // A TTL beyond the last possible time means for ever.
        let for_ever = [(TTL, "18446744073709551615")];
        assert_eq!(put(&mut client, path, &for_ever, "v").await, 204);
        assert_eq!(client.get(path).await.status, 200);
    });
}

async fn set(client: &mut Client, path: &str, expiry_secs: u32) -> u16 {
    let body = format!("{{\"props\":{{\"expiry_secs\":{expiry_secs}}}}}");
    let answer = client.ask("PUT", path, &[JSON], body.as_bytes()).await;
    answer.status
}

#[test]
fn a_bucket_gives_an_end_to_what_has_none_of_its_own() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/earlier", "v").await;
        assert_eq!(set(&mut client, "/buckets/b/props", 60).await, 204);
        let shown = client.get("/buckets/b/props").await.json();
        assert_eq!(shown["props"]["expiry_secs"], 60);
        client.put("/buckets/b/keys/plain", "v").await;
        let path = "/buckets/b/keys/own";
        assert_eq!(put(&mut client, path, &[(TTL, "120")], "v").await, 204);
        for (key, end) in [
            ("plain", Some(DATE)),
            ("own", Some("Thu, 01 Jan 2026 00:02:00 GMT")),
            // An earlier object stays as it was written.
            ("earlier", None),
        ] {
            let read = client.get(&format!("/buckets/b/keys/{key}")).await;
            assert_eq!(read.header("x-kvorum-expires-at"), end, "{key}");
        }
        world.runtime.sleep(Duration::from_secs(61)).await;
        for (key, status) in [("plain", 404), ("own", 200), ("earlier", 200)] {
            let read = client.get(&format!("/buckets/b/keys/{key}")).await;
            assert_eq!(read.status, status, "{key}");
        }
    });
}

#[test]
fn a_bucket_takes_back_what_its_type_says() {
    run(|world| async move {
        let mut client = world.client().await;
        assert_eq!(set(&mut client, "/types/typed/props", 60).await, 204);
        let lasting = "/types/typed/buckets/lasting/props";
        assert_eq!(set(&mut client, lasting, 0).await, 204);
        let longer = "/types/typed/buckets/longer/props";
        assert_eq!(set(&mut client, longer, 120).await, 204);
        for (bucket, end) in [
            ("any", Some(DATE)),
            ("lasting", None),
            ("longer", Some("Thu, 01 Jan 2026 00:02:00 GMT")),
        ] {
            let path = format!("/types/typed/buckets/{bucket}/keys/k");
            client.put(&path, "v").await;
            let read = client.get(&path).await;
            assert_eq!(read.header("x-kvorum-expires-at"), end, "{bucket}");
        }
    });
}

/// A tombstone that expired would uncover older values on replicas that missed the delete.
#[test]
fn a_deletion_in_a_bucket_with_an_end_lasts() {
    run(|world| async move {
        let mut client = world.client().await;
        assert_eq!(set(&mut client, "/buckets/b/props", 60).await, 204);
        let path = "/buckets/b/keys/k";
        client.put(path, "v").await;
        let deleted = client.ask("DELETE", path, &[], b"").await;
        assert_eq!(deleted.status, 204);
        let read = client.get(path).await;
        assert_eq!(
            (read.status, read.header("x-kvorum-expires-at")),
            (404, None)
        );
    });
}

#[test]
fn an_expiry_that_cannot_be_is_refused() {
    run(|world| async move {
        let mut client = world.client().await;
        for value in ["-1", "1.5", "\"60\"", "4294967296", "true"] {
            let body = format!("{{\"props\":{{\"expiry_secs\":{value}}}}}");
            let url = "/buckets/b/props";
            let refused = client.ask("PUT", url, &[JSON], body.as_bytes()).await;
            assert_eq!(refused.status, 400, "{value}");
            assert_eq!(refused.json()["expiry_secs"], "not_integer", "{value}");
        }
        let body = br#"{"props":{"expiry_secs":60}}"#;
        let url = "/types/sets/props";
        let refused = client.ask("PUT", url, &[JSON], body).await;
        assert_eq!(refused.status, 400);
        let reason = refused.json()["expiry_secs"].as_str().unwrap().to_owned();
        assert!(reason.contains("data types do not expire"), "{reason}");
    });
}
