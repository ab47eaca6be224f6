//! `errors.csv`: the causes of failed operations.

use kvorum_erlang_terms::{Term, parse_term};

/// A reason, and the number of operations that failed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The operation's label.
    pub operation: String,
    /// The reason, with binaries as text.
    pub reason: String,
    /// The number of operations.
    pub count: u64,
}

/// Reads the file: a head, then rows `"{{Label,Operation},Reason}","Count"`. A row of another form
/// counts with its text as the reason, since a page without a cause would look as if no operation
/// had failed.
pub(super) fn parse(text: &str) -> Vec<Cause> {
    let mut causes: Vec<Cause> = text.lines().skip(1).filter_map(cause).collect();
    causes.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then_with(|| a.operation.cmp(&b.operation))
    });
    causes
}

fn cause(row: &str) -> Option<Cause> {
    let (key, count) = row.rsplit_once(',')?;
    let unquoted = |text: &str| text.trim().trim_matches('"').to_owned();
    let (key, count) = (unquoted(key), unquoted(count).parse().ok()?);
    let term = parse_term(&key).ok();
    let parts = term.as_ref().and_then(Term::as_tuple);
    Some(match parts {
        Some([pair, reason]) => Cause {
            operation: pair
                .as_tuple()
                .and_then(<[Term]>::first)
                .unwrap_or(pair)
                .to_string(),
            reason: readable(reason),
            count,
        },
        _ => Cause {
            operation: String::new(),
            reason: key,
            count,
        },
    })
}

/// The reason's text, with a list of code points as characters.
fn readable(reason: &Term) -> String {
    match reason.as_text().filter(|text| !text.is_empty()) {
        Some(text) => text,
        None => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_apart_and_the_most_frequent_comes_first() {
        let text = "\"error\",\"count\"\n\"{{get,get},timeout}\",\"2\"\n\
                    \"{{{put_pb,5},{put_pb,5}},{error,<<111,118,101,114>>}}\",\"40\"\n\
                    \"not a term {\",\"1\"\nbroken\n";
        let causes = parse(text);
        let shown: Vec<_> = causes
            .iter()
            .map(|it| (it.operation.as_str(), it.reason.as_str(), it.count))
            .collect();
        assert_eq!(
            shown,
            [
                ("{put_pb,5}", "{error,<<\"over\">>}", 40),
                ("get", "timeout", 2),
                ("", "not a term {", 1)
            ]
        );
    }
}
