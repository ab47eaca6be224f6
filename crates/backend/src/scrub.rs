//! Reads idle files again, to find corruption while replicas can still repair it: the next file,
//! and its time.
//!
//! Every file is read once in a period. The work is spread evenly: the part of all bytes that is
//! due equals the elapsed part of the period, so that neither a large store nor a start keeps the
//! device busy. The progress of a cycle is kept in a small file, from which a restart continues.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_disk::{Disk, read_file, replace_file};
use kvorum_encoding::{checksum, mask_checksum};

use crate::{Task, TaskKind, Timestamp, Urgency};

/// The file in a store's directory.
pub const SCRUB_NAME: &str = "scrub";
const FILE_BYTES_MAX: u64 = 256;
/// The least bytes of a due read, unless the rest of a file is shorter.
const AT_ONCE_BYTES: u64 = 1 << 20;

/// A file that no longer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubFile {
    /// Its number; later files have higher ones.
    pub number: u64,
    /// Its length, in bytes.
    pub bytes: u64,
}

/// One reading of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cycle {
    began: Timestamp,
    /// The newest file when it began: later ones belong to the next cycle.
    up_to: u64,
    /// Files up to this one were read.
    after: u64,
    bytes_done: u64,
}

/// The state of scrubbing. `J` is a job that reads a file, step by step.
pub struct Scrubbing<J> {
    cycle: Option<Cycle>,
    job: Option<Job<J>>,
}

struct Job<J> {
    file: ScrubFile,
    bytes_done: u64,
    reader: J,
}

impl<J> Default for Scrubbing<J> {
    fn default() -> Self {
        Self {
            cycle: None,
            job: None,
        }
    }
}

impl<J> Scrubbing<J> {
    /// The due part of a scrub. `files` are all readable ones, in ascending order; without a period
    /// there is no scrubbing. The file being read is closed if it is no longer among them: the file
    /// system frees its space only then.
    pub fn due(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        files: &[ScrubFile],
        period: Option<Duration>,
        now: Timestamp,
    ) -> Option<Task> {
        let period = u64::try_from(period?.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        let is_gone = |job: &mut Job<J>| files.iter().all(|it| it.number != job.file.number);
        let _closed = self.job.take_if(is_gone);
        let begin = || Cycle::begin(files, now);
        let cycle = self
            .cycle
            .get_or_insert_with(|| load(disk, directory).unwrap_or_else(begin));
        // The clock may have been set back.
        cycle.began = cycle.began.min(now);
        let is_over = now.0 - cycle.began.0 >= period || cycle.bytes_done == 0;
        if cycle.next(files).is_none() && is_over {
            *cycle = begin();
        }
        let next = cycle.next(files)?;
        let is_next = |job: &Job<J>| job.file.number == next.number;
        let done = self.job.as_ref().filter(|job| is_next(job));
        let done = done.map_or(0, |job| job.bytes_done);
        let left = next.bytes.saturating_sub(done).max(1);
        let behind = cycle.behind(files, done, period, now);
        (behind >= left.min(AT_ONCE_BYTES)).then_some(Task {
            kind: TaskKind::Scrub,
            subject: next.number,
            urgency: Urgency::Idle,
            cost_bytes: left.min(behind),
        })
    }

    /// Continues a file, or begins it with the result of `open`: `read` returns the bytes that it
    /// read and true at the end. Returns the bytes, and true if the file is done.
    pub fn step<E>(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        file: ScrubFile,
        open: impl FnOnce() -> Result<J, E>,
        read: impl FnOnce(&mut J) -> Result<(u64, bool), E>,
    ) -> Result<(u64, bool), E> {
        let under_way = self.job.take().filter(|job| job.file.number == file.number);
        let mut job = match under_way {
            Some(job) => job,
            None => Job {
                file,
                bytes_done: 0,
                reader: open()?,
            },
        };
        let (bytes, is_read) = read(&mut job.reader)?;
        job.bytes_done += bytes;
        if !is_read {
            self.job = Some(job);
            return Ok((bytes, false));
        }
        if let Some(cycle) = &mut self.cycle {
            cycle.after = cycle.after.max(file.number);
            cycle.bytes_done += file.bytes.max(1);
            let path = directory.join(SCRUB_NAME);
            // If it is lost, a few files are read again.
            let _kept_or_failing_disk = replace_file(disk, &path, cycle.encode().as_bytes());
        }
        Ok((bytes, true))
    }

    /// Closes the file that is being read.
    pub fn abandon(&mut self) {
        self.job = None;
    }

    /// Begins again, as after an erasure.
    pub fn forget(&mut self, disk: &dyn Disk, directory: &Path) {
        *self = Self::default();
        let _removed_or_not_there = disk.remove_file(&file_in(directory));
    }

    /// For operators: the bytes that this cycle has read, and its beginning.
    pub fn progress(&self) -> Option<(u64, Timestamp)> {
        let cycle = self.cycle.as_ref()?;
        let in_file = self.job.as_ref().map_or(0, |job| job.bytes_done);
        Some((cycle.bytes_done + in_file, cycle.began))
    }
}

impl Cycle {
    fn begin(files: &[ScrubFile], now: Timestamp) -> Self {
        Self {
            began: now,
            up_to: files.last().map_or(0, |it| it.number),
            after: 0,
            bytes_done: 0,
        }
    }

    fn left<'a>(&self, files: &'a [ScrubFile]) -> impl Iterator<Item = &'a ScrubFile> {
        let (after, up_to) = (self.after, self.up_to);
        let is_left = move |it: &&ScrubFile| it.number > after && it.number <= up_to;
        files.iter().filter(is_left)
    }

    fn next(&self, files: &[ScrubFile]) -> Option<ScrubFile> {
        self.left(files).next().copied()
    }

    /// The due bytes that were not read. `in_file` bytes of the next file were read.
    fn behind(&self, files: &[ScrubFile], in_file: u64, period: u64, now: Timestamp) -> u64 {
        let left: u64 = self.left(files).map(|it| it.bytes.max(1)).sum();
        let all = u128::from(self.bytes_done + left);
        let elapsed = u128::from(now.0.saturating_sub(self.began.0).min(period));
        let target = u64::try_from(all * elapsed / u128::from(period)).unwrap_or(u64::MAX);
        target.saturating_sub(self.bytes_done + in_file)
    }

    /// The file, as text:
    ///
    /// ```text
    /// line 1:  kvorum scrub 1, BEGAN UP_TO AFTER BYTES\n
    ///            start of the cycle, in microseconds since 1970; the newest file then; the last
    ///            file that was read; bytes that were read; all decimal
    /// line 2:  masked CRC-32C of line 1, 8 hexadecimal digits\n
    /// ```
    fn encode(&self) -> String {
        let (began, bytes) = (self.began.0, self.bytes_done);
        let line = format!(
            "kvorum scrub 1, {began} {} {} {bytes}\n",
            self.up_to, self.after
        );
        let check = mask_checksum(checksum(line.as_bytes()));
        format!("{line}{check:08x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("kvorum scrub 1, ")?;
        let mut numbers = line.split(' ').map(|it| it.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let cycle = Self {
            began: Timestamp(next()?),
            up_to: next()?,
            after: next()?,
            bytes_done: next()?,
        };
        // Only one text is valid for a cycle.
        (cycle.encode() == text).then_some(cycle)
    }
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join(SCRUB_NAME)
}

/// A file that cannot be read counts as missing: the store's files are then read again.
fn load(disk: &dyn Disk, directory: &Path) -> Option<Cycle> {
    let bytes = read_file(disk, &file_in(directory), FILE_BYTES_MAX).ok()?;
    Cycle::decode(std::str::from_utf8(&bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;

    use super::*;

    const DAY: u64 = 86_400_000_000;
    const MEBIBYTE: u64 = 1 << 20;

    fn file(number: u64) -> ScrubFile {
        ScrubFile {
            number,
            bytes: 10 * MEBIBYTE,
        }
    }

    /// Does due scrubs until `to`, with a check every hour and a mebibyte per step. Returns the
    /// bytes of each day.
    fn run(
        scrubbing: &mut Scrubbing<u64>,
        disk: &MemoryDisk,
        files: &[ScrubFile],
        days: std::ops::Range<u64>,
    ) -> Vec<u64> {
        let period = Some(Duration::from_secs(30 * 86_400));
        let mut of_days = Vec::new();
        for day in days {
            let mut read = 0;
            for hour in 0..24 {
                let now = Timestamp(day * DAY + hour * DAY / 24);
                while let Some(task) = scrubbing.due(disk, Path::new(""), files, period, now) {
                    let file = files.iter().find(|it| it.number == task.subject).unwrap();
                    let step = |position: &mut u64| {
                        *position += MEBIBYTE;
                        Ok::<_, ()>((MEBIBYTE, *position >= file.bytes))
                    };
                    let done = scrubbing.step(disk, Path::new(""), *file, || Ok(0), step);
                    read += done.unwrap().0;
                }
            }
            of_days.push(read);
        }
        of_days
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let cycle = Cycle {
            began: Timestamp(1_700_000),
            up_to: 12,
            after: 7,
            bytes_done: 4_096,
        };
        let text = cycle.encode();
        let drawing = [
            ("kvorum scrub 1", 16),
            ("start of the cycle", 8),
            ("newest file then", 3),
            ("last file that was read", 2),
            ("bytes that were read", 5),
            ("masked CRC-32C of line 1", 9),
        ];
        assert_bytes("scrub.hex", &drawing, text.as_bytes());
        assert_eq!(Cycle::decode(&text), Some(cycle));
    }

    #[test]
    fn everything_is_read_once_in_a_period_and_no_day_has_much() {
        let disk = MemoryDisk::new();
        let files: Vec<ScrubFile> = (1..=30).map(file).collect();
        let mut scrubbing = Scrubbing::default();
        let days = run(&mut scrubbing, &disk, &files, 0..62);
        let month: u64 = days[..30].iter().sum();
        assert!((298..=300).contains(&(month / MEBIBYTE)), "{month}");
        let two: u64 = days.iter().sum();
        assert!((590..=620).contains(&(two / MEBIBYTE)), "{two}");
        assert!(days.iter().all(|bytes| bytes / MEBIBYTE <= 11), "{days:?}");
    }

    #[test]
    fn a_restart_goes_on_behind_the_last_file() {
        let disk = MemoryDisk::new();
        let files: Vec<ScrubFile> = (1..=30).map(file).collect();
        let before: u64 = run(&mut Scrubbing::default(), &disk, &files, 0..15)
            .iter()
            .sum();
        let after: u64 = run(&mut Scrubbing::default(), &disk, &files, 15..30)
            .iter()
            .sum();
        // At most one file is read again.
        let all = (before + after) / MEBIBYTE;
        assert!((298..=310).contains(&all), "{all}");
    }

    #[test]
    fn what_is_gone_is_not_waited_for_and_without_a_period_nothing_is_due() {
        let disk = MemoryDisk::new();
        let mut scrubbing = Scrubbing::<u64>::default();
        assert_eq!(run(&mut scrubbing, &disk, &[], 0..2), [0, 0]);
        assert!(run(&mut scrubbing, &disk, &[file(4), file(9)], 2..10)[7] < 2 * MEBIBYTE);
        run(&mut scrubbing, &disk, &[file(12)], 10..33);
        let of_last: u64 = run(&mut scrubbing, &disk, &[file(12)], 33..65).iter().sum();
        assert!((10..=11).contains(&(of_last / MEBIBYTE)), "{of_last}");
        let now = Timestamp(u64::MAX);
        assert_eq!(
            scrubbing.due(&disk, Path::new(""), &[file(12)], None, now),
            None
        );
    }

    /// Regression: a file that was merged away during its read stayed open until the next one was
    /// due, perhaps for a month, and its space was not freed.
    #[test]
    fn a_file_that_is_gone_is_closed() {
        let disk = MemoryDisk::new();
        let mut scrubbing = Scrubbing::default();
        let (held, directory) = (std::sync::Arc::new(()), Path::new(""));
        let period = Some(Duration::from_secs(30 * 86_400));
        let due = |scrubbing: &mut Scrubbing<_>, files: &[ScrubFile], day| {
            scrubbing.due(&disk, directory, files, period, Timestamp(day * DAY))
        };
        due(&mut scrubbing, &[file(1), file(2)], 0);
        assert!(due(&mut scrubbing, &[file(1), file(2)], 9).is_some());
        let open = || Ok::<_, ()>(held.clone());
        let step = scrubbing.step(&disk, directory, file(1), open, |_| Ok((MEBIBYTE, false)));
        assert_eq!(step, Ok((MEBIBYTE, false)));
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        due(&mut scrubbing, &[file(2)], 9);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_flip_of_the_file_begins_the_cycle_anew() {
        let cycle = Cycle {
            began: Timestamp(5),
            up_to: 6,
            after: 7,
            bytes_done: 8,
        };
        let text = cycle.encode();
        assert_eq!(Cycle::decode(&text), Some(cycle));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let flipped = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(Cycle::decode(&flipped), None, "byte {at}");
            assert_eq!(Cycle::decode(&text[..at]), None, "cut at {at}");
        }
    }
}
