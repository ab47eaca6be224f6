//! The published guidance as rules, declared in `rules.toml`, and their conditions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::AdviseError;
use crate::facts::{FactDeclaration, Facts, Value};

const TABLE: &str = "rules.toml";
/// Derived facts, for which no question is asked.
pub(crate) const DERIVED: [(&str, &[&str]); 3] = [
    ("keydir_memory_share", &["keys", "memory_bytes", "nodes"]),
    (
        "data_memory_share",
        &["keys", "value_bytes", "memory_bytes"],
    ),
    (
        "memory_engine_share",
        &["keys", "value_bytes", "memory_bytes"],
    ),
];

/// All rules, and the facts that they need.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleTable {
    /// The facts that can be given, in the order of the questions.
    #[serde(rename = "fact")]
    pub facts: Vec<FactDeclaration>,
    /// The rules.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
}

/// One piece of guidance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The engine that it is about.
    pub backend: String,
    /// The verdict on the engine.
    pub verdict: Verdict,
    /// The conditions, all of which have to hold.
    pub when: Vec<Condition>,
    /// The reason.
    pub reason: String,
    /// The publisher.
    pub source: String,
    /// True if it holds for our engine of this name.
    #[serde(default = "yes")]
    pub holds_here: bool,
    /// The state of affairs here, with a figure if one was measured.
    pub here: String,
    /// The document that shows it, as a path from `docs/`.
    pub proof: String,
}

fn yes() -> bool {
    true
}

/// The verdict of a rule on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The engine does not fit.
    Avoid,
    /// The engine has a drawback.
    Caution,
    /// The engine fits well.
    Prefer,
}

/// A condition on one fact: `fact`, `!fact`, or `fact < 3` with `<`, `<=`, `>` or `>=`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Condition {
    /// The fact.
    pub fact: String,
    test: Test,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Is(bool),
    Compares { order: Order, limit: Limit },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A finite number, compared by its bits so that rules can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(u64);

impl RuleTable {
    /// The table that is built in.
    ///
    /// # Errors
    /// [`AdviseError::Table`], which a test rules out.
    pub fn built_in() -> Result<Self, AdviseError> {
        toml::from_str(include_str!("rules.toml")).map_err(|error| AdviseError::Table {
            table: TABLE,
            reason: error.to_string(),
        })
    }

    /// The declaration of a fact.
    ///
    /// # Errors
    /// [`AdviseError::UnknownFact`].
    pub fn fact(&self, name: &str) -> Result<&FactDeclaration, AdviseError> {
        let found = self.facts.iter().find(|fact| fact.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.facts.iter().map(|fact| &fact.name[..]).collect();
            AdviseError::UnknownFact {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
    }
}

impl Rule {
    /// The place that shows the state of affairs here, by its path in the repository.
    pub(crate) fn shown_at(&self) -> String {
        match self.proof.strip_prefix("../") {
            Some(file) => file.to_owned(),
            None => format!("docs/{}", self.proof),
        }
    }

    /// True if the rule applies, false if one condition fails, `None` if it depends on unknown facts.
    pub(crate) fn speaks(&self, facts: &Facts) -> Option<bool> {
        let answers: Vec<_> = self
            .when
            .iter()
            .map(|condition| condition.holds(facts))
            .collect();
        if answers.contains(&Some(false)) {
            return Some(false);
        }
        answers
            .into_iter()
            .collect::<Option<Vec<bool>>>()
            .map(|_all_hold| true)
    }
}

impl Condition {
    fn holds(&self, facts: &Facts) -> Option<bool> {
        match (&self.test, facts.get(&self.fact)?.value) {
            (Test::Is(expected), Value::Flag(flag)) => Some(flag == *expected),
            (Test::Compares { order, limit }, Value::Number(number)) => {
                let limit = f64::from_bits(limit.0);
                Some(match order {
                    Order::Less => number < limit,
                    Order::LessOrEqual => number <= limit,
                    Order::Greater => number > limit,
                    Order::GreaterOrEqual => number >= limit,
                })
            }
            _ => None,
        }
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (fact, test) = match words[..] {
            [flag] => match flag.strip_prefix('!') {
                Some(flag) => (flag, Test::Is(false)),
                None => (flag, Test::Is(true)),
            },
            [fact, order, limit] => {
                let order = match order {
                    "<" => Order::Less,
                    "<=" => Order::LessOrEqual,
                    ">" => Order::Greater,
                    ">=" => Order::GreaterOrEqual,
                    other => return Err(format!("{other} compares nothing")),
                };
                let limit: f64 = limit.parse().map_err(|_| format!("{limit} is no number"))?;
                let limit = Limit(limit.to_bits());
                (fact, Test::Compares { order, limit })
            }
            _ => return Err(format!("{text:?} is no condition")),
        };
        Ok(Self {
            fact: fact.to_owned(),
            test,
            text,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avoid => "avoid",
            Self::Caution => "caution",
            Self::Prefer => "prefer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::EngineTable;
    use crate::facts::Kind;

    #[test]
    fn every_rule_is_about_a_known_engine_and_known_facts_of_the_right_kind() {
        let (rules, engines) = (
            RuleTable::built_in().unwrap(),
            EngineTable::built_in().unwrap(),
        );
        for rule in &rules.rules {
            engines.engine(&rule.backend).unwrap();
            assert!(!rule.when.is_empty() && !rule.source.is_empty());
            assert!(!rule.here.is_empty(), "{}", rule.reason);
            for condition in &rule.when {
                let is_flag = matches!(condition.test, Test::Is(_));
                if DERIVED.iter().any(|(name, _)| *name == condition.fact) {
                    assert!(!is_flag, "{condition}");
                } else {
                    let declared = rules.fact(&condition.fact).unwrap();
                    assert_eq!(declared.kind == Kind::Flag, is_flag, "{condition}");
                }
            }
        }
        for engine in &engines.engines {
            let has_rule = rules.rules.iter().any(|rule| rule.backend == engine.name);
            assert!(has_rule, "no rule about {}", engine.name);
        }
    }

    #[test]
    fn every_fact_that_can_be_said_makes_a_difference() {
        let rules = RuleTable::built_in().unwrap();
        for fact in &rules.facts {
            let is_asked = |condition: &Condition| {
                let through = DERIVED.iter().find(|(name, _)| *name == condition.fact);
                condition.fact == fact.name
                    || through.is_some_and(|(_, from)| from.contains(&&fact.name[..]))
                    || ["key_bytes", "n_val"].contains(&&fact.name[..])
            };
            let mut conditions = rules.rules.iter().flat_map(|rule| &rule.when);
            assert!(conditions.any(is_asked), "{}", fact.name);
        }
    }

    #[test]
    fn a_rule_is_silent_while_it_depends_on_what_is_not_known() {
        let condition = |text: &str| Condition::try_from(text.to_owned()).unwrap();
        let rule = Rule {
            backend: "bitcask".to_owned(),
            verdict: Verdict::Prefer,
            when: vec![condition("keys > 10"), condition("!expires")],
            reason: String::new(),
            source: String::new(),
            holds_here: true,
            here: String::new(),
            proof: String::new(),
        };
        let mut facts = Facts::default();
        assert_eq!(rule.speaks(&facts), None);
        facts.set("keys", Value::Number(11.0), "said");
        assert_eq!(rule.speaks(&facts), None);
        facts.set("expires", Value::Flag(false), "said");
        assert_eq!(rule.speaks(&facts), Some(true));
        facts.set("keys", Value::Number(10.0), "said");
        assert_eq!(rule.speaks(&facts), Some(false));
    }

    #[test]
    fn conditions_that_mean_nothing_are_refused() {
        for text in ["", "a b", "a = 3", "a < b", "a < 3 4"] {
            assert!(Condition::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
