//! `Content-Type` of a stored object: media type and charset, kept apart as Riak keeps them.

/// The two parts of a content type that are stored with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType<'a> {
    /// Everything before the first `;`, as `type/subtype`.
    pub media_type: &'a [u8],
    /// The `charset` parameter, without quotes.
    pub charset: Option<&'a [u8]>,
}

/// A content type that is not `type/subtype`; the request is answered with 415.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{media_type:?} is not a media type")]
pub struct ContentTypeError {
    /// The text that was given; lossy if it was no text.
    pub media_type: String,
}

impl ContentTypeError {
    /// The text of the 415 answer.
    pub fn response_text(&self) -> String {
        format!(
            "\"{}\" is not a valid media type for the Content-type header.\n",
            self.media_type
        )
    }
}

impl<'a> ContentType<'a> {
    /// Reads a header. Parameters other than `charset` are dropped.
    ///
    /// # Errors
    /// [`ContentTypeError`] unless the media type has exactly two parts.
    pub fn parse(header: &'a [u8]) -> Result<ContentType<'a>, ContentTypeError> {
        let mut pieces = header.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let media_type = pieces.next().unwrap_or_default();
        let mut parts = media_type.split(|&byte| byte == b'/');
        let two_parts = (parts.next(), parts.next(), parts.next());
        if !matches!(two_parts, (Some([_, ..]), Some([_, ..]), None)) {
            let media_type = String::from_utf8_lossy(media_type).into_owned();
            return Err(ContentTypeError { media_type });
        }
        let charset = pieces.find_map(charset_of);
        Ok(ContentType {
            media_type,
            charset,
        })
    }
}

fn charset_of(parameter: &[u8]) -> Option<&[u8]> {
    let equals = parameter.iter().position(|&byte| byte == b'=')?;
    if !parameter[..equals]
        .trim_ascii()
        .eq_ignore_ascii_case(b"charset")
    {
        return None;
    }
    let value = parameter[equals + 1..].trim_ascii();
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_and_charset_are_kept_apart() {
        let json = ContentType::parse(b"application/json; v=1; Charset=\"UTF-8\"").unwrap();
        assert_eq!(json.media_type, b"application/json");
        assert_eq!(json.charset, Some(&b"UTF-8"[..]));
        let plain = ContentType::parse(b" text/plain ;").unwrap();
        assert_eq!(
            plain,
            ContentType {
                media_type: b"text/plain",
                charset: None
            }
        );
    }

    #[test]
    fn anything_but_two_parts_is_refused_by_name() {
        for bad in [
            &b"text"[..],
            b"",
            b"a/b/c",
            b"/x",
            b"x/",
            b"; charset=utf-8",
        ] {
            assert!(ContentType::parse(bad).is_err(), "{bad:?}");
        }
        let text = ContentType::parse(b"text;x").unwrap_err().response_text();
        assert!(text.starts_with("\"text\" is not a valid media type"));
    }
}
