//! Unmodified files of Riak start the server, and every line of them is classified.

use std::path::Path;

use kvorum_settings::{
    DurabilityMode, Family, LogOutput, Name, Outcome, StorageBackend, lookup, riak_families,
};

use crate::loaded;

const FILES: [(&str, &str); 2] = [
    ("2.2", include_str!("fixtures/riak-2.2.conf")),
    ("3.2", include_str!("fixtures/riak-3.2.conf")),
];

/// The file with the keys that it shows commented out uncommented.
fn uncommented(text: &str) -> String {
    text.lines()
        .map(|line| match line.strip_prefix("## ") {
            Some(rest)
                if rest
                    .split_once(" = ")
                    .is_some_and(|(k, _)| Name::parse(k).is_some()) =>
            {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn an_unmodified_file_loads_and_every_line_is_classified() {
    for (release, text) in FILES {
        let configuration = loaded(text);
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .count();
        assert_eq!(configuration.lines.len(), lines, "{release}");
        assert_eq!(configuration.settings.node.nodename, "riak@127.0.0.1");
        assert_eq!(
            configuration.settings.node.storage_backend,
            StorageBackend::Bitcask
        );
        assert_eq!(configuration.warnings, [] as [&str; 0]);
    }
}

#[test]
fn what_a_file_shows_commented_out_is_known_too() {
    for (release, text) in FILES {
        let text = uncommented(text);
        let commented = text.lines().filter(|line| line.starts_with("## ")).count();
        assert!(commented < 20, "{release}: only prose stays a comment");
        let configuration = loaded(&text);
        assert!(
            configuration.lines.len() > 50,
            "{release}: {}",
            configuration.summary()
        );
    }
}

#[test]
fn an_unmodified_file_stays_durable_by_default() {
    for (_, text) in FILES {
        let settings = loaded(text).settings;
        assert_eq!(settings.bitcask_durability().mode, DurabilityMode::Grouped);
        let with_line = format!("{text}\nbitcask.sync.strategy = none\n");
        let settings = loaded(&with_line).settings;
        assert_eq!(settings.bitcask_durability().mode, DurabilityMode::None);
    }
}

#[test]
fn the_log_goes_where_riak_would_write_it() {
    let settings = loaded(FILES[0].1).settings;
    assert_eq!(settings.log.output, LogOutput::File);
    assert_eq!(settings.log.file, Path::new("./log/console.log"));
    let settings = loaded(FILES[1].1).settings;
    assert_eq!(settings.log.output, LogOutput::Both);
    assert_eq!(settings.log.file, Path::new("/var/log/riak/console.log"));
}

#[test]
fn each_line_has_its_own_outcome() {
    let configuration = loaded(FILES[0].1);
    let outcome = |name: &str| {
        configuration
            .lines
            .iter()
            .find(|line| line.name == name)
            .map(|line| &line.outcome)
    };
    assert_eq!(outcome("nodename"), Some(&Outcome::Honoured));
    assert_eq!(
        outcome("log.console"),
        Some(&Outcome::MappedTo("logger.output".to_owned()))
    );
    let Some(Outcome::Ignored(reason)) = outcome("erlang.async_threads") else {
        panic!("erlang.async_threads is ignored");
    };
    assert!(reason.contains("Erlang"), "{reason}");
}

#[test]
fn every_key_of_a_family_is_found_under_its_own_entry() {
    for key in riak_families().iter().flat_map(Family::keys) {
        let name = key.name.replace('$', "");
        let found = Name::parse(&name).and_then(|name| lookup(&name));
        let found = format!("{found:?}");
        let expected = format!("{:?}", key.fate);
        let reason = expected
            .split_once('"')
            .map(|(_, rest)| rest)
            .unwrap_or_default();
        let reason = reason.trim_end_matches([')', '"']);
        assert!(found.contains(reason), "{name}: {found} is not {expected}");
    }
}
