//! The memory and disk that a number of objects takes, and the number of keys for a gigabyte of memory.

use std::fmt;

use serde::Serialize;

use crate::engines::{Costs, EngineTable, Figure};
use crate::error::AdviseError;
use crate::render::{bytes_text, count_text};

const GIB: f64 = (1u64 << 30) as f64;

/// The data to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapacityQuestion {
    /// The engine's name.
    pub backend: String,
    /// Distinct keys in the cluster.
    pub keys: u64,
    /// Length of a key, in bytes.
    pub key_bytes: u64,
    /// Length of bucket type and bucket together, in bytes.
    pub bucket_bytes: u64,
    /// Length of a value as it is stored, in bytes.
    pub value_bytes: u64,
    /// Copies of each object.
    pub n_val: u64,
    /// Nodes.
    pub nodes: u64,
}

/// The resources that the data takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapacityAnswer {
    /// The question.
    pub question: CapacityQuestion,
    /// Copies of each object: `n_val`, or the number of nodes if that is less.
    pub copies: u64,
    /// Keys on each node, copies included.
    pub keys_per_node: u64,
    /// Memory for each key on a node, in bytes.
    pub memory_bytes_per_key: f64,
    /// Memory on each node, in bytes, with that of an idle node.
    pub memory_bytes_per_node: u64,
    /// Disk for each object on a node, in bytes, without room for garbage.
    pub disk_bytes_per_object: f64,
    /// Disk on each node for live data, in bytes.
    pub disk_live_bytes_per_node: u64,
    /// Disk to provide on each node, in bytes.
    pub disk_bytes_per_node: u64,
    /// Keys for each GiB of a node's memory.
    pub keys_per_gib: u64,
    /// Distinct keys for each GiB of memory of the whole cluster.
    pub distinct_keys_per_gib: u64,
    /// The figures of Riak's bitcask; only if the question is about bitcask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub riak: Option<RiakComparison>,
    /// The sources of the figures.
    pub sources: Vec<String>,
}

/// Riak's bitcask with keys of this length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RiakComparison {
    /// Memory for each key by Riak's documentation, in bytes.
    pub documented_bytes_per_key: f64,
    /// Memory for each key as measured, in bytes: the least and the most.
    pub measured_bytes_per_key: (f64, f64),
    /// Keys for each GiB as measured: the least and the most.
    pub keys_per_gib: (u64, u64),
}

/// Answers a question of capacity.
///
/// # Errors
/// An engine that is not known or has no figures yet.
pub fn capacity(
    table: &EngineTable,
    question: CapacityQuestion,
) -> Result<CapacityAnswer, AdviseError> {
    let engine = table.engine(&question.backend)?;
    let costs = engine.costs.as_ref().ok_or_else(|| AdviseError::NoCosts {
        name: engine.name.clone(),
    })?;
    let copies = question.n_val.min(question.nodes).max(1);
    let keys_per_node = per_node(question.keys, copies, question.nodes);
    let stored_key =
        (question.key_bytes + question.bucket_bytes) as f64 + table.object.key_framing.value;
    let entry = stored_key + table.object.head.value + question.value_bytes as f64;
    let in_memory = if costs.memory_has_entry { entry } else { 0.0 };
    let key_memory = costs.memory_per_key_of(keys_per_node as f64);
    let memory_per_key = key_memory.value + in_memory;
    let disk_per_object = disk_per_object(costs, stored_key, entry);
    let on_node = |each: f64| whole(each * keys_per_node as f64);
    let record = disk_per_object.record;
    let live = on_node(record + disk_per_object.index);
    let space_factor = value_of(costs.space_factor.as_ref(), 1.0);
    let provided = on_node(record * space_factor + disk_per_object.index);
    // A gigabyte holds many keys, so the figure for few does not apply.
    let keys_per_gib = whole(GIB / (costs.memory_per_key.value + in_memory));
    let is_bitcask = question.backend == "bitcask";
    Ok(CapacityAnswer {
        copies,
        keys_per_node,
        memory_bytes_per_key: memory_per_key,
        memory_bytes_per_node: on_node(memory_per_key)
            .saturating_add(whole(table.node.memory.value)),
        disk_bytes_per_object: record + disk_per_object.index,
        disk_live_bytes_per_node: live,
        disk_bytes_per_node: provided,
        keys_per_gib,
        distinct_keys_per_gib: keys_per_gib / copies,
        riak: is_bitcask.then(|| riak_comparison(table, &question)),
        sources: sources(table, costs, key_memory),
        question,
    })
}

struct DiskPerObject {
    record: f64,
    index: f64,
}

fn disk_per_object(costs: &Costs, stored_key: f64, entry: f64) -> DiskPerObject {
    let Some(overhead) = &costs.disk_per_entry else {
        return DiskPerObject {
            record: 0.0,
            index: 0.0,
        };
    };
    let align = value_of(costs.disk_align.as_ref(), 1.0);
    let record = ((overhead.value + entry) / align).ceil() * align;
    let key = if costs.index_has_key { stored_key } else { 0.0 };
    let index = costs.index_per_key.as_ref();
    let index = index.map_or(0.0, |index| index.value + key);
    DiskPerObject { record, index }
}

fn riak_comparison(table: &EngineTable, question: &CapacityQuestion) -> RiakComparison {
    let riak = &table.riak;
    let (key, bucket) = (question.key_bytes as f64, question.bucket_bytes as f64);
    let low = riak.memory_per_key_measured_min.value + key;
    let high = riak.memory_per_key_measured_max.value + key;
    RiakComparison {
        documented_bytes_per_key: riak.memory_per_key_documented.value + bucket + key,
        measured_bytes_per_key: (low, high),
        keys_per_gib: (whole(GIB / high), whole(GIB / low)),
    }
}

fn sources(table: &EngineTable, costs: &Costs, key_memory: &Figure) -> Vec<String> {
    let named: [(&str, Option<&Figure>); 8] = [
        ("memory for each key", Some(key_memory)),
        ("disk for each entry", costs.disk_per_entry.as_ref()),
        ("alignment on disk", costs.disk_align.as_ref()),
        ("room for garbage", costs.space_factor.as_ref()),
        ("hints and checkpoint", costs.index_per_key.as_ref()),
        ("head of an object", Some(&table.object.head)),
        ("framing of a key", Some(&table.object.key_framing)),
        ("an idle node", Some(&table.node.memory)),
    ];
    let line = |(name, figure): (&str, Option<&Figure>)| {
        let figure = figure?;
        Some(format!("{name}: {}: {}", figure.value, figure.source))
    };
    named.into_iter().filter_map(line).collect()
}

fn value_of(figure: Option<&Figure>, default: f64) -> f64 {
    figure.map_or(default, |figure| figure.value)
}

fn per_node(keys: u64, copies: u64, nodes: u64) -> u64 {
    let all = u128::from(keys) * u128::from(copies);
    u64::try_from(all.div_ceil(u128::from(nodes.max(1)))).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and nothing here is negative"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

impl fmt::Display for CapacityAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let question = &self.question;
        writeln!(
            f,
            "{} keys of {} bytes with values of {}, {} of each, on {}; nodes: {}",
            count_text(question.keys),
            question.key_bytes,
            bytes_text(question.value_bytes),
            if self.copies == 1 {
                "one copy".to_owned()
            } else {
                format!("{} copies", self.copies)
            },
            question.backend,
            question.nodes,
        )?;
        if self.copies < question.n_val {
            let n_val = question.n_val;
            writeln!(f, "  (n_val is {n_val}, but a node holds at most one copy)")?;
        }
        writeln!(f)?;
        let keys = count_text(self.keys_per_node);
        writeln!(f, "keys on each node          {keys}")?;
        let (each, all) = (self.memory_bytes_per_key, self.memory_bytes_per_node);
        let all = bytes_text(all);
        writeln!(
            f,
            "memory on each node        {all}  ({each:.0} bytes a key)"
        )?;
        let (each, all) = (self.disk_bytes_per_object, self.disk_live_bytes_per_node);
        let all = bytes_text(all);
        writeln!(
            f,
            "disk on each node, live    {all}  ({each:.0} bytes an object)"
        )?;
        let all = bytes_text(self.disk_bytes_per_node);
        writeln!(f, "disk on each node, needed  {all}")?;
        let keys = count_text(self.keys_per_gib);
        writeln!(f, "keys per GB of memory      {keys}")?;
        if self.copies > 1 {
            let keys = count_text(self.distinct_keys_per_gib);
            writeln!(
                f,
                "  of them distinct         {keys}  (each has {} copies)",
                self.copies
            )?;
        }
        if let Some(riak) = &self.riak {
            let (low, high) = riak.measured_bytes_per_key;
            let (few, many) = riak.keys_per_gib;
            writeln!(
                f,
                "Riak's bitcask             {few} to {many} keys per GB: measured {low:.0} to \
                 {high:.0} bytes a key ({:.1} documented)",
                riak.documented_bytes_per_key,
                few = count_text(few),
                many = count_text(many),
            )?;
        }
        writeln!(f, "\nfigures, in bytes")?;
        for source in &self.sources {
            writeln!(f, "  {source}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> CapacityQuestion {
        CapacityQuestion {
            backend: "bitcask".to_owned(),
            keys: 100_000_000,
            key_bytes: 67,
            bucket_bytes: 8,
            value_bytes: 1000,
            n_val: 3,
            nodes: 5,
        }
    }

    fn answer(question: CapacityQuestion) -> CapacityAnswer {
        capacity(&EngineTable::built_in().unwrap(), question).unwrap()
    }

    #[test]
    fn keys_are_spread_with_their_copies() {
        let answer = answer(question());
        assert_eq!((answer.copies, answer.keys_per_node), (3, 60_000_000));
        let lone = CapacityQuestion {
            nodes: 1,
            ..question()
        };
        let answer = super::tests::answer(lone);
        assert_eq!((answer.copies, answer.keys_per_node), (1, 100_000_000));
        assert!(answer.to_string().contains("n_val is 3"));
    }

    /// The question that a user of Riak asked in 2010.
    #[test]
    fn keys_of_67_bytes_take_no_more_memory_than_short_ones() {
        let long = answer(question());
        assert_eq!(long.keys_per_gib, 44_186_906);
        let short = CapacityQuestion {
            key_bytes: 4,
            ..question()
        };
        assert_eq!(answer(short).keys_per_gib, long.keys_per_gib);
        let riak = long.riak.unwrap();
        assert_eq!(riak.measured_bytes_per_key, (118.0, 124.0));
        assert_eq!(riak.keys_per_gib, (8_659_208, 9_099_507));
        assert!((riak.documented_bytes_per_key - 119.5).abs() < 0.01);
    }

    #[test]
    fn few_keys_take_more_memory_each_and_many_are_counted_for_a_gigabyte() {
        let few = CapacityQuestion {
            keys: 1_000_000,
            ..question()
        };
        let (few, many) = (answer(few), answer(question()));
        assert_eq!(
            (few.memory_bytes_per_key, many.memory_bytes_per_key),
            (33.0, 24.3)
        );
        assert_eq!(few.keys_per_gib, many.keys_per_gib);
        let shows = |answer: &CapacityAnswer, of: &str| answer.to_string().contains(of);
        assert!(shows(&few, "memory for each key: 33: ") && shows(&few, "(33 bytes a key)"));
        assert!(shows(&many, "memory for each key: 24.3: "));
        // The other engines have one figure at any number of keys.
        let in_memory = |keys| CapacityQuestion {
            backend: "memory".to_owned(),
            keys,
            ..question()
        };
        let [few, many] = [1_000_000, 100_000_000].map(|keys| answer(in_memory(keys)));
        assert_eq!(few.memory_bytes_per_key, many.memory_bytes_per_key);
    }

    #[test]
    fn an_engine_without_figures_says_so() {
        let mut table = EngineTable::built_in().unwrap();
        let hanoidb = table.engines.iter_mut().find(|it| it.name == "hanoidb");
        hanoidb.unwrap().costs = None;
        let ask = |backend: &str| {
            capacity(
                &table,
                CapacityQuestion {
                    backend: backend.to_owned(),
                    ..question()
                },
            )
        };
        assert!(matches!(ask("hanoidb"), Err(AdviseError::NoCosts { .. })));
        assert!(matches!(
            ask("sqlite"),
            Err(AdviseError::UnknownEngine { .. })
        ));
        assert_eq!(ask("memory").unwrap().disk_bytes_per_node, 0);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let huge = CapacityQuestion {
            keys: u64::MAX,
            key_bytes: u64::MAX / 4,
            bucket_bytes: u64::MAX / 4,
            value_bytes: u64::MAX / 4,
            n_val: u64::MAX,
            nodes: u64::MAX,
            backend: "memory".to_owned(),
        };
        assert!(answer(huge).memory_bytes_per_node > 0);
    }
}
