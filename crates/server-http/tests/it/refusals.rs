//! Requests that are refused: the status, the text, and the precedence of several reasons.

use kvorum_object::Limits;

use crate::world::{Options, ROOM_BYTES, run, run_with};

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
type Headers = &'static [(&'static str, &'static str)];
const OBJECT: &str = "/buckets/b/keys/k";

#[test]
fn each_mistake_has_its_status_and_text() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put(OBJECT, "v").await;
        let quorum = "must be an integer or one of the following words";
        let cases: [(&str, &str, Headers, u16, &str); 44] = [
            ("GET", "/nowhere", &[], 404, "Not Found"),
            (
                "GET",
                "/types/unknown/buckets/b/keys/k",
                &[],
                404,
                "Unknown bucket type: unknown",
            ),
            (
                "GET",
                "/types/inactive/buckets/b/keys/k",
                &[],
                404,
                "Unknown bucket type: inactive",
            ),
            (
                "PUT",
                "/types/unknown/buckets/b/keys/k",
                &[TEXT],
                404,
                "Unknown bucket type: unknown",
            ),
            (
                "DELETE",
                "/types/unknown/buckets/b/keys/k",
                &[],
                404,
                "Unknown bucket type: unknown",
            ),
            (
                "GET",
                "/types/unknown/buckets?buckets=true",
                &[],
                404,
                "Not Found",
            ),
            (
                "GET",
                "/types/unknown/buckets/b/keys?keys=true",
                &[],
                404,
                "Not Found",
            ),
            (
                "GET",
                "/types/unknown/buckets/b/keys/k/preflist",
                &[],
                404,
                "Unknown bucket type",
            ),
            ("PATCH", OBJECT, &[], 501, "Not Implemented"),
            ("PATCH", "/nowhere", &[], 404, "Not Found"),
            ("TRACE", OBJECT, &[], 405, "Method Not Allowed"),
            ("POST", "/buckets/b/query", &[], 501, "queries of Riak 3.4"),
            (
                "GET",
                "/types/typed/buckets/b/query?result_queue=q",
                &[],
                501,
                "queries of Riak 3.4",
            ),
            (
                "PUT",
                OBJECT,
                &[],
                400,
                "Missing Content-Type request header",
            ),
            (
                "POST",
                "/riak/b",
                &[],
                400,
                "Missing Content-Type request header",
            ),
            (
                "PUT",
                OBJECT,
                &[("Content-Type", "text")],
                415,
                "\"text\" is not a valid media type for the Content-type header.",
            ),
            ("GET", "/riak/b/k?r=many", &[], 400, quorum),
            ("GET", "/riak/b/k?pr=-1", &[], 400, quorum),
            ("GET", "/riak/b/k?node_confirms=x", &[], 400, quorum),
            ("PUT", "/riak/b/k?w=x", &[TEXT], 400, quorum),
            ("PUT", "/riak/b/k?dw=x", &[TEXT], 400, quorum),
            ("PUT", "/riak/b/k?pw=x", &[TEXT], 400, quorum),
            ("DELETE", "/riak/b/k?rw=x", &[], 400, quorum),
            (
                "GET",
                "/riak/b/k?basic_quorum=maybe",
                &[],
                400,
                "must be true or false",
            ),
            (
                "GET",
                "/riak/b/k?notfound_ok=1",
                &[],
                400,
                "must be true or false",
            ),
            (
                "PUT",
                "/riak/b/k?asis=perhaps",
                &[TEXT],
                400,
                "must be true or false",
            ),
            (
                "PUT",
                "/riak/b/k?sync_on_write=never",
                &[TEXT],
                400,
                "sync_on_write",
            ),
            (
                "GET",
                "/riak/b/k?timeout=soon",
                &[],
                400,
                "Bad timeout value",
            ),
            (
                "GET",
                "/riak?buckets=true&timeout=x",
                &[],
                400,
                "Bad timeout value",
            ),
            (
                "GET",
                "/riak/b?keys=true&timeout=x",
                &[],
                400,
                "Bad timeout value",
            ),
            (
                "GET",
                "/riak/b/k?r=4",
                &[],
                400,
                "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3",
            ),
            (
                "PUT",
                "/riak/b/k?w=4",
                &[TEXT],
                400,
                "invalid for bucket n value of 3",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("Link", "<nonsense>")],
                400,
                "Invalid Link header.",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("X-Riak-Index-f_odd", "v")],
                400,
                "Unknown field type for field: 'f_odd'.",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("X-Riak-Index-f_int", "v")],
                400,
                "Could not parse field 'f_int', value 'v'.",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("X-Riak-Vclock", "???")],
                400,
                "X-Riak-Vclock",
            ),
            (
                "DELETE",
                OBJECT,
                &[("X-Riak-Vclock", "AAAA")],
                400,
                "X-Riak-Vclock",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("Content-MD5", "xxxx")],
                400,
                "Content-MD5",
            ),
            (
                "GET",
                OBJECT,
                &[("Accept", "image/png")],
                406,
                "Not Acceptable",
            ),
            (
                "PUT",
                OBJECT,
                &[TEXT, ("Accept", "image/png")],
                406,
                "Not Acceptable",
            ),
            (
                "GET",
                "/riak/b",
                &[("Accept", "text/html")],
                406,
                "Not Acceptable",
            ),
            ("GET", OBJECT, &[("Origin", "null")], 403, "Forbidden"),
            (
                "GET",
                OBJECT,
                &[("Referer", "http://evil.example/")],
                403,
                "Forbidden",
            ),
            ("GET", "/riak/b?props=false", &[], 404, "Not Found"),
        ];
        for (method, path, headers, status, text) in cases {
            let answer = client.ask(method, path, headers, b"").await;
            let context = format!("{method} {path} {headers:?}: {}", answer.text());
            assert_eq!(answer.status, status, "{context}");
            assert!(answer.text().contains(text), "{context}");
        }
        assert_eq!(
            client.get(OBJECT).await.text(),
            "v",
            "and nothing was changed"
        );
    });
}

#[test]
fn what_a_resource_allows_is_reported_with_the_refusal() {
    run(|world| async move {
        let mut client = world.client().await;
        for (method, path, allow) in [
            ("POST", "/", "GET, HEAD"),
            ("DELETE", "/ping", "GET, HEAD"),
            ("PUT", "/stats", "GET, HEAD"),
            ("OPTIONS", "/metrics", "GET, HEAD"),
            ("POST", "/buckets", "GET, HEAD"),
            ("DELETE", "/riak/b", "HEAD, GET, PUT"),
            ("POST", "/buckets/b/props", "HEAD, GET, PUT, DELETE"),
            ("DELETE", "/types/typed/props", "HEAD, GET, PUT"),
            ("PUT", "/buckets/b/keys", "GET, HEAD"),
            ("OPTIONS", OBJECT, "HEAD, GET, POST, PUT, DELETE"),
            ("PUT", "/buckets/b/keys/k/preflist", "GET, HEAD"),
        ] {
            let answer = client.ask(method, path, &[], b"").await;
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some(allow)),
                "{method} {path}"
            );
        }
    });
}

#[test]
fn the_first_of_several_mistakes_is_reported() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put(OBJECT, "v").await;
        // From the last to the first in the order of decisions; each adds one.
        let mistakes: [(&str, &str, u16); 5] = [
            ("If-None-Match", "*", 412),
            ("Accept", "image/png", 406),
            ("Content-Type", "nonsense", 415),
            ("Origin", "null", 403),
            ("Link", "nonsense", 400),
        ];
        let mut headers = Vec::new();
        for (name, value, status) in mistakes {
            headers.push((name, value));
            let mut sent = headers.clone();
            if !headers.iter().any(|(name, _)| *name == "Content-Type") {
                sent.push(TEXT);
            }
            assert_eq!(
                client.ask("PUT", OBJECT, &sent, b"new").await.status,
                status,
                "{name}"
            );
        }
        assert_eq!(client.ask("TRACE", OBJECT, &headers, b"").await.status, 405);
        assert_eq!(client.ask("BREW", OBJECT, &headers, b"").await.status, 501);
        assert_eq!(
            client.ask("BREW", "/nowhere", &headers, b"").await.status,
            404
        );
    });
}

#[test]
fn a_correct_checksum_of_the_body_is_taken() {
    run(|world| async move {
        let mut client = world.client().await;
        let headers = [TEXT, ("Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==")];
        assert_eq!(
            client.ask("PUT", OBJECT, &headers, b"hello").await.status,
            204
        );
        assert_eq!(
            client.ask("PUT", OBJECT, &headers, b"other").await.status,
            400
        );
        assert_eq!(client.get(OBJECT).await.text(), "hello");
    });
}

#[test]
fn stored_charset_and_encoding_are_negotiated() {
    run(|world| async move {
        let mut client = world.client().await;
        let headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Encoding", "gzip"),
        ];
        client.ask("PUT", OBJECT, &headers, b"v").await;
        for (name, value, status) in [
            ("Accept-Charset", "utf-8", 200),
            ("Accept-Charset", "*", 200),
            ("Accept-Charset", "latin1", 406),
            ("Accept-Encoding", "gzip", 200),
            ("Accept-Encoding", "gzip, deflate", 200),
            ("Accept-Encoding", "identity", 406),
        ] {
            let answer = client.ask("GET", OBJECT, &[(name, value)], b"").await;
            assert_eq!(answer.status, status, "{name}: {value}");
        }
    });
}

#[test]
fn a_referer_of_this_very_server_or_an_unchecked_one_is_fine() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put(OBJECT, "v").await;
        let own = [("Referer", "http://localhost:8098/page")];
        assert_eq!(client.ask("GET", OBJECT, &own, b"").await.status, 200);
    });
    let mut options = Options::default();
    options.http.secure_referer_check = false;
    run_with(options, |world| async move {
        let mut client = world.client().await;
        client.put(OBJECT, "v").await;
        let foreign = [("Referer", "http://elsewhere/")];
        assert_eq!(client.ask("GET", OBJECT, &foreign, b"").await.status, 200);
    });
}

#[test]
fn an_overloaded_node_says_when_to_come_back() {
    let options = Options {
        requests_max: Some(0),
        ..Options::default()
    };
    run_with(options, |world| async move {
        let mut client = world.client().await;
        for (method, headers) in [("GET", &[][..]), ("PUT", &[TEXT][..]), ("DELETE", &[][..])] {
            let answer = client.ask(method, OBJECT, headers, b"").await;
            assert_eq!((answer.status, answer.text()), (503, "overload\n"));
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        assert_eq!(client.get("/ping").await.status, 200);
    });
}

#[test]
fn large_bodies_are_refused_while_others_take_the_room_and_small_ones_are_taken() {
    run(|world| async move {
        let mut client = world.client().await;
        let others = world.room.take_anyway(ROOM_BYTES);
        let large = vec![7; 1 << 20];
        let refused = client.ask("PUT", OBJECT, &[TEXT], &large).await;
        assert_eq!((refused.status, refused.text()), (503, "overload\n"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        // The connection continues after the bytes that were read and dropped.
        client.put(OBJECT, "small").await;
        drop(others);
        let taken = client.ask("PUT", OBJECT, &[TEXT], &large).await;
        assert_eq!(taken.status, 204);
        assert_eq!(client.get(OBJECT).await.body.len(), large.len());
        assert_eq!(world.room.taken_bytes(), 0);
    });
}

#[test]
fn a_body_of_unknown_length_takes_room_as_it_comes_and_an_answer_until_it_is_sent() {
    run(|world| async move {
        let mut client = world.client().await;
        let head = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\n\
                    Transfer-Encoding: chunked\r\n\r\n10000\r\n";
        client.send(head.as_bytes()).await;
        client.send(&vec![7; 1 << 16]).await;
        world.runtime.sleep(std::time::Duration::from_secs(1)).await;
        let taken = world.room.taken_bytes();
        assert!((1 << 15..=1 << 16).contains(&taken), "{taken}");
        client.send(b"\r\n0\r\n\r\n").await;
        assert_eq!(client.receive(false).await.unwrap().status, 204);
        assert_eq!(world.room.taken_bytes(), 0);
        // The client does not read the answer; the sockets hold a part of it.
        client
            .send(b"GET /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        let answer = client.receive(false).await.unwrap();
        assert_eq!(answer.body.len(), 1 << 16);
        assert_eq!(world.room.taken_bytes(), 0);
    });
}

#[test]
fn too_large_bodies_objects_and_sibling_lists_are_refused() {
    let limits = Limits {
        size_max_bytes: 20_000,
        siblings_max: 3,
        ..Limits::default()
    };
    let mut options = Options {
        limits,
        ..Options::default()
    };
    options.http.body_bytes_max = 30_000;
    run_with(options, |world| async move {
        let mut client = world.client().await;
        client.put(OBJECT, "v").await;
        let object = client.ask("PUT", OBJECT, &[TEXT], &[b'x'; 25_000]).await;
        assert_eq!(object.status, 413);
        assert!(
            object.text().starts_with("{too_large,"),
            "{}",
            object.text()
        );
        for sibling in 0..3 {
            client
                .put("/types/typed/buckets/b/keys/k", &format!("{sibling}"))
                .await;
        }
        let fourth = client
            .ask("PUT", "/types/typed/buckets/b/keys/k", &[TEXT], b"4")
            .await;
        assert_eq!(fourth.status, 409);
        assert!(
            fourth.text().starts_with("{too_many_siblings,4}"),
            "{}",
            fourth.text()
        );
        // Announced and unannounced.
        let body = client.ask("PUT", OBJECT, &[TEXT], &[b'x'; 40_000]).await;
        assert_eq!(
            (body.status, body.header("connection")),
            (413, Some("close"))
        );
        let mut client = world.client().await;
        let head = "PUT /riak/b/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        client.send(head.as_bytes()).await;
        for _ in 0..40 {
            client
                .send(format!("3e8\r\n{}\r\n", "x".repeat(1_000)).as_bytes())
                .await;
        }
        client.send(b"0\r\n\r\n").await;
        assert_eq!(client.receive(false).await.unwrap().status, 413);
        assert_eq!(world.client().await.get(OBJECT).await.text(), "v");
    });
}

#[test]
fn jobs_that_are_switched_off_are_forbidden_by_name() {
    let mut options = Options::default();
    options.http.jobs.list_keys = false;
    options.http.jobs.stream_list_buckets = false;
    run_with(options, |world| async move {
        let mut client = world.client().await;
        let keys = client.get("/buckets/b/keys?keys=true").await;
        assert_eq!(
            (keys.status, keys.text()),
            (403, "Operation '{riak_kv,list_keys}' is not enabled")
        );
        let buckets = client.get("/buckets?buckets=stream").await;
        let text = "Operation '{riak_kv,stream_list_buckets}' is not enabled";
        assert_eq!((buckets.status, buckets.text()), (403, text));
        assert_eq!(client.get("/buckets/b/keys?keys=stream").await.status, 200);
        assert_eq!(client.get("/buckets?buckets=true").await.status, 200);
    });
}
