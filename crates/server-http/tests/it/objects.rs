//! Storing, reading and deleting objects, in all three forms of URL.

use std::time::Duration;

use crate::client::{Client, Response};
use crate::world::run;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");

#[test]
fn an_object_comes_back_as_it_was_stored_under_every_form_of_url() {
    run(|world| async move {
        let mut client = world.client().await;
        for (path, up) in [
            ("/riak/b%20c/k", "</riak/b+c>; rel=\"up\""),
            ("/buckets/b%20c/keys/k2", "</buckets/b+c>; rel=\"up\""),
            (
                "/types/typed/buckets/b%20c/keys/k",
                "</buckets/b+c>; rel=\"up\"",
            ),
        ] {
            let stored = client
                .ask(
                    "PUT",
                    path,
                    &[("Content-Type", "application/x; charset=\"utf-16\"")],
                    b"\x00\xff value",
                )
                .await;
            assert_eq!((stored.status, &stored.body[..]), (204, &b""[..]), "{path}");
            let read = client.get(path).await;
            assert_eq!(read.status, 200, "{path}");
            assert_eq!(read.body, b"\x00\xff value");
            assert_eq!(
                read.header("content-type"),
                Some("application/x; charset=utf-16")
            );
            assert_eq!(read.header("content-length"), Some("8"));
            assert_eq!(read.header("vary"), Some("Accept-Encoding"));
            assert_eq!(read.header("link"), Some(up));
            assert_eq!(
                read.header("last-modified"),
                Some("Thu, 01 Jan 2026 00:00:00 GMT")
            );
            assert_eq!(read.header("server"), Some("Kvorum"));
            let etag = read.header("etag").unwrap();
            assert!(etag.starts_with('"') && etag.len() == 24, "{etag}");
            assert!(
                read.header("x-riak-vclock")
                    .is_some_and(|vclock| !vclock.is_empty())
            );
            assert!(read.header("date").is_some());
            let head = client.ask("HEAD", path, &[], b"").await;
            assert_eq!((head.status, head.headers), (200, read.headers));
        }
    });
}

#[test]
fn old_and_new_urls_name_the_same_objects_and_types_do_not() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/riak/b/k", "one").await;
        assert_eq!(client.get("/buckets/b/keys/k").await.text(), "one");
        assert_eq!(
            client.get("/types/default/buckets/b/keys/k").await.text(),
            "one"
        );
        assert_eq!(
            client.get("/types/typed/buckets/b/keys/k").await.status,
            404
        );
    });
}

#[test]
fn metadata_links_and_indexes_travel_in_headers() {
    run(|world| async move {
        let mut client = world.client().await;
        let headers = [
            ("Content-Type", "text/plain"),
            ("content-encoding", "br"),
            ("X-Riak-Meta-Color", "red"),
            ("x-riak-meta-shape", "round"),
            ("X-Riak-Index-Age_int", "42"),
            ("X-Riak-Index-name_bin", "ann, bob"),
            ("X-Riak-Index-name_bin", "eve"),
            (
                "Link",
                "</riak/o%2Fther/k%201>; riaktag=\"next\", </buckets/b/keys/j>; riaktag=\"prev\"",
            ),
            ("Link", "</buckets/b>; rel=\"up\""),
        ];
        assert_eq!(
            client
                .ask("PUT", "/buckets/b/keys/k", &headers, b"v")
                .await
                .status,
            204
        );
        let read = client.get("/buckets/b/keys/k").await;
        assert_eq!(read.header("content-encoding"), Some("br"));
        assert_eq!(read.header("x-riak-meta-color"), Some("red"));
        assert_eq!(read.header("x-riak-meta-shape"), Some("round"));
        assert_eq!(read.header("x-riak-index-age_int"), Some("42"));
        assert_eq!(read.header("x-riak-index-name_bin"), Some("ann, bob, eve"));
        let links = "</buckets/b>; rel=\"up\", </buckets/o%2Fther/keys/k+1>; riaktag=\"next\", \
                     </buckets/b/keys/j>; riaktag=\"prev\"";
        assert_eq!(read.header("link"), Some(links));
        let old = client.get("/riak/b/k").await;
        let links = "</riak/b>; rel=\"up\", </riak/o%2Fther/k+1>; riaktag=\"next\", \
                     </riak/b/j>; riaktag=\"prev\"";
        assert_eq!(old.header("link"), Some(links));
    });
}

#[test]
fn an_object_without_key_gets_one_and_a_location() {
    run(|world| async move {
        let mut client = world.client().await;
        for (collection, prefix) in [
            ("/riak/b%2Fc", "/riak/b%2Fc/"),
            ("/buckets/b%2Fc/keys", "/buckets/b%2Fc/keys/"),
            (
                "/types/typed/buckets/b%2Fc/keys",
                "/types/typed/buckets/b%2Fc/keys/",
            ),
        ] {
            let stored = client.ask("POST", collection, &[TEXT], b"posted").await;
            assert_eq!((stored.status, &stored.body[..]), (201, &b""[..]));
            let location = stored.header("location").unwrap().to_owned();
            let key = location.strip_prefix(prefix).unwrap();
            assert!(
                key.len() >= 20 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()),
                "{key}"
            );
            assert_eq!(client.get(&location).await.text(), "posted");
            let with_body = format!("{collection}?returnbody=true");
            let stored = client.ask("POST", &with_body, &[TEXT], b"posted").await;
            assert_eq!((stored.status, stored.text()), (201, "posted"));
            assert!(
                stored
                    .header("location")
                    .is_some_and(|other| other != location)
            );
        }
    });
}

#[test]
fn a_store_returns_the_object_only_if_asked() {
    run(|world| async move {
        let mut client = world.client().await;
        for method in ["PUT", "POST"] {
            for (query, status) in [
                ("?returnbody=true", 200),
                ("", 204),
                ("?returnbody=TRUE", 204),
                ("?returnbody=1", 204),
            ] {
                let path = format!("/buckets/b/keys/k{query}");
                let stored = client
                    .ask(method, &path, &[TEXT, ("X-Riak-Meta-A", "1")], b"v")
                    .await;
                assert_eq!(stored.status, status, "{method} {query}");
                if status == 200 {
                    assert_eq!(stored.text(), "v");
                    assert_eq!(stored.header("x-riak-meta-a"), Some("1"));
                    assert!(stored.header("x-riak-vclock").is_some());
                    assert!(stored.header("etag").is_some());
                }
            }
        }
    });
}

async fn not_found(client: &mut Client, path: &str) -> Response {
    let response = client.get(path).await;
    assert_eq!((response.status, response.text()), (404, "not found\n"));
    assert_eq!(response.header("content-type"), Some("text/plain"));
    response
}

#[test]
fn a_deleted_object_is_not_found_but_shows_its_clock() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/buckets/b/keys/k";
        assert!(
            not_found(&mut client, path)
                .await
                .header("x-riak-vclock")
                .is_none()
        );
        assert_eq!(client.ask("DELETE", path, &[], b"").await.status, 404);
        client.put(path, "v").await;
        let deleted = client.ask("DELETE", path, &[], b"").await;
        assert_eq!((deleted.status, &deleted.body[..]), (204, &b""[..]));
        let gone = not_found(&mut client, path).await;
        assert_eq!(gone.header("x-riak-deleted"), Some("true"));
        let vclock = gone.header("x-riak-vclock").unwrap().to_owned();
        assert_eq!(client.ask("DELETE", path, &[], b"").await.status, 404);
        assert_eq!(client.ask("HEAD", path, &[], b"").await.status, 404);
        // A delete that names a version succeeds even on a tombstone.
        let named = client
            .ask("DELETE", path, &[("X-Riak-Vclock", &vclock)], b"")
            .await;
        assert_eq!(named.status, 204);
        let headers = [TEXT, ("X-Riak-Vclock", vclock.as_str())];
        assert_eq!(
            client.ask("PUT", path, &headers, b"again").await.status,
            204
        );
        assert_eq!(client.get(path).await.text(), "again");
    });
}

#[test]
fn names_stay_encoded_when_decoding_is_off() {
    let mut options = crate::world::Options::default();
    options.http.url_encoding = false;
    crate::world::run_with(options, |world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/a%20b", "encoded").await;
        let keys = client.get("/buckets/b/keys?keys=true").await;
        assert_eq!(keys.text(), "{\"keys\":[\"a%20b\"]}");
        let decoding = [("X-Riak-URL-Encoding", "on")];
        assert_eq!(
            client
                .ask("GET", "/buckets/b/keys/a%20b", &decoding, b"")
                .await
                .status,
            404
        );
        assert_eq!(client.get("/buckets/b/keys/a%20b").await.text(), "encoded");
    });
}

#[test]
fn an_empty_value_is_a_value() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/k", "").await;
        let read = client.get("/buckets/b/keys/k").await;
        assert_eq!(
            (read.status, read.header("content-length")),
            (200, Some("0"))
        );
    });
}

#[test]
fn chunked_bodies_large_bodies_and_bodies_waited_for_arrive() {
    run(|world| async move {
        let mut client = world.client().await;
        let chunked = "PUT /riak/b/k HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n\
                       transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
        client.send(chunked.as_bytes()).await;
        assert_eq!(client.receive(false).await.unwrap().status, 204);
        assert_eq!(client.get("/riak/b/k").await.text(), "hello world");

        let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let stored = client.ask("PUT", "/riak/b/large", &[TEXT], &large).await;
        assert_eq!(stored.status, 204);
        assert!(client.get("/riak/b/large").await.body == large);

        let head = "PUT /riak/b/k HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\
                    Content-Length: 6\r\nExpect: 100-continue\r\n\r\n";
        client.send(head.as_bytes()).await;
        assert_eq!(client.receive(false).await.unwrap().status, 100);
        client.send(b"waited").await;
        assert_eq!(client.receive(false).await.unwrap().status, 204);
        assert_eq!(client.get("/riak/b/k").await.text(), "waited");

        // Two minutes for sending a body are not part of the write's time.
        let head = head.replace("Expect: 100-continue\r\n", "");
        client.send(head.as_bytes()).await;
        world.runtime.sleep(Duration::from_secs(120)).await;
        client.send(b"slowly").await;
        assert_eq!(client.receive(false).await.unwrap().status, 204);
    });
}

#[test]
fn an_object_stored_as_it_is_keeps_its_clock() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/k", "v").await;
        let vclock = client
            .get("/buckets/b/keys/k")
            .await
            .header("x-riak-vclock")
            .unwrap()
            .to_owned();
        let headers = [TEXT, ("X-Riak-Vclock", vclock.as_str())];
        let stored = client
            .ask("PUT", "/buckets/other/keys/k?asis=true", &headers, b"copy")
            .await;
        assert_eq!(stored.status, 204);
        let copy = client.get("/buckets/other/keys/k").await;
        assert_eq!(copy.text(), "copy");
        // The version is the same, so a write on the original's version succeeds.
        let same = [TEXT, ("X-Riak-If-Not-Modified", vclock.as_str())];
        let stored = client
            .ask("PUT", "/buckets/other/keys/k", &same, b"new")
            .await;
        assert_eq!(stored.status, 204);
    });
}

#[test]
fn whole_bodies_come_in_gzip_where_it_is_asked_for() {
    run(|world| async move {
        let mut client = world.client().await;
        let value = "the same words again and again; ".repeat(5_000);
        client.put("/buckets/b/keys/long", &value).await;
        client.put("/buckets/b/keys/short", "v").await;
        let gzip = [("Accept-Encoding", "gzip, deflate")];
        let answer = client.ask("GET", "/buckets/b/keys/long", &gzip, b"").await;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        assert!(answer.body.len() < value.len() / 10);
        let mut plain = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&answer.body[..]);
        std::io::Read::read_to_string(&mut decoder, &mut plain).unwrap();
        assert_eq!(plain, value);

        let plain = client.get("/buckets/b/keys/long").await;
        assert_eq!(plain.header("content-encoding"), None);
        assert_eq!(plain.text(), value);
        assert_eq!(plain.header("etag"), answer.header("etag"));
        for (name, headers) in [
            ("short", gzip),
            ("long", [("Accept-Encoding", "*")]),
            ("long", [("Accept-Encoding", "identity, gzip;q=0.5")]),
        ] {
            let path = format!("/buckets/b/keys/{name}");
            let answer = client.ask("GET", &path, &headers, b"").await;
            assert_eq!(
                answer.header("content-encoding"),
                None,
                "{name} {headers:?}"
            );
        }
        let only = [("Accept-Encoding", "gzip, identity;q=0")];
        let answer = client.ask("GET", "/buckets/b/keys/long", &only, b"").await;
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (200, Some("gzip"))
        );
    });
}

/// Regression: a write-once type answered two blind writes with two siblings.
#[test]
fn a_write_once_type_answers_with_one_value() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/types/once/buckets/b/keys/k";
        client.put(path, "one").await;
        client.put(path, "two").await;
        let read = client.get(path).await;
        assert_eq!((read.status, read.text()), (200, "two"));
    });
}

#[test]
fn a_part_of_a_value_is_served() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/buckets/b/keys/k";
        client.put(path, "0123456789").await;
        let etag = client.get(path).await.header("etag").unwrap().to_owned();
        for (headers, status, body) in [
            (&[("Range", "bytes=0-1")][..], 206, "01"),
            (&[("Range", "bytes=-2")], 206, "89"),
            (&[("Range", "bytes=2-3"), ("If-Range", &etag)], 206, "23"),
            (
                &[("Range", "bytes=2-3"), ("If-Range", "\"x\"")],
                200,
                "0123456789",
            ),
            (&[("Range", "bytes=20-")], 200, "0123456789"),
        ] {
            let answer = client.ask("GET", path, headers, b"").await;
            assert_eq!(
                (answer.status, answer.text()),
                (status, body),
                "{headers:?}"
            );
            let range = answer.header("content-range").is_some();
            assert_eq!(range, status == 206);
        }
    });
}
