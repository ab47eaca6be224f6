//! The share of gets that could find something, beside the share that did. Otherwise a test over
//! keys that were never written would reward a store for returning nothing.

use maud::{Markup, html};

use super::run_tables::scrolling;
use crate::draw::{Unit, counted, digits};
use crate::result::{Hits, RunResult};

/// The least difference of shares that gets a sentence: chance and gets that overlap a write cause
/// smaller ones.
const APART: f64 = 0.02;

/// The section of runs under their names; empty if no shares are known. A single run has no name.
pub(super) fn section(runs: &[(&str, &RunResult)], sections: &mut Vec<(String, String)>) -> Markup {
    let known: Vec<(&str, Hits)> = runs
        .iter()
        .filter_map(|(name, run)| Some((*name, run.hits()?)))
        .collect();
    if known.is_empty() {
        return html! {};
    }
    sections.push(("hits".to_owned(), "Gets that can find anything".to_owned()));
    html! {
        section #hits {
            h2 { "Gets that can find anything" }
            p.note {
                "A get of a key that nobody has written is fast on any store and counts as a \
                 success, here as in basho_bench. How many gets can find their key follows from \
                 the keys that can be drawn and from how many have been written by then, on a \
                 store that was empty at the start."
            }
            (scrolling(&table(&known), "Gets that can find anything"))
            @for sentence in sentences(&known) { p.note { (sentence) } }
        }
    }
}

fn table(runs: &[(&str, Hits)]) -> Markup {
    html! {
        table.numbers {
            thead {
                tr {
                    th scope="col" { "" }
                    @for head in ["keys that can be drawn", "written", "gets", "can find", "found"] {
                        th scope="col" { (head) }
                    }
                }
            }
            tbody {
                @for (name, hits) in runs {
                    tr {
                        th scope="row" { (if name.is_empty() { "this run" } else { name }) }
                        td data-value=[hits.distinct_keys] { (keys(hits)) }
                        td data-value=(hits.writes) { (Unit::Number.text(hits.writes)) }
                        td data-value=(hits.gets) { (Unit::Number.text(hits.gets)) }
                        td data-value=(hits.possible_share) { (share(hits.possible_share)) }
                        td data-value=(hits.found_share()) { (share(hits.found_share())) }
                    }
                }
            }
        }
    }
}

/// The number of keys, in words if its digits would be unreadable.
pub(crate) fn keys(hits: &Hits) -> String {
    match hits.distinct_keys {
        None if hits.possible_share >= 1.0 => "what was written".to_owned(),
        None => "no bound".to_owned(),
        Some(keys) if keys >= 1e15 => power_of_ten(keys),
        Some(keys) => counted(keys),
    }
}

/// The text of a share, even of a share close to zero.
pub(crate) fn share(share: f64) -> String {
    if share > 0.0 && share < 1e-9 {
        power_of_ten(share)
    } else {
        Unit::Share.text(share)
    }
}

fn power_of_ten(value: f64) -> String {
    let exponent = value.log10().floor();
    format!(
        "{}\u{a0}\u{b7}\u{a0}10^{exponent}",
        digits(value / 10_f64.powf(exponent))
    )
}

/// Conclusions from the numbers, each sentence with its runs.
pub(crate) fn sentences(runs: &[(&str, Hits)]) -> Vec<String> {
    let of = |rule: fn(&Hits) -> bool| {
        let names: Vec<&str> = runs
            .iter()
            .filter(|(_, hits)| rule(hits))
            .map(|(name, _)| *name)
            .filter(|name| !name.is_empty())
            .collect();
        let is_any = runs.iter().any(|(_, hits)| rule(hits));
        is_any.then(|| {
            if names.len() == runs.len() || names.is_empty() {
                String::new()
            } else {
                format!("{}: ", names.join(", "))
            }
        })
    };
    let begin = |names: String, rest: &str| {
        if names.is_empty() {
            let mut letters = rest.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        } else {
            format!("{names}{rest}")
        }
    };
    let mut sentences = Vec::new();
    if let Some(names) = of(is_hopeless) {
        let most = runs.iter().filter(|(_, hits)| is_hopeless(hits));
        let expected = most
            .map(|(_, hits)| hits.possible_share * hits.gets)
            .fold(0.0, f64::max);
        let rest = format!(
            "no get can find anything. A key practically never repeats, so that of all gets \
             {} can be expected to ask for a key that is there. What is called the latency of a \
             get is that of a miss, and every update is a get that misses and an insert.",
            share_count(expected)
        );
        sentences.push(begin(names, &rest));
    }
    if let Some(names) = of(|hits| hits.found_share() < hits.possible_share - APART) {
        let rest = "fewer were found than can be: the store does not keep all that is written, as \
                    one that evicts or expires.";
        sentences.push(begin(names, rest));
    }
    if let Some(names) = of(|hits| hits.found_share() > hits.possible_share + APART) {
        let rest = "more were found than can be: the store held keys before the run began.";
        sentences.push(begin(names, rest));
    }
    sentences
}

/// True if the expected number of gets that find their key rounds to zero.
fn is_hopeless(hits: &Hits) -> bool {
    hits.possible_share * hits.gets < 0.5
}

fn share_count(expected: f64) -> String {
    if expected > 0.0 && expected < 1e-3 {
        power_of_ten(expected)
    } else {
        digits(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Hits = Hits {
        distinct_keys: Some(125_000.0),
        writes: 50_000.0,
        gets: 250_000.0,
        found: 100_000.0,
        possible_share: 0.401,
    };

    #[test]
    fn as_many_as_can_be_found_need_no_words() {
        assert_eq!(sentences(&[("", FULL)]), Vec::<String>::new());
        assert_eq!(keys(&FULL), "125,000");
        assert_eq!(share(FULL.found_share()), "40\u{a0}%");
    }

    #[test]
    fn keys_that_never_repeat_are_explained() {
        let hits = Hits {
            distinct_keys: Some(2_f64.powi(256)),
            found: 0.0,
            possible_share: 4e-73,
            ..FULL
        };
        let [sentence] = &sentences(&[("", hits)])[..] else {
            panic!("not one sentence");
        };
        assert!(
            sentence.starts_with("No get can find anything"),
            "{sentence}"
        );
        assert!(sentence.contains("1\u{a0}\u{b7}\u{a0}10^-67"), "{sentence}");
        assert_eq!(keys(&hits), "1.16\u{a0}\u{b7}\u{a0}10^77");
        assert_eq!(share(hits.possible_share), "4\u{a0}\u{b7}\u{a0}10^-73");
    }

    #[test]
    fn what_is_missing_or_too_much_is_said_of_whom_it_concerns() {
        let evicting = Hits {
            found: 50_000.0,
            ..FULL
        };
        let said = sentences(&[("bitcask", FULL), ("memory", evicting)]);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("memory: fewer were found"), "{said:?}");
        let filled = Hits {
            found: 250_000.0,
            ..FULL
        };
        let said = sentences(&[("", filled)]);
        assert!(said[0].starts_with("More were found"), "{said:?}");
    }
}
