//! Index entries of the nhs driver's objects: postcodes, dates of birth and times.

use base64::Engine as _;
use bytes::Bytes;
use kvorum_protocol::pb::RpbPair;
use time::{Date, Duration, OffsetDateTime};

use crate::random::WorkerRandom;

const AREAS: [&str; 76] = [
    "AB", "AL", "BA", "BB", "BD", "BH", "BL", "BN", "BR", "BS", "BT", "CA", "CB", "CF", "CH", "CM",
    "CO", "CR", "CT", "CV", "CW", "DA", "DE", "DH", "DL", "DN", "DT", "DY", "EH", "EN", "EX", "FK",
    "FY", "GL", "GU", "HA", "HD", "HG", "HP", "HR", "HU", "HX", "IG", "IP", "KT", "KY", "LA", "LD",
    "LE", "LL", "LN", "LS", "LU", "ME", "MK", "NE", "NG", "NN", "NP", "NR", "OL", "OX", "PE", "PL",
    "PO", "PR", "RG", "RH", "SA", "SE", "SG", "SK", "SN", "SO", "SP", "SR",
];

const DISTRICTS: u64 = 26;

/// Days from 1 January 1970 back to the first date of birth, 5 January 1933.
const FIRST_BIRTH_DAYS: i64 = -13_510;

/// Dates of birth span 2.5e9 seconds.
const BIRTH_SPAN_SECONDS: u64 = 2_500_000_000;

/// `lastmodified_bin` with the present time.
pub(super) fn last_modified() -> RpbPair {
    pair("lastmodified_bin", timestamp(OffsetDateTime::now_utc()))
}

/// The three kinds of entries of a record that is searched by postcode, birth and time.
pub(super) fn record_entries(postcodes_max: u64, random: &mut WorkerRandom) -> Vec<RpbPair> {
    let suffix = suffix(random);
    let mut entries: Vec<RpbPair> = (0..random.uniform(postcodes_max))
        .map(|_| pair("postcode_bin", format!("{}|{suffix}", district(random))))
        .collect();
    let birth = birth(random).to_string().replace('-', "");
    entries.push(pair("dateofbirth_bin", format!("{birth}|{suffix}")));
    entries.push(last_modified());
    entries
}

/// The indexes of a record as the driver `riakc_pb` writes it: dates have dashes.
pub(super) fn record_entries_with_dashes(random: &mut WorkerRandom) -> Vec<RpbPair> {
    let suffix = suffix(random);
    let birth = birth(random);
    vec![
        pair("postcode_bin", format!("{}|{suffix}", district(random))),
        pair("postcode_bin", format!("{}|{suffix}", district(random))),
        pair("dateofbirth_bin", format!("{birth}|{suffix}")),
        last_modified(),
    ]
}

/// A date as the driver `riakc_pb` writes it.
pub(super) fn birth_date(year: u64, month: u64, day: u64) -> String {
    format!("{year:04}-{month:02}-{day:02}")
}

/// A postcode's district.
pub(super) fn district(random: &mut WorkerRandom) -> String {
    let index = usize::try_from(random.uniform(AREAS.len() as u64) - 1).unwrap_or(0);
    let area = AREAS.get(index).copied().unwrap_or("AB");
    format!("{area}{}", random.uniform(DISTRICTS))
}

fn birth(random: &mut WorkerRandom) -> Date {
    let days = i64::try_from(random.uniform(BIRTH_SPAN_SECONDS) / 86_400).unwrap_or(0);
    birth_after(days)
}

/// The date this many days after the first date of birth.
fn birth_after(days: i64) -> Date {
    let epoch = OffsetDateTime::UNIX_EPOCH.date();
    epoch.saturating_add(Duration::days(FIRST_BIRTH_DAYS + days))
}

fn suffix(random: &mut WorkerRandom) -> String {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn pair(name: &'static str, value: String) -> RpbPair {
    RpbPair {
        key: Bytes::from_static(name.as_bytes()),
        value: Some(Bytes::from(value)),
    }
}

/// `YYYY-MM-DDThh:mm:ss` in UTC.
fn timestamp(at: OffsetDateTime) -> String {
    let (hour, minute, second) = at.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}", at.date())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn times_are_written_in_utc() {
        let timestamp = |seconds| timestamp(OffsetDateTime::from_unix_timestamp(seconds).unwrap());
        assert_eq!(timestamp(0), "1970-01-01T00:00:00");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00");
        assert_eq!(timestamp(1_709_251_199), "2024-02-29T23:59:59");
        assert_eq!(timestamp(1_735_689_600), "2025-01-01T00:00:00");
    }

    #[test]
    fn births_lie_in_the_published_span() {
        assert_eq!(birth_after(0).to_string(), "1933-01-05");
        let last_days = i64::try_from(BIRTH_SPAN_SECONDS / 86_400).unwrap();
        assert_eq!(birth_after(last_days).to_string(), "2012-03-26");
    }

    #[test]
    fn records_have_postcodes_a_birth_and_a_time() {
        let mut random = WorkerRandom::new(Seed([1, 2, 3]));
        let mut most = 0;
        for _ in 0..200 {
            let entries = record_entries(3, &mut random);
            let postcodes = entries
                .iter()
                .filter(|entry| entry.key == "postcode_bin")
                .count();
            assert!((1..=3).contains(&postcodes));
            assert_eq!(entries.len(), postcodes + 2);
            most = most.max(postcodes);
        }
        assert_eq!(most, 3);
    }
}
