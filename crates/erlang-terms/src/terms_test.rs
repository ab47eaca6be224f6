//! Term syntax: contents of real files, Erlang's further forms, and refusals with their positions.

use proptest::prelude::*;

use crate::{Position, SyntaxError, Term, parse_term, parse_terms};

fn read(text: &str) -> Term {
    parse_term(text).unwrap()
}

fn refusal(text: &str) -> SyntaxError {
    parse_terms(text.as_bytes()).unwrap_err()
}

fn tuple(elements: &[Term]) -> Term {
    Term::Tuple(elements.to_vec())
}

#[test]
fn reads_what_published_files_hold() {
    let text = "%% a file\n{mode, max}.\n%\n{riakc_pb_ips, [\"10.0.0.1\", {127,0,0,1}]}. % why\n\
                {riakc_pb_bucket, {<<\"maps\">>, <<>>}}.\n{x, [{a\n, 1} % inside\n, {b, 0.001}\n]}.";
    let terms = parse_terms(text.as_bytes()).unwrap();
    assert_eq!(terms.len(), 4);
    assert_eq!(
        terms[0].term,
        tuple(&[Term::atom("mode"), Term::atom("max")])
    );
    assert_eq!(terms[1].position, Position { line: 4, column: 1 });
    assert_eq!(
        terms[2].term,
        tuple(&[
            Term::atom("riakc_pb_bucket"),
            tuple(&[Term::Binary(b"maps".to_vec()), Term::Binary(Vec::new())]),
        ])
    );
    assert_eq!(terms[3].term.to_string(), "{x,[{a,1},{b,0.001}]}");
}

#[test]
fn reads_rare_but_legal_syntax() {
    assert_eq!(read("$c"), Term::Integer(99));
    assert_eq!(read("$\\n"), Term::Integer(10));
    assert_eq!(read("$ "), Term::Integer(32));
    assert_eq!(read("16#fF"), Term::Integer(255));
    assert_eq!(read("36#z"), Term::Integer(35));
    assert_eq!(read("1_000_000"), Term::Integer(1_000_000));
    assert_eq!(read("-5"), Term::Integer(-5));
    assert_eq!(read("+5"), Term::Integer(5));
    assert_eq!(read("1.5e-3"), Term::Float(0.0015));
    assert_eq!(read("<<1,2,3>>"), Term::Binary(vec![1, 2, 3]));
    assert_eq!(
        read("<<256, -1, \"a\\x{e9}\", 258:16>>"),
        Term::Binary(vec![0, 255, 97, 233, 1, 2])
    );
    assert_eq!(read("<<\"\u{e9}\"/utf8>>"), Term::Binary(vec![0xc3, 0xa9]));
    assert_eq!(
        read("\"ab\" \"cd\"\n\"e\""),
        Term::String("abcde".to_owned())
    );
    assert_eq!(
        read("\"q\\\"\\x41\\101\\^A\\s\""),
        Term::String("q\"AA\u{1} ".to_owned())
    );
    assert_eq!(read("[1,2|[3]]"), read("[1,2,3]"));
    assert_eq!(
        read("#{a => 1, <<>> => []}").to_string(),
        "#{a => 1,<<>> => []}"
    );
    assert_eq!(read("'riak@127.0.0.1'"), Term::atom("riak@127.0.0.1"));
    assert_eq!(read("''"), Term::atom(""));
    assert_eq!(read("{}"), tuple(&[]));
    assert_eq!(read("(max)"), Term::atom("max"));
    assert_eq!(read("\u{feff}max."), Term::atom("max"));
}

#[test]
fn a_latin_1_file_is_read_when_it_says_so() {
    let terms = parse_terms(b"%% coding: latin-1\n{a, \"\xe9\"}.").unwrap();
    assert_eq!(terms[0].term.to_string(), "{a,\"\u{e9}\"}");
    let error = parse_terms(b"{a,\n \"\xe9\"}.").unwrap_err();
    assert_eq!(error.position, Position { line: 2, column: 3 });
}

#[test]
fn errors_name_place_and_expectation() {
    let cases = [
        (
            "{mode, max}\n{duration, 5}.",
            (2, 1),
            "`.` at the end",
            "`{`",
        ),
        (
            "{mode, max",
            (1, 11),
            "`,` or `}` in the tuple",
            "the end of the text",
        ),
        ("[a b].", (1, 4), "`,`, `|` or `]`", "atom `b`"),
        ("{mode, Max}.", (1, 8), "single quotes", "variable `Max`"),
        ("{a, 5}.{b, 6}.", (1, 7), "white space", "`{`"),
        ("{a, \"never closed}.", (1, 5), "closing `\"`", "the end"),
        ("{a, case}.", (1, 5), "in quotes, 'case'", "reserved word"),
        ("{a, fun() -> ok end}.", (1, 5), "literal", "fun"),
        (
            "{a, lists:seq(1,2)}.",
            (1, 10),
            "not a function call",
            "`:`",
        ),
        ("{a, 1.}.", (1, 6), "full stop", "`}`"),
        ("{a, [ ... ]}.", (1, 7), "white space", "`.`"),
        ("{a, 99#1}.", (1, 5), "base from 2 to 36", "99"),
        ("{a, [1|2]}.", (1, 8), "tail", "another term"),
        ("{a, ~}.", (1, 5), "a term", "`~`"),
        ("{a, <<b>>}.", (1, 7), "in the binary", "a term"),
        ("{a, <<1:7>>}.", (1, 9), "size of 8", "integer 7"),
        (
            "{a, 170141183460469231731687303715884105728}.",
            (1, 5),
            "127 bits",
            "170141",
        ),
    ];
    for (text, (line, column), expected, got) in cases {
        let error = refusal(text);
        assert_eq!(error.position, Position { line, column }, "{text}");
        assert!(error.expected.contains(expected), "{text}: {error}");
        assert!(error.got.contains(got), "{text}: {error}");
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let error = refusal(&"[".repeat(100_000));
    assert!(error.expected.contains("levels of nesting"), "{error}");
}

#[test]
fn plain_text_shows_strings_and_binaries_as_numbers() {
    assert_eq!(
        read("{'A b', \"ab\", <<\"c\">>, 1.0e25, [x]}").to_plain_text(),
        "{'A b',[97,98],<<99>>,1.0e25,[x]}"
    );
}

fn any_term() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        any::<String>().prop_map(Term::Atom),
        "[a-z][a-zA-Z0-9_@]{0,8}".prop_map(Term::Atom),
        (i128::MIN + 1..=i128::MAX).prop_map(Term::Integer),
        any::<f64>()
            .prop_filter("finite", |value| value.is_finite())
            .prop_map(Term::Float),
        any::<String>().prop_map(Term::String),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(Term::Binary),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let some = proptest::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            some.clone().prop_map(Term::List),
            some.prop_map(Term::Tuple),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(Term::Map),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_term_reads_back_equal(term in any_term()) {
        prop_assert_eq!(parse_term(&term.to_string()).unwrap(), term);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_terms(&bytes);
    }

    #[test]
    fn random_marks_never_panic(text in "[\\[\\]{}<>(),|#:/'\"$.%a-cA0-9_=+\\\\ \\n-]{0,80}") {
        let _ = parse_terms(text.as_bytes());
    }
}
