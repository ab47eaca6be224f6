//! The check of new values: a property without effect is refused or, if that is harmless, reported.
//!
//! The rule is applied once, by the node that receives a client's change, before the change is proposed to
//! the cluster. It is not a rule of the agreed state: commands in the log of a cluster were accepted by the
//! rules of the version that wrote them, and every later version has to carry them out.

use serde_json::{Map, Value};

use crate::commit_hook::CommitHook;
use crate::effect::{Effect, WithoutEffect};
use crate::errors::{PropertyErrors, Reason};
use crate::table::{BucketProperties, PropertyOverlay, READ_ONLY};
use crate::validator::Validator;

impl PropertyOverlay {
    /// Refuses this overlay's changes to `current` that this server would not keep; returns the
    /// changes without effect. `backends` are this node's names for its storage backend, `tags` the
    /// names of the kinds of objects.
    pub fn check_kept(
        &self,
        current: &BucketProperties,
        backends: &[&str],
        tags: &[&str],
    ) -> Result<Vec<WithoutEffect>, PropertyErrors> {
        let mut errors = PropertyErrors::default();
        let mut without_effect = Vec::new();
        let updated = current.with(self);
        for (property, effect) in self.changes(current) {
            match effect {
                Effect::Honoured => {}
                Effect::Guarded => {
                    if let Some(reason) = self.not_kept(property, &updated, backends, tags) {
                        errors.push(property, reason);
                    }
                }
                Effect::Harmless(because) => {
                    without_effect.push(WithoutEffect { property, because });
                }
            }
        }
        errors.or_else_ok(without_effect)
    }

    /// This layer in place of `before`, with the backend of `before` if it names none. A configuration has
    /// no key for the backend of buckets without a type, but a backend that a migration has set must stay.
    #[must_use]
    pub fn staying_in_backend_of(&self, before: &Self) -> Self {
        Self {
            backend: self.backend.as_ref().or(before.backend.as_ref()).cloned(),
            ..self.clone()
        }
    }

    /// The names in `wanted` that cannot be set, such as `name` and `claimant`. A name with the
    /// same value as in `shown` (the properties that clients read) changes nothing and is omitted.
    pub fn passed_over(
        wanted: &Map<String, Value>,
        shown: &Map<String, Value>,
    ) -> Vec<WithoutEffect> {
        READ_ONLY
            .iter()
            .filter(|(name, _)| wanted.contains_key(*name) && wanted.get(*name) != shown.get(*name))
            .map(|&(property, because)| WithoutEffect { property, because })
            .collect()
    }

    /// The reason for not keeping the value of a guarded property.
    fn not_kept(
        &self,
        property: &str,
        updated: &BucketProperties,
        backends: &[&str],
        tags: &[&str],
    ) -> Option<Reason> {
        match property {
            "consistent" => (self.consistent == Some(true)).then_some(Reason::NoStrongConsistency),
            "precommit" => not_run(updated),
            "postcommit" => (!updated.postcommit.is_empty()).then_some(Reason::NoCommitHooks),
            "linkfun" => (!updated.linkfun.is_run()).then_some(Reason::ForeignLinkFunction),
            "backend" => {
                let is_known = |name: &String| backends.contains(&name.as_str());
                let is_foreign = !self.backend.as_ref().is_none_or(is_known);
                is_foreign.then(|| Reason::NoSuchBackend {
                    known: backends.join(" or "),
                })
            }
            "object_tag" => {
                let is_known = |name: &String| tags.contains(&name.as_str());
                let is_foreign = !self.object_tag.as_ref().is_none_or(is_known);
                is_foreign.then(|| Reason::NoSuchTag {
                    known: tags.join(" or "),
                })
            }
            other => unreachable!("{other} is guarded, and nothing guards it"),
        }
    }
}

/// The reason for not running all hooks before a commit.
fn not_run(properties: &BucketProperties) -> Option<Reason> {
    let reason = |hook: &CommitHook| match hook {
        CommitHook::Validator(_) => None,
        CommitHook::Module(function) => Some(match Validator::of(function) {
            Some(Err(detail)) => Reason::NoSuchValidator { detail },
            Some(Ok(_)) | None => Reason::ForeignHook,
        }),
        CommitHook::Named(_) => Some(Reason::ForeignHook),
    };
    let foreign = properties.precommit.iter().find_map(reason);
    let is_of_type = properties.datatype.is_some() && !properties.precommit.is_empty();
    foreign.or_else(|| is_of_type.then_some(Reason::DatatypeValidator))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A value other than the default, for each property of the table.
    fn sample(property: &str) -> Value {
        match property {
            "n_val" => json!(2),
            "r" | "w" | "dw" | "pr" | "pw" | "rw" | "node_confirms" => json!("all"),
            "sync_on_write" => json!("all"),
            "basic_quorum" | "allow_mult" | "last_write_wins" | "dvv_enabled" => json!(true),
            "notfound_ok" | "repl" => json!(false),
            "young_vclock" | "old_vclock" | "small_vclock" | "big_vclock" => json!(7),
            "precommit" | "postcommit" => json!([{"mod": "m", "fun": "f"}]),
            "chash_keyfun" => json!({"mod": "riak_core_util", "fun": "chash_bucketonly_keyfun"}),
            "linkfun" => json!({"mod": "m", "fun": "f"}),
            "datatype" => json!("set"),
            "hll_precision" => json!(9),
            "expiry_secs" => json!(60),
            "consistent" | "write_once" | "search" | "stat_tracked" | "aae_tree_exclude" => {
                json!(true)
            }
            "backend" | "object_tag" | "search_index" => json!("x"),
            other => panic!("no sample value of {other}"),
        }
    }

    fn overlay(property: &str, value: Value) -> PropertyOverlay {
        let object = [(property.to_owned(), value)].into_iter().collect();
        PropertyOverlay::from_json(&object).unwrap()
    }

    /// Regression: eighteen properties were stored without effect and without a warning. Each
    /// property of the table is honoured, refused with a reason, or reported.
    #[test]
    fn no_property_is_taken_silently() {
        let current = BucketProperties::untyped_defaults();
        for (property, effect) in PropertyOverlay::EFFECTS {
            let checked =
                overlay(property, sample(property)).check_kept(&current, &["leveldb"], &["o_rkv"]);
            match effect {
                Effect::Honoured => assert_eq!(checked, Ok(Vec::new()), "{property}"),
                Effect::Guarded => {
                    let errors = checked.unwrap_err();
                    let (refused, reason) = &errors.pairs[0];
                    assert_eq!(refused, property);
                    assert!(reason.text().contains(" not ") || reason.text().contains(" no "));
                    assert!(
                        reason.text().contains("; "),
                        "{property}: what to do is missing"
                    );
                }
                Effect::Harmless(because) => {
                    let named = WithoutEffect { property, because };
                    assert_eq!(checked, Ok(vec![named]));
                }
            }
        }
    }

    /// The page is for people; the table in the code is authoritative.
    #[test]
    fn the_page_says_what_the_table_says() {
        let page = include_str!("../../../docs/properties.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let mut documented: Vec<(&str, &str, &str)> = rows
            .flat_map(|row| {
                let cells: Vec<_> = row.split('|').map(str::trim).collect();
                let names = cells[1].split(", ").map(|name| name.trim_matches('`'));
                let (word, detail) = (cells[2], cells[3]);
                names
                    .map(move |name| (name, word, detail))
                    .collect::<Vec<_>>()
            })
            .collect();
        let of_effect = PropertyOverlay::EFFECTS
            .iter()
            .map(|&(name, effect)| match effect {
                Effect::Honoured => (name, "honoured", ""),
                Effect::Guarded => (name, "refused", ""),
                Effect::Harmless(because) => (name, "without effect", because),
            });
        let read_only = READ_ONLY
            .iter()
            .map(|&(name, because)| (name, "not kept", because));
        for (name, word, because) in of_effect.chain(read_only) {
            let at = documented.iter().position(|row| row.0 == name);
            let row = documented.remove(at.unwrap_or_else(|| panic!("{name} is missing")));
            assert_eq!(row.1, word, "{name}");
            assert!(
                row.2.starts_with(because),
                "{name}: {} and not {because}",
                row.2
            );
        }
        assert_eq!(documented, [], "these are no properties");
    }

    #[test]
    fn what_a_client_reads_it_can_write_back() {
        let current = BucketProperties::untyped_defaults();
        let read = PropertyOverlay::from_json(&current.to_json()).unwrap();
        assert_eq!(read.check_kept(&current, &["leveldb"], &[]), Ok(Vec::new()));
        // A type of an earlier version may have values that are refused now.
        let consistent = current.with(&overlay("consistent", json!(true)));
        let again = overlay("consistent", json!(true));
        assert_eq!(again.check_kept(&consistent, &[], &[]), Ok(Vec::new()));
    }

    /// Regression: a change of a bucket's name was silently ignored.
    #[test]
    fn names_that_cannot_be_set_are_named() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let shown = object(json!({"name": "b", "active": true, "n_val": 3}));
        let back = PropertyOverlay::passed_over(&shown, &shown);
        assert_eq!(back, []);
        let wanted = object(json!({"name": "other", "active": true, "claimant": "x", "n_val": 2}));
        let passed_over = PropertyOverlay::passed_over(&wanted, &shown);
        let names: Vec<_> = passed_over.iter().map(|it| it.property).collect();
        assert_eq!(names, ["name", "claimant"]);
        assert_eq!(PropertyOverlay::from_json(&wanted).unwrap().n_val, Some(2));
    }

    /// Regression: another link function was accepted without effect, while each link phase read
    /// the Link metadata.
    #[test]
    fn of_link_functions_riaks_own_is_kept() {
        let current = BucketProperties::untyped_defaults();
        let checked = |function: Value| {
            let kept = overlay("linkfun", function).check_kept(&current, &[], &[]);
            kept.map_err(|errors| errors.pairs[0].1.clone())
        };
        for module in ["riak_kv_wm_link_walker", "raw_link_walker"] {
            let own = json!({"mod": module, "fun": "mapreduce_linkfun"});
            assert_eq!(checked(own), Ok(Vec::new()), "{module}");
        }
        for foreign in [
            json!({"mod": "riak_kv_wm_link_walker", "fun": "other"}),
            json!({"mod": "m", "fun": "mapreduce_linkfun"}),
            json!({"jsfun": "mapreduce_linkfun"}),
            json!({"jsanon": "function(){}"}),
        ] {
            assert_eq!(checked(foreign), Err(Reason::ForeignLinkFunction));
        }
    }

    #[test]
    fn of_hooks_the_validators_are_kept() {
        let current = BucketProperties::untyped_defaults();
        let hook = |module: &str, function: &str| json!({"mod": module, "fun": function});
        let checked = |property: &str, hooks: Value, current: &BucketProperties| {
            let kept = overlay(property, hooks).check_kept(current, &[], &[]);
            let error = |errors: PropertyErrors| errors.pairs[0].1.clone();
            kept.map_or_else(
                |errors| error(errors).text().into_owned(),
                |_| String::new(),
            )
        };
        let (json, size) = (hook("kvorum", "json"), hook("kvorum", "max_bytes:9"));
        assert_eq!(checked("precommit", json!([json, size]), &current), "");
        for (hooks, reason) in [
            (json!([json, hook("m", "f")]), "Erlang and JavaScript"),
            (json!([{"name": "json"}]), "Erlang and JavaScript"),
            (json!([hook("kvorum", "xml")]), "no validator of this name"),
            (
                json!([hook("kvorum", "json_schema:{")]),
                "the schema is no JSON",
            ),
        ] {
            let text = checked("precommit", hooks, &current);
            assert!(text.contains(reason) && text.contains("; "), "{text}");
        }
        let after = checked("postcommit", json!([json]), &current);
        assert!(after.contains("would not run"), "{after}");
        let sets = current.with(&overlay("datatype", json!("set")));
        let typed = checked("precommit", json!([json]), &sets);
        assert!(typed.contains("data types"), "{typed}");
    }

    #[test]
    fn a_kind_of_objects_that_is_there_may_be_named() {
        let current = BucketProperties::untyped_defaults();
        let tagged = overlay("object_tag", json!("document"));
        let known = ["o_rkv", "document"];
        assert!(tagged.check_kept(&current, &[], &known).is_ok());
        let errors = tagged.check_kept(&current, &[], &["o_rkv", "h"]);
        let text = errors.unwrap_err().to_string();
        assert!(text.contains("name o_rkv or h"), "{text}");
    }

    #[test]
    fn the_backend_of_the_node_may_be_named() {
        let current = BucketProperties::untyped_defaults();
        let own = overlay("backend", json!("leveldb"));
        assert!(
            own.check_kept(&current, &["leveldb", "eleveldb"], &[])
                .is_ok()
        );
        let errors = own.check_kept(&current, &["bitcask"], &[]).unwrap_err();
        assert!(errors.to_string().contains("name bitcask"), "{errors}");
    }
}
