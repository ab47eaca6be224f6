//! Shrinks the key space of a published test, so that a shorter run fills the same share of it.

use kvorum_erlang_terms::Term;

/// Generators of numbers whose last argument is the count of numbers, with their smallest valid
/// count.
const COUNTED: [(&str, i128); 19] = [
    ("uniform_int", 1),
    ("uniform_int_bin", 1),
    ("uniform_int_str", 1),
    ("eightytwenty_int", 5),
    ("pareto_int", 1),
    ("pareto_int_bin", 1),
    ("pareto_int_str", 1),
    ("truncated_pareto_int", 1),
    ("truncated_pareto_int_bin", 1),
    ("truncated_pareto_int_str", 1),
    ("sequential_int", 1),
    ("sequential_int_bin", 1),
    ("sequential_int_str", 1),
    ("named_sequential_int", 1),
    ("partitioned_sequential_int", 1),
    ("partitioned_sequential_int_bin", 1),
    ("partitioned_sequential_int_str", 1),
    ("named_partitioned_sequential_int", 1),
    ("random_int", 1),
];

/// The key generator with its number of keys multiplied; its wrappers stay.
pub fn scaled_keys(term: &Term, factor: f64) -> Term {
    let Term::Tuple(elements) = term else {
        return term.clone();
    };
    let counted = elements
        .first()
        .and_then(Term::as_atom)
        .and_then(|tag| COUNTED.iter().find(|(name, _)| *name == tag));
    let Some((_, least)) = counted else {
        return Term::Tuple(elements.iter().map(|it| scaled_keys(it, factor)).collect());
    };
    let mut scaled = elements.clone();
    if let Some(Term::Integer(count)) = scaled.last_mut() {
        *count = scale_integer(*count, factor).max(*least.min(count));
    }
    Term::Tuple(scaled)
}

/// A number of keys multiplied; at least 1, unless it was 0.
pub fn scaled_count(count: u64, factor: f64) -> u64 {
    let scaled = scale_integer(i128::from(count), factor);
    u64::try_from(scaled).unwrap_or(u64::MAX).max(count.min(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a number of keys needs no more than a float's precision, and floats saturate"
)]
fn scale_integer(count: i128, factor: f64) -> i128 {
    if (factor - 1.0).abs() < f64::EPSILON {
        return count;
    }
    (count as f64 * factor).round() as i128
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvorum_erlang_terms::parse_term;

    #[test]
    fn counts_shrink_and_everything_else_stays() {
        for (text, expected) in [
            ("{eightytwenty_int, 60000000}", "{eightytwenty_int,60000}"),
            ("{eightytwenty_int, 100}", "{eightytwenty_int,5}"),
            ("{uniform_int, 5000, 2000}", "{uniform_int,5000,2}"),
            (
                "{base64, {int_to_bin_bigendian, {pareto_int, 200000000}}}",
                "{base64,{int_to_bin_bigendian,{pareto_int,200000}}}",
            ),
            (
                "{concat_binary, <<\"a\">>, {to_binstr, \"~8..0B\", {sequential_int, 400}}}",
                "{concat_binary,<<\"a\">>,{to_binstr,\"~8..0B\",{sequential_int,1}}}",
            ),
            (
                "{{int_to_bin_bigendian, 64}, {partitioned_sequential_int, 10000000}}",
                "{{int_to_bin_bigendian,64},{partitioned_sequential_int,10000}}",
            ),
            ("uuid_v4", "uuid_v4"),
            (
                "{random_dynamo_style_string, 35000}",
                "{random_dynamo_style_string,35000}",
            ),
        ] {
            let scaled = scaled_keys(&parse_term(text).unwrap(), 0.001);
            assert_eq!(scaled, parse_term(expected).unwrap(), "{text}");
        }
        assert_eq!(
            scaled_keys(&parse_term("{uniform_int, 7}").unwrap(), 3.0),
            parse_term("{uniform_int, 21}").unwrap()
        );
    }

    #[test]
    fn a_count_does_not_vanish() {
        assert_eq!(scaled_count(600_000, 0.01), 6000);
        assert_eq!(scaled_count(10, 0.001), 1);
        assert_eq!(scaled_count(0, 0.001), 0);
        assert_eq!(scaled_count(u64::MAX, 1.0), u64::MAX);
    }
}
