//! Index queries: results, the messages with results, and the texts of refusals.

use std::time::Duration;

use bytes::Bytes;
use kvorum_client::{Client, pb};
use kvorum_protocol::request::PutOptions;
use kvorum_runtime::Stream;
use kvorum_server_pb::ServerSettings;
use pb::rpb_index_req::IndexQueryType;

use crate::node::{NAME, bytes, encoded, put, refusal, text_content, with_node, with_settings};

fn pair(key: &'static str, value: impl Into<Bytes>) -> pb::RpbPair {
    pb::RpbPair {
        key: bytes(key),
        value: Some(value.into()),
    }
}

fn content(indexes: Vec<pb::RpbPair>) -> pb::RpbContent {
    pb::RpbContent {
        indexes,
        ..text_content("value")
    }
}

/// `k00` to `k29`: number 0 to 9, three keys each, and the words `even` and `odd`.
async fn fill(client: &mut Client<Stream>) {
    for number in 0..30 {
        let word = if number % 2 == 0 { "even" } else { "odd" };
        let indexes = vec![pair("N_int", (number / 3).to_string()), pair("w_bin", word)];
        let key = format!("k{number:02}");
        let default = PutOptions::default();
        put(client, None, Some(&key), None, &content(indexes), &default)
            .await
            .unwrap();
    }
}

fn equal(index: &'static str, key: &'static str) -> pb::RpbIndexReq {
    pb::RpbIndexReq {
        bucket: bytes("b"),
        index: bytes(index),
        qtype: IndexQueryType::Eq.into(),
        key: Some(bytes(key)),
        ..Default::default()
    }
}

fn range(index: &'static str, from: &'static str, to: &'static str) -> pb::RpbIndexReq {
    pb::RpbIndexReq {
        bucket: bytes("b"),
        index: bytes(index),
        qtype: IndexQueryType::Range.into(),
        range_min: Some(bytes(from)),
        range_max: Some(bytes(to)),
        ..Default::default()
    }
}

async fn ask(client: &mut Client<Stream>, request: &pb::RpbIndexReq) -> pb::RpbIndexResp {
    let answers = client.query_index(request).await.unwrap();
    answers.collect().await.unwrap()
}

async fn keys(client: &mut Client<Stream>, request: &pb::RpbIndexReq) -> Vec<String> {
    let found = ask(client, request).await;
    assert_eq!(found.results, []);
    let text = |key: &Bytes| String::from_utf8(key.to_vec()).unwrap();
    let mut keys: Vec<_> = found.keys.iter().map(text).collect();
    keys.sort();
    keys
}

async fn refused(client: &mut Client<Stream>, request: &pb::RpbIndexReq) -> String {
    let answers = client.query_index(request).await.unwrap();
    refusal(answers.collect().await)
}

#[test]
fn values_ranges_keys_and_buckets_find_their_objects() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        assert_eq!(
            keys(&mut client, &equal("n_int", "07")).await,
            ["k21", "k22", "k23"]
        );
        assert_eq!(keys(&mut client, &range("n_INT", "8", "10")).await.len(), 6);
        assert_eq!(keys(&mut client, &range("n_int", "9", "8")).await, [""; 0]);
        assert_eq!(keys(&mut client, &equal("w_bin", "odd")).await.len(), 15);
        assert_eq!(keys(&mut client, &equal("$bucket", "b")).await.len(), 30);
        assert_eq!(keys(&mut client, &equal("$key", "k07")).await, ["k07"]);
        assert_eq!(
            keys(&mut client, &range("$key", "k07", "k09")).await,
            ["k07", "k08", "k09"]
        );
        client.delete_key(b"b", b"k21").await.unwrap();
        assert_eq!(
            keys(&mut client, &equal("n_int", "7")).await,
            ["k22", "k23"]
        );
        assert_eq!(keys(&mut client, &equal("$bucket", "b")).await.len(), 29);
    });
}

#[test]
fn terms_come_with_ranges_of_terms_only() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        let with_terms = |request: pb::RpbIndexReq| pb::RpbIndexReq {
            return_terms: Some(true),
            pagination_sort: Some(true),
            ..request
        };
        let found = ask(&mut client, &with_terms(range("n_int", "2", "3"))).await;
        assert_eq!(found.keys.len(), 0);
        let expected = ["2 k06", "2 k07", "2 k08", "3 k09", "3 k10", "3 k11"];
        let expected = expected.map(|it| pair(&it[..1], &it.as_bytes()[2..]));
        assert_eq!(found.results, expected);
        for request in [equal("n_int", "2"), range("$key", "k06", "k08")] {
            let found = ask(&mut client, &with_terms(request)).await;
            assert_eq!((found.keys.len(), found.results.len()), (3, 0));
        }
    });
}

#[test]
fn pages_continue_until_one_is_not_full() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        for stream in [None, Some(true)] {
            let mut request = pb::RpbIndexReq {
                max_results: Some(8),
                stream,
                ..range("n_int", "0", "8")
            };
            let (mut found, mut pages) = (Vec::new(), Vec::new());
            loop {
                let page = ask(&mut client, &request).await;
                pages.push(page.keys.len());
                found.extend(page.keys);
                match page.continuation {
                    Some(next) => request.continuation = Some(next),
                    None => break,
                }
            }
            assert_eq!(pages, [8, 8, 8, 3]);
            let expected: Vec<_> = (0..27).map(|it| format!("k{it:02}")).collect();
            assert_eq!(found, expected);
        }
    });
}

#[test]
fn a_stream_ends_with_done_and_holds_nothing_empty_before() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        let mut raw = node.raw().await;
        let request = pb::RpbIndexReq {
            stream: Some(true),
            max_results: Some(5),
            ..equal("$bucket", "b")
        };
        raw.send(&encoded(&request)).await;
        let mut found = 0;
        loop {
            let message: pb::RpbIndexResp = raw.receive().await.unwrap().decode().unwrap();
            if message.done() {
                assert_eq!((message.keys.len(), message.results.len()), (0, 0));
                assert!(message.continuation.is_some());
                break;
            }
            assert!(!message.keys.is_empty());
            assert_eq!((message.done, message.continuation), (None, None));
            found += message.keys.len();
        }
        assert_eq!(found, 5);
        raw.send(&encoded(&equal("$bucket", "b"))).await;
        let whole: pb::RpbIndexResp = raw.receive().await.unwrap().decode().unwrap();
        assert_eq!((whole.keys.len(), whole.done), (30, None));
    });
}

#[test]
fn patterns_choose_among_terms_and_keys() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        let matching = |request, pattern| pb::RpbIndexReq {
            term_regex: Some(bytes(pattern)),
            ..request
        };
        let even = matching(range("w_bin", "a", "z"), "^e.en$");
        assert_eq!(keys(&mut client, &even).await.len(), 15);
        let sevens = matching(equal("$bucket", "_"), "7$");
        assert_eq!(keys(&mut client, &sevens).await, ["k07", "k17", "k27"]);
        let numbers = matching(range("n_int", "1", "2"), "1");
        let text = "Can not use term regular expression in integer query";
        assert_eq!(refused(&mut client, &numbers).await, text);
        let wrong = refused(&mut client, &matching(range("w_bin", "a", "z"), "a(")).await;
        assert!(
            wrong.starts_with("Invalid term regular expression a( : "),
            "{wrong}"
        );
    });
}

#[test]
fn what_is_no_query_is_refused_in_riaks_words() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let cases = [
            (equal("color", "x"), "{unknown_field_type,<<\"color\">>}"),
            (equal("_bin", "x"), "{unknown_field_type,<<\"_bin\">>}"),
            (
                equal("n_int", "x"),
                "{field_parsing_failed,{<<\"n_int\">>,<<\"x\">>}}",
            ),
            (
                pb::RpbIndexReq {
                    key: None,
                    ..equal("n_int", "")
                },
                "Invalid equality query undefined",
            ),
            (
                pb::RpbIndexReq {
                    range_max: None,
                    ..range("n_int", "1", "")
                },
                "Invalid range query: <<\"1\">> -> undefined",
            ),
            (
                pb::RpbIndexReq {
                    continuation: Some(bytes("g2gC")),
                    ..equal("n_int", "1")
                },
                "invalid_continuation",
            ),
            (
                pb::RpbIndexReq {
                    r#type: Some(bytes("nowhere")),
                    ..equal("n_int", "1")
                },
                "No bucket-type named 'nowhere'",
            ),
        ];
        for (request, text) in cases {
            assert_eq!(refused(&mut client, &request).await, text);
        }
        let default = PutOptions::default();
        let wrong = content(vec![pair("color", "red"), pair("n_int", "1.5")]);
        let written = put(&mut client, None, Some("k"), None, &wrong, &default);
        assert_eq!(
            refusal(written.await),
            "{precommit_fail,[{unknown_field_type,<<\"color\">>},\
             {field_parsing_failed,{<<\"n_int\">>,<<\"1.5\">>}}]}"
        );
        client.ping().await.unwrap();
    });
}

#[test]
fn a_range_of_keys_is_listed_with_its_objects() {
    with_node(|node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        client.delete_key(b"b", b"k12").await.unwrap();
        let mut raw = node.raw().await;
        let mut request = pb::RpbCsBucketReq {
            bucket: bytes("b"),
            start_key: bytes("k10"),
            end_key: Some(bytes("k15")),
            start_incl: Some(false),
            max_results: Some(3),
            ..Default::default()
        };
        let mut pages = Vec::new();
        loop {
            raw.send(&encoded(&request)).await;
            let mut page = Vec::new();
            let last = loop {
                let message: pb::RpbCsBucketResp = raw.receive().await.unwrap().decode().unwrap();
                for found in &message.objects {
                    let [content] = &found.object.content[..] else {
                        panic!("{found:?}");
                    };
                    assert_eq!(content.value, "value");
                    assert_eq!(content.indexes.len(), 2);
                    assert!(found.object.vclock.is_some());
                    page.push(found.key.clone());
                }
                if message.done() {
                    break message;
                }
            };
            pages.push(page);
            match last.continuation {
                Some(next) => request.continuation = Some(next),
                None => break,
            }
        }
        assert_eq!(pages, [vec!["k11", "k13", "k14"], vec![]]);
    });
}

/// Regression: a get sorted siblings by value, and this listing by the time of their writes.
#[test]
fn siblings_of_listed_objects_are_in_the_order_of_their_values() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let siblings = pb::RpbBucketProps {
            allow_mult: Some(true),
            ..Default::default()
        };
        let set = client.set_bucket_properties(None, bytes("b"), siblings);
        set.await.unwrap();
        for value in ["pear", "fig", "apple", "quince"] {
            let written = pb::RpbContent {
                value: bytes(value),
                ..Default::default()
            };
            let default = PutOptions::default();
            let put = put(&mut client, None, Some("k"), None, &written, &default);
            put.await.unwrap();
        }
        let mut raw = node.raw().await;
        let request = pb::RpbCsBucketReq {
            bucket: bytes("b"),
            start_key: bytes("k"),
            ..Default::default()
        };
        raw.send(&encoded(&request)).await;
        let message: pb::RpbCsBucketResp = raw.receive().await.unwrap().decode().unwrap();
        let listed = message.objects[0].object.content.iter();
        let listed: Vec<&[u8]> = listed.map(|it| &it.value[..]).collect();
        assert_eq!(listed, [&b"apple"[..], b"fig", b"pear", b"quince"]);
    });
}

#[test]
fn a_query_without_patience_times_out_whole_or_streamed() {
    let settings = ServerSettings {
        index_timeout: Some(Duration::ZERO),
        ..ServerSettings::new(NAME)
    };
    with_settings(settings, |node| async move {
        let mut client = node.client().await;
        fill(&mut client).await;
        for stream in [None, Some(true)] {
            let asked = |timeout| pb::RpbIndexReq {
                stream,
                timeout,
                ..equal("n_int", "7")
            };
            assert_eq!(refused(&mut client, &asked(None)).await, "timeout");
            // The timeout of a query overrides the setting, and 0 means none.
            for timeout in [Some(60_000), Some(0)] {
                let found = keys(&mut client, &asked(timeout)).await;
                assert_eq!(found, ["k21", "k22", "k23"]);
            }
        }
        client.ping().await.unwrap();
    });
}
