//! Each key filter, on keys that pass, keys that do not, and keys that it cannot read.

use kvorum_map_reduce::{Failure, Job, Refusal};

use crate::store::{PLAIN, Store, sibling};

fn job(filters: &str) -> Result<Job, Refusal> {
    let body = format!(r#"{{"inputs":{{"bucket":"b","key_filters":{filters}}},"query":[]}}"#);
    Job::from_json(body.as_bytes())
}

fn passes(filters: &str, key: &str) -> Result<bool, Failure> {
    let mut store = Store::default();
    store.put("", "b", key, vec![sibling("")]);
    let answer = store.answer(job(filters).unwrap(), PLAIN)?;
    Ok(answer != "[]")
}

#[test]
fn filters_let_pass_what_riaks_do() {
    let cases = [
        (r#"[["int_to_string"],["eq","1"]]"#, "1", None),
        (r#"[["string_to_int"],["eq",12]]"#, "12", Some(true)),
        (r#"[["string_to_int"],["eq",12.0]]"#, "12", Some(false)),
        (
            r#"[["string_to_int"],["less_than_eq",12.0]]"#,
            "12",
            Some(true),
        ),
        (r#"[["string_to_int"],["eq",12]]"#, "+12", Some(true)),
        (r#"[["string_to_int"],["eq",12]]"#, "12a", None),
        (
            r#"[["string_to_float"],["greater_than",1.5]]"#,
            "2.5e0",
            Some(true),
        ),
        (r#"[["string_to_float"],["greater_than",1.5]]"#, "2", None),
        (
            r#"[["string_to_float"],["float_to_string"],["eq","6.00000000000000000000e+00"]]"#,
            "6.0",
            Some(true),
        ),
        (r#"[["to_upper"],["matches","^K$"]]"#, "k", Some(true)),
        (
            r#"[["to_lower"],["starts_with","abc"]]"#,
            "ABCD",
            Some(true),
        ),
        (r#"[["to_upper"],["eq","K"]]"#, "k", Some(false)),
        (r#"[["tokenize","-/",3],["eq","c"]]"#, "a-b//c", Some(true)),
        (r#"[["tokenize","-",4],["eq","c"]]"#, "a-b-c", Some(false)),
        (
            r#"[["urldecode"],["ends_with","a b/c"]]"#,
            "a+b%2fc",
            Some(true),
        ),
        (r#"[["between",1,2]]"#, "1", Some(false)),
        (
            r#"[["string_to_int"],["between",1,2,false]]"#,
            "2",
            Some(false),
        ),
        (
            r#"[["string_to_int"],["between",1,2,true]]"#,
            "2",
            Some(true),
        ),
        (r#"[["set_member",1,"b"]]"#, "1", Some(true)),
        (r#"[["similar_to","basho",1]]"#, "baysho", Some(true)),
        (r#"[["similar_to","basho",1]]"#, "baysho!", Some(false)),
        (r#"[["similar_to","",3]]"#, "abc", Some(true)),
        (r#"[["not",[["neq","a"]]]]"#, "a", Some(true)),
        (r#"[["and",[["eq","a"]],[["eq","b"]]]]"#, "a", Some(false)),
        (r#"[["and"]]"#, "a", Some(true)),
        (r#"[["or"]]"#, "a", Some(false)),
        (r#"[["or",[["to_upper"]]]]"#, "a", None),
        (r#"[["to_upper"]]"#, "a", None),
        (r#"[["starts_with","a"],["eq",true]]"#, "ab", Some(true)),
    ];
    for (filters, key, wanted) in cases {
        let got = passes(filters, key);
        match wanted {
            Some(wanted) => assert_eq!(got, Ok(wanted), "{filters} on {key}"),
            None => {
                let failed = matches!(got, Err(Failure::Filter { .. }));
                assert!(failed, "{filters} on {key}: {got:?}");
            }
        }
    }
}

#[test]
fn filters_that_cannot_work_are_refused_before_the_job_runs() {
    for filters in [
        r#"[["tokenize","-"]]"#,
        r#"[["tokenize","-",0]]"#,
        r#"[["tokenize","-","1"]]"#,
        r#"[["eq"]]"#,
        r#"[["between",1]]"#,
        r#"[["between",1,2,"x"]]"#,
        r#"[["matches","("]]"#,
        r#"[["matches",5]]"#,
        r#"[["matches","(((a{100}){100}){100}){100}"]]"#,
        r#"[["not"]]"#,
        r#"[["and","x"]]"#,
        r#"[["similar_to","x",-1]]"#,
    ] {
        let refused = matches!(job(filters), Err(Refusal::FilterArguments { .. }));
        assert!(refused, "{filters}");
    }
    for filters in [
        r#"[["sounds_like","x"]]"#,
        "[[]]",
        "[5]",
        r#"[[["eq"]]]"#,
        r#"[["not",[["x"]]]]"#,
    ] {
        let refused = matches!(job(filters), Err(Refusal::UnknownFilter(_)));
        assert!(refused, "{filters}");
    }
}
