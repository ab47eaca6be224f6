//! Times as RFC 3339 writes them, to the second.

/// Seconds since 1970 of a time such as `2026-11-28T07:00:00Z` or `2026-11-28T08:00:00.5+01:00`. Fractions
/// are cut off; `None` for anything else, and for times before 1970.
pub(super) fn seconds_of(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, offset_seconds) = offset_of(time)?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let [hour, minute, second] = numbers(time, ':')?;
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_before(year, month)? + (day - 1);
    let local = days * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(local - offset_seconds).ok()
}

/// Three numbers without signs.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let number = |part: &str| {
        let is_plain = !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        part.parse().ok().filter(|_| is_plain)
    };
    let all: Option<Vec<i64>> = text.split(between).map(number).collect();
    all?.try_into().ok()
}

/// The text in front of the offset from UTC, and the offset.
fn offset_of(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (time, offset) = time.split_at(at);
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let is_offset = (0..24).contains(&hours) && (0..60).contains(&minutes);
    is_offset.then_some((time, sign * (hours * 3_600 + minutes * 60)))
}

/// Days from 1970 to the first of a month.
fn days_before(year: i64, month: i64) -> Option<i64> {
    const BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    if !(1970..=9999).contains(&year) {
        return None;
    }
    let leaps_before = |year: i64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let in_year = BEFORE_MONTH.get(usize::try_from(month - 1).ok()?)?;
    let leap_day = i64::from(is_leap && month > 2);
    let leaps = leaps_before(year) - leaps_before(1970);
    Some((year - 1970) * 365 + leaps + in_year + leap_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-02T00:00:01z", 86_401),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2026-11-28T07:00:00Z", 1_795_849_200),
            ("2026-11-28T08:00:00.25+01:00", 1_795_849_200),
            ("2026-11-28 01:30:00-05:30", 1_795_849_200),
        ];
        for (text, seconds) in cases {
            assert_eq!(seconds_of(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "all",
            "2026-11-28",
            "2026-11-28T07:00:00",
            "2026-13-28T07:00:00Z",
            "2026-11-28T25:00:00Z",
            "2026-11-28T+7:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2026-11-28T07:00:00+1",
        ] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }
}
