//! Segments that the log dropped: a small file with their numbers.
//!
//! Numbers are issued in order, so each number up to the newest needs a file or a note that it was
//! dropped. A number with neither was lost, and stores that still refer to it have to report the
//! loss. A number is noted durably before its file is removed, so no crash makes a dropped segment
//! look lost. A noted number with a file counts as existing.
//!
//! On a disk too full for the note, the note itself is removed before the segments are. Without a
//! note, as in logs of earlier versions, each missing number counts as dropped and none as lost.

mod numbers;

use std::path::{Path, PathBuf};

use kvorum_backend::Result;
use kvorum_disk::Disk;

use crate::small_file;

pub(crate) use numbers::Numbers;
pub use numbers::in_words;

pub(crate) const MAGIC: [u8; 8] = *b"KVvalgon";
const RANGE_BYTES: usize = 8;
pub(crate) const NAME: &str = "dropped";

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) log_id: u64,
    /// The highest number that had a file when the note was written.
    pub(crate) newest: u32,
    /// Segments that were dropped.
    pub(crate) dropped: Numbers,
    /// Segments that are missing, and whose loss was reported.
    pub(crate) missing: Numbers,
}

/// State of the numbers after a log was opened.
pub(crate) struct Settled {
    pub(crate) known: Dropped,
    /// Missing segments whose loss was not reported yet.
    pub(crate) news: Numbers,
    /// The file has these contents.
    pub(crate) is_written: bool,
    /// The file existed: a number that has neither a file nor a note is missing.
    pub(crate) is_certain: bool,
}

impl Dropped {
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Encodes the file:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVvalgon"
    ///      8     1  format version, 1
    ///      9     3  zero
    ///     12     8  log id
    ///     20     4  highest number that had a file
    ///     24     4  ranges of numbers that were let go (n)
    ///     28     4  ranges of numbers that are missing (m)
    ///     32   n*8  for each of the former: first (4), last (4); ascending, none touches another
    /// 32+n*8   m*8  the latter, likewise
    ///      -     4  masked CRC-32C of all before
    /// ```
    fn encode(&self) -> Vec<u8> {
        let lists = [&self.dropped, &self.missing];
        let mut out = small_file::begin(&MAGIC, self.log_id);
        out.extend_from_slice(&self.newest.to_le_bytes());
        for list in lists {
            small_file::push_count(&mut out, list.ranges().count());
        }
        for (first, last) in lists.into_iter().flat_map(Numbers::ranges) {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&last.to_le_bytes());
        }
        small_file::sealed(out)
    }

    fn decode(bytes: &[u8]) -> Option<std::result::Result<Self, u8>> {
        small_file::decode(bytes, &MAGIC, |log_id, reader| {
            let newest = reader.u32()?;
            let counts = [reader.u32()? as usize, reader.u32()? as usize];
            if reader.remaining() != (counts[0] + counts[1]) * RANGE_BYTES {
                return Ok(None);
            }
            let mut lists = [Numbers::default(), Numbers::default()];
            for (list, count) in lists.iter_mut().zip(counts) {
                for _ in 0..count {
                    list.insert(reader.u32()?, reader.u32()?);
                }
            }
            let [dropped, missing] = lists;
            Ok(Some(Self {
                log_id,
                newest,
                dropped,
                missing,
            }))
        })
    }

    /// Writes the file, and returns its length in bytes.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<u64> {
        small_file::write(disk, &Self::path(directory), &self.encode())
    }

    /// Reads the file; `None` when it is missing or damaged.
    ///
    /// # Errors
    /// Those of the disk; [`kvorum_backend::ErrorKind::NewerFormat`].
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>> {
        small_file::read(disk, &Self::path(directory), Self::decode)
    }

    /// Missing segments, reported or not, if those in `there` exist.
    pub(crate) fn missing_beside(&self, there: &Numbers) -> Numbers {
        let newest = self.newest.max(there.highest());
        self.dropped.and(there).complement(newest)
    }

    /// Compares the note `noted` of an opened log with the existing segments, if the note belongs
    /// to this log. Files of other logs had the names of `foreign` segments. Of these only noted
    /// numbers are news: a stray file with another number replaces no segment.
    pub(crate) fn settle(
        noted: Option<Self>,
        log_id: u64,
        there: &Numbers,
        foreign: &Numbers,
    ) -> Settled {
        let newest_file = there.highest().max(foreign.highest());
        let Some(noted) = noted.filter(|it| it.log_id == log_id) else {
            let known = Self {
                log_id,
                newest: newest_file,
                dropped: there.complement(newest_file),
                missing: Numbers::default(),
            };
            return Settled {
                known,
                news: Numbers::default(),
                is_written: false,
                is_certain: false,
            };
        };
        let missed = noted.missing_beside(there);
        let missing = missed.and(foreign);
        let newest = noted.newest.max(newest_file);
        let known = Self {
            log_id,
            newest,
            // A foreign file with too high a number proves no segment below it.
            dropped: there.and(&missing).complement(newest),
            missing: missing.clone(),
        };
        let is_same = |it: &Self| it.dropped == known.dropped && it.missing == known.missing;
        Settled {
            news: missed.without(&noted.missing),
            is_written: is_same(&noted),
            known,
            is_certain: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{checksum, mask_checksum};
    use kvorum_golden::assert_bytes;

    use super::*;

    fn numbers(ranges: &[(u32, u32)]) -> Numbers {
        let mut numbers = Numbers::default();
        for (first, last) in ranges {
            numbers.insert(*first, *last);
        }
        numbers
    }

    fn noted() -> Dropped {
        Dropped {
            log_id: 0x0102,
            newest: 9,
            dropped: numbers(&[(1, 3), (5, 5)]),
            missing: numbers(&[(7, 7)]),
        }
    }

    fn settle(noted: Option<Dropped>, there: &Numbers) -> Settled {
        Dropped::settle(noted, 0x0102, there, &Numbers::default())
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = noted().encode();
        let drawing = [
            ("magic \"KVvalgon\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("log id", 8),
            ("highest number that had a file", 4),
            ("ranges of numbers that were let go", 4),
            ("ranges of numbers that are missing", 4),
            ("let go: first, last", 8),
            ("let go: first, last", 8),
            ("missing: first, last", 8),
            ("masked CRC-32C of all before", 4),
        ];
        assert_bytes("dropped.hex", &drawing, &bytes);
        assert_eq!(Dropped::decode(&bytes), Some(Ok(noted())));
    }

    #[test]
    fn any_flip_or_cut_is_refused() {
        let good = noted().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            assert_eq!(Dropped::decode(&bad), None, "byte {at}");
            assert_eq!(Dropped::decode(&good[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_newer_version_is_reported() {
        let mut bytes = noted().encode();
        bytes[8] = 2;
        let covered = bytes.len() - 4;
        let check = mask_checksum(checksum(&bytes[..covered]));
        bytes[covered..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Dropped::decode(&bytes), Some(Err(2)));
    }

    #[test]
    fn what_is_neither_there_nor_noted_is_missing_and_news_once() {
        let there = numbers(&[(4, 4), (8, 9), (11, 11)]);
        let settled = settle(Some(noted()), &there);
        assert_eq!(settled.known.missing, numbers(&[(6, 7), (10, 10)]));
        assert_eq!(settled.news, numbers(&[(6, 6), (10, 10)]));
        assert!(settled.is_certain && !settled.is_written);
        let again = settle(Some(settled.known.clone()), &there);
        assert_eq!(again.known, settled.known);
        assert_eq!(again.news, Numbers::default());
        assert!(again.is_written);
    }

    /// The newest file is lost too, and its number counts.
    #[test]
    fn numbers_above_the_newest_file_that_had_one_are_missing() {
        let there = numbers(&[(4, 4), (6, 7)]);
        let settled = settle(Some(noted()), &there);
        assert_eq!(settled.known.newest, 9);
        assert_eq!(settled.news, numbers(&[(8, 9)]));
    }

    #[test]
    fn a_segment_that_was_noted_and_is_there_is_no_longer_noted() {
        let there = numbers(&[(3, 4), (6, 6), (8, 9)]);
        let settled = settle(Some(noted()), &there);
        assert_eq!(settled.known.dropped, numbers(&[(1, 2), (5, 5)]));
        assert!(!settled.is_written);
    }

    /// Regression: a stray file made every number below its own count as missing.
    #[test]
    fn a_foreign_file_makes_no_number_missing_but_its_own() {
        let there = numbers(&[(4, 4), (6, 9)]);
        let foreign = numbers(&[(77, 77)]);
        let settled = Dropped::settle(Some(noted()), 0x0102, &there, &foreign);
        assert_eq!(settled.known.newest, 77);
        assert_eq!(settled.known.missing, foreign);
        assert_eq!(settled.news, Numbers::default());
        assert_eq!(settled.known.dropped, numbers(&[(1, 3), (5, 5), (10, 76)]));
    }

    /// Regression: a segment whose name a foreign file had was moved aside, and no store reported
    /// the loss.
    #[test]
    fn a_segment_in_whose_place_a_foreign_file_is_is_news() {
        let there = numbers(&[(4, 4), (6, 8)]);
        let foreign = numbers(&[(9, 9)]);
        let settled = Dropped::settle(Some(noted()), 0x0102, &there, &foreign);
        assert_eq!(settled.news, numbers(&[(9, 9)]));
        let again = Dropped::settle(Some(settled.known), 0x0102, &there, &Numbers::default());
        assert_eq!(again.news, Numbers::default());
    }

    #[test]
    fn without_a_file_of_this_log_nothing_is_missing() {
        let there = numbers(&[(4, 4), (8, 9)]);
        let of_another = Dropped {
            log_id: 5,
            ..noted()
        };
        for noted in [None, Some(of_another)] {
            let settled = settle(noted, &there);
            assert_eq!(settled.known.dropped, numbers(&[(1, 3), (5, 7)]));
            assert_eq!(settled.known.missing, Numbers::default());
            assert!(!settled.is_certain && !settled.is_written);
        }
    }
}
