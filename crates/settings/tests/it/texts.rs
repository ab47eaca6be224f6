//! Texts for operators: the report at start, the list of values, the description of a key.

use kvorum_settings::Configuration;

use crate::loaded;

#[test]
fn the_report_has_a_line_for_each_setting_and_a_summary() {
    let configuration = Configuration::load(
        "ring_size = 8\nring_size = 16\nlog.console = both\nerlang.W = w\n",
        &["durability=none"],
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(
        configuration.report(),
        "    line 1  ring_size = 8       overridden on line 2\n    \
         line 2  ring_size = 16      honoured\n    \
         line 3  log.console = both  mapped to logger.output\n    \
         line 4  erlang.W = w        ignored because Kvorum does not run on the Erlang virtual \
         machine\n     \
         --set  durability = none   honoured\n\
         5 settings: 2 honoured, 1 mapped, 1 ignored, 1 overridden\n"
    );
}

#[test]
fn the_list_of_values_is_itself_a_configuration_of_the_same_effect() {
    let configuration = Configuration::load(
        "ring_size = 16\nlog.console = both\nlistener.http.my\\.host = [::1]:80\n\
         platform_log_dir = '/logs/#1'\n",
        &["bitcask.expiry=1d"],
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let list = configuration.effective();
    assert!(list.contains("ring_size = 16  # line 1\n"), "{list}");
    assert!(
        list.contains("logger.output = both  # line 2, as log.console\n"),
        "{list}"
    );
    assert!(list.contains("bitcask.expiry = 1d  # --set\n"), "{list}");
    assert!(
        list.contains("## bitcask.sync.strategy is not set\n"),
        "{list}"
    );
    assert_eq!(loaded(&list).settings, configuration.settings);
}

#[test]
fn a_key_is_described_with_its_value_and_help() {
    let configuration = loaded("ring_size = 16\n");
    let text = configuration.describe("ring_size").unwrap_or_default();
    assert!(
        text.starts_with("ring_size = 16  # line 1\n\nThe number of partitions"),
        "{text}"
    );
    assert!(text.contains("default   64\n"), "{text}");
    assert!(text.contains("a power of two from 1 to 4096"), "{text}");
}

#[test]
fn keys_of_riaks_are_described_too() {
    let configuration = loaded("");
    let text = configuration.describe("log.console").unwrap_or_default();
    assert!(
        text.starts_with("`log.console` is a key of Riak's, taken as `logger.output`."),
        "{text}"
    );
    let text = configuration
        .describe("search.solr.port")
        .unwrap_or_default();
    assert!(text.contains("ignored because search by Solr"), "{text}");
}

#[test]
fn former_names_are_described_too() {
    let configuration = loaded("");
    let name = "commit_log.bytes_max";
    let text = configuration.describe(name).unwrap_or_default();
    assert!(
        text.starts_with(
            "`commit_log.bytes_max` is a former name, taken as `value_log.bytes_max`."
        ),
        "{text}"
    );
}

#[test]
fn front_words_list_the_keys_behind_them() {
    let text = loaded("").describe("bitcask.merge").unwrap_or_default();
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(
        text.lines().all(|line| line.starts_with("bitcask.merge.")),
        "{text}"
    );
}

#[test]
fn a_pattern_is_described_with_all_its_listeners() {
    let configuration = loaded("listener.http.a = 127.0.0.1:1\nlistener.http.b = 127.0.0.1:2\n");
    let text = configuration
        .describe("listener.http.$name")
        .unwrap_or_default();
    assert!(text.starts_with("listener.http.a = 127.0.0.1:1"), "{text}");
    assert!(text.contains("\nlistener.http.b = 127.0.0.1:2"), "{text}");
}

#[test]
fn an_unknown_key_is_described_by_the_nearest() {
    let problem = loaded("")
        .describe("rign_size")
        .map_err(|problem| problem.to_string());
    assert_eq!(
        problem.err().as_deref(),
        Some("unknown key `rign_size`, did you mean `ring_size`?")
    );
}
