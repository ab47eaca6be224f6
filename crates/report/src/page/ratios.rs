//! The table of ratios: every figure of every run, against a base that the reader can change.

use maud::{Markup, html};

use super::run_tables::scrolling;
use crate::draw::{Unit, times};
use crate::figures::{Better, Figure, SERVER, figures, ratio};
use crate::result::RunResult;

/// Ratios closer to one than this count as equal: repeated runs differ by as much.
const EQUAL_WITHIN: f64 = 0.03;

/// A row: one figure over all runs.
struct Row {
    title: String,
    unit: Unit,
    better: Better,
    values: Vec<Option<f64>>,
}

/// The number of each run's load: the number of the first run with an equal load.
pub(crate) fn loads(runs: &[&RunResult]) -> Vec<usize> {
    let first_equal = |run: &&RunResult| {
        let mut runs = runs.iter();
        runs.position(|other| run.load_differences(other).is_empty())
    };
    let numbered = runs.iter().enumerate();
    numbered
        .map(|(index, run)| first_equal(run).unwrap_or(index))
        .collect()
}

/// The base of the ratios of run number `index`: the chosen base, or the first run of its own load
/// if the base has another load. Ratios between unequal loads would say nothing about the servers.
pub(crate) fn base_of(loads: &[usize], index: usize, base: usize) -> usize {
    match (loads.get(index), loads.get(base)) {
        (Some(own), Some(chosen)) if own != chosen => *own,
        _ => base,
    }
}

/// True if a run shares its load with another run, so that it can be a base.
pub(crate) fn has_others(loads: &[usize], index: usize) -> bool {
    let own = loads.get(index);
    loads.iter().filter(|load| Some(*load) == own).count() > 1
}

/// The runs with another load than the base, and the differences.
fn other_loads(runs: &[&RunResult], names: &[String], base: usize) -> Markup {
    let Some(chosen) = runs.get(base) else {
        return html! {};
    };
    let others: Vec<(&String, String)> = runs
        .iter()
        .zip(names)
        .map(|(run, name)| (name, run.load_differences(chosen).join(", ")))
        .filter(|(_, differences)| !differences.is_empty())
        .collect();
    html! {
        @if !others.is_empty() {
            p.missing.loads {
                "Ratios are taken between equal loads only. Not the load of "
                strong { (names.get(base).map_or("", String::as_str)) } ": "
                @for (index, (name, differences)) in others.iter().enumerate() {
                    @if index > 0 { "; " }
                    strong { (name) } " (" (differences) ")"
                }
                "."
            }
        }
    }
}

/// The table for runs under these names, with ratios against the run number `base`.
pub(super) fn ratios(runs: &[&RunResult], names: &[String], base: usize) -> Markup {
    let groups = groups(runs);
    let loads = loads(runs);
    let table = html! {
        table.numbers.ratios data-base=(base) {
            thead {
                tr {
                    th scope="col" { "" }
                    @for (index, name) in names.iter().enumerate() {
                        th scope="col" class=[(index == base).then_some("base")] { (name) }
                    }
                }
            }
            @for (group, rows) in &groups {
                tbody {
                    @if !group.is_empty() {
                        tr.group { th scope="rowgroup" colspan=(names.len() + 1) { (group) } }
                    }
                    @for row in rows { (row.markup(base, &loads)) }
                }
            }
        }
    };
    html! {
        (base_choice(names, base))
        (other_loads(runs, names, base))
        (scrolling(&table, "Ratios"))
    }
}

/// The choice of the base, and an explanation of ratios.
pub(super) fn base_choice(names: &[String], base: usize) -> Markup {
    html! {
        p.base-choice {
            label for="base" { "Ratios against " }
            select #base disabled {
                @for (index, name) in names.iter().enumerate() {
                    option value=(index) selected[index == base] { (name) }
                }
            }
            span.note {
                "A ratio of 2 is twice the base's value. "
                span.better { "\u{25b2}\u{a0}better" } " "
                span.worse { "\u{25bc}\u{a0}worse" }
            }
        }
    }
}

impl Row {
    fn markup(&self, base: usize, loads: &[usize]) -> Markup {
        let better = match self.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        html! {
            tr data-better=(better) {
                th scope="row" { (self.title) }
                @for (index, value) in self.values.iter().enumerate() {
                    @let own = base_of(loads, index, base);
                    @let load = loads.get(index).copied().unwrap_or(index);
                    @let base_value = self.values.get(own).copied().flatten()
                        .filter(|_| has_others(loads, index));
                    @match value {
                        None => td data-load=(load) { "\u{2013}" },
                        Some(value) => td data-load=(load) data-value=(value)
                            class=[(index == own).then_some("base")] {
                            (self.unit.text(*value))
                            (ratio_text(*value, base_value, self.better, index == own))
                        },
                    }
                }
            }
        }
    }
}

/// A value's ratio to the base, with a mark for better or worse that differs in shape and colour.
pub(crate) fn ratio_text(value: f64, base: Option<f64>, better: Better, is_base: bool) -> Markup {
    let Some(ratio) = base.and_then(|base| ratio(value, base)) else {
        return html! { span.ratio {} };
    };
    let text = times(ratio);
    let is_equal = (ratio - 1.0).abs() < EQUAL_WITHIN;
    let is_better = (ratio > 1.0) == (better == Better::Higher);
    html! {
        @if is_base {
            span.ratio { "base" }
        } @else if is_equal {
            span.ratio { (text) }
        } @else if is_better {
            span.ratio.better { "\u{25b2}\u{a0}" (text) }
        } @else {
            span.ratio.worse { "\u{25bc}\u{a0}" (text) }
        }
    }
}

/// All figures by group, in the order of their first appearance; the server comes last.
fn groups(runs: &[&RunResult]) -> Vec<(String, Vec<Row>)> {
    let of_runs: Vec<Vec<Figure>> = runs.iter().map(|run| figures(run)).collect();
    let mut groups: Vec<(String, Vec<Row>)> = Vec::new();
    for figure in of_runs.iter().flatten() {
        let index = position(&groups, |(group, _)| *group == figure.group).unwrap_or_else(|| {
            groups.push((figure.group.clone(), Vec::new()));
            groups.len() - 1
        });
        let Some((_, rows)) = groups.get_mut(index) else {
            continue;
        };
        if rows.iter().all(|row| row.title != figure.title) {
            rows.push(Row {
                title: figure.title.clone(),
                unit: figure.unit,
                better: figure.better,
                values: of_runs.iter().map(|run| find(run, figure)).collect(),
            });
        }
    }
    // The sort is stable: all other groups keep their order.
    groups.sort_by_key(|(group, _)| group == SERVER);
    groups
}

fn position<T>(list: &[T], is_it: impl Fn(&T) -> bool) -> Option<usize> {
    list.iter().position(is_it)
}

fn find(run: &[Figure], wanted: &Figure) -> Option<f64> {
    run.iter()
        .find(|figure| figure.group == wanted.group && figure.title == wanted.title)
        .map(|figure| figure.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64, base: f64, better: Better) -> String {
        ratio_text(value, Some(base), better, false).into_string()
    }

    #[test]
    fn better_depends_on_what_is_compared() {
        assert!(text(3.0, 2.0, Better::Higher).contains("better"));
        assert!(text(3.0, 2.0, Better::Lower).contains("worse"));
        assert!(text(1.0, 2.0, Better::Lower).contains("better"));
        assert!(text(1.0, 2.0, Better::Higher).contains("worse"));
    }

    #[test]
    fn what_is_nearly_equal_is_neither() {
        let text = text(1.004, 1.0, Better::Lower);
        assert!(
            !text.contains("better") && !text.contains("worse"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_said_against_a_base_of_zero() {
        assert!(!text(1.0, 0.0, Better::Lower).contains('\u{d7}'));
    }
}
