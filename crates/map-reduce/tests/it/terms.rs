//! Jobs in Erlang's terms: their results equal those of the same jobs in JSON, and hostile ones are
//! refused.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use kvorum_erlang_terms::external_term::Term;
use kvorum_map_reduce::{Inputs, Job, JobForm, Refusal};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::store::{PLAIN, Store, link, sibling};

fn atom(name: &str) -> Term {
    Term::Atom(Bytes::copy_from_slice(name.as_bytes()))
}

fn binary(text: &str) -> Term {
    Term::Binary(Bytes::copy_from_slice(text.as_bytes()))
}

fn tuple<const N: usize>(elements: [Term; N]) -> Term {
    Term::Tuple(Vec::from(elements))
}

fn list<const N: usize>(elements: [Term; N]) -> Term {
    Term::List(Vec::from(elements), None)
}

fn call(kind: &str, function: &str, argument: Term) -> Term {
    let function = tuple([atom("modfun"), atom("riak_kv_mapreduce"), atom(function)]);
    tuple([atom(kind), function, argument, atom("true")])
}

fn job(inputs: Term, query: Term) -> Result<Job, Refusal> {
    let members = [("inputs", inputs), ("query", query)];
    let members = members.map(|(name, value)| tuple([atom(name), value]));
    Job::from_terms(&list(members).encode())
}

/// `k0` to `k9`, indexed by their numbers, each with a link to the next.
fn store() -> Store {
    let mut store = Store::default();
    for bucket_type in ["", "t"] {
        for number in 0..10 {
            let key = format!("k{number}");
            let mut object = sibling(&number.to_string());
            object.links = vec![link("b", &format!("k{}", number + 1), "next")];
            store.put(bucket_type, "b", &key, vec![object]);
            store.index(bucket_type, "b", ("n_int", number.to_string(), key));
        }
    }
    store
}

fn results(inputs: Term, query: Term) -> Value {
    let job = job(inputs, query).unwrap();
    assert_eq!(job.form, JobForm::ErlangTerms);
    serde_json::from_str(&store().answer(job, PLAIN).unwrap()).unwrap()
}

#[test]
fn every_form_of_inputs_is_read() {
    let typed = || tuple([binary("t"), binary("b")]);
    let key = |number: u8| tuple([binary("b"), binary(&format!("k{number}"))]);
    let typed_key = tuple([tuple([typed(), binary("k3")]), atom("undefined")]);
    let filters = list([
        list([binary("tokenize"), binary("k"), Term::Integer(1)]),
        list([binary("string_to_int")]),
        list([binary("less_than"), Term::Integer(3)]),
    ]);
    let (from, to) = (Term::Integer(2), Term::Integer(4));
    for (inputs, expected) in [
        (binary("b"), 10),
        (typed(), 10),
        (
            list([key(1), tuple([key(2), binary("data")]), typed_key]),
            3,
        ),
        (list([]), 0),
        (tuple([binary("b"), filters.clone()]), 3),
        (tuple([typed(), filters]), 3),
        (
            tuple([
                atom("index"),
                binary("b"),
                binary("n_int"),
                Term::Integer(7),
            ]),
            1,
        ),
        (
            tuple([atom("index"), typed(), binary("n_int"), from, to]),
            3,
        ),
        (
            tuple([
                atom("index"),
                binary("b"),
                binary("$key"),
                binary("k8"),
                binary("z"),
            ]),
            2,
        ),
    ] {
        let query = list([call("reduce", "reduce_count_inputs", atom("none"))]);
        assert_eq!(
            results(inputs.clone(), query),
            json!([expected]),
            "{inputs:?}"
        );
    }
}

#[test]
fn phases_give_what_they_give_in_json() {
    let start = || list([tuple([binary("b"), binary("k0")])]);
    let any = || atom("_");
    let links = tuple([atom("link"), binary("b"), any(), atom("false")]);
    let values = call("map", "map_object_value", atom("none"));
    assert_eq!(results(start(), list([links, values])), json!(["1"]));
    let none = tuple([atom("link"), any(), binary("other"), atom("true")]);
    assert_eq!(results(start(), list([none])), json!([]));
    let filtered = binary("filter_notfound");
    let missing = list([tuple([binary("b"), binary("none")])]);
    let values = call("map", "map_object_value", filtered);
    assert_eq!(results(missing, list([values])), json!([]));
    let batches = list([tuple([atom("reduce_phase_batch_size"), Term::Integer(1)])]);
    for argument in [batches, list([atom("reduce_phase_only_1")])] {
        let sorted = call("reduce", "reduce_set_union", argument);
        let values = call("map", "map_object_value", atom("none"));
        let found = results(binary("b"), list([values, sorted]));
        assert_eq!(found[1].as_array().unwrap().len(), 10);
    }
}

#[test]
fn what_riak_refuses_is_refused_with_its_text() {
    let count = || list([call("reduce", "reduce_count_inputs", atom("none"))]);
    let text = |refused: Result<Job, Refusal>| refused.unwrap_err().protocol_buffers();
    let without_inputs = list([tuple([atom("query"), list([])])]).encode();
    assert_eq!(
        text(Job::from_terms(&without_inputs)),
        "{inputs,{\"Inputs must be a binary bucket, a tuple of bucket and key-filters, a list of target tuples, or a search, index, or modfun tuple:\",\n         undefined}}"
    );
    assert_eq!(text(Job::from_terms(&Bytes::from_static(b"\0"))), "badarg");
    let unknown = call("map", "nothing_here", atom("none"));
    assert_eq!(
        text(job(binary("b"), list([unknown]))),
        "Phase 0: PhaseSpec specifies riak_kv_mapreduce:nothing_here/3, which is not exported"
    );
    let index = tuple([atom("index"), binary("b"), binary("n_int"), binary("x")]);
    assert!(text(job(index, count())).contains("field_parsing_failed"));
    let search = tuple([atom("search"), binary("b"), binary("x:y")]);
    assert!(matches!(
        job(search, count()),
        Err(Refusal::InputsUnavailable)
    ));
    let javascript = tuple([atom("jsfun"), binary("Riak.mapValues")]);
    let javascript = tuple([atom("map"), javascript, atom("none"), atom("true")]);
    let refused = text(job(binary("b"), list([javascript])));
    assert!(
        refused.starts_with("Phase 0: The PhaseSpec part"),
        "{refused}"
    );
    let source = tuple([atom("strfun"), binary("fun(_,_,_) -> [1] end.")]);
    let source = tuple([atom("map"), source, atom("none"), atom("true")]);
    let failed = store().answer(job(binary("b"), list([source])).unwrap(), PLAIN);
    assert!(failed.unwrap_err().json().contains("worker_startup_failed"));
}

#[test]
fn texts_in_the_old_form_do_not_grow_without_a_bound() {
    // Each character is a byte in the job, and a term after it is read.
    let text = Term::Text(Bytes::from(vec![b'x'; 65_535]));
    let data = |count: usize| {
        let place = tuple([binary("b"), binary("k")]);
        let texts = Term::List(vec![text.clone(); count], None);
        list([tuple([place, texts])])
    };
    let read = job(data(2), list([])).unwrap();
    assert!(matches!(read.inputs, Inputs::Keys(keys) if keys.len() == 1));
    assert!(matches!(job(data(40), list([])), Err(Refusal::NoTerm)));
}

/// Behind the format byte: the tag, the stated length, and the compressed rest.
fn compressed(term: &Bytes, named_bytes: usize) -> Bytes {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&term[1..]).unwrap();
    let named = u32::try_from(named_bytes).unwrap().to_be_bytes();
    [&[131, 80], &named[..], &encoder.finish().unwrap()]
        .concat()
        .into()
}

fn job_with_data(data: Term) -> Bytes {
    let key = tuple([tuple([binary("b"), binary("k1")]), data]);
    let query = list([call("map", "map_object_value", atom("none"))]);
    let members = [("inputs", list([key])), ("query", query)];
    list(members.map(|(name, value)| tuple([atom(name), value]))).encode()
}

/// Regression: `term_to_binary(Job, [compressed])` was refused.
#[test]
fn a_compressed_job_is_the_same_job() {
    let plain = job_with_data(binary("data"));
    let compressed = compressed(&plain, plain.len() - 1);
    let answer = |text: &Bytes| {
        let job = Job::read(JobForm::ErlangTerms, text).unwrap();
        store().answer(job, PLAIN).unwrap()
    };
    assert_eq!(answer(&plain), r#"["1"]"#);
    assert_eq!(answer(&compressed), answer(&plain));
    let bytes = Job::read_bytes(JobForm::ErlangTerms, &compressed);
    assert_eq!(bytes, compressed.len().max(plain.len() - 1));
    let cut = compressed.slice(..compressed.len() - 5);
    assert!(matches!(Job::from_terms(&cut), Err(Refusal::NoTerm)));
}

#[test]
fn a_compressed_job_inflates_to_what_it_names_and_no_further() {
    let plain = job_with_data(Term::Binary(Bytes::from(vec![0; 32 << 20])));
    let length = plain.len() - 1;
    let honest = compressed(&plain, length);
    assert!(honest.len() < 1 << 20);
    let bytes = Job::read_bytes(JobForm::ErlangTerms, &honest);
    assert_eq!(bytes, length);
    for named in [0, 10, length - 1, length + 1] {
        let lying = compressed(&plain, named);
        assert!(Job::read_bytes(JobForm::ErlangTerms, &lying) <= named.max(lying.len()));
        assert!(matches!(Job::from_terms(&lying), Err(Refusal::NoTerm)));
    }
    assert_eq!(Job::read_bytes(JobForm::Json, &honest), honest.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn damaged_jobs_are_refused_or_end(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let inputs = tuple([atom("index"), binary("b"), binary("n_int"), Term::Integer(1), Term::Integer(8)]);
        let query = list([
            call("map", "map_object_value", binary("filter_notfound")),
            call("reduce", "reduce_sort", atom("none")),
        ]);
        let members = [("inputs", inputs), ("query", query)];
        let members = members.map(|(name, value)| tuple([atom(name), value]));
        let mut bytes = list(members).encode().to_vec();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        let cut = cut.index(bytes.len() * 4);
        bytes.truncate(cut.max(1));
        if let Ok(job) = Job::from_terms(&bytes.into()) {
            // Its answer or its failure; neither panics.
            let ended = store().answer(job, PLAIN);
            prop_assert!(ended.is_ok() || !ended.unwrap_err().json().is_empty());
        }
    }
}
