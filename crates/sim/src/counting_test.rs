//! The checks of counters and sets: violations that they must find, and results that they must
//! accept.

use bytes::Bytes;
use kvorum_data_types::Value;

use super::{Fate, Outcomes, wrong_with};

fn outcomes(fates: &[(u32, Fate)]) -> Outcomes {
    fates.iter().copied().collect()
}

fn members(names: &[&'static str]) -> Value {
    Value::Set(
        names
            .iter()
            .map(|name| Bytes::from_static(name.as_bytes()))
            .collect(),
    )
}

#[test]
fn a_sum_has_what_was_acknowledged_and_perhaps_what_is_in_doubt() {
    let outcomes = outcomes(&[
        (0, Fate::Acknowledged),
        (1, Fate::InDoubt),
        (2, Fate::Acknowledged),
    ]);
    for sum in [0b101, 0b111] {
        assert_eq!(wrong_with(&Value::Counter(sum), &outcomes, &outcomes), None);
    }
    // One increment is lost, one counts twice, one was never sent.
    for sum in [0b001, 0b1001, 0b1101] {
        assert!(
            wrong_with(&Value::Counter(sum), &outcomes, &outcomes).is_some(),
            "{sum:b}"
        );
    }
}

#[test]
fn a_set_shows_what_was_added_and_not_removed() {
    let outcomes = outcomes(&[
        (0, Fate::Acknowledged),
        (1, Fate::Undone),
        (2, Fate::UndoneInDoubt),
    ]);
    for shown in [&["0"][..], &["0", "2"]] {
        assert_eq!(wrong_with(&members(shown), &outcomes, &outcomes), None);
    }
    for shown in [&[][..], &["0", "1"], &["0", "7"]] {
        assert!(
            wrong_with(&members(shown), &outcomes, &outcomes).is_some(),
            "{shown:?}"
        );
    }
}

#[test]
fn a_read_need_not_show_an_operation_that_was_acknowledged_after_it_began() {
    let before = outcomes(&[(0, Fate::InDoubt)]);
    let after = outcomes(&[(0, Fate::Acknowledged)]);
    assert_eq!(wrong_with(&Value::Counter(0), &before, &after), None);
    let removed_since = outcomes(&[(0, Fate::UndoneInDoubt)]);
    assert_eq!(wrong_with(&members(&[]), &after, &removed_since), None);
}
