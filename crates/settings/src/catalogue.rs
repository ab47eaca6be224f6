//! Finding a key by its name, and the nearest names when there is none.

use crate::former_names::present_name;
use crate::honoured::{ENGINE, SECTIONS};
use crate::key::Key;
use crate::kind::Kind;
use crate::name::Name;
use crate::riak::{DIRECTORIES, FAMILIES, Family, Fate, MULTI_PREFIX, ONE_DIRECTORY, RiakKey};

/// A known name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// Kvorum has the key; `word` is the free word of the name, empty if there is none.
    Honoured {
        /// Its declaration's name.
        pattern: &'static str,
        /// The free word.
        word: String,
    },
    /// A key of Riak's, or a former name, that stands for this key of ours.
    Mapped {
        /// The name of ours.
        to: &'static str,
    },
    /// A key of Riak's without effect.
    Ignored {
        /// Fits after "ignored because".
        reason: &'static str,
    },
    /// A key of one of several backends: see `of_backend`.
    OfBackend,
    /// A key of Riak's that is accepted with an empty value, and refused with any other.
    Guarded {
        /// The reason why it is refused.
        reason: &'static str,
    },
}

/// All keys that Kvorum honours, in the order of the reference page.
pub fn honoured_keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// All other keys of Riak's, in the order of the reference page.
pub fn riak_families() -> &'static [Family] {
    &FAMILIES
}

/// The declaration with exactly this name or pattern.
pub(crate) fn declaration(pattern: &str) -> Option<&'static Key> {
    honoured_keys().find(|key| key.name == pattern)
}

/// The declaration of a key of one of several backends.
pub(crate) fn declaration_of_backend(pattern: &str) -> Option<&'static Key> {
    match pattern == ENGINE.name {
        true => Some(&ENGINE),
        false => declaration(pattern),
    }
}

/// Looks a name up.
pub fn lookup(name: &Name) -> Option<Known> {
    for key in honoured_keys() {
        if let Some(word) = name.matches(key.name) {
            return Some(Known::Honoured {
                pattern: key.name,
                word,
            });
        }
    }
    if let Some(to) = present_name(name) {
        return Some(Known::Mapped { to });
    }
    if let Some(key) = riak_key(name) {
        return Some(match key.fate {
            Fate::Mapped(to) => Known::Mapped { to },
            Fate::Ignored(reason) => Known::Ignored { reason },
            Fate::Guarded(reason) => Known::Guarded { reason },
        });
    }
    known_under_multi(&under_multi(name)?)
}

/// The key of the prefixes of bucket names, only directly behind `multi_backend.NAME.`.
pub(crate) const BUCKET_PREFIX: &str = "bucket_prefix";

/// A key of one of several backends: its name, and the key without `multi_backend.NAME.`.
pub(crate) fn of_backend(name: &Name) -> Option<(&str, Name)> {
    let rest = under_multi(name)?;
    Some((name.words().get(1)?, rest))
}

/// The key of a setting of one of several backends, and its free word; `None` for
/// [`BUCKET_PREFIX`], which is not a key of an engine.
pub(crate) fn key_of_backend(rest: &Name) -> Option<(&'static str, String)> {
    match lookup(rest)? {
        Known::Honoured { pattern, word } => Some((pattern, word)),
        Known::Mapped { to } => Some((to, String::new())),
        Known::Ignored { .. } | Known::Guarded { .. } | Known::OfBackend => None,
    }
}

fn known_under_multi(rest: &Name) -> Option<Known> {
    if ["storage_backend", BUCKET_PREFIX].contains(&&*rest.to_string()) {
        return Some(Known::OfBackend);
    }
    let known = known_to_a_backend(rest).then(|| lookup(rest)).flatten()?;
    let pattern = match &known {
        Known::Honoured { pattern, .. } => pattern,
        Known::Mapped { to } => to,
        _ => return Some(known),
    };
    let is_path = || declaration(pattern).is_some_and(|key| matches!(key.kind, Kind::Path(_)));
    let is_place = pattern.starts_with("leveldb.tiered") || is_path();
    Some(match is_place {
        true => Known::Ignored {
            reason: ONE_DIRECTORY,
        },
        false => Known::OfBackend,
    })
}

fn riak_key(name: &Name) -> Option<RiakKey> {
    riak_keys().find(|key| name.matches(key.name).is_some())
}

fn riak_keys() -> impl Iterator<Item = RiakKey> {
    FAMILIES.iter().flat_map(Family::keys)
}

/// The default of a key of Riak's that others refer to as `$(name)`.
pub(crate) fn riak_default(name: &Name) -> Option<&'static str> {
    let name = name.to_string();
    let found = DIRECTORIES.iter().find(|(known, _)| *known == name);
    found.map(|(_, default)| *default)
}

/// True if the value of a key is a path. An ignored key is a path if it has a default.
pub(crate) fn is_path(name: &Name) -> bool {
    let pattern = match lookup(name) {
        Some(Known::Honoured { pattern, .. }) => pattern,
        Some(Known::Mapped { to }) => to,
        _ => return riak_default(name).is_some(),
    };
    declaration(pattern).is_some_and(|key| matches!(key.kind, Kind::Path(_)))
}

/// `multi_backend.NAME.REST`: the rest.
fn under_multi(name: &Name) -> Option<Name> {
    let [first, _, _, ..] = name.words() else {
        return None;
    };
    (first == MULTI_PREFIX).then(|| name.from(2))
}

/// True for a key of an engine, honoured or not.
fn known_to_a_backend(rest: &Name) -> bool {
    const BACKENDS: [&str; 6] = [
        "bitcask",
        "leveldb",
        "leveled",
        "hanoidb",
        "innostore",
        "memory_backend",
    ];
    let backend = rest
        .words()
        .first()
        .is_some_and(|word| BACKENDS.contains(&word.as_str()));
    backend && lookup(rest).is_some()
}

/// The key in `multi_backend.NAME.KEY`, if it is one of the whole node.
pub(crate) fn of_whole_node(name: &Name) -> Option<Name> {
    let rest = under_multi(name)?;
    (known_under_multi(&rest).is_none() && lookup(&rest).is_some()).then_some(rest)
}

/// Maximum of suggested names for an unknown one.
const SUGGESTIONS_MAX: usize = 3;

/// The known names nearest to an unknown one, best first; none if nothing is near.
pub(crate) fn nearest(name: &Name) -> Vec<String> {
    match under_multi(name) {
        Some(rest) => nearest_of_backend(name, &rest),
        None => nearest_among(name, patterns()),
    }
}

/// The same for a key of one of several backends. A key of the whole node is suggested under its
/// own name.
fn nearest_of_backend(name: &Name, rest: &Name) -> Vec<String> {
    let prefix: Vec<_> = name.words().iter().take(2).cloned().collect();
    let found = nearest_among(rest, patterns().chain([BUCKET_PREFIX]));
    found
        .into_iter()
        .map(|near| match Name::parse(&near) {
            Some(it) if known_under_multi(&it).is_some() => format!("{}.{near}", prefix.join(".")),
            _ => near,
        })
        .collect()
}

fn patterns() -> impl Iterator<Item = &'static str> {
    let riak = riak_keys().map(|key| key.name);
    honoured_keys().map(|key| key.name).chain(riak)
}

fn nearest_among(name: &Name, patterns: impl Iterator<Item = &'static str>) -> Vec<String> {
    let wanted = name.to_string();
    // One slip in four characters; short names get two.
    let slips_max = (wanted.len() / 4).max(2);
    let mut found: Vec<(usize, String)> = Vec::new();
    for pattern in patterns {
        let candidate = name.fill(pattern);
        let slips = strsim::osa_distance(&wanted, &candidate);
        // A name with its front words left out or added is near.
        let shifted = candidate.ends_with(&format!(".{wanted}"))
            || (pattern.contains('.') && wanted.ends_with(&format!(".{candidate}")));
        if slips <= slips_max || shifted {
            found.push((
                slips.min(if shifted { slips_max } else { slips }),
                candidate,
            ));
        }
    }
    found.sort_by_key(|(slips, _)| *slips);
    let best = found.first().map_or(0, |(slips, _)| *slips);
    found.retain(|(slips, _)| *slips <= best + 1);
    found.dedup_by(|a, b| a.1 == b.1);
    found
        .into_iter()
        .take(SUGGESTIONS_MAX)
        .map(|(_, candidate)| candidate)
        .collect()
}
