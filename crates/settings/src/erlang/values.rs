//! Erlang values with a structure of their own, as lines of riak.conf.

use kvorum_erlang_terms::Term;

/// Pairs of a key of riak.conf and its value.
pub(super) type Lines = Vec<(String, String)>;

/// Turns a value into lines.
pub(super) type Translation = fn(&Term) -> Result<Lines, Misfit>;

/// The reason that a value cannot be lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It has another form than this one.
    Form(&'static str),
    /// A part of it would change how objects are kept, and cannot be honoured: its path and the reason.
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

/// The pairs of a property list, in which an atom alone is true.
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

pub(super) fn sync_strategy(term: &Term) -> Result<Lines, Misfit> {
    const EXPECTED: &str = "none, o_sync or {seconds, N}";
    match (term, term.as_tuple()) {
        (Term::Atom(word), _) if word == "none" || word == "o_sync" => {
            Ok(vec![line("bitcask.sync.strategy", word.clone())])
        }
        (_, Some([tag, Term::Integer(seconds)])) if tag.as_atom() == Some("seconds") => Ok(vec![
            line("bitcask.sync.strategy", "interval"),
            line("bitcask.sync.interval", format!("{seconds}s")),
        ]),
        _ => Err(Misfit::Form(EXPECTED)),
    }
}

pub(super) fn merge_window(term: &Term) -> Result<Lines, Misfit> {
    match (term, term.as_tuple()) {
        (Term::Atom(word), _) if word == "always" || word == "never" => {
            Ok(vec![line("bitcask.merge.policy", word.clone())])
        }
        (_, Some([Term::Integer(start), Term::Integer(end)])) => Ok(vec![
            line("bitcask.merge.policy", "window"),
            line("bitcask.merge.window.start", start.to_string()),
            line("bitcask.merge.window.end", end.to_string()),
        ]),
        _ => Err(Misfit::Form("always, never or {StartHour, EndHour}")),
    }
}

pub(super) fn compression(term: &Term) -> Result<Lines, Misfit> {
    match term.as_atom() {
        Some(word @ ("true" | "false" | "on" | "off")) => {
            Ok(vec![line("leveldb.compression", word)])
        }
        Some(word @ ("snappy" | "lz4")) => Ok(vec![
            line("leveldb.compression", "on"),
            line("leveldb.compression.algorithm", word),
        ]),
        _ => Err(Misfit::Form("true, false, snappy or lz4")),
    }
}

pub(super) fn memory_backend(term: &Term) -> Result<Lines, Misfit> {
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
    Ok(lines)
}

/// Lines for the classes of jobs: the list names the enabled ones; all others are disabled.
pub(super) fn jobs(term: &Term) -> Result<Lines, Misfit> {
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
    let enabled = pairs(term).ok_or(EXPECTED)?;
    let lines = CLASSES.map(|class| {
        let is_enabled = enabled
            .iter()
            .any(|(app, name)| app == "riak_kv" && name.as_atom() == Some(class));
        let value = if is_enabled { "enabled" } else { "disabled" };
        line(&format!("cluster.job.riak_kv.{class}"), value)
    });
    Ok(lines.to_vec())
}

pub(super) fn protobuf_listeners(term: &Term) -> Result<Lines, Misfit> {
    listeners("protobuf", term)
}

pub(super) fn http_listeners(term: &Term) -> Result<Lines, Misfit> {
    listeners("http", term)
}

fn listeners(protocol: &str, term: &Term) -> Result<Lines, Misfit> {
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
    Ok(lines)
}

/// Default properties. A property that Kvorum cannot honour is refused, since it would silently give objects
/// another fate than before; those that change nothing for a client are left out.
pub(super) fn bucket_properties(term: &Term) -> Result<Lines, Misfit> {
    const HONOURED: [&str; 12] = [
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
    ];
    const WITHOUT_EFFECT: [&str; 10] = [
        "linkfun",
        "chash_keyfun",
        "small_vclock",
        "big_vclock",
        "young_vclock",
        "old_vclock",
        "repl",
        "name",
        "claimant",
        "active",
    ];
    const EXPECTED: &str = "a list of properties such as [{allow_mult, true}]";
    let pairs = pairs(term).ok_or(Misfit::Form(EXPECTED))?;
    let mut lines = Vec::new();
    for (name, value) in pairs {
        let is_off = matches!(value.as_atom(), Some("false" | "undefined"))
            || value.as_list().is_some_and(<[Term]>::is_empty);
        if HONOURED.contains(&&*name) {
            let text = plain(&value).ok_or(Misfit::Form(EXPECTED))?;
            lines.push((format!("buckets.default.{name}"), text));
        } else if name == "dvv_enabled" {
            let strategy = if is_off { "1" } else { "2" };
            lines.push(line("buckets.default.merge_strategy", strategy));
        } else if name == "chash_keyfun" && !is_standard_hash(&value) {
            let reason = "Kvorum places objects by the standard hash of bucket and key alone";
            return Err(Misfit::Refused(name, reason));
        } else if !is_off && !WITHOUT_EFFECT.contains(&&*name) {
            return Err(Misfit::Refused(name, why_refused(&value)));
        }
    }
    Ok(lines)
}

fn is_standard_hash(value: &Term) -> bool {
    let parts = value.as_tuple().unwrap_or_default();
    let names: Vec<_> = parts.iter().filter_map(Term::as_atom).collect();
    names == ["riak_core_util", "chash_std_keyfun"]
}

fn why_refused(value: &Term) -> &'static str {
    match value {
        Term::List(_) => "it names functions in Erlang or JavaScript, which Kvorum cannot run",
        _ => "Kvorum has no such default property, and objects would not be kept as they were",
    }
}
