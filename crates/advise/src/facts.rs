//! Facts of a workload by name, each given, measured, or derived from others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engines::EngineTable;
use crate::error::AdviseError;

/// A value of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Yes or no.
    Flag(bool),
    /// A number, in the unit of its fact.
    Number(f64),
}

/// The kind of a fact's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Yes or no.
    Flag,
    /// A count or a share.
    Number,
    /// A number of bytes, which may be given in KB, MB, GB or TB.
    Bytes,
}

/// A fact that can be given: its name, and the question that asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactDeclaration {
    /// Its name.
    pub name: String,
    /// The kind of its value.
    pub kind: Kind,
    /// The question.
    pub question: String,
}

/// A known value, and its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Known {
    /// The value.
    pub value: Value,
    /// Its source.
    pub from: String,
}

/// The known facts by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    known: BTreeMap<String, Known>,
}

impl Facts {
    /// Sets a fact. A later value replaces an earlier one.
    pub fn set(&mut self, name: &str, value: Value, from: &str) {
        let from = from.to_owned();
        self.known.insert(name.to_owned(), Known { value, from });
    }

    /// Adds every fact of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.known.extend(other.known.clone());
    }

    /// The value of a fact and its source.
    pub fn get(&self, name: &str) -> Option<&Known> {
        self.known.get(name)
    }

    /// A number, if it is known.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)?.value {
            Value::Number(number) => Some(number),
            Value::Flag(_) => None,
        }
    }

    /// True when nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Everything that is known, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Known)> {
        self.known.iter().map(|(name, known)| (&name[..], known))
    }

    /// Derives facts from the others: the part of a node's memory that keys, and whole objects, would
    /// take.
    #[must_use]
    pub fn with_derived(&self, table: &EngineTable) -> Self {
        let mut facts = self.clone();
        let nodes = self.number("nodes").unwrap_or(1.0).max(1.0);
        let copies = self.number("n_val").unwrap_or(3.0).min(nodes);
        let said = self.number("keys").map(|keys| keys * copies / nodes);
        let Some(keys_per_node) = said.or_else(|| self.number("keys_per_node")) else {
            return facts;
        };
        let Some(memory) = self.number("memory_bytes").filter(|memory| *memory > 0.0) else {
            return facts;
        };
        let costs = |name| {
            table
                .engine(name)
                .ok()
                .and_then(|engine| engine.costs.as_ref())
        };
        let from = "worked out from keys, nodes and memory";
        if let Some(costs) = costs("bitcask") {
            let share = keys_per_node * costs.memory_per_key_of(keys_per_node).value / memory;
            facts.set("keydir_memory_share", Value::Number(share), from);
        }
        if let Some(value_bytes) = self.number("value_bytes") {
            let key_bytes = self.number("key_bytes").unwrap_or(32.0);
            let entry = value_bytes + key_bytes + table.object.head.value;
            let share = keys_per_node * entry / memory;
            facts.set("data_memory_share", Value::Number(share), from);
            if let Some(costs) = costs("memory") {
                let share = keys_per_node * (entry + costs.memory_per_key.value) / memory;
                facts.set("memory_engine_share", Value::Number(share), from);
            }
        }
        facts
    }
}

/// Reads a value as a person writes it.
///
/// # Errors
/// [`AdviseError::BadValue`].
pub fn parse_value(declaration: &FactDeclaration, text: &str) -> Result<Value, AdviseError> {
    let bad = |expected| AdviseError::BadValue {
        name: declaration.name.clone(),
        value: text.to_owned(),
        expected,
    };
    let said = text.trim().to_ascii_lowercase();
    match declaration.kind {
        Kind::Flag => match &said[..] {
            "yes" | "y" | "true" | "1" => Ok(Value::Flag(true)),
            "no" | "n" | "false" | "0" => Ok(Value::Flag(false)),
            _ => Err(bad("yes or no")),
        },
        Kind::Number => parse_number(&said, &[("%", 0.01), ("k", 1e3), ("m", 1e6), ("g", 1e9)])
            .ok_or_else(|| bad("a number, as 40, 0.4, 40% or 60m")),
        Kind::Bytes => {
            let units = [
                ("kb", 1024.0),
                ("mb", 1_048_576.0),
                ("gb", 1_073_741_824.0),
                ("tb", 1_099_511_627_776.0),
            ];
            parse_number(&said, &units)
                .ok_or_else(|| bad("a number of bytes, as 800, 16KB or 64GB"))
        }
    }
}

fn parse_number(said: &str, units: &[(&str, f64)]) -> Option<Value> {
    let found = units
        .iter()
        .find_map(|(unit, factor)| Some((said.strip_suffix(unit)?, *factor)));
    let (digits, factor) = found.unwrap_or((said, 1.0));
    let number: f64 = digits.trim().replace([',', '_'], "").parse().ok()?;
    let number = number * factor;
    (number.is_finite() && number >= 0.0).then_some(Value::Number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: Kind, text: &str) -> Result<Value, AdviseError> {
        let declaration = FactDeclaration {
            name: "it".to_owned(),
            kind,
            question: String::new(),
        };
        parse_value(&declaration, text)
    }

    #[test]
    fn values_are_read_as_people_say_them() {
        assert_eq!(parse(Kind::Flag, "Yes").unwrap(), Value::Flag(true));
        assert_eq!(parse(Kind::Number, "40%").unwrap(), Value::Number(0.4));
        assert_eq!(parse(Kind::Number, "60m").unwrap(), Value::Number(60e6));
        assert_eq!(parse(Kind::Number, "60,000").unwrap(), Value::Number(60e3));
        assert_eq!(parse(Kind::Bytes, "16 KB").unwrap(), Value::Number(16384.0));
        for (kind, text) in [
            (Kind::Flag, "maybe"),
            (Kind::Number, "-3"),
            (Kind::Number, "inf"),
            (Kind::Number, "nan"),
            (Kind::Bytes, "much"),
        ] {
            assert!(parse(kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_of_memory_follow_from_the_rest() {
        let table = EngineTable::built_in().unwrap();
        let mut facts = Facts::default();
        for (name, number) in [("keys", 1e9), ("nodes", 5.0), ("memory_bytes", 14.58e9)] {
            facts.set(name, Value::Number(number), "said");
        }
        let derived = facts.with_derived(&table);
        assert_eq!(derived.number("keydir_memory_share"), Some(1.0));
        assert_eq!(derived.number("memory_engine_share"), None);
        facts.set("value_bytes", Value::Number(904.0), "said");
        let derived = facts.with_derived(&table);
        assert!(derived.number("data_memory_share").unwrap() > 40.0);
    }

    #[test]
    fn what_a_node_counts_is_not_multiplied_by_copies() {
        let table = EngineTable::built_in().unwrap();
        let mut facts = Facts::default();
        for (name, number) in [
            ("keys_per_node", 1e9),
            ("nodes", 5.0),
            ("memory_bytes", 24.3e9),
        ] {
            facts.set(name, Value::Number(number), "said");
        }
        let derived = facts.with_derived(&table);
        assert_eq!(derived.number("keydir_memory_share"), Some(1.0));
    }

    #[test]
    fn few_keys_take_more_memory_each() {
        let table = EngineTable::built_in().unwrap();
        let mut facts = Facts::default();
        for (keys, share) in [(4_999_999.0, 33.0), (5_000_000.0, 24.3)] {
            facts.set("keys_per_node", Value::Number(keys), "said");
            facts.set("memory_bytes", Value::Number(keys), "said");
            let derived = facts.with_derived(&table);
            assert_eq!(derived.number("keydir_memory_share"), Some(share));
        }
    }
}
