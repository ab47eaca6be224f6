//! HTTP dates, in whole seconds since the Unix epoch.
//!
//! Numbers instead of `SystemTime`, so that callers need no clock type to compare them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999, beyond which the format has no room.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Formats seconds since the epoch as `Sun, 06 Nov 1994 08:49:37 GMT`; later than 9999 is 9999.
pub fn format_http_date(epoch_seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(epoch_seconds.min(SECONDS_MAX)))
}

/// Reads a date in any of the three forms HTTP allows; `None` if it is none of them or lies
/// before 1970. Conditional headers that cannot be read are ignored.
pub fn parse_http_date(header: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(header).ok()?.trim();
    let date: SystemTime = httpdate::parse_http_date(text).ok()?;
    date.duration_since(UNIX_EPOCH)
        .ok()
        .map(|since_epoch| since_epoch.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_one_moment() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(
                parse_http_date(form.as_bytes()),
                Some(784_111_777),
                "{form}"
            );
        }
        assert_eq!(
            format_http_date(784_111_777),
            "Sun, 06 Nov 1994 08:49:37 GMT"
        );
        assert_eq!(format_http_date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse_http_date(b"yesterday"), None);
    }
}
