//! The part of a key generator's law that decides whether a get finds anything: the number of keys,
//! and the probability of each.
//!
//! A test over more keys than it writes measures misses, which are fast on any store. The law and
//! the number of writes determine the expected misses; measured misses alone would not show whether
//! the test or the store causes them.

use kvorum_erlang_terms::Term;

/// Number of classes for the smooth part of a Pareto law.
const PARETO_CLASSES: i32 = 400;

/// The end of the last class, as a multiple of the law's scale: one key in a hundred million is
/// drawn beyond it.
const PARETO_REACH: f64 = 250_000.0;

/// Keys that are equally likely.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Class {
    /// The chance that a draw is in this class.
    probability: f64,
    /// Number of keys in the class.
    keys: f64,
}

/// The probabilities of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyLaw {
    classes: Vec<Class>,
    is_bounded: bool,
}

impl KeyLaw {
    /// The law of a generator; `None` if draws depend on each other (sequences, files) or the
    /// generator is not known here. Wrappers change the form of keys, not their number.
    pub fn of(term: &Term) -> Option<Self> {
        if term
            .as_atom()
            .is_some_and(|name| name.starts_with("uuid_v4"))
        {
            return Some(Self::uniform(2_f64.powi(122)));
        }
        let (tag, arguments) = term.as_tuple()?.split_first()?;
        let last = arguments.last()?;
        let tag = match tag {
            Term::Tuple(parameters) => parameters.first()?.as_atom()?,
            _ => tag.as_atom()?,
        };
        match tag {
            "random_dynamo_style_string" => Some(Self::uniform(2_f64.powi(256))),
            "uniform_int" | "uniform_int_bin" | "uniform_int_str" => {
                Some(Self::uniform(count(last)?))
            }
            "eightytwenty_int" => Some(Self::eighty_twenty(count(last)?)),
            "pareto_int" | "pareto_int_bin" | "pareto_int_str" => {
                Some(Self::pareto(count(last)?, f64::INFINITY))
            }
            "truncated_pareto_int" | "truncated_pareto_int_bin" | "truncated_pareto_int_str" => {
                Some(Self::pareto(count(last)?, count(last)?))
            }
            "int_to_bin_bigendian"
            | "int_to_bin_littleendian"
            | "int_to_str"
            | "to_str"
            | "to_binstr"
            | "str_to_bin"
            | "bin_to_str"
            | "iolist_to_bin"
            | "term_to_bin"
            | "base64"
            | "crypto_hash" => Self::of(last),
            _ => None,
        }
    }

    /// Number of different keys that can be drawn; `None` if there is no bound.
    pub fn distinct_keys(&self) -> Option<f64> {
        let keys = self.classes.iter().map(|class| class.keys).sum();
        self.is_bounded.then_some(keys)
    }

    /// The chance that a get finds its key on a store that was empty, if gets and writes have the
    /// same law and gets are spread evenly from write number `from` to write number `to`.
    pub fn hit_share(&self, from: f64, to: f64) -> f64 {
        let share = |class: &Class| {
            let each = class.probability / class.keys;
            class.probability * found_between(each, from, to)
        };
        self.classes.iter().map(share).sum()
    }

    fn uniform(keys: f64) -> Self {
        Self {
            classes: vec![Class {
                probability: 1.0,
                keys,
            }],
            is_bounded: true,
        }
    }

    fn eighty_twenty(max: f64) -> Self {
        let step = (max / 5.0).floor();
        let class = |probability, keys| Class { probability, keys };
        Self {
            classes: vec![class(0.8, step), class(0.2, 4.0 * step)],
            is_bounded: true,
        }
    }

    /// A Pareto law of shape 1.5, in classes that grow by a constant factor; within a class the law
    /// hardly changes.
    fn pareto(max: f64, limit: f64) -> Self {
        let scale = 0.5 * (0.2 * max).floor().max(1.0);
        let below = |key: f64| 1.0 - (1.0 + key / scale).powf(-1.5);
        let end = |index: i32| {
            let exponent = f64::from(index) / f64::from(PARETO_CLASSES);
            scale * ((1.0 + PARETO_REACH).powf(exponent) - 1.0)
        };
        let mut classes = Vec::new();
        let mut start = 0.0;
        for index in 1..=PARETO_CLASSES {
            // Keys are whole, and a class has at least one.
            let end = end(index).ceil().max(start + 1.0).min(limit);
            if end <= start {
                break;
            }
            classes.push(Class {
                probability: below(end) - below(start),
                keys: end - start,
            });
            start = end;
        }
        let rest = 1.0 - below(start);
        classes.push(Class {
            probability: rest,
            // Draws beyond a limit return the limit; a key beyond all classes is never drawn again.
            keys: if limit.is_finite() { 1.0 } else { 1e30 },
        });
        Self {
            classes,
            is_bounded: limit.is_finite(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a number of keys needs no more than a float's precision"
)]
fn count(term: &Term) -> Option<f64> {
    let count = term.as_integer()?;
    (count > 0).then_some(count as f64)
}

/// The mean chance, from write number `from` to write number `to`, that a key with probability
/// `each` has been written.
fn found_between(each: f64, from: f64, to: f64) -> f64 {
    if each >= 1.0 {
        return 1.0;
    }
    // The chance after w writes is 1 - (1 - each)^w = 1 - exp(-rate w).
    let rate = -(-each).ln_1p();
    let writes = to - from;
    let span = rate * writes;
    if span < 1e-6 {
        return -(-rate * (from + writes / 2.0)).exp_m1();
    }
    1.0 + (-rate * from).exp() * (-span).exp_m1() / span
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_generator::KeySources;
    use crate::random::{Seed, WorkerRandom};
    use crate::value_generator::{BlockSettings, SourceBlocks};
    use kvorum_erlang_terms::parse_term;

    fn law(text: &str) -> Option<KeyLaw> {
        KeyLaw::of(&parse_term(text).unwrap())
    }

    /// The share of gets that find their key when gets and writes alternate.
    fn played(text: &str, writes: u32) -> f64 {
        let blocks = SourceBlocks::new(BlockSettings {
            random_bytes: 4096,
            blob_file: None,
            seed: Seed([1, 2, 3]),
        });
        let mut sources = KeySources::new(&blocks, 1);
        let mut generator = sources.build(&parse_term(text).unwrap(), 1).unwrap();
        let mut random = WorkerRandom::new(Seed([4, 5, 6]).of_worker(1));
        let mut draw = || generator.next(&mut random).unwrap().into_bytes();
        let mut written = std::collections::HashSet::new();
        let mut found = 0;
        for _ in 0..writes {
            found += u32::from(written.contains(&draw()));
            written.insert(draw());
        }
        f64::from(found) / f64::from(writes)
    }

    #[test]
    fn what_is_worked_out_is_what_happens() {
        for text in [
            "{uniform_int, 30000}",
            "{eightytwenty_int, 60000}",
            "{base64, {int_to_bin_bigendian, {pareto_int, 200000}}}",
            "{truncated_pareto_int, 50000}",
            "{{int_to_bin_bigendian, 64}, {uniform_int, 7, 20000}}",
        ] {
            for writes in [1000, 20_000] {
                let law = law(text).unwrap();
                let expected = law.hit_share(0.0, f64::from(writes));
                let got = played(text, writes);
                // Six standard deviations of the same number of independent gets.
                let bound = 6.0 * (0.25 / f64::from(writes)).sqrt();
                assert!(
                    (got - expected).abs() < bound,
                    "{text}, {writes} writes: {got} and not {expected}"
                );
            }
        }
    }

    #[test]
    fn keys_of_256_random_bits_are_never_found() {
        let law = law("{random_dynamo_style_string, 35000}").unwrap();
        let share = law.hit_share(0.0, 1e9);
        assert!(share > 0.0 && share < 1e-60, "{share}");
        // On average, half of the writes precede a get, with 2^256 keys.
        let expected = 0.5e9 / 2_f64.powi(256);
        assert!((share / expected - 1.0).abs() < 1e-6, "{share}");
    }

    #[test]
    fn later_gets_find_more() {
        let law = law("{uniform_int, 1000}").unwrap();
        assert!((law.hit_share(0.0, 1e7) - 1.0).abs() < 1e-3);
        assert!(law.hit_share(1000.0, 2000.0) > law.hit_share(0.0, 1000.0));
        let both = f64::midpoint(law.hit_share(0.0, 500.0), law.hit_share(500.0, 1000.0));
        assert!((law.hit_share(0.0, 1000.0) - both).abs() < 1e-9);
        assert_eq!(law.distinct_keys(), Some(1000.0));
    }

    #[test]
    fn sequences_and_constants_have_no_law() {
        for text in [
            "{sequential_int, 10}",
            "{partitioned_sequential_int, 10}",
            "<<\"a\">>",
            "{concat_binary, <<\"a\">>, {uniform_int, 5}}",
            "{file_line_bin, \"x\"}",
        ] {
            assert_eq!(law(text), None, "{text}");
        }
        assert_eq!(law("{pareto_int, 1000}").unwrap().distinct_keys(), None);
    }
}
