//! Concurrent versions: the list of tags, the multipart body, single siblings, resolution.

use crate::client::{Client, Response};
use crate::world::run;

const PATH: &str = "/types/typed/buckets/b/keys/k";
const TEXT: (&str, &str) = ("Content-Type", "text/plain");

async fn accepting(client: &mut Client, accept: &str) -> Response {
    client.ask("GET", PATH, &[("Accept", accept)], b"").await
}

/// Three siblings, the last one of which is a tombstone.
async fn make_siblings(client: &mut Client) {
    let rich = [
        ("Content-Type", "text/html; charset=latin1"),
        ("X-Riak-Meta-A", "1"),
        ("X-Riak-Index-f_int", "7"),
        ("Link", "</buckets/b/keys/x>; riaktag=\"t\""),
    ];
    assert_eq!(client.ask("PUT", PATH, &rich, b"one").await.status, 204);
    let vclock = client
        .get(PATH)
        .await
        .header("x-riak-vclock")
        .unwrap()
        .to_owned();
    let newer = [TEXT, ("X-Riak-Vclock", vclock.as_str())];
    let update = [&rich[..], &newer[1..]].concat();
    assert_eq!(client.ask("PUT", PATH, &update, b"one").await.status, 204);
    client.put(PATH, "two\r\n--x").await;
    let old = [("X-Riak-Vclock", vclock.as_str())];
    assert_eq!(client.ask("DELETE", PATH, &old, b"").await.status, 204);
}

fn tags(response: &Response) -> Vec<String> {
    let list = response.text().strip_prefix("Siblings:\n").unwrap();
    list.lines().map(str::to_owned).collect()
}

#[test]
fn siblings_are_reported_as_a_list_of_tags_and_read_one_by_one() {
    run(|world| async move {
        let mut client = world.client().await;
        make_siblings(&mut client).await;
        let list = client.get(PATH).await;
        assert_eq!(list.status, 300);
        assert_eq!(list.header("content-type"), Some("text/plain"));
        assert_eq!(list.header("vary"), Some("Accept, Accept-Encoding"));
        assert!(list.header("x-riak-vclock").is_some() && list.header("last-modified").is_some());
        let tags = tags(&list);
        assert_eq!(tags.len(), 3);
        assert!(
            !tags
                .iter()
                .any(|tag| list.header("etag").unwrap().contains(tag.as_str()))
        );
        let mut seen = Vec::new();
        for tag in &tags {
            let one = client.get(&format!("{PATH}?vtag={tag}")).await;
            assert_eq!(one.status, 200);
            assert_eq!(one.header("etag"), Some(format!("\"{tag}\"").as_str()));
            assert_eq!(one.header("x-riak-vclock"), list.header("x-riak-vclock"));
            let deleted = one.header("x-riak-deleted").is_some();
            seen.push((one.text().to_owned(), deleted));
        }
        seen.sort();
        let expected = [("", true), ("one", false), ("two\r\n--x", false)];
        assert_eq!(
            seen,
            expected.map(|(text, deleted)| (text.to_owned(), deleted))
        );
        assert_eq!(
            client.get(&format!("{PATH}?vtag=unknown")).await.status,
            404
        );
    });
}

/// Regression: clients that take the first sibling got the oldest here, but the least value from
/// Riak.
#[test]
fn siblings_are_listed_by_value() {
    run(|world| async move {
        let mut client = world.client().await;
        for value in ["c", "a", "b"] {
            client.put(PATH, value).await;
        }
        let multipart = accepting(&mut client, "multipart/mixed").await;
        let at = |value: &str| multipart.text().find(&format!("\r\n\r\n{value}\r\n"));
        assert!(at("a").is_some() && at("a") < at("b") && at("b") < at("c"));
        let mut values = Vec::new();
        for tag in tags(&client.get(PATH).await) {
            let one = client.get(&format!("{PATH}?vtag={tag}")).await;
            values.push(one.text().to_owned());
        }
        assert_eq!(values, ["a", "b", "c"]);
    });
}

#[test]
fn the_multipart_body_holds_every_sibling_whole() {
    run(|world| async move {
        let mut client = world.client().await;
        make_siblings(&mut client).await;
        let answer = accepting(&mut client, "*/*, multipart/mixed").await;
        assert_eq!(answer.status, 300);
        let content_type = answer.header("content-type").unwrap();
        let boundary = content_type
            .strip_prefix("multipart/mixed; boundary=")
            .unwrap();
        let body = answer.text();
        let inner = body
            .strip_prefix(&format!("\r\n--{boundary}\r\n"))
            .and_then(|rest| rest.strip_suffix(&format!("\r\n--{boundary}--\r\n")))
            .unwrap();
        let parts: Vec<&str> = inner.split(&format!("\r\n--{boundary}\r\n")).collect();
        assert_eq!(parts.len(), 3);
        let part = |value: &str| {
            let found = parts
                .iter()
                .find(|part| part.ends_with(&format!("\r\n\r\n{value}")));
            found.unwrap_or_else(|| panic!("no part {value:?} in {body}"))
        };
        let rich = part("one");
        for line in [
            "Content-Type: text/html; charset=latin1\r\n",
            "Link: </buckets/b>; rel=\"up\", </buckets/b/keys/x>; riaktag=\"t\"\r\n",
            "X-Riak-Meta-A: 1\r\n",
            "x-riak-index-f_int: 7\r\n",
            "Last-Modified: ",
            "Etag: ",
        ] {
            assert!(rich.contains(line), "{line:?} in {rich}");
        }
        assert!(part("two\r\n--x").contains("Content-Type: text/plain\r\n"));
        let deleted = parts
            .iter()
            .filter(|part| part.contains("X-Riak-Deleted: true\r\n"));
        assert_eq!(deleted.count(), 1);
        assert!(!body.contains("Vclock"));
    });
}

#[test]
fn accept_decides_in_which_form_siblings_come() {
    run(|world| async move {
        let mut client = world.client().await;
        make_siblings(&mut client).await;
        for (accept, status, content_type) in [
            ("*/*", 300, "text/plain"),
            ("*/*, multipart/mixed", 300, "multipart/mixed"),
            ("multipart/mixed, */*", 300, "text/plain"),
            (
                "multipart/mixed, application/json, */*;q=0.5",
                300,
                "multipart/mixed",
            ),
            ("multipart/*", 300, "multipart/mixed"),
            ("image/png", 406, "text/html"),
        ] {
            let answer = accepting(&mut client, accept).await;
            assert_eq!(answer.status, status, "{accept}");
            assert!(
                answer
                    .header("content-type")
                    .unwrap()
                    .starts_with(content_type),
                "{accept}"
            );
        }
    });
}

#[test]
fn a_write_that_makes_siblings_returns_them_if_asked() {
    run(|world| async move {
        let mut client = world.client().await;
        client.put(PATH, "one").await;
        let path = format!("{PATH}?returnbody=true");
        let list = client.ask("PUT", &path, &[TEXT], b"two").await;
        assert_eq!((list.status, tags(&list).len()), (300, 2));
        let headers = [TEXT, ("Accept", "multipart/mixed, */*;q=0.1")];
        let whole = client.ask("POST", &path, &headers, b"three").await;
        assert_eq!(whole.status, 300, "anything is taken, if reluctantly");
        let headers = [TEXT, ("Accept", "text/plain;q=0.1, multipart/mixed")];
        let whole = client.ask("POST", &path, &headers, b"three").await;
        assert_eq!(whole.status, 300);
        assert!(
            whole
                .header("content-type")
                .unwrap()
                .starts_with("multipart/mixed")
        );
    });
}

#[test]
fn a_write_with_the_clock_of_the_siblings_resolves_them() {
    run(|world| async move {
        let mut client = world.client().await;
        make_siblings(&mut client).await;
        let vclock = client
            .get(PATH)
            .await
            .header("x-riak-vclock")
            .unwrap()
            .to_owned();
        let headers = [TEXT, ("X-Riak-Vclock", vclock.as_str())];
        assert_eq!(
            client.ask("PUT", PATH, &headers, b"resolved").await.status,
            204
        );
        let read = client.get(PATH).await;
        assert_eq!((read.status, read.text()), (200, "resolved"));
    });
}
