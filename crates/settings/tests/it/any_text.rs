//! Loading any text ends with settings or with problems, never with a panic.

use kvorum_settings::{Configuration, honoured_keys};
use proptest::prelude::*;

fn any_line() -> impl Strategy<Value = String> {
    let keys: Vec<&str> = honoured_keys().map(|key| key.name).collect();
    let value = prop_oneof![
        "[ -~]{0,20}",
        "[0-9]{1,24}(ms|MB|%|w|f)?",
        "\\$\\([a-z_.]{0,12}\\)?",
        ".{0,8}"
    ];
    let key = proptest::sample::select(keys).prop_map(|key| key.replace('$', ""));
    prop_oneof![
        4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => ".{0,30}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 256,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text_ends_with_settings_or_problems(
        lines in proptest::collection::vec(any_line(), 0..8),
        option in ".{0,20}",
    ) {
        match Configuration::load(&lines.join("\n"), &[option]) {
            Ok(configuration) => {
                prop_assert!(configuration.report().lines().count() > configuration.lines.len());
            }
            Err(problems) => prop_assert!(!problems.0.is_empty()),
        }
    }

    #[test]
    fn any_value_that_is_taken_is_listed_so_that_it_is_taken_again(line in any_line()) {
        if let Ok(configuration) = crate::load(&line) {
            let again = crate::load(&configuration.effective());
            prop_assert_eq!(again.map(|again| again.settings).ok().map(|mut settings| {
                // Naming the log file turns it on.
                settings.log.output = configuration.settings.log.output;
                settings
            }), Some(configuration.settings));
        }
    }
}
