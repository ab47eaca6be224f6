//! Reading of a file's text and `--set` options into settings, with the origin of each value.

use std::collections::BTreeMap;

use crate::anchors::Anchors;
use crate::catalogue::{self, Known, honoured_keys};
use crate::conf_file::{self, Setting};
use crate::consistency;
use crate::erlang;
use crate::key::Key;
use crate::line_report::{LineReport, Outcome};
use crate::name::{self, Name};
use crate::problem::{Place, Problem, Problems, TermsFile};
use crate::secret;
use crate::settings::{LogOutput, NamedBackend, Settings};
use crate::several_backends;
use crate::substitution;

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The settings of the server.
    pub settings: Settings,
    /// Every honoured key with its value, in the order of the reference page.
    pub effective: Vec<Effective>,
    /// The outcome of every line and `--set` option, in their order.
    pub lines: Vec<LineReport>,
    /// Likely mistakes that do not prevent a start; each is a sentence without a full stop.
    pub warnings: Vec<String>,
}

/// One honoured key with its value.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The name, its free word filled in.
    pub name: String,
    /// The value as text, references followed; `None` for a key that has no default and is not set.
    pub value: Option<String>,
    /// Its origin.
    pub origin: Origin,
    /// Its declaration.
    pub key: &'static Key,
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The table of defaults.
    Default,
    /// A setting, under its own name or, `through`, another of Riak's.
    Set {
        /// The place.
        place: Place,
        /// The name that was written, if it was another.
        through: Option<String>,
    },
}

impl Default for Settings {
    /// The settings of an empty configuration file.
    fn default() -> Settings {
        let loaded = Configuration::load("", &[] as &[&str]);
        assert!(
            loaded.is_ok(),
            "the declared defaults are values of their own types"
        );
        loaded.map_or_else(
            |_| Settings::blank(),
            |configuration| configuration.settings,
        )
    }
}

impl Configuration {
    /// Reads `text`, in riak.conf's form, and `overrides`, each `key=value`, which win over it.
    ///
    /// # Errors
    /// All errors at once. Correct the file or the options.
    pub fn load(text: &str, overrides: &[impl AsRef<str>]) -> Result<Configuration, Problems> {
        Self::load_at(text, &[], overrides, &Anchors::default())
    }

    /// The same with files of Erlang terms, which override the file and then each other, and with
    /// relative paths made absolute: see [`Anchors`].
    ///
    /// # Errors
    /// Those of [`Configuration::load`].
    pub fn load_at(
        text: &str,
        terms: &[(TermsFile, Vec<u8>)],
        overrides: &[impl AsRef<str>],
        anchors: &Anchors,
    ) -> Result<Configuration, Problems> {
        let (mut written, mut problems) = conf_file::parse(text);
        let mut replacements = Vec::new();
        let mut ignored = Vec::new();
        for (file, bytes) in terms {
            let mut read = erlang::read(*file, bytes);
            let place = Place::Terms(*file);
            replacements.extend(read.replaced.iter().copied().map(|prefix| Replacement {
                prefix,
                before: written.len(),
                place,
            }));
            written.append(&mut read.settings);
            ignored.append(&mut read.ignored);
            problems.append(&mut read.problems);
        }
        for (index, text) in overrides.iter().enumerate() {
            match conf_file::parse_override(text.as_ref(), Place::Set(index + 1)) {
                Ok(setting) => written.push(setting),
                Err(problem) => problems.push(problem),
            }
        }
        let mut loader = Loader {
            problems,
            replacements,
            ..Loader::new(&written, anchors)
        };
        let targets = loader.classify();
        let (settings, effective) = loader.evaluate();
        let mut lines = loader.reports(targets, &settings);
        lines.append(&mut ignored);
        lines.sort_by_key(|line| line.place);
        // A default fails only if it refers to a wrong setting, which is reported by itself.
        if loader
            .problems
            .iter()
            .any(|problem| place_of(problem) != Some(Place::Default))
        {
            loader
                .problems
                .retain(|problem| place_of(problem) != Some(Place::Default));
        }
        if loader.problems.is_empty() {
            loader.problems = consistency::conflicts(&settings);
        }
        if !loader.problems.is_empty() {
            loader.problems.sort_by_key(place_of);
            return Err(Problems(loader.problems));
        }
        let warnings = consistency::warnings(&settings);
        Ok(Configuration {
            settings,
            effective,
            lines,
            warnings,
        })
    }
}

/// The error for a key that neither Kvorum nor Riak has at this place.
fn unknown(setting: &Setting) -> Problem {
    let key = setting.name.to_string();
    let place = setting.place;
    match catalogue::of_whole_node(&setting.name) {
        Some(of_node) => Problem::OfWholeNode {
            key,
            place,
            of_node: of_node.to_string(),
        },
        None => Problem::UnknownKey {
            key,
            place,
            nearest: catalogue::nearest(&setting.name),
        },
    }
}

fn place_of(problem: &Problem) -> Option<Place> {
    match problem {
        Problem::UnknownKey { place, .. }
        | Problem::OfWholeNode { place, .. }
        | Problem::BadValue { place, .. }
        | Problem::Unsupported { place, .. }
        | Problem::Terms { place, .. }
        | Problem::Unreadable { place, .. }
        | Problem::Reference { place, .. } => Some(*place),
        Problem::Conflict(_) | Problem::NothingToDescribe { .. } => None,
    }
}

/// A list in a file of Erlang terms that takes the place of several keys at once.
struct Replacement {
    /// Prefix of the names of these keys.
    prefix: &'static str,
    /// Settings before this one have no effect.
    before: usize,
    place: Place,
}

struct Loader<'a> {
    anchors: &'a Anchors,
    written: &'a [Setting],
    replacements: Vec<Replacement>,
    /// The index of the setting that applies, the last one, by pattern and free word.
    winners: BTreeMap<(&'static str, String), usize>,
    problems: Vec<Problem>,
}

impl<'a> Loader<'a> {
    fn new(written: &'a [Setting], anchors: &'a Anchors) -> Loader<'a> {
        Loader {
            anchors,
            written,
            replacements: Vec::new(),
            winners: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Finds the target of each setting.
    fn classify(&mut self) -> Vec<(usize, Target)> {
        let mut targets = Vec::new();
        for (index, setting) in self.written.iter().enumerate() {
            let target = match catalogue::lookup(&setting.name) {
                Some(Known::Honoured { pattern, word }) => Target::Key {
                    pattern,
                    word,
                    through: false,
                },
                Some(Known::Mapped { to }) => Target::Key {
                    pattern: to,
                    word: String::new(),
                    through: true,
                },
                Some(Known::OfBackend) => Target::OfBackend,
                Some(Known::Ignored { reason }) => Target::Nothing(reason),
                Some(Known::Guarded { .. }) if EMPTY.contains(&&*setting.value) => {
                    Target::Nothing(NOTHING_NAMED)
                }
                Some(Known::Guarded { reason }) => {
                    self.problems.push(Problem::Unsupported {
                        key: setting.name.to_string(),
                        place: setting.place,
                        reason,
                    });
                    continue;
                }
                None => {
                    self.problems.push(unknown(setting));
                    continue;
                }
            };
            let target = match target {
                Target::Key { pattern, .. } => {
                    passed_over(pattern, &setting.value).map_or(target, Target::Nothing)
                }
                Target::Nothing(_) | Target::OfBackend => target,
            };
            if let Target::Key { pattern, word, .. } = &target
                && self.replacement(index, pattern).is_none()
            {
                self.winners.insert((pattern, word.clone()), index);
            }
            targets.push((index, target));
        }
        targets
    }

    fn reports(&self, targets: Vec<(usize, Target)>, settings: &Settings) -> Vec<LineReport> {
        let reports = targets.into_iter();
        reports
            .filter_map(|(index, target)| self.report(index, target, settings))
            .collect()
    }

    /// The list that replaced this setting, if one did.
    fn replacement(&self, index: usize, pattern: &str) -> Option<&Replacement> {
        self.replacements
            .iter()
            .find(|it| index < it.before && pattern.starts_with(it.prefix))
    }

    fn report(&self, index: usize, target: Target, settings: &Settings) -> Option<LineReport> {
        let setting = self.written.get(index)?;
        let outcome = match target {
            Target::Nothing(reason) => Outcome::Ignored(reason.into()),
            Target::OfBackend => self.outcome_of_backend(index, setting, settings),
            Target::Key {
                pattern,
                word,
                through,
            } => {
                let replacement = self.replacement(index, pattern);
                let winner = self.winners.get(&(pattern, word)).copied().unwrap_or(index);
                match self.written.get(winner).filter(|_| winner != index) {
                    Some(winner) => Outcome::Overridden(winner.place),
                    None if let Some(by) = replacement => Outcome::Overridden(by.place),
                    None if pattern == DEFAULT_BACKEND
                        && let Some(reason) =
                            several_backends::default_without_effect(settings) =>
                    {
                        Outcome::Ignored(reason.into())
                    }
                    None if through || setting.written.is_some() => {
                        Outcome::MappedTo(pattern.to_owned())
                    }
                    None => Outcome::Honoured,
                }
            }
        };
        let value = match &setting.written {
            Some(written) => written.value.clone(),
            None => setting.value.clone(),
        };
        Some(LineReport {
            place: setting.place,
            value: secret::shown(&setting.name.to_string(), &value),
            name: setting.written_name(),
            outcome,
        })
    }

    /// The outcome of a setting of one of several backends.
    fn outcome_of_backend(&self, index: usize, setting: &Setting, settings: &Settings) -> Outcome {
        if let Some(by) = self.replacement(index, OF_BACKENDS) {
            return Outcome::Overridden(by.place);
        }
        let Some((name, rest)) = catalogue::of_backend(&setting.name) else {
            return Outcome::Honoured;
        };
        if let Some(later) = self.later_of_backend(index, name, &rest) {
            return Outcome::Overridden(later.place);
        }
        if let Some(reason) = several_backends::without_effect(name, &rest, settings) {
            return Outcome::Ignored(reason.into());
        }
        match catalogue::lookup(&rest) {
            Some(Known::Mapped { to }) => Outcome::MappedTo(format!("multi_backend.{name}.{to}")),
            _ => Outcome::Honoured,
        }
    }

    /// The last setting that overrides this one; prefixes of bucket names add up.
    fn later_of_backend(&self, index: usize, name: &str, rest: &Name) -> Option<&Setting> {
        let key = catalogue::key_of_backend(rest)?;
        let later = self.written.get(index + 1..)?.iter();
        later.rev().find(|it| {
            catalogue::of_backend(&it.name).is_some_and(|(other, rest)| {
                other == name && catalogue::key_of_backend(&rest).as_ref() == Some(&key)
            })
        })
    }

    /// Applies every honoured key, set or by default.
    fn evaluate(&mut self) -> (Settings, Vec<Effective>) {
        let mut settings = Settings::blank();
        let mut effective = Vec::new();
        for key in honoured_keys() {
            let set: Vec<(String, usize)> = self
                .winners
                .range((key.name, String::new())..)
                .take_while(|((pattern, _), _)| *pattern == key.name)
                .map(|((_, word), index)| (word.clone(), *index))
                .collect();
            if set.is_empty() {
                effective.push(self.apply_default(&mut settings, key));
            }
            for (word, index) in set {
                effective.extend(self.apply_setting(&mut settings, key, &word, index));
            }
        }
        self.choose_log_output(&mut settings);
        settings.multi.backends = self.named_backends(&settings);
        (settings, effective)
    }

    /// Several backends, in the order of their names. Each has the node's settings, overridden by
    /// its own.
    fn named_backends(&mut self, of_node: &Settings) -> Vec<NamedBackend> {
        let mut backends: BTreeMap<String, NamedBackend> = BTreeMap::new();
        for index in 0..self.written.len() {
            let Some(setting) = self.written.get(index) else {
                continue;
            };
            let Some((name, rest)) = catalogue::of_backend(&setting.name) else {
                continue;
            };
            if self.replacement(index, OF_BACKENDS).is_some() {
                continue;
            }
            let backend = backends
                .entry(name.to_owned())
                .or_insert_with(|| NamedBackend {
                    name: name.to_owned(),
                    bucket_prefixes: Vec::new(),
                    settings: of_node.clone(),
                });
            self.apply_to_backend(backend, index, &rest);
        }
        backends.into_values().collect()
    }

    /// Applies a setting of one of several backends; `rest` is its name behind the backend's.
    fn apply_to_backend(
        &mut self,
        backend: &mut NamedBackend,
        index: usize,
        rest: &Name,
    ) -> Option<()> {
        let setting = self.written.get(index)?;
        if rest.to_string() == catalogue::BUCKET_PREFIX {
            return self.take_bucket_prefixes(backend, setting);
        }
        let (pattern, word) = catalogue::key_of_backend(rest)?;
        let key = catalogue::declaration_of_backend(pattern)?;
        let (written, place) = (setting.written_name(), setting.place);
        let value = self.expand(&written, place, &setting.value)?;
        let value = self.anchors.of_kind(&key.kind, place, &value);
        self.apply(&mut backend.settings, key, &word, &written, place, &value);
        Some(())
    }

    fn take_bucket_prefixes(
        &mut self,
        backend: &mut NamedBackend,
        setting: &Setting,
    ) -> Option<()> {
        let starts: Vec<&str> = setting.value.split(',').map(str::trim).collect();
        if starts.contains(&"") {
            self.problems.push(Problem::BadValue {
                key: setting.written_name(),
                place: setting.place,
                got: setting.value.clone(),
                expected: BUCKET_PREFIXES.to_owned(),
            });
            return None;
        }
        let starts = starts.into_iter().map(str::to_owned);
        backend.bucket_prefixes.extend(starts);
        Some(())
    }

    fn apply_default(&mut self, settings: &mut Settings, key: &'static Key) -> Effective {
        let name = name::instance(key.name, key.default_word);
        let value = key.default.and_then(|text| {
            let value = self.expand(&name, Place::Default, text)?;
            let value = self.anchors.of_kind(&key.kind, Place::Default, &value);
            self.apply(
                settings,
                key,
                key.default_word,
                &name,
                Place::Default,
                &value,
            );
            Some(value)
        });
        Effective {
            name,
            value,
            origin: Origin::Default,
            key,
        }
    }

    fn apply_setting(
        &mut self,
        settings: &mut Settings,
        key: &'static Key,
        word: &str,
        index: usize,
    ) -> Option<Effective> {
        let setting = self.written.get(index)?;
        let name = name::instance(key.name, word);
        let written = setting.written_name();
        let value = self.expand(&written, setting.place, &setting.value)?;
        let value = self.anchors.of_kind(&key.kind, setting.place, &value);
        self.apply(settings, key, word, &written, setting.place, &value);
        let through = (written != name).then_some(written);
        let origin = Origin::Set {
            place: setting.place,
            through,
        };
        Some(Effective {
            name,
            value: Some(value),
            origin,
            key,
        })
    }

    fn apply(
        &mut self,
        settings: &mut Settings,
        key: &'static Key,
        word: &str,
        name: &str,
        place: Place,
        value: &str,
    ) {
        if key.kind.apply(settings, word, value).is_err() {
            self.problems.push(Problem::BadValue {
                key: name.to_owned(),
                place,
                got: value.to_owned(),
                expected: key.kind.expected(),
            });
        }
    }

    fn expand(&mut self, key: &str, place: Place, text: &str) -> Option<String> {
        let expanded = substitution::expand(text, &Written { loader: self });
        expanded
            .map_err(|(named, why)| {
                let key = key.to_owned();
                self.problems.push(Problem::Reference {
                    key,
                    place,
                    named,
                    why,
                });
            })
            .ok()
    }

    /// The text that a key was set to, or its default, with its place.
    fn raw_value(&self, name: &Name) -> Option<(Place, String)> {
        let (pattern, word) = match catalogue::lookup(name)? {
            Known::Honoured { pattern, word } => (pattern, word),
            Known::Mapped { to } => (to, String::new()),
            Known::Ignored { .. } | Known::Guarded { .. } | Known::OfBackend => {
                let written = self.written.iter().rev();
                let mut set = written.filter(|setting| setting.name == *name);
                return set
                    .next()
                    .map(|setting| (setting.place, setting.value.clone()))
                    .or_else(|| {
                        let default = catalogue::riak_default(name)?;
                        Some((Place::Default, default.to_owned()))
                    });
            }
        };
        match self.winners.get(&(pattern, word)) {
            Some(index) => {
                let setting = self.written.get(*index)?;
                Some((setting.place, setting.value.clone()))
            }
            None => {
                let default = catalogue::declaration(pattern)?.default?;
                Some((Place::Default, default.to_owned()))
            }
        }
    }

    /// As in Riak, setting a log file turns it on.
    fn choose_log_output(&self, settings: &mut Settings) {
        let is_set = |pattern| self.winners.contains_key(&(pattern, String::new()));
        if !is_set("logger.output") {
            settings.log.output = if is_set("logger.file") {
                LogOutput::Both
            } else {
                LogOutput::Console
            };
        }
    }
}

/// Values of keys, for references to them.
struct Written<'a> {
    loader: &'a Loader<'a>,
}

impl substitution::Values for Written<'_> {
    fn text(&self, name: &Name) -> Option<String> {
        self.loader.raw_value(name).map(|(_, text)| text)
    }

    fn followed(&self, name: &Name, text: String) -> String {
        match self.loader.raw_value(name) {
            Some((place, _)) if catalogue::is_path(name) => {
                self.loader.anchors.anchored(place, &text)
            }
            _ => text,
        }
    }
}

/// The reason why a value of a key that is honoured has no effect.
fn passed_over(pattern: &'static str, value: &str) -> Option<&'static str> {
    catalogue::declaration(pattern)?.kind.passes_over(value)
}

/// Values of riak.conf that are an empty list.
const EMPTY: [&str; 3] = ["", "[]", "\"\""];
const NOTHING_NAMED: &str = "it names nothing, which is the default";

enum Target {
    Key {
        pattern: &'static str,
        word: String,
        through: bool,
    },
    Nothing(&'static str),
    /// A key of one of several backends.
    OfBackend,
}

/// The pattern for all keys of all backends of a node with several.
const OF_BACKENDS: &str = "multi_backend.$name";
/// The key with the backend of the buckets that name none.
const DEFAULT_BACKEND: &str = "multi_backend.default";
/// The values of `multi_backend.NAME.bucket_prefix`.
const BUCKET_PREFIXES: &str =
    "prefixes of bucket names, separated by commas, none of them empty, such as `tmp_, log_`";
