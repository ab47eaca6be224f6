//! Relative paths, and the directories that they are relative to.

use std::path::Path;

use kvorum_settings::{Anchors, Configuration};

fn anchors() -> Anchors {
    Anchors {
        file: Some("/etc/kvorum".to_owned()),
        working: Some("/home/me".to_owned()),
    }
}

/// Regression: `kvorum start` with a file that has `platform_data_dir = data` began a new and empty
/// data directory in each working directory.
#[test]
fn what_a_file_says_goes_by_the_file_and_what_the_command_line_says_by_the_working_directory() {
    let load = |text: &str, set: &[&str], anchors: &Anchors| {
        let loaded = Configuration::load_at(text, &[], set, anchors).unwrap();
        loaded.settings.node.data_dir.display().to_string()
    };
    let no_file = Anchors {
        file: None,
        ..anchors()
    };
    for (text, set, anchors, expected) in [
        (
            "platform_data_dir = data",
            &[][..],
            &anchors(),
            "/etc/kvorum/data",
        ),
        (
            "platform_data_dir = ./data",
            &[],
            &anchors(),
            "/etc/kvorum/data",
        ),
        (
            "platform_data_dir = /var/data",
            &[],
            &anchors(),
            "/var/data",
        ),
        ("", &[], &anchors(), "/etc/kvorum/data"),
        ("", &[], &no_file, "/home/me/data"),
        ("", &["platform_data_dir=mine"], &anchors(), "/home/me/mine"),
        ("platform_data_dir = data", &[], &Anchors::default(), "data"),
    ] {
        assert_eq!(load(text, set, anchors), expected, "{text:?} {set:?}");
    }
}

#[test]
fn paths_that_refer_to_others_follow_them_wherever_these_were_set() {
    let set = ["platform_data_dir=mine"];
    let text = "bitcask.data_root = $(platform_data_dir)/stores";
    let loaded = Configuration::load_at(text, &[], &set, &anchors()).unwrap();
    let settings = loaded.settings;
    assert_eq!(
        settings.node.ring_state_dir,
        Path::new("/home/me/mine/ring")
    );
    assert_eq!(
        settings.bitcask.data_root,
        Path::new("/home/me/mine/stores")
    );
    assert_eq!(settings.log.file, Path::new("/etc/kvorum/log/console.log"));
}

/// Regression: a path that began with a reference was not anchored: `$(platform_etc_dir)` is
/// `./etc`, so a certificate was searched for in the server's working directory.
#[test]
fn paths_that_begin_with_a_reference_to_anything_are_anchored_as_well() {
    let load = |text: &str, set: &[&str]| {
        let loaded = Configuration::load_at(text, &[], set, &anchors()).unwrap();
        let settings = loaded.settings;
        let data = settings.node.data_dir.display().to_string();
        (data, settings.log.file.display().to_string())
    };
    let data = |text: &str, set: &[&str]| load(text, set).0;
    for reference in ["platform_etc_dir", "platform_lib_dir", "platform_bin_dir"] {
        let text = format!("platform_data_dir = $({reference})/x");
        let last = reference.split('_').nth(1).unwrap();
        assert_eq!(data(&text, &[]), format!("/etc/kvorum/{last}/x"));
        let set = format!("platform_data_dir=$({reference})/x");
        assert_eq!(data("", &[&set]), format!("/etc/kvorum/{last}/x"));
        let set = format!("{reference}=mine");
        assert_eq!(data(&text, &[&set]), "/home/me/mine/x");
        let text = format!("{reference} = /srv\nplatform_data_dir = $({reference})/x");
        assert_eq!(data(&text, &[]), "/srv/x");
    }
    let text = "platform_lib_dir = $(platform_data_dir)/lib\nlogger.file = $(platform_lib_dir)/l";
    assert_eq!(load(text, &[]).1, "/etc/kvorum/data/lib/l");
    // A name is not a path, and is not anchored.
    let text = "nodename = a@b\nplatform_data_dir = $(nodename)/x";
    assert_eq!(data(text, &[]), "/etc/kvorum/a@b/x");
    let set = ["platform_data_dir=$(nodename)/x"];
    let text = "nodename = a@b\nlogger.file = $(platform_data_dir)/l";
    let both = ("/home/me/a@b/x".to_owned(), "/home/me/a@b/x/l".to_owned());
    assert_eq!(load(text, &set), both);
}
