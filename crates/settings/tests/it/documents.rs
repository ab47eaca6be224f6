//! The pages in `docs` are generated from the tables.

const HINT: &str = "write it again: cargo run -p kvorum-settings --example write_reference";

#[test]
fn the_reference_page_is_what_the_tables_say() {
    let page = include_str!("../../../../docs/configuration.md");
    assert!(page == kvorum_settings::reference_page(), "{HINT}");
}

#[test]
fn the_sample_file_is_what_the_tables_say() {
    let sample = include_str!("../../../../docs/kvorum.conf.sample");
    assert!(sample == kvorum_settings::sample_file(), "{HINT}");
}

#[test]
fn the_sample_file_changes_nothing_even_with_every_key_uncommented() {
    let sample = kvorum_settings::sample_file();
    let uncommented: String = sample
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .filter(|line| !line.ends_with('='))
        .map(|line| format!("{line}\n"))
        .collect();
    let configuration = crate::loaded(&uncommented);
    assert!(configuration.lines.len() > 60);
    let mut settings = configuration.settings;
    // The file names a log file, which turns it on.
    settings.log.output = kvorum_settings::LogOutput::Console;
    assert_eq!(settings, kvorum_settings::Settings::default());
}
