//! Conditions and quorums: requests that succeed only under conditions.

use kvorum_client::{DeleteOptions, GetOptions, PutOptions, pb, quorum};

use crate::node::{bytes, delete, get, put, refusal, text_content, with_node};

#[test]
fn a_put_if_none_match_writes_once() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = PutOptions {
            if_none_match: Some(true),
            ..PutOptions::default()
        };
        let content = text_content("v");
        put(&mut client, None, Some("k"), None, &content, &options)
            .await
            .unwrap();
        let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
        assert_eq!(refusal(outcome), "match_found");
        client.delete_key(b"b", b"k").await.unwrap();
        put(&mut client, None, Some("k"), None, &content, &options)
            .await
            .unwrap();
    });
}

#[test]
fn a_put_if_not_modified_wants_the_present_version() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = PutOptions {
            if_not_modified: Some(true),
            ..PutOptions::default()
        };
        let content = text_content("v");
        let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
        assert_eq!(refusal(outcome), "notfound");
        client.put_value(b"b", b"k", bytes("1")).await.unwrap();
        let seen = client.get_key(b"b", b"k").await.unwrap().vclock.unwrap();
        put(
            &mut client,
            None,
            Some("k"),
            Some(&seen),
            &content,
            &options,
        )
        .await
        .unwrap();
        let outcome = put(
            &mut client,
            None,
            Some("k"),
            Some(&seen),
            &content,
            &options,
        )
        .await;
        assert_eq!(refusal(outcome), "modified");
        let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
        assert_eq!(refusal(outcome), "modified");
    });
}

#[test]
fn of_two_conditions_none_match_counts() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = PutOptions {
            if_none_match: Some(true),
            if_not_modified: Some(true),
            ..PutOptions::default()
        };
        let content = text_content("v");
        put(&mut client, None, Some("k"), None, &content, &options)
            .await
            .unwrap();
        let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
        assert_eq!(refusal(outcome), "match_found");
    });
}

#[test]
fn a_get_if_modified_says_unchanged_alone() {
    with_node(|node| async move {
        let mut client = node.client().await;
        client.put_value(b"b", b"k", bytes("1")).await.unwrap();
        let seen = client.get_key(b"b", b"k").await.unwrap().vclock;
        let options = GetOptions {
            if_modified: seen,
            ..GetOptions::default()
        };
        let found = get(&mut client, None, "k", &options).await.unwrap();
        let unchanged = pb::RpbGetResp {
            unchanged: Some(true),
            ..Default::default()
        };
        assert_eq!(found, unchanged);
        client.put_value(b"b", b"k", bytes("2")).await.unwrap();
        let found = get(&mut client, None, "k", &options).await.unwrap();
        assert_eq!(found.content[0].value, "2");
        assert_eq!(found.unchanged, None);
        client.delete_key(b"b", b"k").await.unwrap();
        let found = get(&mut client, None, "k", &options).await.unwrap();
        assert_eq!(found, pb::RpbGetResp::default());
    });
}

#[test]
fn quorums_above_the_number_of_copies_are_violations() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let content = text_content("v");
        for options in [
            PutOptions {
                w: Some(4),
                ..PutOptions::default()
            },
            PutOptions {
                dw: Some(4),
                ..PutOptions::default()
            },
            PutOptions {
                pw: Some(4),
                ..PutOptions::default()
            },
            PutOptions {
                n_val: Some(4),
                ..PutOptions::default()
            },
            PutOptions {
                node_confirms: Some(4),
                ..PutOptions::default()
            },
        ] {
            let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
            // The error names the request's own n_val, as in Riak.
            let named = options.n_val.unwrap_or(3);
            let text = format!("{{n_val_violation,{named}}}");
            assert_eq!(refusal(outcome), text, "{options:?}");
        }
        for options in [
            GetOptions {
                r: Some(4),
                ..GetOptions::default()
            },
            GetOptions {
                pr: Some(4),
                ..GetOptions::default()
            },
            GetOptions {
                n_val: Some(4),
                ..GetOptions::default()
            },
        ] {
            let outcome = get(&mut client, None, "k", &options).await;
            let named = options.n_val.unwrap_or(3);
            let text = format!("{{n_val_violation,{named}}}");
            assert_eq!(refusal(outcome), text, "{options:?}");
        }
    });
}

#[test]
fn every_option_of_a_request_can_be_given() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = PutOptions {
            w: Some(quorum::ALL),
            dw: Some(quorum::QUORUM),
            pw: Some(quorum::ONE),
            node_confirms: Some(1),
            timeout_ms: Some(5_000),
            sloppy_quorum: Some(false),
            n_val: Some(2),
            sync_on_write: Some(bytes("all")),
            ..PutOptions::default()
        };
        let content = text_content("v");
        put(&mut client, None, Some("k"), None, &content, &options)
            .await
            .unwrap();
        let options = GetOptions {
            r: Some(quorum::QUORUM),
            pr: Some(quorum::ONE),
            node_confirms: Some(quorum::DEFAULT),
            basic_quorum: Some(true),
            notfound_ok: Some(false),
            timeout_ms: Some(5_000),
            sloppy_quorum: Some(false),
            n_val: Some(2),
            ..GetOptions::default()
        };
        let found = get(&mut client, None, "k", &options).await.unwrap();
        assert_eq!(found.content[0].value, "v");
        let options = DeleteOptions {
            rw: Some(quorum::ALL),
            r: Some(2),
            w: Some(2),
            pr: Some(1),
            pw: Some(1),
            dw: Some(1),
            timeout_ms: Some(5_000),
            sloppy_quorum: Some(false),
            n_val: Some(3),
        };
        delete(&mut client, "k", found.vclock.as_deref(), &options)
            .await
            .unwrap();
        let found = client.get_key(b"b", b"k").await.unwrap();
        assert!(found.content.is_empty());
    });
}

#[test]
fn nodes_that_do_not_exist_cannot_confirm() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = GetOptions {
            node_confirms: Some(2),
            ..GetOptions::default()
        };
        let text = refusal(get(&mut client, None, "k", &options).await);
        assert!(text.contains("insufficient_nodes"), "{text}");
    });
}

#[test]
fn an_unknown_word_for_sync_on_write_is_refused() {
    with_node(|node| async move {
        let mut client = node.client().await;
        let options = PutOptions {
            sync_on_write: Some(bytes("some")),
            ..PutOptions::default()
        };
        let content = text_content("v");
        let outcome = put(&mut client, None, Some("k"), None, &content, &options).await;
        assert_eq!(refusal(outcome), "Invalid sync_on_write: some");
    });
}
