//! Link walking: the objects that a walk leads to, the parts of its answer, and refusals.

use crate::client::{Client, Response};
use crate::world::{World, run};

async fn put(client: &mut Client, path: &str, links: &[(&str, &str)], value: &str) {
    let links: Vec<String> = links
        .iter()
        .map(|(to, tag)| format!("</buckets/{to}>; riaktag=\"{tag}\""))
        .collect();
    let links = links.join(", ");
    let mut headers = vec![("Content-Type", "text/plain")];
    if !links.is_empty() {
        headers.push(("Link", &links));
    }
    let stored = client.ask("PUT", path, &headers, value.as_bytes()).await;
    assert_eq!(stored.status, 204, "{}", stored.text());
}

/// `start` leads to `one` and `two`, and both of them to `end`, in another bucket, and to nothing.
async fn filled(world: &World) -> Client {
    let mut client = world.client().await;
    let to_end = [("o/keys/end", "down"), ("b/keys/gone", "down")];
    put(&mut client, "/buckets/o/keys/end", &[], "END").await;
    put(&mut client, "/buckets/b/keys/one", &to_end, "ONE").await;
    put(&mut client, "/buckets/b/keys/two", &to_end, "TWO").await;
    let to_both = [("b/keys/one", "left"), ("b/keys/two", "right")];
    put(&mut client, "/buckets/b/keys/start", &to_both, "START").await;
    client
}

fn split<'a>(content_type: &str, body: &'a str) -> Vec<&'a str> {
    let boundary = content_type
        .strip_prefix("multipart/mixed; boundary=")
        .unwrap();
    let body = body
        .strip_suffix(&format!("\r\n--{boundary}--\r\n"))
        .unwrap();
    body.split(&format!("\r\n--{boundary}\r\n"))
        .skip(1)
        .collect()
}

/// The values of the objects of each step that is kept.
fn steps(answer: &Response) -> Vec<Vec<String>> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("expires").is_some());
    let steps = split(answer.header("content-type").unwrap(), answer.text());
    let objects = |step: &str| {
        let (content_type, body) = step.split_once("\r\n").unwrap();
        let content_type = content_type.strip_prefix("Content-Type: ").unwrap();
        let objects = split(content_type, body);
        let value = |object: &&str| object.split_once("\r\n\r\n").unwrap().1.to_owned();
        objects.iter().map(value).collect()
    };
    steps.iter().map(|it| objects(it)).collect()
}

#[test]
fn a_walk_leads_along_links_and_shows_the_steps_that_are_kept() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let cases: &[(&str, &[&[&str]])] = &[
            ("_,_,_", &[&["ONE", "TWO"]]),
            ("_,right,_", &[&["TWO"]]),
            ("b,_,1", &[&["ONE", "TWO"]]),
            ("o,_,1", &[&[]]),
            ("_,_,0", &[&["ONE", "TWO"]]),
            ("_,_,_/_,_,_", &[&["END"]]),
            ("_,_,1/o,down,1", &[&["ONE", "TWO"], &["END"]]),
            ("_,left,1/_,_,0", &[&["ONE"]]),
            ("_,_,_/_,_,_/_,_,_", &[&[]]),
        ];
        for (walk, expected) in cases {
            for start in ["/buckets/b/keys/start", "/riak/b/start"] {
                let answer = client.get(&format!("{start}/{walk}")).await;
                assert_eq!(steps(&answer), *expected, "{walk}");
                let location = match start.starts_with("/riak") {
                    true => "Location: /riak/",
                    false => "Location: /buckets/",
                };
                let objects: usize = expected.iter().map(|it| it.len()).sum();
                assert_eq!(answer.text().matches(location).count(), objects);
            }
        }
    });
}

#[test]
fn of_siblings_the_first_is_shown_with_the_tags_of_the_others() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let properties = br#"{"props":{"allow_mult":true}}"#;
        let json = [("Content-Type", "application/json")];
        let set = client
            .ask("PUT", "/buckets/s/props", &json, properties)
            .await;
        assert_eq!(set.status, 204);
        client.put("/buckets/s/keys/k", "first").await;
        client.put("/buckets/s/keys/k", "second").await;
        let to_siblings = [("s/keys/k", "x")];
        put(&mut client, "/buckets/b/keys/to", &to_siblings, "").await;
        let answer = client.get("/buckets/b/keys/to/_,_,1").await;
        assert_eq!(steps(&answer), [["first"]]);
        let line = |name: &str| {
            let lines = answer.text().lines();
            let found = lines.filter_map(|line| line.strip_prefix(name)).next();
            found.unwrap_or_default().to_owned()
        };
        let tag = line("Etag: ");
        assert_eq!(line("Location: "), format!("/buckets/s/keys/k?vtag={tag}"));
        let other = line("X-Riak-Sibling-VTags: ");
        let second = client.get(&format!("/buckets/s/keys/k?vtag={other}")).await;
        assert_eq!(second.text(), "second");
    });
}

#[test]
fn what_is_no_walk_is_refused() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let start = "/buckets/b/keys/start";
        let invalid = "Invalid link walk query submitted.";
        let typed = "Link-walking is not allowed on keys stored in bucket-types.";
        let cases = [
            ("GET", format!("{start}/_,_"), 400, invalid),
            ("GET", format!("{start}/_,_,_,_"), 400, invalid),
            ("GET", format!("{start}/,,"), 400, invalid),
            (
                "GET",
                "/buckets/b/keys/none/_,_,_".to_owned(),
                404,
                "Not Found",
            ),
            ("GET", format!("/types/typed{start}/_,_,_"), 403, typed),
            ("PUT", format!("{start}/_,_,_"), 405, "Not Allowed"),
            ("POST", format!("{start}/_,_,_"), 204, ""),
            ("HEAD", format!("{start}/_,_,_"), 200, ""),
        ];
        for (method, path, status, text) in cases {
            let answer = client.ask(method, &path, &[], b"").await;
            assert_eq!(answer.status, status, "{method} {path}");
            assert!(answer.text().contains(text), "{}", answer.text());
        }
        let accepting = [("Accept", "text/plain")];
        let walk = format!("{start}/_,_,_");
        assert_eq!(client.ask("GET", &walk, &accepting, b"").await.status, 406);
    });
}

#[test]
fn a_walk_that_would_hold_too_much_ends_with_an_error() {
    run(|world| async move {
        let mut client = world.client().await;
        let value = "v".repeat(4 << 20);
        let names: Vec<String> = (0..20).map(|number| format!("b/keys/{number}")).collect();
        for name in &names {
            client.put(&format!("/buckets/{name}"), &value).await;
        }
        let links: Vec<(&str, &str)> = names.iter().map(|it| (it.as_str(), "t")).collect();
        put(&mut client, "/buckets/b/keys/all", &links, "").await;
        put(&mut client, "/buckets/b/keys/few", &links[..3], "").await;
        let answer = client.get("/buckets/b/keys/all/_,_,1").await;
        assert_eq!(answer.status, 500);
        assert!(answer.text().contains("more than 67108864 bytes"));
        let answer = client.get("/buckets/b/keys/few/_,_,1").await;
        assert_eq!(steps(&answer)[0].len(), 3);
        drop(answer);
        assert_eq!(world.room.taken_bytes(), 0);
    });
}
