//! Erlang values with a structure of their own, as lines of riak.conf.

use kvorum_erlang_terms::Term;

/// Pairs of a key of riak.conf and its value.
pub(super) type Lines = Vec<(String, String)>;

/// Turns a value into lines.
pub(super) type Translation = fn(&Term) -> Result<Translated, Misfit>;

/// The translation of a value with parts.
#[derive(Debug, Default)]
pub(super) struct Translated {
    /// As lines of riak.conf.
    pub(super) lines: Lines,
    /// Parts without effect.
    pub(super) ignored: Vec<IgnoredPart>,
}

/// A part of a value that has no effect.
#[derive(Debug)]
pub(super) struct IgnoredPart {
    /// Its path below the key.
    pub(super) path: String,
    pub(super) value: Term,
    /// Fits after "ignored because".
    pub(super) reason: &'static str,
}

impl From<Lines> for Translated {
    fn from(lines: Lines) -> Self {
        Self {
            lines,
            ignored: Vec::new(),
        }
    }
}

impl Translated {
    fn ignore(&mut self, path: String, value: Term, reason: &'static str) {
        self.ignored.push(IgnoredPart {
            path,
            value,
            reason,
        });
    }
}

/// The reason why a value cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The value does not have this form.
    Form(&'static str),
    /// A part changes the storage of objects and cannot be honoured: its path and the reason.
    Refused(String, &'static str),
}

/// The text of an atom, a number or a string.
pub(super) fn plain(term: &Term) -> Option<String> {
    match term {
        Term::Atom(name) => Some(name.clone()),
        Term::Integer(value) => Some(value.to_string()),
        Term::String(text) => Some(text.clone()),
        Term::Binary(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

/// The pairs of a property list, in which a bare atom means true.
pub(super) fn pairs(term: &Term) -> Option<Vec<(String, Term)>> {
    let pair = |element: &Term| match element {
        Term::Atom(name) => Some((name.clone(), Term::atom("true"))),
        Term::Tuple(parts) => match &parts[..] {
            [name, value] => Some((plain(name)?, value.clone())),
            _ => None,
        },
        _ => None,
    };
    term.as_list()?.iter().map(pair).collect()
}

fn line(key: &str, value: impl Into<String>) -> (String, String) {
    (key.to_owned(), value.into())
}

pub(super) fn sync_strategy(term: &Term) -> Result<Translated, Misfit> {
    const EXPECTED: &str = "none, o_sync or {seconds, N}";
    match (term, term.as_tuple()) {
        (Term::Atom(word), _) if word == "none" || word == "o_sync" => {
            Ok(vec![line("bitcask.sync.strategy", word.clone())].into())
        }
        (_, Some([tag, Term::Integer(seconds)])) if tag.as_atom() == Some("seconds") => Ok(vec![
            line("bitcask.sync.strategy", "interval"),
            line("bitcask.sync.interval", format!("{seconds}s")),
        ]
        .into()),
        _ => Err(Misfit::Form(EXPECTED)),
    }
}

pub(super) fn hanoidb_sync_strategy(term: &Term) -> Result<Translated, Misfit> {
    match (term, term.as_tuple()) {
        (Term::Atom(word), _) if word == "none" || word == "sync" => {
            Ok(vec![line("hanoidb.sync_strategy", word.clone())].into())
        }
        (_, Some([tag, Term::Integer(seconds)])) if tag.as_atom() == Some("seconds") => Ok(vec![
            line("hanoidb.sync_strategy", "interval"),
            line("hanoidb.sync_interval", format!("{seconds}s")),
        ]
        .into()),
        _ => Err(Misfit::Form("none, sync or {seconds, N}")),
    }
}

/// Options of Erlang processes, which are ignored with any value.
pub(super) fn hanoidb_spawn_options(_term: &Term) -> Result<Translated, Misfit> {
    Ok(vec![line("hanoidb.spawn_opt", "given")].into())
}

pub(super) fn merge_window(term: &Term) -> Result<Translated, Misfit> {
    match (term, term.as_tuple()) {
        (Term::Atom(word), _) if word == "always" || word == "never" => {
            Ok(vec![line("bitcask.merge.policy", word.clone())].into())
        }
        (_, Some([Term::Integer(start), Term::Integer(end)])) => Ok(vec![
            line("bitcask.merge.policy", "window"),
            line("bitcask.merge.window.start", start.to_string()),
            line("bitcask.merge.window.end", end.to_string()),
        ]
        .into()),
        _ => Err(Misfit::Form("always, never or {StartHour, EndHour}")),
    }
}

pub(super) fn compression(term: &Term) -> Result<Translated, Misfit> {
    match term.as_atom() {
        Some(word @ ("true" | "false" | "on" | "off")) => {
            Ok(vec![line("leveldb.compression", word)].into())
        }
        Some(word @ ("snappy" | "lz4")) => Ok(vec![
            line("leveldb.compression", "on"),
            line("leveldb.compression.algorithm", word),
        ]
        .into()),
        _ => Err(Misfit::Form("true, false, snappy or lz4")),
    }
}

pub(super) fn memory_backend(term: &Term) -> Result<Translated, Misfit> {
    const EXPECTED: &str = "[{max_memory, Megabytes}, {ttl, Seconds}]";
    let pairs = pairs(term).ok_or(Misfit::Form(EXPECTED))?;
    let mut lines = Vec::new();
    for (name, value) in pairs {
        match (&*name, value) {
            ("max_memory", Term::Integer(megabytes)) => {
                let value = format!("{megabytes}MB");
                lines.push(line("memory_backend.max_memory_per_vnode", value));
            }
            ("ttl", Term::Integer(seconds)) => {
                lines.push(line("memory_backend.ttl", format!("{seconds}s")));
            }
            _ => return Err(Misfit::Form(EXPECTED)),
        }
    }
    Ok(lines.into())
}

/// The list names the enabled classes; all others are disabled.
pub(super) fn jobs(term: &Term) -> Result<Translated, Misfit> {
    const CLASSES: [&str; 7] = [
        "list_buckets",
        "stream_list_buckets",
        "list_keys",
        "stream_list_keys",
        "secondary_index",
        "stream_secondary_index",
        "map_reduce",
    ];
    const EXPECTED: Misfit = Misfit::Form("a list such as [{riak_kv, list_keys}]");
    const NO_SUCH_CLASS: &str = "Kvorum has no requests of this class";
    let enabled = pairs(term).ok_or(EXPECTED)?;
    let lines = CLASSES.map(|class| {
        let is_enabled = enabled
            .iter()
            .any(|(app, name)| app == "riak_kv" && name.as_atom() == Some(class));
        let value = if is_enabled { "enabled" } else { "disabled" };
        line(&format!("cluster.job.riak_kv.{class}"), value)
    });
    let mut translated = Translated::from(lines.to_vec());
    for (app, name) in enabled {
        let is_known = name.as_atom().is_some_and(|name| CLASSES.contains(&name));
        if app != "riak_kv" || !is_known {
            let part = plain(&name).ok_or(EXPECTED)?;
            translated.ignore(format!("{app}.{part}"), name, NO_SUCH_CLASS);
        }
    }
    Ok(translated)
}

pub(super) fn protobuf_listeners(term: &Term) -> Result<Translated, Misfit> {
    listeners("protobuf", term)
}

pub(super) fn http_listeners(term: &Term) -> Result<Translated, Misfit> {
    listeners("http", term)
}

fn listeners(protocol: &str, term: &Term) -> Result<Translated, Misfit> {
    const EXPECTED: &str = "a list such as [{\"127.0.0.1\", 8087}]";
    let list = term.as_list().ok_or(Misfit::Form(EXPECTED))?;
    let mut lines = Vec::new();
    for (index, element) in list.iter().enumerate() {
        let Some([host, Term::Integer(port)]) = element.as_tuple() else {
            return Err(Misfit::Form(EXPECTED));
        };
        let host = plain(host).ok_or(Misfit::Form(EXPECTED))?;
        let name = format!("listener.{protocol}.erlang{}", index + 1);
        lines.push((name, format!("{host}:{port}")));
    }
    if lines.is_empty() {
        lines.push((format!("listener.{protocol}.erlang1"), "off".to_owned()));
    }
    Ok(lines.into())
}

/// Default properties without effect, each with the reason.
const WITHOUT_EFFECT: [(&str, &str); 14] = [
    ("small_vclock", PRUNING),
    ("big_vclock", PRUNING),
    ("young_vclock", PRUNING),
    ("old_vclock", PRUNING),
    ("repl", "there is no replication between clusters"),
    ("search", "there is no search"),
    ("search_index", "there is no search"),
    (
        "hll_precision",
        "HyperLogLogs are of bucket types, which have properties of their own",
    ),
    (
        "stat_tracked",
        "figures of their own have the buckets and types that set it themselves",
    ),
    (
        "aae_tree_exclude",
        "the replicas of every bucket are compared",
    ),
    ("name", "it is part of the address"),
    ("bucket_type", "it is part of the address"),
    ("claimant", "every node can change bucket types"),
    ("active", "a bucket type is activated by its verb"),
];

const PRUNING: &str = "clocks are never pruned";

const FOREIGN_LINK_FUNCTION: &str =
    "it names a function that Kvorum cannot run; links are read from the Link metadata";

/// Default properties. A value that Kvorum cannot honour would silently change the storage of
/// objects, so it is refused. Values without effect for clients are reported.
pub(super) fn bucket_properties(term: &Term) -> Result<Translated, Misfit> {
    const HONOURED: [&str; 13] = [
        "n_val",
        "r",
        "w",
        "dw",
        "rw",
        "pr",
        "pw",
        "node_confirms",
        "notfound_ok",
        "basic_quorum",
        "allow_mult",
        "last_write_wins",
        "sync_on_write",
    ];
    const EXPECTED: &str = "a list of properties such as [{allow_mult, true}]";
    const OFF: &str = "it is off, as it is without this line";
    let pairs = pairs(term).ok_or(Misfit::Form(EXPECTED))?;
    let mut translated = Translated::default();
    for (name, value) in pairs {
        let is_off = matches!(value.as_atom(), Some("false" | "undefined"))
            || value.as_list().is_some_and(<[Term]>::is_empty);
        let without_effect = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name);
        if HONOURED.contains(&&*name) {
            let text = plain(&value).ok_or(Misfit::Form(EXPECTED))?;
            translated
                .lines
                .push((format!("buckets.default.{name}"), text));
        } else if name == "dvv_enabled" {
            let strategy = if is_off { "1" } else { "2" };
            let strategy = line("buckets.default.merge_strategy", strategy);
            translated.lines.push(strategy);
        } else if name == "chash_keyfun" {
            let function = key_function(&value).ok_or_else(|| {
                let reason = "only the two functions of riak_core_util are known";
                Misfit::Refused(name.clone(), reason)
            })?;
            translated
                .lines
                .push(line("buckets.default.chash_keyfun", function));
        } else if name == "linkfun" {
            if !is_link_function(&value) {
                return Err(Misfit::Refused(name, FOREIGN_LINK_FUNCTION));
            }
            translated.ignore(name, value, "every bucket has this function");
        } else if let Some((_, reason)) = without_effect {
            translated.ignore(name, value, reason);
        } else if is_off {
            translated.ignore(name, value, OFF);
        } else {
            return Err(Misfit::Refused(name, why_refused(&value)));
        }
    }
    Ok(translated)
}

/// The name of one of the two functions of `riak_core_util`.
fn key_function(value: &Term) -> Option<&'static str> {
    let parts = value.as_tuple()?;
    let names: Vec<_> = parts.iter().filter_map(Term::as_atom).collect();
    match names[..] {
        ["riak_core_util", "chash_std_keyfun"] => Some("chash_std_keyfun"),
        ["riak_core_util", "chash_bucketonly_keyfun"] => Some("chash_bucketonly_keyfun"),
        _ => None,
    }
}

/// True for the function of Riak that takes links out of the Link metadata.
fn is_link_function(value: &Term) -> bool {
    let parts = value.as_tuple().unwrap_or_default();
    let names: Vec<_> = parts.iter().filter_map(Term::as_atom).collect();
    names == ["modfun", "riak_kv_wm_link_walker", "mapreduce_linkfun"]
}

fn why_refused(value: &Term) -> &'static str {
    match value {
        Term::List(_) => "it names functions in Erlang or JavaScript, which Kvorum cannot run",
        _ => "Kvorum has no such default property, and objects would not be kept as they were",
    }
}
