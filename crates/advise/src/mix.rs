//! Several backends on one node: the configuration for bucket types that suit different ones.
//!
//! A node of several backends costs files and memory for each of them. The advice therefore also
//! names the single backend that would suit all types, if there is one.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::advice::Advice;

/// See the module's description. Backends have the names of their engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mix {
    /// The backend of bucket types that name none.
    pub default: String,
    /// All backends.
    pub backends: Vec<String>,
    /// Lines of the configuration file.
    pub settings: Vec<String>,
    /// The backend for a node with only one. No subject has to avoid it.
    pub instead: Option<String>,
    /// Subjects outside of the default backend, with the value of their property `backend`.
    pub properties: Vec<(String, String)>,
}

/// The bucket type that exists from the start; its backend is the default one.
const DEFAULT_TYPE: &str = "bucket type default";

/// The mix that suits all subjects best, each in its own backend; none if all recommendations are
/// the same backend. The recommendations are changed accordingly.
pub fn mix(advices: &mut [Advice]) -> Option<Mix> {
    let backends: BTreeSet<String> = advices
        .iter()
        .filter_map(|it| it.recommended.clone())
        .collect();
    if backends.len() < 2 {
        return None;
    }
    let instead = best_for_all(advices);
    let default = default_of(advices, instead.as_deref())?;
    let one = |name: &String| format!("multi_backend.{name}.storage_backend = {name}");
    let mut settings = vec![
        "storage_backend = multi".to_owned(),
        format!("multi_backend.default = {default}"),
    ];
    settings.extend(backends.iter().map(one));
    let mut properties = Vec::new();
    for advice in advices {
        let Some(name) = advice.recommended.clone() else {
            continue;
        };
        if name != default {
            properties.push((advice.subject.clone(), name.clone()));
        }
        advice.backend_property = Some(name).filter(|name| *name != default);
        advice.is_one_of_several = true;
    }
    Some(Mix {
        default,
        backends: backends.into_iter().collect(),
        settings,
        instead,
        properties,
    })
}

/// The backend of the default type; else the best for all, if a subject has it; else the first
/// subject's.
fn default_of(advices: &[Advice], instead: Option<&str>) -> Option<String> {
    let recommended = || advices.iter().filter(|it| it.recommended.is_some());
    let of_default_type = recommended().find(|it| it.subject == DEFAULT_TYPE);
    let of_most = recommended().find(|it| it.recommended.as_deref() == instead);
    let first = recommended().next();
    of_default_type.or(of_most).or(first)?.recommended.clone()
}

/// The backend with the highest sum of scores, without backends that some subject has to avoid.
fn best_for_all(advices: &[Advice]) -> Option<String> {
    let sum = |name: &str| -> Option<i64> {
        let scores = advices.iter().map(|advice| {
            let mut engines = advice.engines.iter();
            let judged = engines.find(|engine| engine.name == name)?;
            (judged.built_in && !judged.is_to_be_avoided()).then(|| judged.score())
        });
        scores.sum()
    };
    // An engine that no type prefers, such as one without persistence, is the last resort.
    let is_best_for_one = |name: &String| {
        let mut subjects = advices.iter();
        subjects.any(|advice| advice.recommended.as_ref() == Some(name))
    };
    let names = advices.first()?.engines.iter();
    let names = names.map(|engine| engine.name.clone());
    let summed = names.filter_map(|name| Some(((is_best_for_one(&name), sum(&name)?), name)));
    // The first of equal sums wins: it is the better one for the first subject.
    let best = summed.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, name)| name)
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "configuration of the nodes")?;
        for line in &self.settings {
            writeln!(f, "  {line}")?;
        }
        for (subject, name) in &self.properties {
            writeln!(
                f,
                "  {subject}: the property \"backend\": \"{name}\", before it has data"
            )?;
        }
        match &self.instead {
            Some(name) => writeln!(
                f,
                "  on nodes of one backend instead: {name} for all (storage_backend = {name})"
            ),
            None => writeln!(f, "  no one backend suits all of these"),
        }
    }
}
