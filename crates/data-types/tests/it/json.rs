//! The HTTP interface's JSON: bodies and answers as recorded from a node of Riak 3.2.3.

use bytes::Bytes;
use kvorum_data_types::{
    Actor, DataType, Dot, FieldChange, FieldOperation, Kind, Operation, SetChange, Update, Value,
    encode_context, fetched_json, not_found_json, operation_from_json,
};

fn refusal(kind: Kind, body: &str) -> String {
    operation_from_json(kind, body.as_bytes())
        .unwrap_err()
        .to_string()
}

fn operation(kind: Kind, body: &str) -> Operation {
    operation_from_json(kind, body.as_bytes()).unwrap().0
}

/// The value after these bodies, one update each.
fn shown_after(kind: Kind, bodies: &[&str]) -> String {
    let mut value = DataType::new(kind, 14);
    for (body, counter) in bodies.iter().zip(1..) {
        let (operation, context) = operation_from_json(kind, body.as_bytes()).unwrap();
        let update = Update {
            dot: Dot::new(Actor(1), counter),
            micros: counter,
            context: context.as_ref(),
        };
        value.update(&operation, update).unwrap();
    }
    fetched_json(&value.value(), None).unwrap()
}

#[test]
fn counters_take_every_form_of_an_increment() {
    let bodies = [
        "5",
        r#"{"increment": 3}"#,
        r#"{"decrement": 10}"#,
        r#""increment""#,
        r#""decrement""#,
        "-7",
        r#"{"increment": -2}"#,
        "0",
    ];
    assert_eq!(
        shown_after(Kind::Counter, &bodies),
        r#"{"type":"counter","value":-11}"#
    );
    let large = ["9223372036854775807", "1", "123456789012345678901234567890"];
    let shown = shown_after(Kind::Counter, &large);
    assert_eq!(
        shown,
        r#"{"type":"counter","value":123456789021569050938089343698}"#
    );
}

#[test]
fn bodies_that_are_no_increment_are_refused_in_riaks_words() {
    let bodies = [
        "null",
        "[1]",
        "true",
        "1.5",
        r#"{"increment":1.5}"#,
        r#""5""#,
        r#"{"increment":"5"}"#,
        r#"{"multiply":5}"#,
        r#"{"increment":5,"decrement":2}"#,
        "{}",
    ];
    for body in bodies {
        let expected = format!("Invalid operation on datatype 'counter': {body}");
        assert_eq!(refusal(Kind::Counter, body), expected);
    }
    for body in ["", r#"{"increment":"#, "+5", "007"] {
        assert!(
            refusal(Kind::Counter, body).starts_with("Couldn't decode JSON: "),
            "{body}"
        );
    }
}

#[test]
fn sets_take_their_verbs_in_order() {
    let bodies = [
        r#"{"add":"apple"}"#,
        r#"{"add_all":["pear","plum","apple"]}"#,
        "{}",
    ];
    let shown = r#"{"type":"set","value":["apple","pear","plum"]}"#;
    assert_eq!(shown_after(Kind::Set, &bodies), shown);
    let removed = [bodies[1], r#"{"remove_all":["pear","plum"],"add":"fig"}"#];
    let shown = r#"{"type":"set","value":["apple","fig"]}"#;
    assert_eq!(shown_after(Kind::Set, &removed), shown);
    let escaped = [r#"{"add_all":["","a\"b\\c\n\u20ac","gr\u00fc\u00df","\ud83d\ude00"]}"#];
    let shown = r#"{"type":"set","value":["","a\"b\\c\n\u20ac","gr\u00fc\u00df","\ud83d\ude00"]}"#;
    assert_eq!(shown_after(Kind::Set, &escaped), shown);
    let bodies = [
        r#""add""#,
        r#"["x"]"#,
        r#"{"put":"x"}"#,
        r#"{"add":5}"#,
        r#"{"add":["x"]}"#,
        r#"{"add_all":"x"}"#,
        r#"{"add_all":["x",5]}"#,
        "5",
        r#"{"update":{"a_set":{"add":"x"}}}"#,
    ];
    for body in bodies {
        let expected = format!("Invalid operation on datatype 'set': {body}");
        assert_eq!(refusal(Kind::Set, body), expected);
    }
}

#[test]
fn grow_only_sets_and_sketches_add_and_do_not_remove() {
    let bodies = [r#"{"add_all":["g2","g1"]}"#, r#"{"add":"g2"}"#];
    let shown = r#"{"type":"gset","value":["g1","g2"]}"#;
    assert_eq!(shown_after(Kind::GrowSet, &bodies), shown);
    assert_eq!(
        shown_after(Kind::HyperLogLog, &bodies),
        r#"{"type":"hll","value":2}"#
    );
    for (kind, name) in [(Kind::GrowSet, "gset"), (Kind::HyperLogLog, "hll")] {
        let expected = format!(r#"Invalid operation on datatype '{name}': {{"remove":"g1"}}"#);
        assert_eq!(refusal(kind, r#"{"remove":"g1"}"#), expected);
    }
}

#[test]
fn maps_show_their_fields_by_name() {
    let bodies = [
        r#"{"update": {"n_counter": 5, "r_register": "hello", "f_flag": "enable", "s_set": {"add_all": ["x", "y"]}, "m_map": {"update": {"in_register": "deep"}}}}"#,
        r#"{"update": {"m_map": {"update": {"n_counter": {"increment": 2}, "l_set": {"add": "z"}, "on_flag": "disable", "mm_map": {"update": {"r_register": {"assign": "deepest"}}}}}}}"#,
    ];
    let shown = r#"{"type":"map","value":{"f_flag":true,"m_map":{"in_register":"deep","l_set":["z"],"mm_map":{"r_register":"deepest"},"n_counter":2,"on_flag":false},"n_counter":5,"r_register":"hello","s_set":["x","y"]}}"#;
    assert_eq!(shown_after(Kind::Map, &bodies), shown);
    let bodies = [
        r#"{"update":{"e_map":{"update":{}},"e_set":{"add_all":[]},"_counter":1,"a_b_c_counter":1}}"#,
        "{}",
        r#"{"update":{"e_map":{}},"remove":"e_set"}"#,
    ];
    let shown = r#"{"type":"map","value":{"_counter":1,"a_b_c_counter":1,"e_map":{}}}"#;
    assert_eq!(shown_after(Kind::Map, &bodies), shown);
}

#[test]
fn a_maps_removes_come_first() {
    let body = r#"{"update":{"s_set":{"add":"again"}},"remove":["s_set"]}"#;
    let Operation::Map(changes) = operation(Kind::Map, body) else {
        panic!("an operation of a map");
    };
    assert!(matches!(changes[0], FieldChange::Remove(_)));
    let added = vec![SetChange::Add(Bytes::from_static(b"again"))];
    let name = Bytes::from_static(b"s");
    let operation = FieldOperation::Set(added);
    assert_eq!(changes[1], FieldChange::Update { name, operation });
}

#[test]
fn bodies_that_are_no_change_of_a_map_are_refused_in_riaks_words() {
    let cases = [
        ("5", "Invalid operation on datatype 'map': 5"),
        (r#"["x"]"#, r#"Invalid operation on datatype 'map': ["x"]"#),
        (
            r#"{"add":"x_counter"}"#,
            r#"Invalid operation on datatype 'map': "add""#,
        ),
        (r#"{"update":5}"#, "Couldn't decode JSON: {badmatch,5}"),
        (r#"{"update":{"name":1}}"#, "Invalid map field name 'name'"),
        (
            r#"{"update":{"n_Counter":1}}"#,
            "Invalid map field name 'n_Counter'",
        ),
        (
            r#"{"update":{"r_register":5}}"#,
            "Invalid operation on datatype 'register': 5",
        ),
        (
            r#"{"update":{"f_flag":true}}"#,
            "Invalid operation on datatype 'flag': true",
        ),
        (
            r#"{"update":{"n_counter":"5"}}"#,
            r#"Invalid operation on datatype 'counter': "5""#,
        ),
        (
            r#"{"update":{"m_map":{"a_counter":1}}}"#,
            r#"Invalid operation on datatype 'map': "a_counter""#,
        ),
        (
            r#"{"remove":5}"#,
            r#"Invalid operation on datatype 'map': {"remove":5}"#,
        ),
        (r#"{"remove":"name"}"#, "Invalid map field name 'name'"),
        (
            r#"{"remove":["a_set",5]}"#,
            "Couldn't decode JSON: function_clause",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(refusal(Kind::Map, body), expected);
    }
}

#[test]
fn a_context_goes_out_and_comes_back() {
    let mut value = DataType::new(Kind::Set, 0);
    let update = Update {
        dot: Dot::new(Actor(1), 1),
        micros: 0,
        context: None,
    };
    let added = Operation::Set(vec![SetChange::Add(Bytes::from_static(b"x"))]);
    value.update(&added, update).unwrap();
    let context = value.context().unwrap();
    let shown = fetched_json(&value.value(), Some(&context)).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let body = format!(r#"{{"remove":"x","context":{}}}"#, shown["context"]);
    let (_, sent) = operation_from_json(Kind::Set, body.as_bytes()).unwrap();
    assert_eq!(sent, Some(context.clone()));
    assert!(!encode_context(&context).is_empty());
    let bad = |context: &str| format!(r#"{{"remove":"x","context":{context}}}"#);
    assert_eq!(
        refusal(Kind::Set, &bad("5")),
        "Couldn't decode JSON: function_clause"
    );
    assert_eq!(
        refusal(Kind::Set, &bad(r#""!!!""#)),
        "Couldn't decode JSON: function_clause"
    );
    assert!(refusal(Kind::Set, &bad(r#""AAAA""#)).starts_with("Invalid context: "));
}

#[test]
fn what_json_cannot_carry_is_refused() {
    let value = Value::Set(vec![Bytes::from_static(b"\xff")]);
    assert!(fetched_json(&value, None).is_err());
    assert_eq!(
        not_found_json(Kind::Map),
        r#"{"type":"map","error":"notfound"}"#
    );
}
