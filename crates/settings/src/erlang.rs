//! `advanced.config` and `app.config`: Erlang terms beside a riak.conf, which override it.
//!
//! The form is `[{Application, [{Key, Value}]}].`, and as in Riak a key replaces all settings of riak.conf
//! for it, lists as a whole. Every key is honoured under its name in riak.conf, ignored with a reason, or
//! refused. A key that would change the backend or the default properties is never ignored: data
//! would be read or stored in another way than before.

mod keys;
mod values;

use kvorum_erlang_terms::{Term, parse_terms};

use crate::catalogue;
use crate::conf_file::{Setting, Written};
use crate::line_report::{LineReport, Outcome};
use crate::name::Name;
use crate::problem::{Place, Problem, TermsFile};
use crate::secret;

use keys::{APPLICATIONS, ErlangKey, Form};
use values::{Misfit, Translated};

const FORM: &str = "one list of applications, `[{riak_kv, [{delete_mode, keep}]}].`";
const OTHER_APPLICATION: &str = "Kvorum has no such Erlang application";
const EMPTY_LIST: &str = "it is an empty list: what it replaces has its default";
/// Several backends, each with its name, module and configuration.
const BACKENDS: &str = "riak_kv.multi_backend";
const BACKENDS_FORM: &str = "[{<<\"name\">>, riak_kv_bitcask_backend, [{Key, Value}]}]";
/// Prefixes of bucket names, each with the name of its backend.
const BUCKET_PREFIXES: &str = "riak_kv.multi_backend_prefix_list";
const BUCKET_PREFIXES_FORM: &str =
    "[{<<\"prefix\">>, <<\"name\">>}], with prefixes that have no comma";
const HAS_EARLIER_START: &str =
    "an earlier prefix of the list fits all its buckets, so that it has none";
/// Modules of Riak's backends: their names here, and the applications under which their keys are known.
const MODULES: [(&str, &str, &str); 6] = [
    ("riak_kv_bitcask_backend", "bitcask", "bitcask"),
    ("riak_kv_eleveldb_backend", "leveldb", "eleveldb"),
    ("riak_kv_leveled_backend", "leveled", "leveled"),
    ("riak_kv_hanoidb_backend", "hanoidb", "hanoidb"),
    ("riak_kv_innostore_backend", "innostore", "innostore"),
    ("riak_kv_memory_backend", "memory", "memory"),
];
const NO_MEANING: &str = "it has no meaning in Kvorum, nor has riak.conf a key for it";

/// A listener whose address and port are in two keys.
struct OldListener {
    application: &'static str,
    host: &'static str,
    port: &'static str,
    port_default: &'static str,
    /// Prefix of such listeners' keys in riak.conf.
    listeners: &'static str,
}

impl OldListener {
    fn has(&self, application: &str, name: &str) -> bool {
        self.application == application && (self.host == name || self.port == name)
    }
}

const OLD_LISTENERS: [OldListener; 3] = [
    OldListener {
        application: "riak_api",
        host: "pb_ip",
        port: "pb_port",
        port_default: "8087",
        listeners: "listener.protobuf.",
    },
    OldListener {
        application: "riak_kv",
        host: "pb_ip",
        port: "pb_port",
        port_default: "8087",
        listeners: "listener.protobuf.",
    },
    OldListener {
        application: "riak_core",
        host: "web_ip",
        port: "web_port",
        port_default: "8098",
        listeners: "listener.http.",
    },
];

/// The contents of a file.
#[derive(Debug, Default)]
pub(crate) struct ErlangSettings {
    /// Settings as lines of riak.conf.
    pub(crate) settings: Vec<Setting>,
    /// Keys without a name in riak.conf.
    pub(crate) ignored: Vec<LineReport>,
    /// Prefixes of keys of riak.conf whose earlier lines have no effect.
    pub(crate) replaced: Vec<&'static str>,
    /// The file's defects.
    pub(crate) problems: Vec<Problem>,
}

/// Reads a file's bytes.
pub(crate) fn read(file: TermsFile, bytes: &[u8]) -> ErlangSettings {
    let mut read = ErlangSettings::default();
    let place = Place::Terms(file);
    let refuse = |reason: String| Problem::Terms { place, reason };
    let terms = match parse_terms(bytes) {
        Ok(terms) => terms,
        Err(error) => {
            read.problems.push(refuse(error.to_string()));
            return read;
        }
    };
    let applications = match &terms[..] {
        [] => return read,
        [only] => only.term.as_list(),
        [_, second, ..] => {
            let (line, column) = (second.position.line, second.position.column);
            let reason = format!("line {line}, column {column}: a second term, expected {FORM}");
            read.problems.push(refuse(reason));
            return read;
        }
    };
    let Some(applications) = applications else {
        let position = terms.first().map(|term| term.position);
        let (line, column) = position.map_or((1, 1), |it| (it.line, it.column));
        let reason = format!("line {line}, column {column}: expected {FORM}");
        read.problems.push(refuse(reason));
        return read;
    };
    for application in applications {
        match application.as_tuple() {
            Some([Term::Atom(name), keys]) => read.take_application(place, name, keys),
            _ => {
                let reason = format!("expected {FORM}, got {}", shown(application));
                read.problems.push(refuse(reason));
            }
        }
    }
    read
}

impl ErlangSettings {
    fn take_application(&mut self, place: Place, application: &str, keys: &Term) {
        let Some(pairs) = values::pairs(keys) else {
            let reason = format!(
                "{application}: expected a list of {{Key, Value}}, got {}",
                shown(keys)
            );
            self.problems.push(Problem::Terms { place, reason });
            return;
        };
        for old in OLD_LISTENERS
            .iter()
            .filter(|old| old.application == application)
        {
            self.take_old_listener(place, old, &pairs);
        }
        for (name, value) in pairs {
            let path = format!("{application}.{name}");
            match keys::key(&path) {
                _ if path == BACKENDS => self.take_backends(place, &value),
                _ if path == BUCKET_PREFIXES => self.take_bucket_prefixes(place, &value),
                Some(key) => self.take_key(place, &key, &value),
                None if OLD_LISTENERS.iter().any(|old| old.has(application, &name)) => {}
                None if APPLICATIONS.contains(&application) => {
                    self.ignore(place, path, &value, NO_MEANING);
                }
                None => self.ignore(place, path, &value, OTHER_APPLICATION),
            }
        }
    }

    fn misfit(&mut self, place: Place, key: &str, value: &Term, expected: &str) {
        self.problems.push(Problem::BadValue {
            key: key.to_owned(),
            place,
            got: shown(value),
            expected: expected.to_owned(),
        });
    }

    /// Takes the list of several backends, which replaces all of riak.conf's settings of backends.
    fn take_backends(&mut self, place: Place, list: &Term) {
        self.replaced.push("multi_backend.$");
        let backends = list.as_list().unwrap_or_default();
        let backends: Option<Vec<_>> = backends.iter().map(backend_of).collect();
        let Some(backends) = backends.filter(|it| !it.is_empty()) else {
            return self.misfit(place, BACKENDS, list, BACKENDS_FORM);
        };
        for (name, (_, engine, application), own) in backends {
            let key = |rest: &str| format!("multi_backend.{name}.{rest}");
            self.line_of_backend(place, &key("storage_backend"), engine.to_owned(), list);
            for (own_name, value) in own {
                let path = match application {
                    "memory" => "riak_kv.memory_backend".to_owned(),
                    _ => format!("{application}.{own_name}"),
                };
                let value = match application {
                    "memory" => {
                        Term::List(vec![Term::Tuple(vec![Term::Atom(own_name.clone()), value])])
                    }
                    _ => value,
                };
                let translated = keys::key(&path).map(|it| translate(&it, &value));
                match translated {
                    Some(Ok(translated)) => {
                        for (rest, text) in translated.lines {
                            self.line_of_backend(place, &key(&rest), text, list);
                        }
                    }
                    Some(Err(_)) => self.misfit(place, &path, &value, "a value as in its own list"),
                    None => self.ignore(place, format!("{BACKENDS}.{path}"), &value, NO_MEANING),
                }
            }
        }
    }

    fn take_bucket_prefixes(&mut self, place: Place, list: &Term) {
        let pair = |it: &Term| match it.as_tuple()? {
            [start, name] => {
                // In the resulting setting, commas separate the prefixes.
                let start = values::plain(start).filter(|it| !it.contains(','))?;
                Some((start, values::plain(name)?))
            }
            _ => None,
        };
        let pairs: Option<Vec<_>> = list.as_list().and_then(|it| it.iter().map(pair).collect());
        let Some(pairs) = pairs else {
            return self.misfit(place, BUCKET_PREFIXES, list, BUCKET_PREFIXES_FORM);
        };
        for (number, (start, name)) in pairs.iter().enumerate() {
            // Riak uses the first prefix that fits, Kvorum the longest.
            let mut earlier = pairs.iter().take(number);
            if earlier.any(|(other, _)| start.starts_with(&**other)) {
                let path = format!("{BUCKET_PREFIXES} ({start})");
                self.ignore(place, path, list, HAS_EARLIER_START);
                continue;
            }
            let key = format!("multi_backend.{name}.{}", catalogue::BUCKET_PREFIX);
            self.line_of_backend(place, &key, start.clone(), list);
        }
    }

    fn line_of_backend(&mut self, place: Place, key: &str, value: String, list: &Term) {
        let Some(name) = Name::parse(key) else {
            return self.misfit(place, BACKENDS, list, BACKENDS_FORM);
        };
        let written = Written {
            name: format!("{BACKENDS} ({key})"),
            value: value.clone(),
        };
        self.settings.push(Setting {
            place,
            name,
            value,
            written: Some(written),
        });
    }

    fn ignore(&mut self, place: Place, path: String, value: &Term, reason: &'static str) {
        let value = match value {
            Term::String(_) => "\"...\"".to_owned(),
            _ => shown(value),
        };
        self.ignored.push(LineReport {
            place,
            value: secret::shown(&path, &value),
            name: path,
            outcome: Outcome::Ignored(reason.into()),
        });
    }

    /// Takes address and port of a listener, which Riak 1.x had in two keys; a missing one gets its default.
    fn take_old_listener(&mut self, place: Place, old: &OldListener, pairs: &[(String, Term)]) {
        let value = |key: &str| {
            let found = pairs.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| values::plain(value).unwrap_or_else(|| shown(value)))
        };
        let (host, port) = (value(old.host), value(old.port));
        if host.is_none() && port.is_none() {
            return;
        }
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let address = format!("{host}:{}", port.as_deref().unwrap_or(old.port_default));
        let Some(name) = Name::parse(&format!("{}erlang1", old.listeners)) else {
            return;
        };
        self.replaced.push(old.listeners);
        self.settings.push(Setting {
            place,
            name,
            value: address.clone(),
            written: Some(Written {
                name: format!("{}.{} and {}", old.application, old.host, old.port),
                value: address,
            }),
        });
    }

    fn take_key(&mut self, place: Place, key: &ErlangKey, value: &Term) {
        let translated = match translate(key, value) {
            Ok(translated) => translated,
            Err(Misfit::Form(expected)) => {
                let expected = if expected.is_empty() {
                    catalogue::declaration(key.conf).map_or_else(
                        || "a word, a number or a string".to_owned(),
                        |it| it.kind.expected(),
                    )
                } else {
                    expected.to_owned()
                };
                self.problems.push(Problem::BadValue {
                    key: key.path.to_owned(),
                    place,
                    got: shown(value),
                    expected,
                });
                return;
            }
            Err(Misfit::Refused(part, reason)) => {
                self.problems.push(Problem::Unsupported {
                    key: format!("{}.{part}", key.path),
                    place,
                    reason,
                });
                return;
            }
        };
        if let Form::Special { replaces, .. } = key.form {
            self.replaced.extend(replaces);
        }
        if translated.lines.is_empty() && translated.ignored.is_empty() {
            self.ignore(place, key.path.to_owned(), value, EMPTY_LIST);
        }
        for part in translated.ignored {
            let path = format!("{}.{}", key.path, part.path);
            self.ignore(place, path, &part.value, part.reason);
        }
        for (name, text) in translated.lines {
            let Some(name) = Name::parse(&name) else {
                continue;
            };
            self.settings.push(Setting {
                place,
                name,
                value: text,
                written: Some(Written {
                    name: key.path.to_owned(),
                    value: secret::shown(key.path, &shown(value)),
                }),
            });
        }
    }
}

/// One of several backends: its name, its module if that is known, and its configuration.
type ErlangBackend = (
    String,
    (&'static str, &'static str, &'static str),
    Vec<(String, Term)>,
);

fn backend_of(term: &Term) -> Option<ErlangBackend> {
    let [name, module, own] = term.as_tuple()? else {
        return None;
    };
    let module = module.as_atom()?;
    let known = MODULES.into_iter().find(|it| it.0 == module)?;
    Some((values::plain(name)?, known, values::pairs(own)?))
}

fn translate(key: &ErlangKey, value: &Term) -> Result<Translated, Misfit> {
    let is_ignored = Name::parse(key.conf)
        .and_then(|name| catalogue::lookup(&name))
        .is_some_and(|known| matches!(known, catalogue::Known::Ignored { .. }));
    let text = match key.form {
        Form::Special { translate, .. } => return translate(value),
        // The key has no effect, so the form of its value does not matter.
        _ if is_ignored => Some(shown(value)),
        Form::Plain => values::plain(value),
        Form::SecondsOrOff => match value {
            Term::Integer(..0) => Some("off".to_owned()),
            _ => value.as_integer().map(|seconds| format!("{seconds}s")),
        },
        Form::Minutes => match value {
            Term::Integer(minutes) => Some(format!("{minutes}m")),
            _ => values::plain(value),
        },
        Form::ZeroIsOff => match value {
            Term::Integer(0) => Some("off".to_owned()),
            _ => values::plain(value),
        },
        Form::Inverted => match value.as_atom() {
            Some("true" | "on") => Some("off".to_owned()),
            Some("false" | "off") => Some("on".to_owned()),
            _ => None,
        },
        Form::Words(words) => {
            let text = values::plain(value);
            let named = words.iter().find(|(word, _)| text.as_deref() == Some(word));
            named.map(|(_, text)| (*text).to_owned()).or(text)
        }
    };
    let text = text.ok_or(Misfit::Form(""))?;
    Ok(vec![(key.conf.to_owned(), text)].into())
}

/// A value for messages. Strings within other terms may be secrets and are not shown. Terms that
/// contain the name of a secret are not shown either.
fn shown(term: &Term) -> String {
    match term {
        Term::Atom(_) | Term::Integer(_) | Term::Float(_) | Term::String(_) => term.to_string(),
        _ if is_harmless(term) && !names_secret(term) => term.to_string(),
        Term::List(_) => "[...]".to_owned(),
        Term::Tuple(_) => "{...}".to_owned(),
        Term::Map(_) => "#{...}".to_owned(),
        Term::Binary(_) => "<<...>>".to_owned(),
    }
}

fn is_harmless(term: &Term) -> bool {
    match term {
        Term::Atom(_) | Term::Integer(_) | Term::Float(_) => true,
        Term::List(parts) | Term::Tuple(parts) => parts.iter().all(is_harmless),
        Term::String(_) | Term::Binary(_) | Term::Map(_) => false,
    }
}

fn names_secret(term: &Term) -> bool {
    match term {
        Term::Atom(name) => secret::is_secret(name),
        Term::List(parts) | Term::Tuple(parts) => parts.iter().any(names_secret),
        _ => false,
    }
}
