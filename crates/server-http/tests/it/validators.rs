//! Validators of a bucket: rejected values are not stored.

use crate::client::Client;
use crate::world::run;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PROPS: &str = "/buckets/b/props";
const KEY: &str = "/buckets/b/keys/k";

async fn set(client: &mut Client, path: &str, precommit: &str) -> u16 {
    let body = format!("{{\"props\":{{\"precommit\":{precommit}}}}}");
    let answer = client.ask("PUT", path, &[JSON], body.as_bytes()).await;
    answer.status
}

/// Status and text of the answer to a put.
async fn put(client: &mut Client, path: &str, value: &str) -> (u16, String) {
    let answer = client.ask("PUT", path, &[JSON], value.as_bytes()).await;
    (answer.status, answer.text().to_owned())
}

#[test]
fn a_value_that_no_validator_lets_pass_is_refused_with_its_fault() {
    run(|world| async move {
        let mut client = world.client().await;
        let person = r#"{\"type\":\"object\",\"required\":[\"name\"]}"#;
        let hooks = format!(
            r#"[{{"mod":"kvorum","fun":"max_bytes:40"}},
                {{"mod":"kvorum","fun":"json_schema:{person}"}}]"#
        );
        assert_eq!(set(&mut client, PROPS, &hooks).await, 204);
        for (value, text) in [
            ("{\"name\": ", "json_schema: EOF while parsing"),
            ("{}", "json_schema: the value lacks the member name\n"),
            (
                "{\"name\": \"a name that is much too long\"}   ",
                "max_bytes: the value has 43 bytes, and at most 40 may be\n",
            ),
        ] {
            let (status, said) = put(&mut client, KEY, value).await;
            assert_eq!(status, 403, "{value}");
            assert!(said.starts_with(text), "{said}");
            assert_eq!(client.get(KEY).await.status, 404, "{value}");
        }
        let (status, said) = put(&mut client, KEY, "{\"name\": \"Ann\"}").await;
        assert_eq!(status, 204, "{said}");
        // A delete has no value, and stored objects stay.
        assert_eq!(
            set(&mut client, PROPS, &hooks.replace("40", "1")).await,
            204
        );
        assert_eq!(client.get(KEY).await.status, 200);
        assert_eq!(client.ask("DELETE", KEY, &[], b"").await.status, 204);
        assert_eq!(put(&mut client, KEY, "{}").await.0, 403);
        assert_eq!(set(&mut client, PROPS, "[]").await, 204);
        assert_eq!(put(&mut client, KEY, "anything").await.0, 204);
    });
}

/// Large values are read on another thread than small ones.
#[test]
fn large_values_are_validated_too() {
    run(|world| async move {
        let mut client = world.client().await;
        let hooks = r#"[{"mod":"kvorum","fun":"json"}]"#;
        assert_eq!(set(&mut client, PROPS, hooks).await, 204);
        let long = "x".repeat(100_000);
        assert_eq!(put(&mut client, KEY, &long).await.0, 403);
        let quoted = format!("\"{long}\"");
        assert_eq!(put(&mut client, KEY, &quoted).await.0, 204);
    });
}

#[test]
fn a_type_has_its_validators_for_all_buckets_but_those_with_their_own() {
    run(|world| async move {
        let mut client = world.client().await;
        let hooks = r#"[{"mod":"kvorum","fun":"json"}]"#;
        assert_eq!(set(&mut client, "/types/typed/props", hooks).await, 204);
        let free = "/types/typed/buckets/free/props";
        assert_eq!(set(&mut client, free, "[]").await, 204);
        let checked = put(&mut client, "/types/typed/buckets/b/keys/k", "text").await;
        assert_eq!(checked.0, 403);
        let passed = put(&mut client, "/types/typed/buckets/free/keys/k", "text").await;
        assert_eq!(passed.0, 204);
        let shown = client.get("/types/typed/buckets/b/props").await.json();
        let hook = &shown["props"]["precommit"][0];
        assert_eq!(hook["mod"], "kvorum");
        assert_eq!(hook["fun"], "json");
    });
}

#[test]
fn hooks_that_would_not_run_are_refused_when_they_are_set() {
    run(|world| async move {
        let mut client = world.client().await;
        for (path, hooks, reason) in [
            (PROPS, r#"[{"mod":"m","fun":"f"}]"#, "Erlang and JavaScript"),
            (PROPS, r#"[{"name":"json"}]"#, "Erlang and JavaScript"),
            (
                PROPS,
                r#"[{"mod":"kvorum","fun":"xml"}]"#,
                "no validator of this name",
            ),
            (
                PROPS,
                r#"[{"mod":"kvorum","fun":"json_schema:{\"pattern\":\"a\"}"}]"#,
                "the keyword pattern is not supported",
            ),
            (
                "/types/sets/props",
                r#"[{"mod":"kvorum","fun":"json"}]"#,
                "values of data types are not validated",
            ),
        ] {
            let body = format!("{{\"props\":{{\"precommit\":{hooks}}}}}");
            let refused = client.ask("PUT", path, &[JSON], body.as_bytes()).await;
            assert_eq!(refused.status, 400, "{hooks}");
            let said = refused.json()["precommit"].as_str().unwrap().to_owned();
            assert!(said.contains(reason), "{said}");
        }
        assert_eq!(put(&mut client, KEY, "text").await.0, 204);
    });
}
