//! Queries of secondary indexes by range: by postcode, by date of birth and by number.

use bytes::Bytes;
use kvorum_protocol::pb::{RpbIndexReq, rpb_index_req::IndexQueryType};
use percent_encoding::percent_encode;

use super::http_raw::KEY_ESCAPED;
use super::nhs_records::{birth_date, district};
use super::object_access::bucket_path;
use super::pb_session::Bucket;
use crate::random::WorkerRandom;

/// First letters of the base64 text in a query by postcode; the text ends with `gd`.
const POSTCODE_STARTS: [&str; 8] = ["ba", "ca", "da", "ea", "fa", "ga", "gb", "gc"];

/// A range of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexQuery {
    index: &'static str,
    start: String,
    end: String,
    term_regex: Option<&'static str>,
    return_terms: bool,
}

impl IndexQuery {
    /// Postcodes of a district whose suffix is in a range, as the driver nhs asks.
    pub(super) fn postcode(random: &mut WorkerRandom) -> Self {
        let district = district(random);
        let start = pick(&POSTCODE_STARTS, random);
        Self {
            index: "postcode_bin",
            start: format!("{district}|{start}"),
            end: format!("{district}|gd"),
            term_regex: None,
            return_terms: false,
        }
    }

    /// The query of the driver nhs: people born on the fourth or fifth day of a month whose suffix
    /// has one of four letters at the fourth place.
    pub(super) fn birth(random: &mut WorkerRandom) -> Self {
        let (year, month) = (1950 + random.uniform(70), random.uniform(9));
        Self {
            index: "dateofbirth_bin",
            start: format!("{year}{month:02}04"),
            end: format!("{year}{month:02}05"),
            term_regex: Some("[0-9]{8}...[a-d]"),
            return_terms: false,
        }
    }

    /// Postcodes of a district whose suffix begins with `a`, as the driver `riakc_pb` asks.
    pub(super) fn postcode_with_terms(random: &mut WorkerRandom) -> Self {
        let district = district(random);
        Self {
            index: "postcode_bin",
            start: format!("{district}|a"),
            end: format!("{district}|b"),
            term_regex: None,
            return_terms: true,
        }
    }

    /// People born on a day or on up to three days after it, as the driver `riakc_pb` asks.
    pub(super) fn birth_with_terms(random: &mut WorkerRandom) -> Self {
        let day = random.uniform(25);
        let last = day + random.uniform(4) - 1;
        let (year, month) = (1950 + random.uniform(70), random.uniform(12));
        Self {
            index: "dateofbirth_bin",
            start: birth_date(year, month, day),
            end: birth_date(year, month, last),
            term_regex: None,
            return_terms: true,
        }
    }

    /// Numbers from one to another, as the driver `2i` asks.
    pub(super) fn numbers(first: i64, last: i64) -> Self {
        Self {
            index: "field1_int",
            start: first.to_string(),
            end: last.to_string(),
            term_regex: None,
            return_terms: false,
        }
    }

    /// The query as a request over protocol buffers.
    pub(super) fn request(&self, bucket: &Bucket) -> RpbIndexReq {
        RpbIndexReq {
            bucket: bucket.name.clone(),
            r#type: bucket.bucket_type.clone(),
            index: Bytes::from_static(self.index.as_bytes()),
            qtype: i32::from(IndexQueryType::Range),
            range_min: Some(Bytes::from(self.start.clone())),
            range_max: Some(Bytes::from(self.end.clone())),
            return_terms: self.return_terms.then_some(true),
            term_regex: self.term_regex.map(|it| Bytes::from_static(it.as_bytes())),
            ..RpbIndexReq::default()
        }
    }

    /// The query as a path over HTTP.
    pub(super) fn path(&self, bucket: &Bucket) -> String {
        let escaped = |text: &str| percent_encode(text.as_bytes(), KEY_ESCAPED).to_string();
        let mut path = format!(
            "{}/index/{}/{}/{}",
            bucket_path(bucket),
            self.index,
            escaped(&self.start),
            escaped(&self.end)
        );
        if let Some(regex) = self.term_regex {
            path.push_str("?term_regex=");
            path.push_str(&escaped(regex));
        }
        path
    }
}

fn pick<'list>(list: &[&'list str], random: &mut WorkerRandom) -> &'list str {
    let index = usize::try_from(random.uniform(list.len() as u64) - 1).unwrap_or(0);
    list.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn bucket() -> Bucket {
        Bucket {
            bucket_type: Some(Bytes::from_static(b"t")),
            name: Bytes::from_static(b"a b"),
        }
    }

    #[test]
    fn queries_have_the_published_form_over_both_protocols() {
        let mut random = WorkerRandom::new(Seed([1, 2, 3]));
        for _ in 0..100 {
            let query = IndexQuery::postcode(&mut random);
            assert!(query.start < query.end, "{query:?}");
            let path = query.path(&bucket());
            assert!(
                path.starts_with("/types/t/buckets/a%20b/index/postcode_bin/"),
                "{path}"
            );
            assert!(path.ends_with("%7Cgd"), "{path}");
            let query = IndexQuery::birth(&mut random);
            let path = query.path(&bucket());
            assert!(
                path.ends_with("05?term_regex=%5B0-9%5D%7B8%7D...%5Ba-d%5D"),
                "{path}"
            );
            let request = IndexQuery::birth_with_terms(&mut random).request(&bucket());
            assert!(request.range_min <= request.range_max, "{request:?}");
            assert_eq!(request.range_min.map(|it| it.len()), Some(10));
            assert_eq!(request.return_terms, Some(true));
        }
    }
}
