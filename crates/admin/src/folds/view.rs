//! Findings of folds, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kvorum_coordinator::{KeyChange, KeysChanged};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_key_folds::{Findings, KeyClock, KeyNumber, ObjectStats};
use kvorum_maintenance::bytes_text;
use serde_json::{Value, json};

use crate::request::AdminReply;

/// The buckets of all types.
pub(super) fn buckets(buckets: &[(BucketType, Bucket)]) -> AdminReply {
    let name = |(bucket_type, bucket): &(BucketType, Bucket)| {
        let bucket = shown(bucket.as_bytes());
        match bucket_type.is_default() {
            true => bucket,
            false => format!("{}/{bucket}", shown(bucket_type.as_bytes())),
        }
    };
    let names: Vec<String> = buckets.iter().map(name).collect();
    let mut text = names.join("\n");
    text.push('\n');
    AdminReply::ok(text, names.into())
}

/// Statistics, as histograms.
pub(super) fn stats(stats: &ObjectStats) -> AdminReply {
    let mut text = format!(
        "objects: {}\nbytes:   {} ({})\n",
        stats.count,
        stats.bytes,
        bytes_text(stats.bytes)
    );
    for (order, count) in &stats.sizes {
        let from = u32::try_from(*order)
            .ok()
            .and_then(|it| 10_u64.checked_pow(it));
        // Sizes below ten bytes are one range, from 0.
        let from = from.filter(|it| *it > 1).unwrap_or(0);
        let _infallible = writeln!(text, "from {from} bytes: {count}");
    }
    for (siblings, count) in &stats.siblings {
        let _infallible = writeln!(text, "with {siblings} siblings: {count}");
    }
    let data = json!({
        "total_count": stats.count,
        "total_size": stats.bytes,
        "sizes": histogram(&stats.sizes),
        "siblings": histogram(&stats.siblings),
    });
    AdminReply::ok(text, data)
}

/// As Riak's command writes it.
fn histogram(histogram: &BTreeMap<u64, u64>) -> Value {
    let bar = |(of, count): (&u64, &u64)| {
        let end = of.saturating_add(1);
        json!({"min": of, "max": end, "count": count})
    };
    histogram.iter().map(bar).collect()
}

/// Keys with their numbers or clocks.
pub(super) fn keys(found: &Findings) -> AdminReply {
    let mut text = String::new();
    let mut data = Vec::new();
    for KeyNumber { key, number } in &found.numbers {
        let key = shown(key.as_bytes());
        let _infallible = writeln!(text, "{key}\t{number}");
        data.push(json!({"key": key, "value": number}));
    }
    for KeyClock { key, clock } in &found.clocks {
        let key = shown(key.as_bytes());
        let _infallible = writeln!(text, "{key}");
        data.push(json!({"key": key, "clock": hexadecimal(clock)}));
    }
    let _infallible = writeln!(text, "{} keys", data.len());
    AdminReply::ok(text, data.into())
}

/// A number of keys. Riak's command writes only the number.
pub(super) fn count(count: u64) -> AdminReply {
    let reply = AdminReply::ok(format!("{count} keys\n"), json!({"count": count}));
    reply.with_riak_text(count.to_string())
}

/// The outcome of a change, in a cluster of this many members.
pub(super) fn changed(change: KeyChange, changed: KeysChanged, members: usize) -> AdminReply {
    let done = match change {
        KeyChange::Reap => "reaped",
        KeyChange::Erase => "erased",
        KeyChange::Repair => "compared and repaired",
    };
    let KeysChanged { dispatched, left } = changed;
    let mut text = format!("{dispatched} keys found, {} {done}\n", dispatched - left);
    if left > 0 {
        let why = match change {
            KeyChange::Reap if members > 1 => {
                "in a cluster of several nodes tombstones go by themselves \
                 (`kvorum admin tictacaae tombstones`)"
            }
            KeyChange::Reap => "their tombstones stay: a replica was out of reach or refused",
            KeyChange::Erase | KeyChange::Repair => "a replica was out of reach or refused",
        };
        let _infallible = writeln!(text, "{left} left: {why}");
    }
    let data = json!({"dispatched_count": dispatched, "left": left});
    AdminReply::ok(text, data).with_riak_text(dispatched.to_string())
}

/// A name as text, or in hexadecimal digits if it cannot be printed.
fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) if !name.chars().any(char::is_control) => name.to_owned(),
        _ => format!("0x{}", hexadecimal(name)),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _infallible = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_shown_with_their_bounds() {
        let reply = stats(&ObjectStats {
            count: 4,
            bytes: 1_234,
            sizes: BTreeMap::from([(0, 1), (2, 3)]),
            siblings: BTreeMap::from([(1, 4)]),
        });
        assert!(reply.text.contains("from 0 bytes: 1\nfrom 100 bytes: 3\n"));
        assert!(reply.text.ends_with("with 1 siblings: 4\n"));
        assert_eq!(
            reply.data["sizes"][1],
            json!({"min": 2, "max": 3, "count": 3})
        );
        assert_eq!(reply.data["total_count"], 4);
    }

    #[test]
    fn names_that_cannot_be_printed_are_shown_in_hexadecimal() {
        let named = [
            (BucketType::default_type(), Bucket::from("plain")),
            (BucketType::from("t"), Bucket::new(vec![3, 4, 0xff])),
        ];
        let reply = buckets(&named);
        assert_eq!(reply.data, json!(["plain", "t/0x0304ff"]));
        assert_eq!(reply.text, "plain\nt/0x0304ff\n");
    }

    #[test]
    fn what_was_left_is_explained() {
        let all = KeysChanged {
            dispatched: 3,
            left: 0,
        };
        let reply = changed(KeyChange::Erase, all, 1);
        assert_eq!(reply.text, "3 keys found, 3 erased\n");
        let some = KeysChanged { left: 1, ..all };
        let reply = changed(KeyChange::Reap, some, 1);
        assert!(reply.text.starts_with("3 keys found, 2 reaped\n1 left: "));
        assert_eq!(reply.data, json!({"dispatched_count": 3, "left": 1}));
        let reply = changed(KeyChange::Reap, some, 3);
        assert!(
            reply.text.contains("tictacaae tombstones"),
            "{}",
            reply.text
        );
    }
}
