//! Failed operations and their causes, at the top of the page of a run that has any. Otherwise a
//! server that refuses half of its requests would look fast.

use maud::{Markup, html};

use crate::draw::Unit;
use crate::figures;
use crate::result::{Cause, RunResult};

/// The number of causes that are shown; `errors.csv` has all of them.
const CAUSES_SHOWN: usize = 10;

/// The failures of one run; nothing if there are none.
pub(super) fn of_one(run: &RunResult) -> Markup {
    let failed = figures::errors(run);
    if failed <= 0.0 {
        return html! {};
    }
    let more = run.causes.len().saturating_sub(CAUSES_SHOWN);
    html! {
        div.failures role="note" {
            p { strong { (sentence(run)) } }
            @if run.causes.is_empty() {
                p { "There is no errors.csv that names the causes." }
            } @else {
                ul {
                    @for cause in run.causes.iter().take(CAUSES_SHOWN) { (cause_line(cause)) }
                    @if more > 0 { li { (more) " more causes in errors.csv" } }
                }
            }
        }
    }
}

/// The failures of several runs under their names, with the most frequent cause of each.
pub(super) fn of_several(runs: &[(&str, &RunResult)]) -> Markup {
    let failed: Vec<_> = runs
        .iter()
        .filter(|(_, run)| figures::errors(run) > 0.0)
        .collect();
    html! {
        @if !failed.is_empty() {
            div.failures role="note" {
                p { strong { "Operations failed: what follows counts successful ones only." } }
                ul {
                    @for (name, run) in failed {
                        li {
                            strong { (name) } ": " (sentence(run))
                            @if let Some(cause) = run.causes.first() {
                                ", most often for " code { (cause.reason) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Text for a terminal: the number of failures, and the most frequent cause; `None` if nothing failed.
pub fn failure(run: &RunResult) -> Option<String> {
    if figures::errors(run) <= 0.0 {
        return None;
    }
    let sentence = sentence(run).replace('\u{a0}', " ");
    Some(match run.causes.first() {
        Some(cause) => format!("{sentence}, most often for {}", cause.reason),
        None => sentence,
    })
}

/// The numbers of failed operations and of all operations.
fn sentence(run: &RunResult) -> String {
    let failed = figures::errors(run);
    let all = failed + figures::operations(run);
    format!(
        "{} of {} operations failed ({})",
        Unit::Number.text(failed),
        Unit::Number.text(all),
        Unit::Share.text(failed / all.max(1.0))
    )
}

fn cause_line(cause: &Cause) -> Markup {
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    let count = cause.count as f64;
    html! {
        li {
            (Unit::Number.text(count)) " \u{d7} "
            @if !cause.operation.is_empty() { strong { (cause.operation) } " " }
            code { (cause.reason) }
        }
    }
}
