//! The tables themselves: names are unique, defaults are valid, and every key has its effect.

use std::collections::BTreeSet;

use kvorum_settings::{
    Choice, Family, Fate, Key, Kind, Name, Settings, honoured_keys, lookup, riak_families,
};

/// The key's name with its free word filled in.
fn name_of(key: &Key) -> String {
    key.name.replace("$name", "internal")
}

/// Values of the key's type; of a choice, all.
fn values(key: &Key) -> Vec<String> {
    let texts: &[&str] = match key.kind {
        Kind::Flag(_) => &["on", "off"],
        Kind::Integer(..) | Kind::IntegerOr(..) | Kind::Hour(_) => &["1", "2", "7", "infinite"],
        Kind::PowerOfTwo(..) => &["8", "256"],
        Kind::Percent(_) => &["7", "93%"],
        Kind::Duration(..) | Kind::DurationOr(..) => &["7s", "3w"],
        Kind::Bytes(..) | Kind::BytesOr(..) => &["3MB", "700MB"],
        Kind::Address(_) => &["127.0.0.1:1", "[::1]:2", "off"],
        Kind::Choice(choices) => {
            return choices
                .iter()
                .filter(|choice| matches!(choice, Choice(..)))
                .map(|choice| choice.word().to_owned())
                .collect();
        }
        Kind::Path(_) => &["/tmp/elsewhere"],
        Kind::NodeName(_) => &["other@10.0.0.1"],
        Kind::Word(_) => &["orders"],
        Kind::Quorum(..) => &["one", "all", "quorum", "2"],
        Kind::DeleteMode(_) => &["keep", "immediate", "10s"],
        Kind::LogFormat(_) => &["logfmt", "json"],
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Applies one value alone, without the checks of values that have to fit each other.
fn apply(settings: &mut Settings, key: &Key, value: &str) -> bool {
    key.kind.apply(settings, "internal", value).is_ok()
}

#[test]
fn every_honoured_key_reaches_the_settings() {
    for key in honoured_keys() {
        let mut differing = 0;
        let mut taken = 0;
        for value in values(key) {
            let mut settings = Settings::default();
            if apply(&mut settings, key, &value) {
                taken += 1;
                differing += usize::from(settings != Settings::default());
            }
        }
        assert!(taken > 0, "no value was taken for {}", key.name);
        assert!(differing > 0, "`{}` changes nothing", key.name);
    }
}

#[test]
fn no_two_values_of_a_flag_or_choice_are_the_same() {
    // Riak has more levels, more compressions and two ways to sync, as the help mentions.
    let meant = [
        "logger.level",
        "leveldb.compression.algorithm",
        "leveled.compression_method",
        "leveled.ledger_compression",
        "leveled.sync_strategy",
        "hanoidb.compress",
        "innostore.flush_log_at_trx_commit",
    ];
    for key in honoured_keys().filter(|key| !meant.contains(&key.name)) {
        if !matches!(key.kind, Kind::Flag(_) | Kind::Choice(_)) {
            continue;
        }
        let mut outcomes = Vec::new();
        for value in values(key) {
            let mut settings = Settings::default();
            assert!(apply(&mut settings, key, &value), "{} = {value}", key.name);
            assert!(
                !outcomes.contains(&settings),
                "{} = {value} is like another",
                key.name
            );
            outcomes.push(settings);
        }
        assert!(outcomes.len() > 1, "{}", key.name);
    }
}

#[test]
fn no_two_keys_share_a_field() {
    // Each key is set to a value that differs; if two wrote the same field, setting the second
    // to its default would undo the first.
    for key in honoured_keys() {
        let changing = values(key).into_iter().find_map(|value| {
            let mut settings = Settings::default();
            (apply(&mut settings, key, &value) && settings != Settings::default())
                .then_some(settings)
        });
        let Some(changed) = changing else {
            panic!("`{}` changes nothing", key.name)
        };
        for other in honoured_keys().filter(|other| other.name != key.name) {
            let value = match other.name {
                // Their defaults refer to another key.
                "ring.state_dir" => "./data/ring",
                "bitcask.data_root" => "./data/bitcask",
                "leveldb.data_root" => "./data/leveldb",
                "leveled.data_root" => "./data/leveled",
                "hanoidb.data_root" => "./data/hanoidb",
                "innostore.data_home_dir" => "./data/innostore",
                "logger.file" => "./log/console.log",
                _ => other.default.unwrap_or_default(),
            };
            if value.is_empty() {
                continue;
            }
            let mut both = changed.clone();
            assert!(apply(&mut both, other, value), "{} = {value}", other.name);
            assert_eq!(both, changed, "`{}` undoes `{}`", other.name, key.name);
        }
    }
}

#[test]
fn every_name_is_there_once() {
    let mut names = BTreeSet::new();
    let riak = riak_families()
        .iter()
        .flat_map(Family::keys)
        .map(|key| key.name);
    for name in honoured_keys().map(|key| key.name).chain(riak) {
        assert!(names.insert(name), "{name} is there twice");
        assert!(
            Name::parse(&name.replace('$', "")).is_some(),
            "{name} is no name"
        );
    }
    assert!(names.len() > 300, "{} names", names.len());
}

#[test]
fn every_key_is_explained_in_sentences() {
    for key in honoured_keys() {
        assert!(key.help.ends_with('.'), "{}", key.name);
        assert!(!key.help.contains("  "), "{}", key.name);
        assert!(key.since.split('.').count() == 3, "{}", key.name);
        assert!(!key.kind.expected().is_empty(), "{}", key.name);
    }
    for key in riak_families().iter().flat_map(Family::keys) {
        if let Fate::Ignored(reason) | Fate::Guarded(reason) = key.fate {
            assert!(
                reason.len() > 20 && !reason.ends_with('.'),
                "{}: {reason}",
                key.name
            );
        }
    }
}

#[test]
fn every_mapping_leads_to_a_key_that_is_honoured() {
    for key in riak_families().iter().flat_map(Family::keys) {
        if let Fate::Mapped(to) = key.fate {
            assert!(
                honoured_keys().any(|honoured| honoured.name == to),
                "{} -> {to}",
                key.name
            );
        }
    }
}

#[test]
fn every_default_is_a_value_of_its_key() {
    let empty = crate::loaded("");
    assert_eq!(empty.effective.len(), honoured_keys().count());
    for (effective, key) in empty.effective.iter().zip(honoured_keys()) {
        assert_eq!(effective.name, name_of(key));
        assert_eq!(
            effective.value.is_some(),
            key.default.is_some(),
            "{}",
            key.name
        );
        let Some(name) = Name::parse(&effective.name) else {
            panic!("{}", effective.name)
        };
        assert!(lookup(&name).is_some());
    }
    assert_eq!(empty.settings, Settings::default());
}
