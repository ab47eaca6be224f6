//! Precedence of several settings, and the known origin of the value.

use std::path::Path;
use std::time::Duration;

use kvorum_settings::{Configuration, DurabilityMode, LogLevel, LogOutput, Origin, Outcome, Place};

use crate::loaded;

#[test]
fn a_later_line_wins_and_options_win_over_lines() {
    let text = "ring_size = 8\nring_size = 16\n";
    let configuration = loaded(text);
    assert_eq!(configuration.settings.node.ring_size, 16);
    assert_eq!(
        configuration.lines[0].outcome,
        Outcome::Overridden(Place::Line(2))
    );

    let configuration = Configuration::load(text, &["ring_size=32"])
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(configuration.settings.node.ring_size, 32);
    assert_eq!(
        configuration.lines[1].outcome,
        Outcome::Overridden(Place::Set(1))
    );
    assert_eq!(configuration.lines[2].outcome, Outcome::Honoured);
}

#[test]
fn a_value_that_lost_is_not_looked_at() {
    assert_eq!(
        loaded("ring_size = oops\nring_size = 16\n")
            .settings
            .node
            .ring_size,
        16
    );
}

#[test]
fn a_mapped_key_and_its_target_are_one_key() {
    let configuration = loaded("log.console.level = debug\nlogger.level = error\n");
    assert_eq!(configuration.settings.log.level, LogLevel::Error);
    assert_eq!(
        configuration.lines[0].outcome,
        Outcome::Overridden(Place::Line(2))
    );
    let configuration = loaded("logger.level = error\nlog.console.level = debug\n");
    assert_eq!(configuration.settings.log.level, LogLevel::Debug);
}

#[test]
fn a_former_name_and_the_present_one_are_one_key() {
    let configuration = loaded("commit_log.bytes_max = 2GB\nvalue_log.bytes_max = 3GB\n");
    assert_eq!(configuration.settings.value_log.bytes_max, 3 << 30);
    assert_eq!(
        configuration.lines[0].outcome,
        Outcome::Overridden(Place::Line(2))
    );
    let configuration = loaded("bitcask.merge.dead_share_max = 40\n");
    let bitcask = &configuration.settings.bitcask;
    assert_eq!(bitcask.merge_garbage_share_max_percent, 40);
    assert_eq!(
        configuration.lines[0].outcome,
        Outcome::MappedTo("bitcask.merge.garbage_share_max".to_owned())
    );
}

#[test]
fn the_default_listener_stands_only_while_there_is_none() {
    let listeners = loaded("").settings.listeners;
    assert_eq!(listeners.http.len(), 1);
    assert_eq!(listeners.http["internal"].to_string(), "127.0.0.1:8098");
    assert_eq!(listeners.protobuf["internal"].to_string(), "127.0.0.1:8087");

    let text = "listener.http.a = 127.0.0.1:1\nlistener.http.b = 127.0.0.1:2\n";
    let listeners = loaded(text).settings.listeners;
    assert_eq!(listeners.http.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(listeners.protobuf.len(), 1);

    assert!(
        loaded("listener.http.internal = off")
            .settings
            .listeners
            .http
            .is_empty()
    );
}

#[test]
fn bitcask_follows_durability_until_it_has_a_strategy() {
    let settings = loaded("durability = interval\ndurability.interval = 5\n").settings;
    assert_eq!(settings.bitcask_durability().mode, DurabilityMode::Interval);
    assert_eq!(
        settings.bitcask_durability().interval,
        Duration::from_secs(5)
    );

    let settings = loaded("durability = none\nbitcask.sync.strategy = o_sync").settings;
    assert_eq!(settings.bitcask_durability().mode, DurabilityMode::Grouped);
    assert_eq!(settings.durability.mode, DurabilityMode::None);

    let text = "bitcask.sync.strategy = interval\nbitcask.sync.interval = 250ms";
    let durability = loaded(text).settings.bitcask_durability();
    assert_eq!(durability.interval, Duration::from_millis(250));
}

#[test]
fn paths_follow_the_directories_they_name() {
    let configuration = Configuration::load(
        "platform_data_dir = /srv/kvorum\nplatform_etc_dir = /etc/kvorum\n\
         ring.state_dir = $(platform_etc_dir)/ring\n",
        &["platform_data_dir=/mnt/fast"],
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let settings = configuration.settings;
    assert_eq!(settings.node.data_dir, Path::new("/mnt/fast"));
    assert_eq!(settings.bitcask.data_root, Path::new("/mnt/fast/bitcask"));
    assert_eq!(settings.node.ring_state_dir, Path::new("/etc/kvorum/ring"));
}

#[test]
fn a_log_file_that_is_named_is_written() {
    assert_eq!(loaded("").settings.log.output, LogOutput::Console);
    assert_eq!(
        loaded("logger.file = /tmp/x").settings.log.output,
        LogOutput::Both
    );
    let text = "logger.file = /tmp/x\nlogger.output = console";
    assert_eq!(loaded(text).settings.log.output, LogOutput::Console);
}

#[test]
fn the_origin_of_every_value_is_kept() {
    let configuration = Configuration::load("log.console = both\n", &["ring_size=8"])
        .unwrap_or_else(|problems| panic!("{problems}"));
    let origin = |name: &str| {
        configuration
            .effective
            .iter()
            .find(|e| e.name == name)
            .map(|e| e.origin.clone())
    };
    assert_eq!(origin("nodename"), Some(Origin::Default));
    assert_eq!(
        origin("ring_size"),
        Some(Origin::Set {
            place: Place::Set(1),
            through: None
        })
    );
    assert_eq!(
        origin("logger.output"),
        Some(Origin::Set {
            place: Place::Line(1),
            through: Some("log.console".to_owned())
        })
    );
}

#[test]
fn leveldb_follows_durability_until_it_has_a_setting_of_its_own() {
    let mode = |text: &str| loaded(text).settings.leveldb_durability().mode;
    assert_eq!(mode("durability = interval"), DurabilityMode::Interval);
    let on = "durability = none\nleveldb.sync_on_write = on";
    assert_eq!(mode(on), DurabilityMode::Grouped);
    assert_eq!(mode("leveldb.sync_on_write = off"), DurabilityMode::None);
    // Bitcask's key is only for bitcask.
    assert_eq!(
        mode("bitcask.sync.strategy = none"),
        DurabilityMode::Grouped
    );
}

#[test]
fn the_backends_durability_is_that_of_the_one_that_is_configured() {
    let mode = |backend: &str| {
        let text = format!("storage_backend = {backend}\nleveldb.sync_on_write = off");
        loaded(&text).settings.backend_durability().mode
    };
    assert_eq!(mode("bitcask"), DurabilityMode::Grouped);
    assert_eq!(mode("leveldb"), DurabilityMode::None);
    assert_eq!(mode("memory"), DurabilityMode::None);
}

#[test]
fn leveldb_objects_expire_with_a_time_and_only_when_that_is_on() {
    let expiry = |text: &str| loaded(text).settings.leveldb.expiry();
    let time = "leveldb.expiration.retention_time = 2h\n";
    assert_eq!(expiry(time), None);
    assert_eq!(expiry("leveldb.expiration = on"), None);
    let both = format!("{time}leveldb.expiration = on");
    assert_eq!(expiry(&both), Some(Duration::from_secs(7200)));
}
