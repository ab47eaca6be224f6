//! A recommendation: every engine judged by the rules that apply, the best ones first.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::bench_result::BenchResult;
use crate::engines::EngineTable;
use crate::facts::{Facts, Value};
use crate::render::{bytes_text, count_text};
use crate::rules::{DERIVED, Rule, RuleTable, Verdict};

/// Ratio of two runs' speeds at which one counts as faster.
const FASTER_BY: f64 = 1.1;

/// The advice for one kind of data.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The bucket type, or a name for all of them.
    pub subject: String,
    /// The engine to configure: the best of those that are built in, unless all have to be avoided.
    pub recommended: Option<String>,
    /// True if other subjects of the same nodes are in other engines: see [`crate::Mix`].
    pub is_one_of_several: bool,
    /// Value of the property `backend` of this subject in that case; none for the default backend.
    pub backend_property: Option<String>,
    /// The best engine of all, if it is not built in yet.
    pub better_later: Option<String>,
    /// All engines, the best first.
    pub engines: Vec<JudgedEngine>,
    /// The facts behind the advice.
    pub facts: Facts,
    /// Unknown facts on which rules depend.
    pub missing: Vec<String>,
}

/// An engine and the verdicts of the rules on it.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedEngine {
    /// Its name.
    pub name: String,
    /// True if this version has it.
    pub built_in: bool,
    /// The reasons, the gravest first.
    pub reasons: Vec<Reason>,
}

/// The reason why an engine is judged as it is.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// The verdict.
    pub verdict: Verdict,
    /// True if the reason applies here.
    pub counts: bool,
    /// The reason.
    pub text: String,
    /// The publication.
    pub source: String,
    /// The state of affairs in this database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<String>,
}

/// Judges all engines by the known facts of a workload. Runs of the same test on several engines, if
/// there are any, count as reasons of their own.
pub fn advise(
    engines: &EngineTable,
    rules: &RuleTable,
    subject: &str,
    facts: &Facts,
    runs: &[BenchResult],
) -> Advice {
    let facts = facts.with_derived(engines);
    let mut missing = BTreeSet::new();
    let mut judged: Vec<_> = engines
        .engines
        .iter()
        .map(|engine| {
            let about = rules
                .rules
                .iter()
                .filter(|rule| rule.backend == engine.name);
            let mut reasons: Vec<_> = about
                .filter_map(|rule| match rule.speaks(&facts) {
                    Some(true) => Some(reason_of(rule)),
                    Some(false) => None,
                    None => {
                        missing.extend(unknown_of(rule, &facts));
                        None
                    }
                })
                .chain(measured(&engine.name, runs))
                .collect();
            reasons.sort_by_key(|reason| (!reason.counts, reason.verdict));
            JudgedEngine {
                name: engine.name.clone(),
                built_in: engine.built_in,
                reasons,
            }
        })
        .collect();
    judged.sort_by_key(|engine| std::cmp::Reverse(engine.score()));
    let fits = |engine: &&JudgedEngine| !engine.is_to_be_avoided();
    let best = judged.iter().find(fits);
    let recommended = judged.iter().filter(|engine| engine.built_in).find(fits);
    let name = |engine: &JudgedEngine| engine.name.clone();
    let better_later = best.filter(|best| {
        let is_better = recommended.is_none_or(|other| best.score() > other.score());
        !best.built_in && is_better
    });
    let asked = rules.facts.iter().map(|fact| &fact.name);
    Advice {
        subject: subject.to_owned(),
        recommended: recommended.map(name),
        is_one_of_several: false,
        backend_property: None,
        better_later: better_later.map(name),
        missing: asked
            .filter(|name| missing.contains(*name))
            .cloned()
            .collect(),
        engines: judged,
        facts,
    }
}

fn reason_of(rule: &Rule) -> Reason {
    Reason {
        verdict: rule.verdict,
        counts: rule.holds_here,
        text: rule.reason.clone(),
        source: rule.source.clone(),
        here: Some(format!("{} ({})", rule.here, rule.shown_at())),
    }
}

/// The unknown facts that a rule needs.
fn unknown_of(rule: &Rule, facts: &Facts) -> Vec<String> {
    let unknown = rule
        .when
        .iter()
        .filter(|condition| facts.get(&condition.fact).is_none());
    let names = unknown.flat_map(|condition| {
        match DERIVED.iter().find(|(name, _)| *name == condition.fact) {
            Some((_, from)) => from.iter().map(|name| (*name).to_owned()).collect(),
            None => vec![condition.fact.clone()],
        }
    });
    // The number of keys of a node replaces that of the cluster.
    let counts_keys = facts.get("keys_per_node").is_some();
    let is_known = |name: &str| facts.get(name).is_some() || (name == "keys" && counts_keys);
    names.filter(|name| !is_known(name)).collect()
}

/// Reasons about one engine, from runs on several.
fn measured(engine: &str, runs: &[BenchResult]) -> Vec<Reason> {
    let of_engine = |run: &&BenchResult| run.backend.as_deref() == Some(engine);
    let others: Vec<_> = runs.iter().filter(|run| !of_engine(run)).collect();
    let reasons = runs.iter().filter(of_engine).map(|run| {
        let mut figure = format!("{:.0} operations/s", run.operations_per_second);
        if let Some(p99_us) = run.write_p99_us {
            figure = format!("{figure}, 99% of writes within {:.1} ms", p99_us / 1000.0);
        }
        let is_fastest = others
            .iter()
            .all(|other| run.operations_per_second > other.operations_per_second * FASTER_BY);
        let is_slowest = others
            .iter()
            .all(|other| run.operations_per_second * FASTER_BY < other.operations_per_second);
        let (verdict, counts, text) = match (others.is_empty(), is_fastest, is_slowest) {
            (false, true, _) => (Verdict::Prefer, true, "the fastest in your runs"),
            (false, _, true) => (Verdict::Caution, true, "the slowest in your runs"),
            _ => (Verdict::Prefer, false, "measured"),
        };
        Reason {
            verdict,
            counts,
            text: text.to_owned(),
            source: format!("run {}", run.name),
            here: Some(figure),
        }
    });
    reasons.collect()
}

impl JudgedEngine {
    /// True if some reason rules the engine out.
    pub fn is_to_be_avoided(&self) -> bool {
        let mut reasons = self.reasons.iter();
        reasons.any(|reason| reason.counts && reason.verdict == Verdict::Avoid)
    }

    /// Higher is better: no reason outweighs `Avoid`.
    pub(crate) fn score(&self) -> i64 {
        let reasons = self.reasons.iter().filter(|reason| reason.counts);
        let worth = reasons.map(|reason| match reason.verdict {
            Verdict::Avoid => -1000,
            Verdict::Caution => -1,
            Verdict::Prefer => 1,
        });
        worth.sum()
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        match (&self.recommended, &self.backend_property) {
            (Some(name), None) if self.is_one_of_several => {
                writeln!(f, "  use {name} (the default of several backends)")?;
            }
            (Some(name), None) => writeln!(f, "  use {name} (storage_backend = {name})")?,
            (Some(name), Some(property)) => writeln!(
                f,
                "  use {name} (one of several backends, by the property \"backend\": \"{property}\")"
            )?,
            (None, _) => writeln!(f, "  nothing that can be configured fits")?,
        }
        if let Some(later) = &self.better_later {
            writeln!(
                f,
                "  (by the rules {later} would suit it more, and this version does not have it)"
            )?;
        }
        if self.facts.is_empty() {
            writeln!(
                f,
                "  there are no facts about the data, so this is a default: give facts with \
                 --say, or take them from --node, --stats or --bench"
            )?;
        }
        for engine in &self.engines {
            let mark = if engine.built_in {
                ""
            } else {
                " (not built in yet)"
            };
            writeln!(f, "\n  {}{mark}", engine.name)?;
            if engine.reasons.is_empty() {
                writeln!(f, "    no fact counts for or against it")?;
            }
            for reason in &engine.reasons {
                write_reason(f, reason)?;
            }
        }
        if !self.facts.is_empty() {
            writeln!(f, "\n  known")?;
        }
        for (name, known) in self.facts.iter() {
            writeln!(
                f,
                "    {name} = {} ({})",
                value_text(name, known.value),
                known.from
            )?;
        }
        if !self.missing.is_empty() {
            writeln!(f, "\n  would decide more: {}", self.missing.join(", "))?;
        }
        Ok(())
    }
}

fn write_reason(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    let verdict = match (reason.counts, reason.verdict) {
        (true, verdict) => verdict.to_string(),
        (false, Verdict::Prefer) => "seen".to_owned(),
        (false, _) => "not here".to_owned(),
    };
    writeln!(f, "    {verdict:<8} {}  [{}]", reason.text, reason.source)?;
    match &reason.here {
        Some(here) => writeln!(f, "             here: {here}"),
        None => Ok(()),
    }
}

fn value_text(name: &str, value: Value) -> String {
    match value {
        Value::Flag(true) => "yes".to_owned(),
        Value::Flag(false) => "no".to_owned(),
        Value::Number(number) if name.ends_with("_share") => format!("{:.0} %", number * 100.0),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "numbers of facts are not negative, and the conversion saturates"
        )]
        Value::Number(number) if name.ends_with("_bytes") => bytes_text(number as u64),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "numbers of facts are not negative, and the conversion saturates"
        )]
        Value::Number(number) => count_text(number as u64),
    }
}
