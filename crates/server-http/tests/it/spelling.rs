//! Names of headers for clients that compare bytes.
//!
//! The PHP client looks for `x-riak-index-` in small letters: with capitals it found no index, and
//! lost all of them when it updated an object.

use crate::world::run;

#[test]
fn names_are_spelt_as_riak_spells_them() {
    run(|world| async move {
        let mut client = world.client().await;
        let headers = [
            ("Content-Type", "text/plain"),
            ("X-Riak-Index-Lucky_Numbers_Int", "42"),
            ("x-riak-index-s_bin", "a, b"),
            ("X-Riak-Meta-Colour", "red"),
        ];
        let path = "/buckets/b/keys/k";
        assert_eq!(client.ask("PUT", path, &headers, b"v").await.status, 204);
        let etag = client.get(path).await.header("etag").unwrap().to_owned();
        for (condition, spelt) in [
            (
                String::new(),
                &[
                    "x-riak-index-lucky_numbers_int: 42",
                    "x-riak-index-s_bin: a, b",
                    "X-Riak-Meta-Colour: red",
                    "X-Riak-Vclock: ",
                    "Last-Modified: ",
                    "ETag: ",
                ][..],
            ),
            (format!("If-None-Match: {etag}\r\n"), &["ETag: "][..]),
        ] {
            let mut client = world.client().await;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: here\r\n{condition}Connection: close\r\n\r\n"
            );
            client.send(request.as_bytes()).await;
            let answer = String::from_utf8(client.receive_all().await).unwrap();
            for line in spelt {
                assert!(
                    answer.contains(&format!("\r\n{line}")),
                    "{line} in {answer}"
                );
            }
        }
    });
}
