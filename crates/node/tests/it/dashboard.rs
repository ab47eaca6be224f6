//! Names of metrics outside of the sources: the dashboard and the page about monitoring name only
//! metrics that a node exports.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::server::Site;

const DASHBOARD: &str = include_str!("../../../../dashboards/kvorum.json");
const PAGE: &str = include_str!("../../../../docs/monitoring.md");

/// The prefix of every metric's name.
const PREFIX: &str = "kvorum_";

/// A gauge that is absent while the backlog does not shrink.
const NOT_ALWAYS: &str = "kvorum_maintenance_paid_in_seconds";

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_outside = |it: char| !it.is_ascii_alphanumeric() && it != '_';
    let words = text.split(is_outside);
    words.filter(|word| word.starts_with(PREFIX)).collect()
}

/// Names of the samples of every metric family that a node describes.
fn given(metrics: &[String]) -> BTreeSet<String> {
    let mut names = BTreeSet::from([NOT_ALWAYS.to_owned()]);
    for line in metrics {
        let described = line.strip_prefix("# TYPE ");
        let Some((name, kind)) = described.and_then(|it| it.split_once(' ')) else {
            continue;
        };
        let endings: &[&str] = match kind.trim() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            "info" => &["_info"],
            _ => &[""],
        };
        names.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    names
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_page_is_given_by_a_node() {
    let mut site = Site::new();
    // Figures of exchanges exist only if replicas are compared.
    site.settings = vec!["tictacaae_active=active".to_owned()];
    let _server = site.start();
    let given = given(&site.metrics());
    for (place, text) in [
        ("dashboards/kvorum.json", DASHBOARD),
        ("docs/monitoring.md", PAGE),
    ] {
        let named = named(text);
        assert!(!named.is_empty(), "{place} names no metric");
        let unknown: Vec<&str> = named
            .into_iter()
            .filter(|name| !given.contains(*name))
            .collect();
        assert!(
            unknown.is_empty(),
            "{place}: no node gives {unknown:?}, but {given:?}"
        );
    }
}

#[test]
fn every_panel_of_the_dashboard_has_a_title_and_draws_something() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["title"].is_string(), "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        let names_a_source = |it: &Value| it["expr"].as_str().is_some_and(|it| !it.is_empty());
        assert!(!targets.is_empty(), "{panel}");
        assert!(targets.iter().all(names_a_source), "{panel}");
    }
}
