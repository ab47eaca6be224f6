//! Objects with an expiry in their user metadata, since Riak's clients have no field for it.

use std::time::Duration;

use kvorum_client::{Client, GetOptions, PutOptions, pb};
use kvorum_runtime::Stream;

use crate::node::{bytes, get, put, refusal, text_content, with_node};

const TTL: &str = "X-Kvorum-TTL";
const EXPIRES_AT: &str = "X-Kvorum-Expires-At";
/// A minute after the node's start.
const DATE: &str = "Thu, 01 Jan 2026 00:01:00 GMT";
const LATER: &str = "Thu, 01 Jan 2026 00:02:00 GMT";

fn content(pairs: &[(&'static str, &'static str)]) -> pb::RpbContent {
    let pair = |&(key, value): &(&'static str, &'static str)| pb::RpbPair {
        key: bytes(key),
        value: Some(bytes(value)),
    };
    pb::RpbContent {
        usermeta: pairs.iter().map(pair).collect(),
        ..text_content("v")
    }
}

async fn put_content(client: &mut Client<Stream>, key: &str, content: &pb::RpbContent) {
    let options = PutOptions::default();
    put(client, None, Some(key), None, content, &options)
        .await
        .unwrap();
}

/// The user metadata of a key with one value; `None` if nothing is there.
async fn metadata(client: &mut Client<Stream>, key: &str) -> Option<Vec<(String, String)>> {
    let options = GetOptions::default();
    let found = get(client, None, key, &options).await.unwrap();
    let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
    let pair = |pair: &pb::RpbPair| (text(&pair.key), text(pair.value.as_ref().unwrap()));
    let first = found.content.first()?;
    Some(first.usermeta.iter().map(pair).collect())
}

fn pairs(of: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    Some(of.iter().map(owned).collect())
}

#[test]
fn user_metadata_gives_an_object_its_end_and_is_shown() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for (key, given, end) in [
            ("ttl", (TTL, "60"), DATE),
            ("lower", ("x-kvorum-ttl", "60"), DATE),
            ("date", (EXPIRES_AT, LATER), LATER),
        ] {
            let content = content(&[("color", "red"), given]);
            put_content(&mut client, key, &content).await;
            let shown = pairs(&[("color", "red"), (EXPIRES_AT, end)]);
            assert_eq!(metadata(&mut client, key).await, shown, "{key}");
        }
        node.runtime.sleep(Duration::from_secs(61)).await;
        assert_eq!(metadata(&mut client, "ttl").await, None);
        assert_eq!(metadata(&mut client, "lower").await, None);
        assert!(metadata(&mut client, "date").await.is_some());
    });
}

/// Clients write back the user metadata that they have read.
#[test]
fn what_was_read_keeps_its_end_until_the_client_gives_another_or_none() {
    with_node(|node| async move {
        let mut client = node.client().await;
        put_content(&mut client, "k", &content(&[(TTL, "60")])).await;
        let read = get(&mut client, None, "k", &GetOptions::default()).await;
        let mut content = read.unwrap().content.remove(0);
        put_content(&mut client, "k", &content).await;
        assert_eq!(
            metadata(&mut client, "k").await,
            pairs(&[(EXPIRES_AT, DATE)])
        );
        content.usermeta.push(pb::RpbPair {
            key: bytes(TTL),
            value: Some(bytes("120")),
        });
        put_content(&mut client, "k", &content).await;
        assert_eq!(
            metadata(&mut client, "k").await,
            pairs(&[(EXPIRES_AT, LATER)])
        );
        content.usermeta.clear();
        put_content(&mut client, "k", &content).await;
        assert_eq!(metadata(&mut client, "k").await, pairs(&[]));
    });
}

#[test]
fn an_end_that_cannot_be_read_is_refused_and_nothing_is_stored() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for (name, value) in [
            (TTL, "0"),
            (TTL, "-1"),
            (TTL, "soon"),
            (TTL, ""),
            (EXPIRES_AT, "tomorrow"),
        ] {
            let (content, options) = (content(&[(name, value)]), PutOptions::default());
            let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
            let text = refusal(outcome);
            assert!(text.starts_with(name), "{text}");
            assert_eq!(metadata(&mut client, "k").await, None, "{name} {value}");
        }
    });
}

/// An object that is put unchanged (`asis`) keeps the copy's time of expiry too.
#[test]
fn the_field_of_an_object_put_as_it_is_counts_before_its_metadata() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let as_is = PutOptions {
            asis: Some(true),
            ..PutOptions::default()
        };
        let mut content = content(&[(EXPIRES_AT, DATE)]);
        put(&mut client, None, Some("pair"), None, &content, &as_is)
            .await
            .unwrap();
        assert_eq!(
            metadata(&mut client, "pair").await,
            pairs(&[(EXPIRES_AT, DATE)])
        );
        content.expires_at_usecs = Some(1_767_225_720_000_000);
        put(&mut client, None, Some("field"), None, &content, &as_is)
            .await
            .unwrap();
        assert_eq!(
            metadata(&mut client, "field").await,
            pairs(&[(EXPIRES_AT, LATER)])
        );
    });
}

#[test]
fn a_tombstone_has_no_end() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let tombstone = pb::RpbContent {
            deleted: Some(true),
            ..content(&[(TTL, "60")])
        };
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let reply = put(&mut client, None, Some("k"), None, &tombstone, &body).await;
        assert_eq!(reply.unwrap().content[0].usermeta, []);
    });
}

#[test]
fn a_bucket_has_an_expiry_in_a_field_of_its_own() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let set = pb::RpbBucketProps {
            expiry_secs: Some(60),
            ..Default::default()
        };
        let before = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!(before.expiry_secs, None);
        client
            .set_bucket_properties(None, bytes("b"), set)
            .await
            .unwrap();
        let after = client.bucket_properties(None, bytes("b")).await.unwrap();
        assert_eq!(after.expiry_secs, Some(60));
        put_content(&mut client, "plain", &content(&[])).await;
        put_content(&mut client, "own", &content(&[(TTL, "120")])).await;
        let shown = metadata(&mut client, "plain").await;
        assert_eq!(shown, pairs(&[(EXPIRES_AT, DATE)]));
        let shown = metadata(&mut client, "own").await;
        assert_eq!(shown, pairs(&[(EXPIRES_AT, LATER)]));
        // An importer sends the complete object.
        let as_is = PutOptions {
            asis: Some(true),
            ..PutOptions::default()
        };
        let lasting = content(&[]);
        put(&mut client, None, Some("as is"), None, &lasting, &as_is)
            .await
            .unwrap();
        assert_eq!(metadata(&mut client, "as is").await, pairs(&[]));
    });
}
