//! Folds in scripts: a range, a filter and the length of pages.

use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, IndexFolds, IndexRange, Lease, Result,
    Snapshot, Timestamp,
};
use kvorum_encoding::SegmentFilter;

use super::print::{self, Batches};
use super::words::{self, Words};

/// A fold of a script.
pub(super) struct Fold {
    /// The part of entries that it shows; `None` for one key of each bucket.
    detail: Option<FoldDetail>,
    range: FoldRange,
    filter: FoldFilter,
    /// The number of entries in a page.
    by: u64,
}

impl Fold {
    /// Reads the words of a fold.
    pub(super) fn parse(
        verb: &str,
        words: &mut Words<'_>,
        now: Timestamp,
    ) -> std::result::Result<Self, String> {
        let detail = match verb {
            "keys" => Some(FoldDetail::Keys),
            "heads" => Some(FoldDetail::Heads),
            "entries" => Some(FoldDetail::Entries),
            _ => None,
        };
        let key = |text: &str| words::key(text).map(|key| key.to_bytes());
        let range = match words.value("bucket") {
            Some(bucket) => FoldRange::prefix(&words::prefix(bucket)),
            None => FoldRange {
                from: words.bound("from", "after", key)?,
                to: words.bound("to", "before", key)?,
            },
        };
        let by = words.number("by")?.unwrap_or(u64::MAX);
        Ok(Self {
            detail,
            range,
            filter: filter(words, now)?,
            by,
        })
    }

    /// Prints all pages.
    pub(super) fn print(&self, snapshot: &dyn Snapshot, batches: &Batches) -> Result<Vec<String>> {
        let mut printed = Vec::new();
        let mut range = self.range.clone();
        loop {
            let end = self.page(snapshot, &range, batches, &mut printed)?;
            match &end {
                FoldEnd::Stopped(resume) => range = range.resumed_at(resume),
                FoldEnd::Complete | FoldEnd::LeaseExpired(_) => {
                    printed.push(end_of(&end).into());
                    return Ok(printed);
                }
            }
        }
    }

    fn page(
        &self,
        snapshot: &dyn Snapshot,
        range: &FoldRange,
        batches: &Batches,
        printed: &mut Vec<String>,
    ) -> Result<FoldEnd> {
        let mut shown = 0;
        let mut visit = |visited: kvorum_backend::Visited<'_>| {
            begin_page(shown, printed);
            printed.push(format!(
                "{} {}{}{}{}",
                print::key(visited.key),
                batches.named(visited.sequence),
                print::fields(&visited.fields),
                print::named_bytes("head", &visited.head),
                print::named_bytes("body", &visited.body),
            ));
            shown += 1;
            flow(shown, self.by)
        };
        match self.detail {
            Some(detail) => snapshot.fold(detail, range, &self.filter, &mut visit),
            None => snapshot.fold_buckets(range, &self.filter, &mut visit),
        }
    }
}

fn filter(words: &mut Words<'_>, now: Timestamp) -> std::result::Result<FoldFilter, String> {
    let mut filter = FoldFilter::unexpired(now);
    if let Some(segments) = words.value("segments") {
        let segments = segments
            .split(',')
            .map(|text| text.parse::<u32>().map_err(|error| error.to_string()));
        let segments = segments.collect::<std::result::Result<_, _>>()?;
        filter.segments = Some(SegmentFilter::Segments(segments));
    }
    if let Some(modified) = words.value("modified") {
        let (first, last) = modified
            .split_once("..")
            .ok_or("expected modified=FIRST..LAST")?;
        let (first, last) = (words::number(first)?, words::number(last)?);
        filter.last_modified = Some(Timestamp(first)..=Timestamp(last));
    }
    Ok(filter)
}

/// An index query of a script.
pub(super) struct IndexQuery {
    range: IndexRange,
    by: u64,
}

impl IndexQuery {
    /// Reads the words of an index query.
    pub(super) fn parse(words: &mut Words<'_>) -> std::result::Result<Self, String> {
        let range = IndexRange {
            bucket_prefix: words::prefix(words.first()?),
            field: words::bytes(words.first()?)?,
            from: words.bound("from", "after", words::bytes)?,
            to: words.bound("to", "before", words::bytes)?,
            after: None,
        };
        let by = words.number("by")?.unwrap_or(u64::MAX);
        Ok(Self { range, by })
    }

    /// Prints all pages.
    pub(super) fn print(&self, indexes: &dyn IndexFolds, now: Timestamp) -> Result<Vec<String>> {
        let mut printed = Vec::new();
        let mut range = self.range.clone();
        loop {
            let mut shown = 0;
            let mut last = None;
            let end = indexes.fold_index(&range, Lease::Unlimited, now, &mut |term, key| {
                begin_page(shown, &mut printed);
                printed.push(format!("{} {}", print::bytes(term), print::key(key)));
                last = Some((term.clone(), key.clone()));
                shown += 1;
                flow(shown, self.by)
            })?;
            if !matches!(end, FoldEnd::Stopped(_)) {
                printed.push(end_of(&end).into());
                return Ok(printed);
            }
            range.after = last;
        }
    }
}

/// Prints a line above the first entry of a later page, but not for a stop at the last entry of a
/// range: some engines then know that nothing follows.
fn begin_page(shown: u64, printed: &mut Vec<String>) {
    if shown == 0 && !printed.is_empty() {
        printed.push("next page".into());
    }
}

fn flow(shown: u64, by: u64) -> Flow {
    match shown < by {
        true => Flow::Continue,
        false => Flow::Stop,
    }
}

/// The end of a fold; its resume point is the engine's own.
fn end_of(end: &FoldEnd) -> &'static str {
    match end {
        FoldEnd::Complete => "complete",
        FoldEnd::Stopped(_) => "stopped",
        FoldEnd::LeaseExpired(_) => "the lease is over",
    }
}
