//! Requests that are not HTTP, or barely: the server answers or hangs up, and serves the next one.

use proptest::prelude::*;

use crate::world::{World, run};

/// Sends bytes, ends the output, and returns the statuses of all answers.
///
/// The request of each answer is unknown here, and with it the presence of a body: a `HEAD` among the
/// bytes has an answer with a length and no body. So the statuses are searched for in all received
/// bytes.
async fn abuse(world: &World, bytes: &[u8]) -> Vec<u16> {
    let mut client = world.client().await;
    client.send(bytes).await;
    client.end_output().await;
    statuses_in(&client.receive_all().await)
}

pub(crate) fn statuses_in(received: &[u8]) -> Vec<u16> {
    let lines = received
        .windows(b"HTTP/1.x 200".len())
        .filter(|window| window.starts_with(b"HTTP/1.") && window[8] == b' ');
    lines
        .filter_map(|line| std::str::from_utf8(&line[9..]).ok()?.parse().ok())
        .collect()
}

pub(crate) async fn assert_serving(world: &World) {
    assert_eq!(world.client().await.get("/ping").await.text(), "OK");
}

#[test]
fn malformed_requests_are_refused() {
    run(|world| async move {
        let many: String = (0..600)
            .map(|number| format!("x-{number}: y\r\n"))
            .collect();
        let cases: [(String, Option<u16>); 10] = [
            ("nonsense\r\n\r\n".into(), Some(400)),
            ("GET\r\n\r\n".into(), Some(400)),
            ("GET / HTTP/9.9\r\n\r\n".into(), Some(400)),
            ("GET /ping HTTP/1.1\r\nno colon\r\n\r\n".into(), Some(400)),
            (
                "GET /ping HTTP/1.1\r\nContent-Length: -1\r\n\r\n".into(),
                Some(400),
            ),
            (
                "GET /ping HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
                Some(400),
            ),
            (format!("GET /ping HTTP/1.1\r\n{many}\r\n"), Some(431)),
            (
                format!("GET /ping HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(300_000)),
                Some(431),
            ),
            (
                format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(70_000)),
                Some(414),
            ),
            ("\r\n\r\n".into(), None),
        ];
        for (request, status) in cases {
            let mut client = world.client().await;
            client.send(request.as_bytes()).await;
            if status.is_none() {
                client.end_output().await;
            }
            let got = client.receive(false).await.map(|response| response.status);
            assert_eq!(got, status, "{request:.60}");
        }
        let broken = "PUT /riak/b/k HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\n\
                      Transfer-Encoding: chunked\r\n\r\nzz\r\n";
        let mut client = world.client().await;
        client.send(broken.as_bytes()).await;
        assert_eq!(client.receive(false).await.unwrap().status, 400);
        assert_serving(&world).await;
    });
}

#[test]
fn a_head_before_rubbish_is_answered_and_the_rubbish_refused() {
    run(|world| async move {
        let head = "HEAD /riak/b/k HTTP/1.1\r\nHost: x\r\n\r\n";
        let statuses = abuse(&world, format!("{head}{head}nonsense\r\n\r\n").as_bytes()).await;
        assert_eq!(statuses, [404, 404, 400]);
        assert_serving(&world).await;
    });
}

#[test]
fn requests_cut_anywhere_do_no_harm() {
    run(|world| async move {
        let request = "PUT /riak/b/k?returnbody=true HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\n\
                       X-Riak-Index-f_int: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for end in 0..request.len() {
            abuse(&world, &request.as_bytes()[..end]).await;
        }
        assert_serving(&world).await;
    });
}

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "GET ",
        "PUT ",
        "POST ",
        "DELETE ",
        "HEAD ",
        "/riak/b/k",
        "/buckets/b/keys/k",
        "/types/typed/buckets/b/keys",
        "/buckets/b/props",
        "?keys=stream",
        "?r=1",
        "&vtag=",
        "%",
        "%zz",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "Host: x\r\n",
        "Content-Type: ",
        "application/json",
        "text/plain; charset=",
        "Content-Length: ",
        "5",
        "\r\n",
        "\r\n\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Link: ",
        "</riak/b/k>; riaktag=\"",
        "X-Riak-Vclock: ",
        "If-None-Match: ",
        "*",
        "\"",
        "If-Modified-Since: ",
        "Accept: ",
        "q=0.5",
        ",",
        ";",
        "X-Riak-Index-f_bin: ",
        "X-Riak-Meta-x: ",
        "{\"props\":{\"n_val\":",
        "}}",
        "Expect: 100-continue\r\n",
        "Range: bytes=0-1\r\n",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_requests_never_take_the_server_down(
        requests in prop::collection::vec(prop::collection::vec(fragment(), 1..20), 1..60),
    ) {
        run(|world| async move {
            for request in &requests {
                let statuses = abuse(&world, &request.concat()).await;
                assert!(!statuses.contains(&500), "{:?}", request.concat().escape_ascii().to_string());
            }
            assert_serving(&world).await;
        });
    }

    #[test]
    fn random_bytes_in_a_request_never_take_the_server_down(
        path in "[ -~]{0,60}", name in "[!-9;-~]{0,20}", value in prop::collection::vec(any::<u8>(), 0..60),
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        run(|world| async move {
            for method in ["GET", "PUT", "POST", "DELETE", "HEAD"] {
                for prefix in ["/riak/b/k", "/buckets/b/keys/k?", "/buckets/b/props?", "/buckets/b/keys?keys=true&", "/"] {
                    let head = format!(
                        "{method} {prefix}{path} HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Length: {}\r\n{name}: ",
                        body.len()
                    );
                    let request = [head.as_bytes(), &value, b"\r\n\r\n", &body].concat();
                    let statuses = abuse(&world, &request).await;
                    assert!(!statuses.contains(&500), "{}", request.escape_ascii());
                }
            }
            assert_serving(&world).await;
        });
    }
}
