//! Refusal of requests by their origin: another site may make a browser send them.

use http::StatusCode;
use http::header::{HOST, HeaderValue, ORIGIN, REFERER};

use crate::exchange::Exchange;
use crate::reply::{Refusal, page};

/// The scheme of this server.
const SCHEME: &[u8] = b"http";
const DEFAULT_PORT: &[u8] = b"80";

/// Refuses requests of an opaque origin, and (unless switched off) those referred by another site.
pub(crate) fn check(exchange: &Exchange<'_>) -> Result<(), Refusal> {
    let headers = &exchange.head.headers;
    let is_opaque = headers
        .get(ORIGIN)
        .is_some_and(|origin| origin.as_bytes() == b"null");
    let is_foreign = exchange.service.settings.secure_referer_check
        && headers.get(REFERER).is_some_and(|referer| {
            let host = headers
                .get(HOST)
                .map(HeaderValue::as_bytes)
                .unwrap_or_default();
            !is_same_site(referer.as_bytes(), host)
        });
    if is_opaque || is_foreign {
        Err(page(StatusCode::FORBIDDEN).into())
    } else {
        Ok(())
    }
}

/// True if a referer names this server: same scheme, host and port.
fn is_same_site(referer: &[u8], host: &[u8]) -> bool {
    let Some(colon) = referer.iter().position(|&byte| byte == b':') else {
        return false;
    };
    let (scheme, rest) = referer.split_at(colon);
    let Some(rest) = rest.strip_prefix(b"://") else {
        return false;
    };
    let end = rest
        .iter()
        .position(|byte| b"/?#".contains(byte))
        .unwrap_or(rest.len());
    let authority = &rest[..end];
    let from = authority
        .iter()
        .rposition(|&byte| byte == b'@')
        .map_or(0, |at| at + 1);
    let (their_host, their_port) = host_and_port(&authority[from..]);
    let (our_host, our_port) = host_and_port(host);
    scheme.eq_ignore_ascii_case(SCHEME)
        && !our_host.is_empty()
        && their_host.eq_ignore_ascii_case(our_host)
        && their_port == our_port
}

fn host_and_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let colon = authority.iter().rposition(|&byte| byte == b':');
    // A colon within brackets belongs to an IPv6 address.
    let colon = colon.filter(|at| !authority[*at..].contains(&b']'));
    match colon {
        Some(at) => (&authority[..at], &authority[at + 1..]),
        None => (authority, DEFAULT_PORT),
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_site;

    #[test]
    fn scheme_host_and_port_of_a_referer_all_count() {
        let cases: [(&str, &str, bool); 12] = [
            ("http://localhost:8098/admin", "localhost:8098", true),
            ("HTTP://LocalHost:8098", "localhost:8098", true),
            ("http://localhost:8098?q", "localhost:8098", true),
            ("http://user@localhost:8098/", "localhost:8098", true),
            ("http://localhost/", "localhost", true),
            ("http://localhost:80/", "localhost", true),
            ("http://[::1]:8098/x", "[::1]:8098", true),
            ("https://localhost:8098/", "localhost:8098", false),
            ("http://localhost:8099/", "localhost:8098", false),
            ("http://elsewhere:8098/", "localhost:8098", false),
            ("localhost:8098", "localhost:8098", false),
            ("http://localhost:8098/", "", false),
        ];
        for (referer, host, expected) in cases {
            assert_eq!(
                is_same_site(referer.as_bytes(), host.as_bytes()),
                expected,
                "{referer} {host}"
            );
        }
    }
}
