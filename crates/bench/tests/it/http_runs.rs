//! Runs over HTTP.

use super::fake_http::FakeHttp;
use super::fake_server::{FakeServer, Fault};
use super::runs::{Run, published, succeeded};

#[test]
fn the_test_of_2010_misses_with_every_get_and_keeps_its_connections() {
    let server = FakeHttp::start();
    let run = Run::new();
    let port = format!("http_raw_port={}", server.port);
    let options = [
        "--duration",
        "1",
        "--verify",
        "--set",
        &port,
        "--set",
        "concurrent=5",
    ];
    assert!(succeeded(
        run.start(&[&published("ec2-2010.config")], &options)
    ));
    let record = run.record();
    let (get, update) = (record.totals["get"], record.totals["update"]);
    assert!(get.count > 0 && update.count > 0);
    assert_eq!((get.misses, get.errors, update.errors), (get.count, 0, 0));
    let store = server.store.lock().unwrap();
    assert_eq!(store.connections, 5);
    assert_eq!(store.puts_with_vclock, 0);
    for (path, value) in &store.values {
        assert!(path.starts_with("/riak/test/"), "{path}");
        assert_eq!((path.len(), value.len()), (11 + 67, 1000), "{path}");
    }
}

#[test]
fn updates_carry_the_clock_and_connections_are_given_up_when_asked() {
    let server = FakeHttp::start();
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 2}}. {{http_raw_port, {}}}.
         {{driver, basho_bench_driver_http_raw}}. {{http_raw_path, \"/buckets/b/keys\"}}.
         {{http_raw_params, \"?w=1\"}}. {{http_raw_append_headers, [{{'X-Mine', \"1\"}}]}}.
         {{http_raw_disconnect_frequency, {{ops, 10}}}}.
         {{key_generator, {{concat_binary, <<\"a/\">>, {{str_to_bin, {{int_to_str,
            {{valgen, {{uniform_int, 5}}}}}}}}}}}}. {{value_generator, {{fixed_bin, 100, 1}}}}.
         {{operations, [{{update, 4}}, {{get, 4}}, {{put, 1}}, {{delete, 1}}, {{insert, 1}}]}}.",
        server.port
    );
    let ended = run.configured(&text, &["--duration", "1", "--verify"]);
    assert!(succeeded(ended), "{}", run.result("errors.csv"));
    assert_eq!(run.result("errors.csv"), "\"error\",\"count\"\n");
    let store = server.store.lock().unwrap();
    assert!(store.puts_with_vclock > 0);
    assert!(store.connections > 4, "{}", store.connections);
    assert!(
        store
            .values
            .keys()
            .all(|path| path.starts_with("/buckets/b/keys/a%2F"))
    );
    assert!(store.values.keys().all(|path| path.ends_with("?w=1")));
    assert!(store.requests["POST"] > 0);
}

#[test]
fn what_the_server_cannot_do_is_counted_with_its_words() {
    let (objects, http) = (FakeServer::start(Fault::None), FakeHttp::start());
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 2}}. {{driver, basho_bench_driver_nhs}}.
         {{pb_port, {}}}. {{http_port, {}}}. {{unique, {{100, key_order}}}}.
         {{value_generator, {{fixed_bin, 50}}}}. {{value_generator_source_size, 1000}}.
         {{alwaysget, {{5, 1, skew_order}}}}. {{record_sync, \"one\"}}. {{node_confirms, 2}}.
         {{operations, [{{put_unique_http, 2}}, {{get_unique_http, 4}}, {{put_unique, 1}},
                        {{postcodequery_http, 1}}, {{dobquery_http, 1}},
                        {{alwaysget_updatewith2i_http, 2}}, {{alwaysget_http, 2}},
                        {{delete_unique_http, 1}}]}}.",
        objects.port, http.port
    );
    assert!(succeeded(run.configured(&text, &["--duration", "1"])));
    let store = http.store.lock().unwrap();
    let props = &store.values["/buckets/domainRecord/props"];
    assert_eq!(
        String::from_utf8_lossy(props),
        "{\"props\":{\"sync_on_write\":\"one\",\"node_confirms\":2}}"
    );
    let is_query = |path: &&String| path.starts_with("/buckets/domainRecord/index/");
    let queries = store.queries.iter().filter(is_query).count();
    assert_eq!(queries, store.queries.len());
    let record = run.record();
    let refused =
        record.totals["postcodequery-http"].errors + record.totals["dobquery-http"].errors;
    assert_eq!(u64::try_from(queries).unwrap(), refused);
    let words: Vec<String> = b"Secondary index".iter().map(u8::to_string).collect();
    let errors = run.result("errors.csv");
    assert!(
        errors.contains(&format!("{{http_error,500,<<{}", words.join(","))),
        "{errors}"
    );
    assert!(record.totals["get-unique-http"].count > 0);
    assert!(record.totals["alwaysget-http"].count > 0);
    assert_eq!(record.totals["alwaysget-http"].errors, 0);
}

#[test]
fn the_driver_2i_gives_every_object_its_key_as_a_number_in_each_index() {
    let (objects, http) = (FakeServer::start(Fault::None), FakeHttp::start());
    let run = Run::new();
    let text = format!(
        "{{mode, max}}. {{concurrent, 2}}. {{driver, basho_bench_driver_2i}}.
         {{pb_port, {}}}. {{http_port, {}}}. {{riakc_pb_bucket, <<\"b\">>}}.
         {{key_generator, {{partitioned_sequential_int, 1000}}}}.
         {{value_generator, {{fixed_bin, 50, 1}}}}. {{enforce_keyrange, true}}.
         {{operations, [{{{{put_pb, 3}}, 5}}, {{get_pb, 2}}, {{{{query_pb, 10}}, 1}},
                        {{{{query_http, 10}}, 1}}]}}.",
        objects.port, http.port
    );
    assert!(succeeded(run.configured(&text, &["--verify"])));
    let store = objects.store.lock().unwrap();
    let ((bucket, key), content) = store.objects.first_key_value().unwrap();
    assert_eq!(bucket, "b");
    let indexes: Vec<_> = content.indexes.iter().map(|pair| &pair.key[..]).collect();
    assert_eq!(indexes, [&b"field1_int"[..], b"field2_int", b"field3_int"]);
    assert!(
        content
            .indexes
            .iter()
            .all(|pair| pair.value.as_ref() == Some(key))
    );
    let queries = &http.store.lock().unwrap().queries;
    assert!(
        queries
            .iter()
            .all(|path| path.starts_with("/buckets/b/index/field1_int/"))
    );
    let record = run.record();
    let refused = record.totals["query-http-10"].errors;
    assert_eq!(u64::try_from(queries.len()).unwrap(), refused);
    assert!(record.totals["query-pb-10"].errors > 0);
    assert_eq!(record.operations_total, 1000);
}
