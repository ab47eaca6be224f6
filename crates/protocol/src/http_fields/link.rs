//! The `Link` header: links between objects, in both generations of URLs.
//!
//! ```text
//! </riak/B/K>; riaktag="T"            first generation; `riak` is a setting
//! </buckets/B/keys/K>; riaktag="T"    second generation, for typed buckets as well
//! </riak/B>; rel="up"                 the object's own bucket: written, ignored when read
//! </buckets/B>; rel="up"
//! ```
//!
//! A request at a URL of either generation may have links of both: a client that moves to the new
//! URLs can still store its old links. Pieces are percent- and plus-encoded.

use bytes::Bytes;

use super::percent::{decode_percent_and_plus, push_percent_plus};

/// A link to an object of the same cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bucket of the target.
    pub bucket: Bytes,
    /// Key of the target.
    pub key: Bytes,
    /// The meaning of the link to the application.
    pub tag: Bytes,
}

/// The form of URLs: that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlGeneration<'a> {
    /// `/riak/B/K`; the prefix is a setting.
    First {
        /// First path segment, without slashes.
        prefix: &'a str,
    },
    /// `/buckets/B/keys/K`, also in answers to typed URLs.
    Second,
}

/// A `Link` header with anything but links; the request is answered with 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{element:?} is not a link")]
pub struct LinkError {
    /// The element that cannot be read; lossy if it was not text.
    pub element: String,
}

impl LinkError {
    /// The text of the 400 answer, with the form that the request's URLs suggest.
    pub fn response_text(&self, generation: UrlGeneration<'_>) -> String {
        let form = match generation {
            UrlGeneration::First { prefix } => format!("/{prefix}/BUCKET/KEY"),
            UrlGeneration::Second => "/buckets/BUCKET/keys/KEY".to_owned(),
        };
        format!("Invalid Link header. Links must be of the form\n<{form}>; riaktag=\"TAG\"\n")
    }
}

/// Reads a header and appends its links to `links`; `rel="up"` elements are skipped.
///
/// # Errors
/// [`LinkError`] with the first element that is not a link.
pub fn parse_links(header: &[u8], links: &mut Vec<Link>) -> Result<(), LinkError> {
    for element in split_elements(header) {
        match parse_element(element) {
            Some(Element::Link(link)) => links.push(link),
            Some(Element::Up) => {}
            None => {
                let element = String::from_utf8_lossy(element).into_owned();
                return Err(LinkError { element });
            }
        }
    }
    Ok(())
}

/// Writes the header of an object in `bucket`: the bucket itself first, then the links.
pub fn format_links<'a>(
    generation: UrlGeneration<'_>,
    bucket: &[u8],
    links: impl IntoIterator<Item = &'a Link>,
) -> String {
    let mut header = String::new();
    push_url(generation, bucket, None, &mut header);
    header.push_str("; rel=\"up\"");
    for link in links {
        header.push_str(", ");
        push_url(generation, &link.bucket, Some(&link.key), &mut header);
        header.push_str("; riaktag=\"");
        push_percent_plus(&link.tag, &mut header);
        header.push('"');
    }
    header
}

fn push_url(generation: UrlGeneration<'_>, bucket: &[u8], key: Option<&[u8]>, header: &mut String) {
    let (bucket_prefix, key_prefix) = match generation {
        UrlGeneration::First { prefix } => (prefix, "/"),
        UrlGeneration::Second => ("buckets", "/keys/"),
    };
    header.extend(["</", bucket_prefix, "/"]);
    push_percent_plus(bucket, header);
    if let Some(key) = key {
        header.push_str(key_prefix);
        push_percent_plus(key, header);
    }
    header.push('>');
}

enum Element {
    Link(Link),
    Up,
}

/// Splits at commas outside of quotes and angle brackets; empty elements are dropped.
fn split_elements(header: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut in_quotes, mut in_brackets) = (false, false);
    let elements = header.split(move |&byte| {
        match byte {
            b'"' if !in_brackets => in_quotes = !in_quotes,
            b'<' if !in_quotes => in_brackets = true,
            b'>' if !in_quotes => in_brackets = false,
            _ => {}
        }
        byte == b',' && !in_quotes && !in_brackets
    });
    elements
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// `<url>; name="value"`, or `None`.
fn parse_element(element: &[u8]) -> Option<Element> {
    let element = element.strip_prefix(b"</")?;
    let close = element.iter().position(|&byte| byte == b'>')?;
    let parameter = element[close + 1..]
        .trim_ascii_start()
        .strip_prefix(b";")?
        .trim_ascii();
    let equals = parameter.iter().position(|&byte| byte == b'=')?;
    let name = parameter[..equals].trim_ascii_end();
    let value = parameter[equals + 1..].trim_ascii_start();
    let value = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if value.contains(&b'"') {
        return None; // a second parameter
    }
    let mut segments = element[..close].split(|&byte| byte == b'/');
    let path = [
        segments.next(),
        segments.next(),
        segments.next(),
        segments.next(),
    ];
    if segments.next().is_some() || path.contains(&Some(&b""[..])) {
        return None;
    }
    let (bucket, key) = match path {
        [Some(_), Some(_), None, _] if name == b"rel" && value == b"up" => {
            return Some(Element::Up);
        }
        [Some(_), Some(bucket), Some(key), None] => (bucket, key),
        [Some(b"buckets"), Some(bucket), Some(b"keys"), Some(key)] => (bucket, key),
        _ => return None,
    };
    if name != b"riaktag" || value.is_empty() {
        return None;
    }
    Some(Element::Link(Link {
        bucket: decode(bucket),
        key: decode(key),
        tag: decode(value),
    }))
}

fn decode(piece: &[u8]) -> Bytes {
    Bytes::from(decode_percent_and_plus(piece).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(bucket: &'static str, key: &'static str, tag: &'static str) -> Link {
        Link {
            bucket: bucket.into(),
            key: key.into(),
            tag: tag.into(),
        }
    }

    fn parse(header: &str) -> Result<Vec<Link>, LinkError> {
        let mut links = Vec::new();
        parse_links(header.as_bytes(), &mut links).map(|()| links)
    }

    #[test]
    fn both_generations_and_the_parent_are_read() {
        let links = parse(
            "</riak/b>; rel=\"up\", </riak/b/k%2F1>; riaktag=\"a, b\",\
             </buckets/b+2/keys/k>;riaktag=\"t\" , </buckets/b>; rel=\"up\"",
        );
        assert_eq!(
            links,
            Ok(vec![link("b", "k/1", "a, b"), link("b 2", "k", "t")])
        );
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse(" , "), Ok(vec![]));
    }

    #[test]
    fn anything_else_is_refused_with_the_expected_form() {
        for bad in [
            "riak/b/k; riaktag=\"t\"",
            "<http://example.org/>; rel=\"next\"",
            "</riak/b/k>",
            "</riak/b/k>; rel=\"up\"",
            "</riak/b/k>; riaktag=t",
            "</riak/b/k>; riaktag=\"\"",
            "</riak/b/k>; riaktag=\"t\"; rel=\"x\"",
            "</riak//k>; riaktag=\"t\"",
            "</types/t/buckets/b/keys/k>; riaktag=\"t\"",
            "</buckets/b/things/k>; riaktag=\"t\"",
            "</riak/b>; rel=\"down\"",
            "</riak/b/k",
        ] {
            let error = parse(bad).expect_err(bad);
            let text = error.response_text(UrlGeneration::First { prefix: "riak" });
            assert!(text.starts_with("Invalid Link header."));
            assert!(text.contains("</riak/BUCKET/KEY>"));
        }
        let text = LinkError {
            element: String::new(),
        }
        .response_text(UrlGeneration::Second);
        assert!(text.contains("</buckets/BUCKET/keys/KEY>; riaktag=\"TAG\""));
    }

    #[test]
    fn what_is_written_reads_back() {
        let links = [link("b", "k", "t"), link("a b", "\u{e4}/,\"", "<>")];
        for generation in [
            UrlGeneration::First { prefix: "raw" },
            UrlGeneration::Second,
        ] {
            let header = format_links(generation, b"home page", &links);
            assert_eq!(parse(&header), Ok(links.to_vec()), "{header}");
        }
        assert_eq!(
            format_links(UrlGeneration::Second, b"home page", &links[..1]),
            "</buckets/home+page>; rel=\"up\", </buckets/b/keys/k>; riaktag=\"t\""
        );
        assert_eq!(
            format_links(UrlGeneration::First { prefix: "riak" }, b"b", &links[..1]),
            "</riak/b>; rel=\"up\", </riak/b/k>; riaktag=\"t\""
        );
    }
}
