//! Index queries: results, their forms, and refusals.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Response};
use crate::world::{Options, World, run, run_with};

const INDEX: &str = "/types/typed/buckets/b/index";

/// `k00` to `k29`: number 0 to 9, three keys each, and the words `even` and `odd`.
async fn filled(world: &World) -> Client {
    let mut client = world.client().await;
    for number in 0..30 {
        let path = format!("/types/typed/buckets/b/keys/k{number:02}");
        let value = (number / 3).to_string();
        let word = if number % 2 == 0 { "even" } else { "odd" };
        let headers = [
            ("Content-Type", "text/plain"),
            ("X-Riak-Index-n_int", &value),
            ("X-Riak-Index-w_bin", word),
        ];
        let stored = client.ask("PUT", &path, &headers, b"v").await;
        assert_eq!(stored.status, 204, "{}", stored.text());
    }
    client
}

async fn keys(client: &mut Client, query: &str) -> Vec<String> {
    let answer = client.get(&format!("{INDEX}/{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let object = answer.json();
    assert_eq!(object.as_object().unwrap().len(), 1, "{object}");
    let mut keys: Vec<String> = serde_json::from_value(object["keys"].clone()).unwrap();
    keys.sort();
    keys
}

/// The JSON objects of a multipart body.
fn parts(answer: &Response) -> Vec<Value> {
    assert!(answer.is_complete);
    let content_type = answer.header("content-type").unwrap();
    let boundary = content_type
        .strip_prefix("multipart/mixed;boundary=")
        .unwrap();
    let body = answer
        .text()
        .strip_suffix(&format!("\r\n--{boundary}--\r\n"))
        .unwrap();
    let between = format!("\r\n--{boundary}\r\n");
    let mut pieces = body.split(&between);
    assert_eq!(pieces.next(), Some(""));
    let part = |piece: &str| {
        let json = piece.strip_prefix("Content-Type: application/json\r\n\r\n");
        serde_json::from_str(json.unwrap()).unwrap()
    };
    pieces.map(part).collect()
}

#[test]
fn values_ranges_keys_and_buckets_find_their_objects() {
    run(|world| async move {
        let mut client = filled(&world).await;
        assert_eq!(keys(&mut client, "N_int/7").await, ["k21", "k22", "k23"]);
        assert_eq!(
            keys(&mut client, "n_int/-10/0").await,
            ["k00", "k01", "k02"]
        );
        assert_eq!(keys(&mut client, "n_int/9/8").await, [""; 0]);
        assert_eq!(keys(&mut client, "w_bin/odd").await.len(), 15);
        assert_eq!(keys(&mut client, "w_bin/a/od%64").await.len(), 30);
        assert_eq!(keys(&mut client, "$bucket/_").await.len(), 30);
        assert_eq!(keys(&mut client, "$key/k07").await, ["k07"]);
        assert_eq!(
            keys(&mut client, "$key/k07/k09").await,
            ["k07", "k08", "k09"]
        );
        assert_eq!(
            keys(&mut client, "w_bin/a/z?term_regex=%5Eev").await.len(),
            15
        );
        client
            .ask("DELETE", "/types/typed/buckets/b/keys/k21", &[], b"")
            .await;
        assert_eq!(keys(&mut client, "n_int/7").await, ["k22", "k23"]);
        let other = client.get("/buckets/b/index/n_int/7").await;
        assert_eq!(other.json(), json!({"keys": []}));
        let head = client
            .ask("HEAD", &format!("{INDEX}/n_int/7"), &[], b"")
            .await;
        assert_eq!(head.status, 200);
    });
}

#[test]
fn pages_with_terms_continue_until_one_is_not_full() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let query = format!("{INDEX}/n_int/2/4?return_terms=true&max_results=4");
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("{query}{next}")).await.json();
            found.extend(page["results"].as_array().unwrap().clone());
            assert!(page.get("keys").is_none());
            match page["continuation"].as_str() {
                Some(continuation) => next = format!("&continuation={continuation}"),
                None => break,
            }
        }
        let expected: Vec<_> = (6..15)
            .map(|it| json!({(it / 3).to_string(): format!("k{it:02}")}))
            .collect();
        assert_eq!(found, expected);
        let equal = format!("{INDEX}/n_int/2?return_terms=true&pagination_sort=true");
        let equal = client.get(&equal).await;
        assert_eq!(equal.json(), json!({"keys": ["k06", "k07", "k08"]}));
    });
}

#[test]
fn a_stream_is_parts_of_json_and_the_continuation_comes_last() {
    run(|world| async move {
        let mut client = filled(&world).await;
        let query = format!("{INDEX}/n_int/2/4?stream=true");
        let all = client.get(&query).await;
        let mut keys: Vec<Value> = parts(&all)
            .iter()
            .flat_map(|part| part["keys"].as_array().unwrap().clone())
            .collect();
        keys.sort_by_key(ToString::to_string);
        assert_eq!(keys.len(), 9);
        let some = client
            .get(&format!("{query}&max_results=3&return_terms=true"))
            .await;
        let mut some = parts(&some);
        let last = some.pop().unwrap();
        assert!(last["continuation"].is_string(), "{last}");
        let results = json!({"results": [{"2": "k06"}, {"2": "k07"}, {"2": "k08"}]});
        assert_eq!(some, [results]);
        let none = client.get(&format!("{INDEX}/n_int/77?stream=true")).await;
        assert_eq!(parts(&none), [Value::Null; 0]);
        assert_eq!(
            client.get("/ping").await.text(),
            "OK",
            "the connection goes on"
        );
    });
}

#[test]
fn many_results_come_whole() {
    run(|world| async move {
        let mut client = world.client().await;
        let long = "x".repeat(2_000);
        let headers = [
            ("Content-Type", "text/plain"),
            ("X-Riak-Index-w_bin", &long),
        ];
        for number in 0..600 {
            let path = format!("/buckets/b/keys/k{number:03}");
            client.ask("PUT", &path, &headers, b"v").await;
        }
        let path = "/buckets/b/index/w_bin/a/z?return_terms=true&max_results=";
        for (max, has_more) in [("600", true), ("601", false)] {
            let answer = client.get(&format!("{path}{max}")).await;
            assert!(answer.is_complete);
            let object = answer.json();
            let results = object["results"].as_array().unwrap();
            assert_eq!(results.len(), 600);
            assert_eq!(results[599], json!({ &long: "k599" }));
            assert_eq!(object.get("continuation").is_some(), has_more);
        }
    });
}

#[test]
fn a_query_that_runs_out_of_time_says_so_in_its_form() {
    let mut options = Options::default();
    options.http.index_timeout = Some(Duration::ZERO);
    run_with(options, |world| async move {
        let mut client = filled(&world).await;
        let query = format!("{INDEX}/n_int/7");
        let whole = client.get(&query).await;
        assert_eq!((whole.status, whole.text()), (503, "request timed out\n"));
        let stream = client.get(&format!("{query}?stream=true")).await;
        assert_eq!((stream.status, stream.text()), (503, "request timed out\n"));
        // The timeout of a query overrides the setting, and 0 means none.
        for timeout in ["60000", "0"] {
            let found = keys(&mut client, &format!("n_int/7?timeout={timeout}")).await;
            assert_eq!(found, ["k21", "k22", "k23"]);
        }
    });
}

#[test]
fn a_query_that_runs_out_of_time_half_way_says_so_or_breaks_off() {
    run(|world| async move {
        let mut client = world.client().await;
        // More entries than a vnode gives in one part, and more bytes than are buffered for a
        // client that does not read.
        let terms: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
        let terms = terms.join(", ");
        let headers = [
            ("Content-Type", "text/plain"),
            ("X-Riak-Index-w_bin", &terms),
        ];
        let long = "k".repeat(1_000);
        for number in 0..80 {
            let path = format!("/buckets/b/keys/{number}{long}");
            let stored = client.ask("PUT", &path, &headers, b"v").await;
            assert_eq!(stored.status, 204);
        }
        for is_streamed in [true, false] {
            let mut lazy = world.client().await;
            let query = format!("/buckets/b/index/w_bin/a/z?timeout=1000&stream={is_streamed}");
            let request = format!("GET {query} HTTP/1.1\r\nHost: x\r\n\r\n");
            lazy.send(request.as_bytes()).await;
            world.runtime.sleep(Duration::from_secs(2)).await;
            let answer = lazy.receive(false).await.unwrap();
            assert_eq!(answer.status, 200);
            if is_streamed {
                let parts = parts(&answer);
                assert!(parts.len() > 1);
                assert!(parts.last() == Some(&json!({"error": "timeout"})));
            } else {
                assert!(!answer.is_complete && lazy.is_closed);
            }
        }
    });
}

#[test]
fn what_is_no_query_is_refused() {
    run(|world| async move {
        let mut client = world.client().await;
        let cases = [
            (
                "/color/x",
                400,
                "Invalid query: {unknown_field_type,<<\"color\">>}\n",
            ),
            (
                "/n_int/x",
                400,
                "Invalid query: {field_parsing_failed,{<<\"n_int\">>,<<\"x\">>}}\n",
            ),
            (
                "/n_int/1?continuation=g2gC",
                400,
                "Invalid query: invalid_continuation\n",
            ),
            (
                "/n_int/1?max_results=0",
                400,
                "Invalid \"max_results\". 0 is not a positive integer",
            ),
            (
                "/n_int/1?return_terms=maybe",
                400,
                "Invalid \"return_terms\". \"maybe\" is not a boolean",
            ),
            (
                "/n_int/1?pagination_sort=maybe",
                400,
                "Invalid \"pagination_sort\". \"maybe\" is not a boolean",
            ),
            (
                "/n_int/1?timeout=x",
                400,
                "Bad timeout value \"x\". Must be a non-negative integer\n",
            ),
            (
                "/n_int/1/2?term_regex=a",
                400,
                "Can not use term regular expressions on integer queries",
            ),
        ];
        for (query, status, text) in cases {
            let answer = client.get(&format!("{INDEX}{query}")).await;
            assert_eq!((answer.status, answer.text()), (status, text), "{query}");
        }
        let wrong = client.get(&format!("{INDEX}/w_bin/a?term_regex=a(")).await;
        assert_eq!(wrong.status, 400);
        assert!(
            wrong
                .text()
                .starts_with("Invalid term regular expression a( : ")
        );
        let unknown = client.get("/types/nowhere/buckets/b/index/n_int/1").await;
        assert_eq!(
            (unknown.status, unknown.header("content-type")),
            (404, Some("text/html"))
        );
        for path in ["", "/n_int/1/2/3"] {
            let answer = client.get(&format!("{INDEX}{path}")).await;
            assert_eq!(answer.status, 404, "{path}");
        }
        let posted = client
            .ask("POST", &format!("{INDEX}/n_int/1"), &[], b"")
            .await;
        assert_eq!(posted.status, 405);
    });
}

#[test]
fn jobs_that_are_switched_off_are_refused_by_name() {
    let mut options = Options::default();
    options.http.jobs.secondary_index = false;
    options.http.jobs.stream_secondary_index = false;
    run_with(options, |world| async move {
        let mut client = world.client().await;
        for (query, class) in [
            ("", "secondary_index"),
            ("?stream=true", "stream_secondary_index"),
        ] {
            let answer = client.get(&format!("{INDEX}/n_int/1{query}")).await;
            assert_eq!(answer.status, 403);
            let text = format!("Operation '{{riak_kv,{class}}}' is not enabled");
            assert_eq!(answer.text(), text);
        }
    });
}
