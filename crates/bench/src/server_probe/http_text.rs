//! Fetches a small text over HTTP. Requests may block a thread, since there is at most one a
//! second.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// The time after which a server without an answer is left out of the sample.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers longer than this are cut.
const BYTES_MAX: u64 = 16 << 20;

/// The body of a successful answer.
pub(super) fn get(address: &str, path: &str) -> io::Result<String> {
    let resolved = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::other(format!("{address} has no address")))?;
    let mut stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the body comes unchunked and ends with the connection.
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut answer)?;
    body(&String::from_utf8_lossy(&answer))
}

fn body(answer: &str) -> io::Result<String> {
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("the answer has no end of its headers"))?;
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(io::Error::other(format!("the answer has status {status}")));
    }
    let chunked = head
        .lines()
        .any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    if chunked {
        return Err(io::Error::other("the answer is chunked, against HTTP/1.0"));
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_successes_have_a_body() {
        let ok = "HTTP/1.1 200 OK\r\nA: b\r\n\r\nx 1\ny 2\n";
        assert_eq!(body(ok).unwrap(), "x 1\ny 2\n");
        for bad in [
            "",
            "HTTP/1.1 503 No\r\n\r\nx",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        ] {
            assert!(body(bad).is_err(), "{bad:?}");
        }
    }
}
