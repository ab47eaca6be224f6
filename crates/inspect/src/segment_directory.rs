//! The segments of a log in one directory, checked from the newest to the oldest.

use std::path::Path;

use kvorum_backend_bitcask::check::Checked;
use kvorum_disk::Disk;
use kvorum_segment::{
    FILE_HEADER_BYTES, ScanOptions, Scanned, SegmentError, SegmentReader, Tail, file_name,
    list_segments,
};
use kvorum_value_log::anatomy::{KnownSegments, in_words};

use crate::Result;
use crate::kind::fallback_id;

/// Checks all segments, and that none is missing; with `is_live`, only the sealed ones.
pub(crate) fn check(
    disk: &dyn Disk,
    directory: &Path,
    is_live: bool,
    progress: &dyn Fn(u64),
) -> Result<Checked> {
    let mut found = Checked::default();
    let mut is_proven = false;
    let numbers = list_segments(disk, directory)?;
    let missing = KnownSegments::read(disk, directory, &numbers)?.missing();
    for range in missing.unreported {
        found.find(&file_name(u64::from(range.0)), 0, 0, in_words(range));
    }
    let reported = missing.reported.into_iter().map(in_words);
    found
        .notes
        .extend(reported.map(|what| format!("{what}, reported at an opening")));
    for number in numbers.into_iter().rev() {
        let name = file_name(number);
        let path = directory.join(&name);
        found.files += 1;
        let Some(id) = fallback_id(disk, &path)? else {
            let len = disk.info(&path)?.map_or(0, |info| info.len);
            found.find(
                &name,
                0,
                len,
                "no header here or in a neighbour: nothing can be checked",
            );
            continue;
        };
        let reader = SegmentReader::open(disk, &path, id)?;
        match reader.check_header() {
            Ok(_) => {}
            Err(SegmentError::Disk(error)) => return Err(error.into()),
            Err(error) => found.find(&name, 0, FILE_HEADER_BYTES, error.to_string()),
        }
        let options = ScanOptions::durable_to(if is_proven { u64::MAX } else { 0 });
        let mut scan = reader.scan(options)?;
        if is_live && scan.seal().is_none() {
            found
                .notes
                .push(format!("{name} is being written and was left out"));
            continue;
        }
        for scanned in scan.by_ref() {
            match scanned? {
                Scanned::Record(_) => found.records += 1,
                Scanned::Damage(damage) => {
                    found.find(&name, damage.offset, damage.len, damage.found);
                }
            }
        }
        if let Some(Tail::Torn { len }) = scan.end().map(|end| end.tail) {
            found.torn_bytes += len;
            found.notes.push(format!("{name} ends in {len} torn bytes"));
        }
        let durable_to = scan.end().map_or(0, |end| end.durable_to);
        is_proven |= durable_to > FILE_HEADER_BYTES;
        let len = reader.file_len()?;
        found.bytes += len;
        progress(len);
    }
    Ok(found)
}
