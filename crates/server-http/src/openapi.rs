//! `/openapi.json`: the description of this interface in the form that tools read.
//!
//! It is written by hand, since the code does not express the meanings of statuses and parameters.
//! The tests here compare its paths and methods with the routes; those in `tests/it/openapi.rs`
//! compare answers with their descriptions.

use http::StatusCode;

use crate::reply::{Answer, json};

/// An OpenAPI document.
const DOCUMENT: &str = include_str!("../openapi.json");

/// The description.
pub(crate) fn description() -> Answer {
    json(StatusCode::OK, DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value};

    use super::DOCUMENT;
    use crate::route::{Form, KeyFoldVerb, Probe, Route};

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// The resource of each path, whatever the names in it, and its description.
    fn resources(document: &Value) -> Vec<(Route, &Map<String, Value>)> {
        let paths = document["paths"].as_object().unwrap().iter();
        let resources = paths.map(|(template, item)| {
            let route = Route::of_path(&filled(template), true);
            (route.expect(template), item.as_object().unwrap())
        });
        resources.collect()
    }

    /// A path with a name for each parameter.
    fn filled(template: &str) -> String {
        let pieces = template.split(['{', '}']).enumerate();
        let filled = pieces.map(|(at, piece)| if at.is_multiple_of(2) { piece } else { "x" });
        filled.collect()
    }

    fn methods_described(item: &Map<String, Value>) -> BTreeSet<String> {
        let names = item.keys().filter(|name| *name != "parameters");
        names.map(|name| name.to_uppercase()).collect()
    }

    /// The methods that do not always answer 404.
    fn methods_answered(route: &Route) -> BTreeSet<String> {
        let methods: &[&str] = match route {
            Route::DataTypes(_) => &["POST"],
            route => route.methods(),
        };
        let takes_posts = matches!(route, Route::OldBucket(_) | Route::Keys(_));
        let posted = takes_posts.then_some("POST");
        let methods = methods.iter().copied().chain(posted);
        methods.map(str::to_owned).collect()
    }

    /// A new resource gets a name here, and then has to be described.
    fn name(route: &Route) -> String {
        let of_form = |name: &str, form: Form| format!("{name}, {form:?}");
        match route {
            Route::Root => "root".to_owned(),
            Route::Ping => "ping".to_owned(),
            Route::Health(Probe::Live) => "live".to_owned(),
            Route::Health(Probe::Ready) => "ready".to_owned(),
            Route::Stats => "stats".to_owned(),
            Route::Metrics => "metrics".to_owned(),
            Route::OpenApi => "openapi".to_owned(),
            Route::MapReduce => "jobs".to_owned(),
            Route::Buckets(form, _) => of_form("buckets", *form),
            Route::OldBucket(path) => of_form("bucket", path.form),
            Route::BucketProperties(path) => of_form("properties", path.form),
            Route::TypeProperties(_) => "properties of a type".to_owned(),
            Route::Keys(path) => of_form("keys", path.form),
            Route::Object(path, _) => of_form("object", path.form),
            Route::Counter(path, _) => of_form("counter", path.form),
            Route::DataTypes(path) => of_form("values", path.form),
            Route::DataType(path, _) => of_form("value", path.form),
            Route::PreferenceList(path, _) => of_form("preference list", path.form),
            Route::Index(index) if index.last.is_some() => of_form("range", index.path.form),
            Route::Index(index) if index.first.is_empty() => of_form("index", index.path.form),
            Route::Index(index) => of_form("entries", index.path.form),
            Route::Query(path) => of_form("query", path.form),
            Route::KeyFold(path, verb) => of_form(name_of_fold(verb), path.form),
            Route::AllBuckets => "all buckets".to_owned(),
            Route::LinkWalk(path, ..) => of_form("walk", path.form),
            Route::InvalidLinkWalk => "no walk".to_owned(),
        }
    }

    fn name_of_fold(verb: &KeyFoldVerb) -> &'static str {
        match verb {
            KeyFoldVerb::ObjectStats => "object stats",
            KeyFoldVerb::SiblingsAbove(_) => "keys by siblings",
            KeyFoldVerb::SizeAbove(_) => "keys by size",
            KeyFoldVerb::Tombstones => "tombstones",
            KeyFoldVerb::Clocks => "clocks",
            KeyFoldVerb::Tree(_) => "tree",
            KeyFoldVerb::Reap => "reap",
            KeyFoldVerb::Erase => "erase",
            KeyFoldVerb::Repair => "repair",
            KeyFoldVerb::Replicate => "replicate",
        }
    }

    const RESOURCES: [&str; 57] = [
        "root",
        "ping",
        "live",
        "ready",
        "stats",
        "metrics",
        "openapi",
        "jobs",
        "buckets, Old",
        "buckets, Untyped",
        "buckets, Typed",
        "bucket, Old",
        "properties, Untyped",
        "properties, Typed",
        "properties of a type",
        "keys, Untyped",
        "keys, Typed",
        "object, Old",
        "object, Untyped",
        "object, Typed",
        "counter, Untyped",
        "values, Typed",
        "value, Typed",
        "preference list, Untyped",
        "preference list, Typed",
        "index, Untyped",
        "index, Typed",
        "entries, Untyped",
        "entries, Typed",
        "range, Untyped",
        "range, Typed",
        "query, Untyped",
        "query, Typed",
        "object stats, Untyped",
        "keys by siblings, Untyped",
        "keys by size, Untyped",
        "tombstones, Untyped",
        "clocks, Untyped",
        "tree, Untyped",
        "reap, Untyped",
        "erase, Untyped",
        "repair, Untyped",
        "replicate, Untyped",
        "object stats, Typed",
        "keys by siblings, Typed",
        "keys by size, Typed",
        "tombstones, Typed",
        "clocks, Typed",
        "tree, Typed",
        "reap, Typed",
        "erase, Typed",
        "repair, Typed",
        "replicate, Typed",
        "all buckets",
        "walk, Old",
        "walk, Untyped",
        "walk, Typed",
    ];

    #[test]
    fn every_resource_is_described_and_nothing_else() {
        let document = document();
        let described: BTreeSet<String> = resources(&document)
            .iter()
            .map(|(route, _)| name(route))
            .collect();
        assert_eq!(described, BTreeSet::from(RESOURCES.map(str::to_owned)));
    }

    #[test]
    fn every_resource_is_described_with_its_methods() {
        let document = document();
        for (route, item) in resources(&document) {
            assert_eq!(
                methods_described(item),
                methods_answered(&route),
                "{route:?}"
            );
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = document();
        let mut names = BTreeSet::new();
        for (route, item) in resources(&document) {
            for method in methods_described(item) {
                let name = &item[&method.to_lowercase()]["operationId"];
                let is_new = names.insert(name.as_str().unwrap().to_owned());
                assert!(is_new, "{method} {route:?}: {name}");
            }
        }
    }

    #[test]
    fn references_lead_somewhere_and_components_are_used() {
        let document = document();
        let mut used = BTreeSet::new();
        put_references(&document, &mut used);
        let mut components = BTreeSet::new();
        for (kind, named) in document["components"].as_object().unwrap() {
            let named = named.as_object().unwrap().keys();
            components.extend(named.map(|name| format!("#/components/{kind}/{name}")));
        }
        assert_eq!(used, components);
    }

    fn put_references(value: &Value, references: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    references.insert(reference.clone());
                }
                for member in members.values() {
                    put_references(member, references);
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    put_references(element, references);
                }
            }
            _ => {}
        }
    }
}
