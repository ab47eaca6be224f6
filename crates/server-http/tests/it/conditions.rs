//! Conditional requests: each condition on each method, and the writes that they guard.

use crate::client::Client;
use crate::world::run;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
type Headers = &'static [(&'static str, &'static str)];
const PAST: &str = "Wed, 31 Dec 2025 23:59:59 GMT";
const NOW: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

async fn etag_and_vclock(client: &mut Client, path: &str) -> (String, String) {
    let read = client.get(path).await;
    let header = |name| read.header(name).unwrap().to_owned();
    (header("etag"), header("x-riak-vclock"))
}

#[test]
fn every_condition_has_its_status_on_every_method() {
    run(|world| async move {
        let mut client = world.client().await;
        // Condition (`=` stands for the object's tag); statuses for GET, PUT, DELETE with an
        // object, then without one.
        let cases: [(Headers, [u16; 3], [u16; 3]); 16] = [
            (&[], [200, 204, 204], [404, 204, 404]),
            (&[("If-Match", "*")], [200, 204, 204], [404, 412, 412]),
            (&[("If-Match", "=")], [200, 204, 204], [404, 412, 412]),
            (
                &[("If-Match", "\"x\", =")],
                [200, 204, 204],
                [404, 412, 412],
            ),
            (
                &[("If-Match", "\"x\""), ("If-Match", "=")],
                [200, 204, 204],
                [404, 412, 412],
            ),
            (&[("If-Match", "\"x\"")], [412, 412, 412], [404, 412, 412]),
            (&[("If-None-Match", "*")], [304, 412, 412], [404, 204, 404]),
            (&[("If-None-Match", "=")], [304, 412, 412], [404, 204, 404]),
            (
                &[("If-None-Match", "\"x\"")],
                [200, 204, 204],
                [404, 204, 404],
            ),
            (
                &[("If-Unmodified-Since", NOW)],
                [200, 204, 204],
                [404, 204, 404],
            ),
            (
                &[("If-Unmodified-Since", PAST)],
                [412, 412, 412],
                [404, 204, 404],
            ),
            (
                &[("If-Unmodified-Since", "soon")],
                [200, 204, 204],
                [404, 204, 404],
            ),
            (
                &[("If-Modified-Since", NOW)],
                [304, 204, 412],
                [404, 204, 404],
            ),
            (
                &[("If-Modified-Since", PAST)],
                [200, 204, 204],
                [404, 204, 404],
            ),
            (
                &[("If-Match", "\"x\""), ("If-None-Match", "*")],
                [412, 412, 412],
                [404, 412, 412],
            ),
            (
                &[("If-None-Match", "\"x\""), ("If-Modified-Since", NOW)],
                [304, 204, 412],
                [404, 204, 404],
            ),
        ];
        for (conditions, there, absent) in cases {
            for (at, method) in ["GET", "PUT", "DELETE"].into_iter().enumerate() {
                let number = format!("{at}-{conditions:?}")
                    .bytes()
                    .map(u64::from)
                    .sum::<u64>();
                let path = format!("/buckets/there-{number}/keys/{at}");
                client.put(&path, "v").await;
                let (etag, _) = etag_and_vclock(&mut client, &path).await;
                let given: Vec<(&str, String)> = conditions
                    .iter()
                    .map(|(name, value)| (*name, value.replace('=', &etag)))
                    .collect();
                let mut headers: Vec<(&str, &str)> = given
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                headers.push(TEXT);
                let answer = client.ask(method, &path, &headers, b"new").await;
                assert_eq!(answer.status, there[at], "{method} {conditions:?}");
                let path = format!("/buckets/absent-{number}/keys/{at}");
                let answer = client.ask(method, &path, &headers, b"new").await;
                assert_eq!(
                    answer.status, absent[at],
                    "{method} of nothing, {conditions:?}"
                );
            }
        }
    });
}

#[test]
fn an_answer_without_news_names_the_version_alone() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/k", "v").await;
        let (etag, _) = etag_and_vclock(&mut client, "/buckets/b/keys/k").await;
        let answer = client
            .ask("GET", "/buckets/b/keys/k", &[("If-None-Match", &etag)], b"")
            .await;
        assert_eq!(answer.status, 304);
        assert_eq!(answer.header("etag"), Some(etag.as_str()));
        for absent in ["x-riak-vclock", "last-modified", "content-type"] {
            assert_eq!(answer.header(absent), None, "{absent}");
        }
    });
}

#[test]
fn a_version_named_by_the_client_must_be_the_stored_one() {
    run(|world| async move {
        let mut client = world.client().await;
        let path = "/buckets/b/keys/k";
        client.put(path, "one").await;
        let (_, first) = etag_and_vclock(&mut client, path).await;
        let guarded = |version| {
            [
                TEXT,
                ("X-Riak-Vclock", version),
                ("X-Riak-If-Not-Modified", version),
            ]
        };
        let stored = client.ask("PUT", path, &guarded(&first), b"two").await;
        assert_eq!(stored.status, 204);
        let stale = client.ask("PUT", path, &guarded(&first), b"three").await;
        assert_eq!(stale.status, 409);
        let nothing = client
            .ask("PUT", "/buckets/b/keys/none", &guarded(&first), b"v")
            .await;
        assert_eq!(nothing.status, 409);
        assert_eq!(client.get(path).await.text(), "two");
        // `POST` to a key ignores this condition.
        assert_eq!(
            client
                .ask("POST", path, &guarded(&first), b"four")
                .await
                .status,
            204
        );
        let garbage = [TEXT, ("X-Riak-If-Not-Modified", "?")];
        assert_eq!(client.ask("PUT", path, &garbage, b"v").await.status, 400);
    });
}

#[test]
fn of_many_puts_that_may_only_be_first_one_is() {
    run(|world| async move {
        let mut writers = Vec::new();
        for number in 0..16 {
            let mut client = world.client().await;
            writers.push(world.runtime.spawn("writer", async move {
                let headers = [TEXT, ("If-None-Match", "*")];
                let path = "/types/typed/buckets/b/keys/k";
                client
                    .ask("PUT", path, &headers, format!("{number}").as_bytes())
                    .await
                    .status
            }));
        }
        let mut statuses = Vec::new();
        for writer in writers {
            statuses.push(writer.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [vec![204], vec![412; 15]].concat());
        let mut client = world.client().await;
        assert_eq!(
            client.get("/types/typed/buckets/b/keys/k").await.status,
            200
        );
    });
}

#[test]
fn an_object_of_a_new_key_cannot_be_expected_to_exist() {
    run(|world| async move {
        let mut client = world.client().await;
        let expecting = [TEXT, ("If-Match", "*")];
        assert_eq!(
            client.ask("POST", "/riak/b", &expecting, b"v").await.status,
            412
        );
        let unexpecting = [TEXT, ("If-None-Match", "*")];
        assert_eq!(
            client
                .ask("POST", "/riak/b", &unexpecting, b"v")
                .await
                .status,
            201
        );
    });
}

#[test]
fn not_found_and_not_acceptable_come_before_conditions_on_an_object() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put("/buckets/b/keys/k", "v").await;
        let headers = [("Accept", "image/png"), ("If-None-Match", "*")];
        assert_eq!(
            client
                .ask("GET", "/buckets/b/keys/k", &headers, b"")
                .await
                .status,
            406
        );
        assert_eq!(
            client
                .ask("GET", "/buckets/b/keys/none", &headers, b"")
                .await
                .status,
            404
        );
    });
}
