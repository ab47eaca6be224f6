//! Workloads with a known best engine.

use kvorum_advise::{
    Advice, BenchResult, EngineTable, Facts, RuleTable, Value, Verdict, advise, mix, parse_value,
};

fn facts(said: &[(&str, &str)]) -> Facts {
    let rules = RuleTable::built_in().unwrap();
    let mut facts = Facts::default();
    for (name, text) in said {
        let value = parse_value(rules.fact(name).unwrap(), text).unwrap();
        facts.set(name, value, "said");
    }
    facts
}

fn advice(said: &[(&str, &str)], runs: &[BenchResult]) -> Advice {
    let (engines, rules) = (
        EngineTable::built_in().unwrap(),
        RuleTable::built_in().unwrap(),
    );
    advise(&engines, &rules, "all", &facts(said), runs)
}

fn verdicts(advice: &Advice, engine: &str) -> Vec<(Verdict, bool)> {
    let engine = advice
        .engines
        .iter()
        .find(|judged| judged.name == engine)
        .unwrap();
    engine
        .reasons
        .iter()
        .map(|reason| (reason.verdict, reason.counts))
        .collect()
}

/// Session data: small, expiring, few enough keys for memory.
#[test]
fn sessions_go_to_bitcask() {
    let advice = advice(
        &[
            ("keys", "20m"),
            ("key_bytes", "36"),
            ("value_bytes", "2KB"),
            ("memory_bytes", "16GB"),
            ("nodes", "5"),
            ("n_val", "3"),
            ("write_share", "40%"),
            ("overwrite_share", "60%"),
            ("expires", "yes"),
            ("must_survive", "yes"),
            ("uses_indexes", "no"),
            ("lists_keys", "no"),
            ("synced", "no"),
            ("tail_matters", "no"),
        ],
        &[],
    );
    assert_eq!(advice.recommended.as_deref(), Some("bitcask"));
    assert_eq!(advice.better_later, None);
    assert!(advice.missing.is_empty(), "{:?}", advice.missing);
    assert!(advice.to_string().contains("use bitcask"));
}

#[test]
fn indexes_rule_bitcask_out() {
    let advice = advice(
        &[
            ("uses_indexes", "yes"),
            ("value_bytes", "16KB"),
            ("write_share", "30%"),
            ("must_survive", "yes"),
        ],
        &[],
    );
    assert_eq!(advice.recommended.as_deref(), Some("leveled"));
    assert_eq!(advice.better_later, None);
    assert!(advice.missing.contains(&"keys".to_owned()));
}

#[test]
fn inserts_of_which_the_slowest_matter_go_to_hanoidb() {
    let said = [
        ("value_bytes", "100"),
        ("write_share", "80%"),
        ("tail_matters", "yes"),
        ("must_survive", "yes"),
    ];
    let judged = advice(&said, &[]);
    assert_eq!(judged.recommended.as_deref(), Some("hanoidb"));
    assert!(verdicts(&judged, "hanoidb").contains(&(Verdict::Prefer, true)));
    let overwritten = advice(&[("overwrite_share", "80%")], &[]);
    assert!(verdicts(&overwritten, "hanoidb").contains(&(Verdict::Caution, true)));
}

#[test]
fn engines_to_come_are_marked_so() {
    let said = [
        ("value_bytes", "100"),
        ("write_share", "80%"),
        ("tail_matters", "yes"),
        ("must_survive", "yes"),
    ];
    let (mut engines, rules) = (
        EngineTable::built_in().unwrap(),
        RuleTable::built_in().unwrap(),
    );
    let to_come = engines.engines.iter_mut().find(|it| it.name == "hanoidb");
    to_come.unwrap().built_in = false;
    let advice = advise(&engines, &rules, "all", &facts(&said), &[]);
    assert_eq!(advice.better_later.as_deref(), Some("hanoidb"));
    assert!(advice.to_string().contains("hanoidb (not built in yet)"));
}

#[test]
fn more_keys_than_memory_are_not_for_bitcask() {
    let said = [
        ("keys", "10g"),
        ("memory_bytes", "32GB"),
        ("nodes", "3"),
        ("must_survive", "yes"),
    ];
    let advice = advice(&said, &[]);
    assert!(verdicts(&advice, "bitcask").contains(&(Verdict::Avoid, true)));
    assert!(verdicts(&advice, "leveldb").contains(&(Verdict::Prefer, true)));
}

#[test]
fn a_cache_that_fits_into_memory_goes_there() {
    let said = [
        ("keys", "1m"),
        ("value_bytes", "1KB"),
        ("memory_bytes", "8GB"),
        ("nodes", "3"),
        ("must_survive", "no"),
    ];
    let judged = advice(&said, &[]);
    assert!(verdicts(&judged, "memory").contains(&(Verdict::Prefer, true)));
    // A published warning that no longer holds is shown and does not count.
    assert!(verdicts(&judged, "memory").contains(&(Verdict::Caution, false)));
}

#[test]
fn runs_of_the_same_test_count_as_reasons() {
    let run = |backend: &str, rate: f64| BenchResult {
        name: format!("test4-{backend}"),
        backend: Some(backend.to_owned()),
        operations_per_second: rate,
        write_p99_us: Some(1500.0),
        facts: Facts::default(),
    };
    let said = [("must_survive", "no"), ("value_bytes", "1KB")];
    let close = advice(&said, &[run("bitcask", 1000.0), run("memory", 1050.0)]);
    assert!(!verdicts(&close, "memory").contains(&(Verdict::Prefer, true)));
    let apart = advice(&said, &[run("bitcask", 1000.0), run("memory", 3000.0)]);
    assert!(verdicts(&apart, "memory").contains(&(Verdict::Prefer, true)));
    assert_eq!(apart.recommended.as_deref(), Some("memory"));
    assert!(
        apart
            .to_string()
            .contains("3000 operations/s, 99% of writes within 1.5 ms")
    );
}

#[test]
fn nothing_known_asks_for_everything_and_still_answers() {
    let advice = advice(&[], &[]);
    assert_eq!(advice.recommended.as_deref(), Some("bitcask"));
    assert!(advice.missing.len() > 8, "{:?}", advice.missing);
    assert!(serde_json::to_value(&advice).unwrap()["engines"].is_array());
}

#[test]
fn what_is_said_counts_more_than_what_was_measured() {
    let mut measured = Facts::default();
    measured.set("value_bytes", Value::Number(100.0), "measured");
    measured.extend(&facts(&[("value_bytes", "1KB")]));
    assert_eq!(measured.number("value_bytes"), Some(1024.0));
}

/// Regression: all types of a node got the same backend, although several can be configured.
#[test]
fn each_subject_gets_its_own_backend_and_the_settings_for_all_are_there() {
    let named = |subject: &str, said: &[(&str, &str)]| Advice {
        subject: format!("bucket type {subject}"),
        ..advice(said, &[])
    };
    let sessions = named("sessions", &[("keys", "1m"), ("expires", "yes")]);
    let documents = named("documents", &[("uses_indexes", "yes")]);
    let mut both = vec![sessions, documents.clone()];
    let found = mix(&mut both).unwrap();
    let recommended = |advices: &[Advice]| {
        let names = advices.iter().map(|it| it.recommended.clone().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(recommended(&both), ["bitcask", "leveled"]);
    // Bitcask has no indexes, so the one backend for both is leveled.
    assert_eq!(found.instead.as_deref(), Some("leveled"));
    assert_eq!(
        found.settings,
        [
            "storage_backend = multi",
            "multi_backend.default = leveled",
            "multi_backend.bitcask.storage_backend = bitcask",
            "multi_backend.leveled.storage_backend = leveled",
        ]
    );
    assert_eq!(
        found.properties,
        [("bucket type sessions".to_owned(), "bitcask".to_owned())]
    );
    assert_eq!(both[0].backend_property.as_deref(), Some("bitcask"));
    assert_eq!(both[1].backend_property, None);
    let text = both[0].to_string();
    assert!(
        text.contains("the property \"backend\": \"bitcask\""),
        "{text}"
    );
    let text = found.to_string();
    assert!(
        text.contains("on nodes of one backend instead: leveled"),
        "{text}"
    );

    // The default type is in the default backend, which no property names.
    let mut with_default = vec![named("default", &[("expires", "yes")]), documents.clone()];
    let found = mix(&mut with_default).unwrap();
    assert_eq!(found.default, "bitcask");
    assert_eq!(with_default[1].backend_property.as_deref(), Some("leveled"));

    // One backend for all needs no mix.
    let mut same = vec![documents.clone(), documents];
    assert_eq!(mix(&mut same), None);
    assert!(!same[0].is_one_of_several);
}

#[test]
fn subjects_that_no_one_backend_suits_get_a_mix_without_an_alternative() {
    let mut both = vec![
        advice(&[("uses_indexes", "yes")], &[]),
        advice(&[("keys", "1m"), ("expires", "yes")], &[]),
    ];
    for advice in &mut both {
        let other = match advice.recommended.as_deref() {
            Some("leveled") => "leveled",
            _ => "bitcask",
        };
        advice.engines.retain(|it| it.name == other);
    }
    let found = mix(&mut both).unwrap();
    assert_eq!(found.instead, None);
    assert_eq!(found.default, "leveled");
    assert!(
        found
            .to_string()
            .contains("no one backend suits all of these")
    );
}
