//! The guide to choosing a backend, as a page: the rules of the table by engine, each with the state of
//! affairs here and the place that shows it.

use std::fmt::Write as _;

use crate::engines::{Engine, EngineTable};
use crate::error::AdviseError;
use crate::rules::{DERIVED, Rule, RuleTable};

const HEAD: &str = "# Choosing a backend

This page is generated from the rules of `kvorum advise`: `cargo run -p kvorum-advise --example write_choosing`.
[The rules](../crates/advise/src/rules.toml) have the publisher of each, too.

`kvorum advise backend` applies them to the facts of your data and weighs them up ([advice](advise.md)).
A backend with an *avoid* is out; each *prefer* speaks for one, and each *caution* names a price.
A condition in code is one on [the facts](#facts) at the end.
Figures are of this project's own measurements, most of them while data fits in memory; *reasoned* ones are not measured.

With `storage_backend = multi` each bucket type has the backend that suits it, and data [moves between them](migrating-between-backends.md) while the nodes serve.
";

/// The page `docs/choosing-a-backend.md`.
///
/// # Errors
/// [`AdviseError::Table`], which a test rules out.
pub fn guide_page() -> Result<String, AdviseError> {
    let (rules, engines) = (RuleTable::built_in()?, EngineTable::built_in()?);
    let mut page = HEAD.to_owned();
    for engine in &engines.engines {
        add_engine(&mut page, engine, &rules);
    }
    add_facts(&mut page, &rules);
    Ok(page)
}

fn add_engine(page: &mut String, engine: &Engine, rules: &RuleTable) {
    let mut own: Vec<&Rule> = rules.rules.iter().collect();
    own.retain(|rule| rule.backend == engine.name);
    own.sort_by_key(|rule| rule.verdict);
    // Writing to a String cannot fail.
    let _infallible = write!(
        page,
        "\n## {}\n\n{}.\n\n",
        engine.name,
        capital(&engine.summary)
    );
    for rule in own.iter().filter(|rule| rule.holds_here) {
        add_rule(page, &rule.verdict.to_string(), rule);
    }
    let mut passed_over = own.iter().filter(|rule| !rule.holds_here).peekable();
    if passed_over.peek().is_some() {
        page.push_str("\nPublished warnings that do not hold here:\n\n");
    }
    for rule in passed_over {
        add_rule(page, "not here", rule);
    }
}

fn add_rule(page: &mut String, word: &str, rule: &Rule) {
    let conditions = rule.when.iter().map(|it| format!("`{it}`"));
    let conditions: Vec<String> = conditions.collect();
    let _infallible = writeln!(
        page,
        "- **{word}** if {}: {}.\n  {} ([shown here]({})).",
        conditions.join(" and "),
        rule.reason,
        capital(&rule.here),
        rule.proof,
    );
}

fn add_facts(page: &mut String, rules: &RuleTable) {
    page.push_str(
        "\n## Facts\n\nA fact with `!` is one that does not hold; shares are between 0 and 1.\n\n\
         | fact | question |\n|---|---|\n",
    );
    for fact in &rules.facts {
        let _infallible = writeln!(page, "| `{}` | {} |", fact.name, fact.question);
    }
    for (name, from) in DERIVED {
        let from: Vec<String> = from.iter().map(|it| format!("`{it}`")).collect();
        let _infallible = writeln!(page, "| `{name}` | worked out from {} |", from.join(", "));
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
