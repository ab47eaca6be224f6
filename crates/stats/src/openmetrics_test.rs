//! The text against its grammar: a small parser refuses what a scraper refuses.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

struct Family {
    kind: String,
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_')
}

/// Reads `{a="b",...}` and decodes escapes.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return (labels, text);
    };
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    other => panic!("escape of {other}"),
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(
            labels.insert(name.to_owned(), value).is_none(),
            "{name} twice"
        );
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').unwrap()),
        }
    }
}

fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("ends with EOF");
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in body.split_terminator('\n') {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (word, name, rest) = (
                words.next().unwrap(),
                words.next().unwrap(),
                words.next().unwrap(),
            );
            match word {
                "TYPE" => {
                    assert!(is_name(name) && !families.contains_key(name), "{line}");
                    current = name.to_owned();
                    let family = Family {
                        kind: rest.to_owned(),
                        samples: Vec::new(),
                    };
                    families.insert(current.clone(), family);
                }
                "UNIT" => assert!(
                    name == current && name.ends_with(&format!("_{rest}")),
                    "{line}"
                ),
                "HELP" => assert!(
                    name == current && families[name].samples.is_empty(),
                    "{line}"
                ),
                other => panic!("comment {other}"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).unwrap();
        let (labels, value) = labels(&line[end..]);
        let value = value.strip_prefix(' ').unwrap().parse().unwrap();
        let family = families.get_mut(&current).unwrap();
        let suffix = line[..end]
            .strip_prefix(current.as_str())
            .expect("samples follow their family");
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            other => panic!("kind {other}"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        family.samples.push((suffix.to_owned(), labels, value));
    }
    families
}

#[test]
fn everything_recorded_follows_the_grammar() {
    let stats = Stats::default();
    let now = Duration::from_secs(5);
    stats.node_gets.add(now, 7);
    for micros in [10, 100, 1000, 90_000_000] {
        stats.node_get_fsm_time.record(now, micros);
    }
    let mut text = MetricsText::new();
    text.stats(&stats);
    let families = parse(&text.finish());
    assert_eq!(families["kvorum_node_gets"].samples[0].2, 7.0);
    let time = &families["kvorum_node_get_fsm_time_seconds"];
    let buckets: Vec<_> = time
        .samples
        .iter()
        .filter(|sample| sample.0 == "_bucket")
        .collect();
    assert!(
        buckets.windows(2).all(|pair| pair[0].2 <= pair[1].2),
        "buckets are cumulative"
    );
    let bounds: Vec<f64> = buckets
        .iter()
        .map(|bucket| bucket.1["le"].parse().unwrap())
        .collect();
    assert!(
        bounds.windows(2).all(|pair| pair[0] < pair[1]),
        "bounds rise"
    );
    assert_eq!(bounds.last(), Some(&f64::INFINITY));
    let counted = |bound: f64| {
        let at = bounds.iter().position(|other| *other >= bound).unwrap();
        buckets[at].2
    };
    assert_eq!([1e-5, 1e-4, 1e-3, 60.0].map(counted), [1.0, 2.0, 3.0, 3.0]);
    assert_eq!(buckets.last().unwrap().2, 4.0);
    let sum = time
        .samples
        .iter()
        .find(|sample| sample.0 == "_sum")
        .unwrap()
        .2;
    assert!((sum - 90.00111).abs() < 1e-6);
    assert!(families.values().all(|family| !family.samples.is_empty()));
}

/// Endings of the sample names of one kind of family: another family with such an ending could have
/// the name of such a sample.
const RESERVED: [&str; 8] = [
    "_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info",
];

#[test]
fn no_family_is_named_like_a_sample_of_another() {
    let mut text = MetricsText::new();
    text.stats(&Stats::default());
    let families = parse(&text.finish());
    let mut entries = 0;
    Stats::default().visit(|_, _| entries += 1);
    assert_eq!(
        families.len(),
        entries,
        "an entry is missing, or has the name of another"
    );
    for (name, family) in &families {
        let reserved = RESERVED.iter().find(|ending| name.ends_with(**ending));
        assert_eq!(reserved, None, "{name}");
        let is_in_microseconds = name.contains("_us") || name.contains("micro");
        assert!(!is_in_microseconds, "{name}: the base unit is the second");
        let is_timed = name.contains("_time");
        assert!(!is_timed || name.ends_with("_seconds"), "{name}");
        assert!(!family.samples.is_empty(), "{name}");
    }
    assert_eq!(families["kvorum_hll_bytes"].kind, "histogram");
    assert_eq!(families["kvorum_hll_bytes_written"].kind, "counter");
}

#[test]
fn names_and_labels_of_others_cannot_break_the_text() {
    let mut text = MetricsText::new();
    let hostile = "a\"} 1\n# EOF\\";
    text.family(
        MetricKind::Gauge,
        "disk used{x}",
        hostile,
        [(&[("pa th", hostile)][..], 1.5)],
    );
    text.family(MetricKind::Gauge, "disk used{x}", "again", [(&[][..], 2)]);
    text.family(
        MetricKind::Info,
        "build",
        "this build",
        [(&[("version", "1.0")][..], 1)],
    );
    let families = parse(&text.finish());
    let samples = &families["kvorum_disk_used_x_"].samples;
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].1["pa_th"], hostile);
    assert_eq!(families["kvorum_build"].samples[0].1["version"], "1.0");
}
