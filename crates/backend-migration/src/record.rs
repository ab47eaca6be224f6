//! The record of a move, from which a later run continues.

use std::path::Path;

use bytes::Bytes;
use kvorum_backend::{Result, StoreCopy, begin_copy, end_copy, open_copy, put_label, take_label};
use kvorum_encoding::{ByteReader, Truncated};

use crate::machine::{End, Migration, Phase, Plan};
use crate::progress::Progress;

/// The first bytes of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"KVmoved\0";
const VERSION: u8 = 1;

/// A move as a store keeps it, twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts the writes of the record.
    pub generation: u64,
    /// The identity of the move's store.
    pub identity: u64,
    /// The move.
    pub migration: Migration,
}

impl StoreCopy for Record {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn erased(&self) -> u64 {
        0
    }

    fn label(&self) -> &'static str {
        ""
    }
}

impl Record {
    /// Encodes the record:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVmoved" and a zero
    ///      8     1  format version: 1
    ///      9     3  zero
    ///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
    ///     16     8  generation
    ///     24     8  identity of the store
    ///     32     8  zero
    ///     40     1  phase: 0 room, 1 copy, 2 verify, 3 remove, 4 moved, 5 taken back, 6 no room, 7 differs
    ///     41     1  1 if it was cancelled, else 0
    ///     42     1  parts that were found wrong in the last run
    ///     43     1  1 if a key is done in this phase, else 0
    ///     44     8  what there was to copy, by estimate, in bytes
    ///     52     8  bytes that were copied
    ///     60     8  entries that were copied
    ///     68     8  entries that were found the same
    ///     76     8  entries that were removed
    ///     84     1  length of the source's name (s)
    ///            s  source
    ///            1  length of the target's name (t)
    ///            t  target
    ///            4  length of the scope (c)
    ///            c  the bytes that all keys start with
    ///            4  length of the last key that is done (k)
    ///            k  that key; empty if none is
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let migration = &self.migration;
        let mut out = begin_copy(RECORD_MAGIC, VERSION, self);
        out.extend([
            code_of(migration.phase),
            u8::from(migration.is_taken_back),
            migration.failures,
            u8::from(migration.after.is_some()),
        ]);
        let progress = &migration.progress;
        for count in [
            progress.bytes_estimate,
            progress.bytes_copied,
            progress.keys_copied,
            progress.keys_verified,
            progress.keys_removed,
        ] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        put_label(&mut out, &migration.plan.source);
        put_label(&mut out, &migration.plan.target);
        put_bytes(&mut out, &migration.plan.scope);
        put_bytes(&mut out, migration.after.as_deref().unwrap_or_default());
        end_copy(out)
    }

    /// `Ok(None)` for damaged bytes.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::NewerFormat`] for the record of a later version.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, RECORD_MAGIC, VERSION, path)?;
        let fields = opened.and_then(|(_, fields)| Self::decode_fields(fields).ok());
        Ok(fields.flatten())
    }

    /// `Ok(None)` for an unknown phase.
    fn decode_fields(bytes: &[u8]) -> std::result::Result<Option<Self>, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let (generation, identity, _zero) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let phase = phase_of(reader.u8()?);
        let (is_taken_back, failures) = (reader.u8()? == 1, reader.u8()?);
        let has_key = reader.u8()? == 1;
        let progress = Progress {
            bytes_estimate: reader.u64()?,
            bytes_copied: reader.u64()?,
            keys_copied: reader.u64()?,
            keys_verified: reader.u64()?,
            keys_removed: reader.u64()?,
        };
        let (source, target) = (take_label(&mut reader)?, take_label(&mut reader)?);
        let (scope, key) = (take_bytes(&mut reader)?, take_bytes(&mut reader)?);
        let Some(phase) = phase else {
            return Ok(None);
        };
        Ok(Some(Self {
            generation,
            identity,
            migration: Migration {
                plan: Plan {
                    source,
                    target,
                    scope,
                    bytes_estimate: progress.bytes_estimate,
                },
                phase,
                is_taken_back,
                after: has_key.then_some(key),
                failures,
                progress,
            },
        }))
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len());
    assert!(len.is_ok(), "a key has fewer bytes");
    out.extend_from_slice(&len.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes(reader: &mut ByteReader<'_>) -> std::result::Result<Bytes, Truncated> {
    let len = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    reader.take(len).map(Bytes::copy_from_slice)
}

/// In the order of their codes.
const PHASES: [Phase; 8] = [
    Phase::Room,
    Phase::Copy,
    Phase::Verify,
    Phase::Remove,
    Phase::Ended(End::Moved),
    Phase::Ended(End::TakenBack),
    Phase::Ended(End::NoRoom),
    Phase::Ended(End::Differs),
];

fn code_of(phase: Phase) -> u8 {
    let code = PHASES.iter().position(|it| *it == phase);
    u8::try_from(code.unwrap_or_default()).unwrap_or_default()
}

fn phase_of(code: u8) -> Option<Phase> {
    PHASES.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn record(phase: Phase, after: Option<&'static [u8]>) -> Record {
        let mut migration = Migration::new(Plan {
            source: "bc".to_owned(),
            target: "ldb".to_owned(),
            scope: Bytes::from_static(b"\0b\0\x01"),
            bytes_estimate: 77,
        });
        migration.phase = phase;
        migration.after = after.map(Bytes::from_static);
        migration.is_taken_back = after.is_some();
        migration.failures = 3;
        migration.progress.count_copied(1, 2);
        migration.progress.count_verified(3);
        migration.progress.count_removed(4);
        Record {
            generation: 5,
            identity: 6,
            migration,
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let record = record(Phase::Copy, Some(b"\0b\0\x01k"));
        let drawing = [
            ("magic \"KVmoved\" and a zero", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("masked CRC-32C of bytes 0..12 and 16 to the end", 4),
            ("generation", 8),
            ("identity of the store", 8),
            ("zero", 8),
            ("phase: 1 copy", 1),
            ("1 if it was cancelled", 1),
            ("parts that were found wrong in the last run", 1),
            ("1 if a key is done in this phase", 1),
            ("bytes to copy, by estimate", 8),
            ("bytes that were copied", 8),
            ("entries that were copied", 8),
            ("entries that were found the same", 8),
            ("entries that were removed", 8),
            ("length of the source's name", 1),
            ("source", 2),
            ("length of the target's name", 1),
            ("target", 3),
            ("length of the scope", 4),
            ("bytes that all keys start with", 4),
            ("length of the last key that is done", 4),
            ("that key", 5),
        ];
        assert_bytes("record.hex", &drawing, &record.encode());
    }

    #[test]
    fn it_is_read_as_written_and_no_flip_or_cut_is_believed() {
        let path = Path::new("migration-0");
        for phase in PHASES {
            for after in [None, Some(&b""[..]), Some(&b"\0b\0\x01k"[..])] {
                let record = record(phase, after);
                let bytes = record.encode();
                assert_eq!(Record::decode(&bytes, path), Ok(Some(record)));
                for at in 0..bytes.len() {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 0x10;
                    assert_eq!(Record::decode(&flipped, path), Ok(None), "byte {at}");
                    assert_eq!(Record::decode(&bytes[..at], path), Ok(None), "cut at {at}");
                }
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = record(Phase::Copy, None).encode();
        bytes[8] = VERSION + 1;
        let error = Record::decode(&end_copy(bytes), Path::new("migration-0")).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
    }
}
