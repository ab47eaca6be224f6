//! The guide to choosing a backend has every rule, with a figure or the place that shows it.

use std::path::Path;

use kvorum_advise::{RuleTable, guide_page};

#[test]
fn the_page_is_what_the_rules_say() {
    let page = include_str!("../../../../docs/choosing-a-backend.md");
    assert!(
        page == guide_page().unwrap(),
        "write it again: cargo run -p kvorum-advise --example write_choosing"
    );
}

#[test]
fn the_place_that_shows_a_rule_is_there() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for rule in RuleTable::built_in().unwrap().rules {
        let (file, _) = rule.proof.split_once('#').unwrap_or((&rule.proof, ""));
        assert!(docs.join(file).is_file(), "{}: {}", rule.reason, rule.proof);
        assert!(!rule.here.is_empty(), "{}", rule.reason);
    }
}
