//! Objects: stored ones come back, with siblings, tombstones and all metadata.

use bytes::Bytes;
use kvorum_client::{DeleteOptions, GetOptions, PutOptions, pb};
use kvorum_properties::PropertyOverlay;

use crate::node::{bytes, delete, get, put, refusal, text_content, with_node};

fn whole() -> GetOptions {
    GetOptions::default()
}

fn pair(key: &'static str, value: Option<&'static str>) -> pb::RpbPair {
    pb::RpbPair {
        key: bytes(key),
        value: value.map(bytes),
    }
}

#[test]
fn an_object_comes_back_with_all_its_metadata() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let link = pb::RpbLink {
            bucket: Some(bytes("lb")),
            key: Some(bytes("lk")),
            tag: Some(bytes("lt")),
        };
        let content = pb::RpbContent {
            value: bytes("v"),
            content_type: Some(bytes("application/json")),
            charset: Some(bytes("utf-8")),
            content_encoding: Some(bytes("gzip")),
            vtag: Some(bytes("mine")),
            links: vec![link],
            last_mod: Some(1),
            last_mod_usecs: Some(1),
            usermeta: vec![pair("u", Some("1")), pair("w", None)],
            indexes: vec![pair("i_int", Some("5"))],
            deleted: None,
            expires_at_usecs: None,
        };
        let default = PutOptions::default();
        put(&mut client, None, Some("k"), None, &content, &default)
            .await
            .unwrap();
        let found = get(&mut client, None, "k", &whole()).await.unwrap();
        assert!(found.vclock.is_some_and(|vclock| !vclock.is_empty()));
        let [mut read] = <[pb::RpbContent; 1]>::try_from(found.content).unwrap();
        assert!(
            read.last_mod.take() > Some(1),
            "the write gets its own time"
        );
        assert!(read.last_mod_usecs.take().is_some());
        assert_ne!(read.vtag, content.vtag, "and its own vtag");
        read.vtag = content.vtag.clone();
        let written = pb::RpbContent {
            last_mod: None,
            last_mod_usecs: None,
            ..content
        };
        assert_eq!(read, written);
    });
}

#[test]
fn a_missing_object_is_an_empty_reply() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let found = get(&mut client, None, "missing", &whole()).await.unwrap();
        assert_eq!(found, pb::RpbGetResp::default());
    });
}

#[test]
fn large_values_come_back_whole() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let value: Bytes = (0..1_500_000u32).map(|at| at.to_le_bytes()[1]).collect();
        client.put_value(b"b", b"k", value.clone()).await.unwrap();
        client.put_value(b"b", b"small", bytes("s")).await.unwrap();
        for _ in 0..2 {
            let found = client.get_key(b"b", b"k").await.unwrap();
            assert!(found.content[0].value == value);
            assert_eq!(
                client.get_key(b"b", b"small").await.unwrap().content[0].value,
                "s"
            );
        }
    });
}

#[test]
fn a_head_request_gets_metadata_and_an_empty_value() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let default = PutOptions::default();
        let content = text_content("value");
        put(&mut client, None, Some("k"), None, &content, &default)
            .await
            .unwrap();
        let head = GetOptions {
            head: Some(true),
            ..whole()
        };
        let found = get(&mut client, None, "k", &head).await.unwrap();
        assert_eq!(found.content[0].value, "");
        assert_eq!(found.content[0].content_type, Some(bytes("text/plain")));
        assert!(found.vclock.is_some());
    });
}

#[test]
fn a_put_returns_what_it_was_asked_for() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let content = text_content("v");
        let plain = PutOptions::default();
        let reply = put(&mut client, None, Some("k"), None, &content, &plain)
            .await
            .unwrap();
        assert_eq!(reply, pb::RpbPutResp::default());
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let reply = put(&mut client, None, Some("k"), None, &content, &body)
            .await
            .unwrap();
        assert_eq!(reply.content[0].value, "v");
        assert!(reply.vclock.is_some() && reply.key.is_none());
        for return_body in [None, Some(true)] {
            let head = PutOptions {
                return_body,
                return_head: Some(true),
                ..PutOptions::default()
            };
            let reply = put(&mut client, None, Some("k"), None, &content, &head)
                .await
                .unwrap();
            assert_eq!(reply.content[0].value, "");
            assert_eq!(reply.content[0].content_type, Some(bytes("text/plain")));
            assert!(reply.vclock.is_some());
        }
    });
}

#[test]
fn a_put_without_key_gets_one() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let content = text_content("v");
        let plain = PutOptions::default();
        let first = put(&mut client, None, None, None, &content, &plain)
            .await
            .unwrap();
        assert!(first.content.is_empty());
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let second = put(&mut client, None, None, None, &content, &body)
            .await
            .unwrap();
        assert_eq!(second.content[0].value, "v");
        let keys = [first.key.unwrap(), second.key.unwrap()];
        assert_ne!(keys[0], keys[1]);
        for key in keys {
            assert!((26..=28).contains(&key.len()));
            let found = client.get_key(b"b", &key).await.unwrap();
            assert_eq!(found.content[0].value, "v");
        }
    });
}

#[test]
fn blind_writes_make_siblings_and_a_write_with_their_vclock_resolves_them() {
    with_node(|node| async move {
        node.add_type("multi", PropertyOverlay::default());
        let multi = Some("multi");
        let mut client = node.client().await;
        let plain = PutOptions::default();
        for value in ["a", "b"] {
            let content = text_content(value);
            put(&mut client, multi, Some("k"), None, &content, &plain)
                .await
                .unwrap();
        }
        let found = get(&mut client, multi, "k", &whole()).await.unwrap();
        let mut values: Vec<_> = found.content.iter().map(|it| it.value.clone()).collect();
        values.sort_unstable();
        assert_eq!(values, ["a", "b"]);
        assert_ne!(found.content[0].vtag, found.content[1].vtag);
        let vclock = found.vclock.unwrap();
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let content = text_content("ab");
        let reply = put(
            &mut client,
            multi,
            Some("k"),
            Some(&vclock),
            &content,
            &body,
        )
        .await;
        let reply = reply.unwrap();
        assert_eq!(reply.content.len(), 1);
        assert_eq!(reply.content[0].value, "ab");
    });
}

#[test]
fn without_siblings_the_last_write_stays() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for value in ["a", "b"] {
            client.put_value(b"b", b"k", bytes(value)).await.unwrap();
        }
        let found = client.get_key(b"b", b"k").await.unwrap();
        assert_eq!(found.content.len(), 1);
        assert_eq!(found.content[0].value, "b");
    });
}

#[test]
fn a_deleted_object_is_gone_and_its_vclock_can_be_had() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client.put_value(b"b", b"k", bytes("v")).await.unwrap();
        client.delete_key(b"b", b"k").await.unwrap();
        let found = get(&mut client, None, "k", &whole()).await.unwrap();
        assert_eq!(found, pb::RpbGetResp::default());
        let with_clock = GetOptions {
            deletedvclock: Some(true),
            ..whole()
        };
        let tombstone = get(&mut client, None, "k", &with_clock).await.unwrap();
        assert!(tombstone.content.is_empty());
        let vclock = tombstone.vclock.unwrap();
        let plain = PutOptions::default();
        let content = text_content("again");
        put(
            &mut client,
            None,
            Some("k"),
            Some(&vclock),
            &content,
            &plain,
        )
        .await
        .unwrap();
        let found = get(&mut client, None, "k", &whole()).await.unwrap();
        assert_eq!(found.content.len(), 1);
    });
}

#[test]
fn deletes_succeed_for_objects_that_are_not_there() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client.delete_key(b"b", b"missing").await.unwrap();
        let empty: Option<&[u8]> = Some(b"");
        delete(&mut client, "missing", empty, &DeleteOptions::default())
            .await
            .unwrap();
        let with_clock = GetOptions {
            deletedvclock: Some(true),
            ..whole()
        };
        let found = get(&mut client, None, "missing", &with_clock)
            .await
            .unwrap();
        assert_eq!(found, pb::RpbGetResp::default(), "and leave nothing behind");
    });
}

#[test]
fn a_delete_with_an_old_vclock_leaves_a_tombstone_beside_the_newer_value() {
    with_node(|node| async move {
        node.add_type("multi", PropertyOverlay::default());
        let multi = Some("multi");
        let mut client = node.client().await;
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let first = text_content("a");
        let reply = put(&mut client, multi, Some("k"), None, &first, &body)
            .await
            .unwrap();
        let seen = reply.vclock.unwrap();
        let second = text_content("b");
        put(&mut client, multi, Some("k"), Some(&seen), &second, &body)
            .await
            .unwrap();
        let options = DeleteOptions::default();
        let request = kvorum_client::Delete {
            bucket_type: Some(b"multi"),
            bucket: b"b",
            key: b"k",
            vclock: Some(&seen),
            options: &options,
        };
        client.delete(&request).await.unwrap();
        let found = get(&mut client, multi, "k", &whole()).await.unwrap();
        let mut siblings: Vec<_> = found
            .content
            .iter()
            .map(|it| (it.value.clone(), it.deleted()))
            .collect();
        siblings.sort_unstable();
        assert_eq!(siblings, [(bytes(""), true), (bytes("b"), false)]);
    });
}

#[test]
fn an_object_put_as_it_is_keeps_vclock_and_time() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client.put_value(b"b", b"from", bytes("v")).await.unwrap();
        let original = client.get_key(b"b", b"from").await.unwrap();
        let (content, vclock) = (&original.content[0], original.vclock.as_deref());
        let as_is = PutOptions {
            asis: Some(true),
            ..PutOptions::default()
        };
        put(&mut client, None, Some("to"), vclock, content, &as_is)
            .await
            .unwrap();
        let copy = client.get_key(b"b", b"to").await.unwrap();
        assert_eq!(copy.vclock, original.vclock);
        assert_eq!(copy.content[0].last_mod, content.last_mod);
        assert_eq!(copy.content[0].last_mod_usecs, content.last_mod_usecs);
    });
}

#[test]
fn an_object_put_as_it_is_may_expire_and_any_other_may_not() {
    with_node(|node| async move {
        let mut client = node.client().await;
        for (as_is, expires_at, is_there) in [
            (true, Some(1), false),
            (true, Some(u64::MAX / 2), true),
            (true, None, true),
            (false, Some(1), true),
        ] {
            let options = PutOptions {
                asis: Some(as_is),
                ..PutOptions::default()
            };
            let content = pb::RpbContent {
                expires_at_usecs: expires_at,
                ..text_content("v")
            };
            let key = format!("{as_is} {expires_at:?}");
            put(&mut client, None, Some(&key), None, &content, &options)
                .await
                .unwrap();
            let found = client.get_key(b"b", key.as_bytes()).await.unwrap();
            assert_eq!(!found.content.is_empty(), is_there, "{key}");
        }
    });
}

#[test]
fn a_put_that_is_marked_as_deleted_is_a_tombstone_without_a_value() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let content = pb::RpbContent {
            deleted: Some(true),
            ..text_content("v")
        };
        let body = PutOptions {
            return_body: Some(true),
            ..PutOptions::default()
        };
        let reply = put(&mut client, None, Some("k"), None, &content, &body)
            .await
            .unwrap();
        assert_eq!(
            (&reply.content[0].value[..], reply.content[0].deleted()),
            (&b""[..], true)
        );
        let found = get(&mut client, None, "k", &whole()).await.unwrap();
        assert_eq!(found, pb::RpbGetResp::default());
    });
}

#[test]
fn names_without_a_byte_are_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = GetOptions::default();
        for (bucket_type, bucket, key, what) in [
            (None, &b"b"[..], &b""[..], "Key"),
            (None, b"", b"k", "Bucket"),
            (Some(&b""[..]), b"b", b"k", "Type"),
        ] {
            let request = kvorum_client::Get {
                bucket_type,
                bucket,
                key,
                options: &options,
            };
            let expected = format!("{what} cannot be zero-length");
            assert_eq!(refusal(client.get(&request).await), expected);
            let content = text_content("v");
            let request = kvorum_client::Put {
                bucket_type,
                bucket,
                key: Some(key),
                vclock: None,
                content: &content,
                options: &PutOptions::default(),
            };
            assert_eq!(refusal(client.put(&request).await), expected);
        }
    });
}

#[test]
fn the_default_type_is_the_absent_one() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client.put_value(b"b", b"k", bytes("v")).await.unwrap();
        let found = get(&mut client, Some("default"), "k", &whole())
            .await
            .unwrap();
        assert_eq!(found.content[0].value, "v");
    });
}

#[test]
fn unknown_types_and_alien_vclocks_are_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let outcome = get(&mut client, Some("nothing"), "k", &whole()).await;
        assert_eq!(refusal(outcome), "no_type");
        let (content, plain) = (text_content("v"), PutOptions::default());
        let outcome = put(
            &mut client,
            Some("nothing"),
            Some("k"),
            None,
            &content,
            &plain,
        )
        .await;
        assert_eq!(refusal(outcome), "no_type");
        let alien: Option<&[u8]> = Some(b"\x83h\x02");
        let outcome = put(&mut client, None, Some("k"), alien, &content, &plain).await;
        assert!(refusal(outcome).starts_with("Invalid vclock: "));
        let outcome = delete(&mut client, "k", alien, &DeleteOptions::default()).await;
        assert!(refusal(outcome).starts_with("Invalid vclock: "));
    });
}

#[test]
fn a_put_of_more_pieces_than_there_is_a_use_for_is_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let plain = PutOptions::default();
        let links = |count| pb::RpbContent {
            links: vec![pb::RpbLink::default(); count],
            ..text_content("v")
        };
        put(&mut client, None, Some("k"), None, &links(1_000), &plain)
            .await
            .unwrap();
        let many = links(100_001);
        let refused = put(&mut client, None, Some("k"), None, &many, &plain).await;
        assert_eq!(
            refusal(refused),
            "100001 links, metadata and index entries, at most 100000 are taken"
        );
    });
}
