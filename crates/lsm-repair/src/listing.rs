//! The start of a repair: the files of a store, from its directory and its manifest.

use std::path::Path;

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::{Disk, EntryKind};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_lsm::files::number_of;
use kvorum_lsm::manifest::{self, Manifest};
use kvorum_segment::SegmentAnatomy;
use kvorum_storage_errors::IntoBackend;

/// Kinds of a store's numbered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Table,
    Blob,
    Log,
    /// A file of the store's journal.
    Journal,
}

impl FileKind {
    fn of_suffix(suffix: &str) -> Self {
        match suffix {
            "sst" => Self::Table,
            "blob" => Self::Blob,
            "journal" => Self::Journal,
            _ => Self::Log,
        }
    }

    pub(crate) fn name(self, number: u64) -> String {
        match self {
            Self::Table => format!("{number:010}.sst"),
            Self::Blob => format!("{number:010}.blob"),
            Self::Log => kvorum_segment::file_name(number),
            Self::Journal => format!("{number:010}.journal"),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Table => 0,
            Self::Blob => 1,
            Self::Log => 2,
            Self::Journal => 3,
        }
    }

    pub(crate) fn of_byte(byte: u8) -> Option<Self> {
        [Self::Table, Self::Blob, Self::Log, Self::Journal]
            .into_iter()
            .nth(usize::from(byte))
    }
}

/// A file of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PresentFile {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    pub(crate) len: u64,
}

/// The files at the beginning of the repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) identity: u64,
    /// The newest whole copy.
    pub(crate) manifest: Option<Manifest>,
    /// A bit for each damaged copy of the manifest.
    pub(crate) damaged_manifests: u8,
    /// The copies have to be written again.
    pub(crate) is_uneven: bool,
    /// Files with numbers below the repair's own, sorted.
    pub(crate) files: Vec<PresentFile>,
    /// The number of the repair's first file.
    pub(crate) base: u64,
}

impl Listing {
    /// Lists a directory. Files from `base` on, if given, are an earlier run's own.
    pub(crate) fn read(disk: &dyn Disk, directory: &Path, base: Option<u64>) -> Result<Self> {
        let found = manifest::read_in(disk, directory)?;
        if found.content.is_none()
            && !found.foreign.is_empty()
            && let Some(refusal) = found.refusal
        {
            // A new manifest would bind another store's files to this directory.
            return Err(BackendError::new(ErrorKind::Corrupt, refusal));
        }
        let mut files = Vec::new();
        let mut next = found.content.as_ref().map_or(1, |it| it.next_number);
        for entry in disk.list(directory).into_backend()? {
            let Some((number, suffix)) = number_of(&entry.name) else {
                continue;
            };
            if entry.kind != EntryKind::File || base.is_some_and(|base| number >= base) {
                continue;
            }
            let info = disk.info(&directory.join(&entry.name)).into_backend()?;
            next = next.max(number + 1);
            files.push(PresentFile {
                kind: FileKind::of_suffix(suffix),
                number,
                len: info.map_or(0, |it| it.len),
            });
        }
        files.sort_unstable();
        let is_damaged = |at: usize| {
            let name = manifest::NAMES[at];
            found.damaged.contains(&name) || found.foreign.iter().any(|it| it.name == name)
        };
        let identity = match &found.content {
            Some(manifest) => manifest.identity,
            None => identity_of_files(disk, directory, &files)?,
        };
        Ok(Self {
            identity,
            damaged_manifests: u8::from(is_damaged(0)) | u8::from(is_damaged(1)) << 1,
            is_uneven: found.is_uneven,
            manifest: found.content,
            files,
            base: base.unwrap_or(next),
        })
    }

    pub(crate) fn damaged_manifest_names(&self) -> Vec<&'static str> {
        let names = manifest::NAMES.iter().enumerate();
        names
            .filter(|(at, _)| self.damaged_manifests >> at & 1 == 1)
            .map(|(_, name)| *name)
            .collect()
    }

    pub(crate) fn of_kind(&self, kind: FileKind) -> impl Iterator<Item = &PresentFile> {
        self.files.iter().filter(move |it| it.kind == kind)
    }

    /// True for a store that is known to keep a journal.
    pub(crate) fn has_journal(&self) -> bool {
        let listed = self.manifest.as_ref().is_some_and(|it| it.has_journal);
        listed || self.of_kind(FileKind::Journal).next().is_some()
    }

    pub(crate) fn has(&self, kind: FileKind, number: u64) -> bool {
        self.of_kind(kind).any(|it| it.number == number)
    }

    /// Appends the listing: 8 bytes identity, varint base, a byte of bits for damaged manifests, a
    /// byte 1 if the copies are uneven, varint number of files with a byte for the kind, varints
    /// number and length each, varint length of the manifest and the manifest, nothing for none.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.identity.to_le_bytes());
        put_varint(out, self.base);
        out.extend_from_slice(&[self.damaged_manifests, u8::from(self.is_uneven)]);
        put_varint(out, self.files.len() as u64);
        for file in &self.files {
            out.push(file.kind.byte());
            put_varint(out, file.number);
            put_varint(out, file.len);
        }
        let manifest = self.manifest.as_ref().map_or(Vec::new(), Manifest::encode);
        put_varint(out, manifest.len() as u64);
        out.extend_from_slice(&manifest);
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> std::result::Result<Self, Truncated> {
        let refused = Truncated { offset: 0 };
        let identity = reader.u64()?;
        let base = reader.varint()?;
        let [damaged_manifests, is_uneven] = reader.array::<2>()?;
        let mut files = Vec::new();
        for _ in 0..reader.varint_len()? {
            files.push(PresentFile {
                kind: FileKind::of_byte(reader.u8()?).ok_or(refused)?,
                number: reader.varint()?,
                len: reader.varint()?,
            });
        }
        let manifest = match reader.take_prefixed()? {
            [] => None,
            bytes => {
                let decoded = Manifest::decode(bytes, Path::new("")).ok().flatten();
                Some(decoded.ok_or(refused)?)
            }
        };
        Ok(Self {
            identity,
            manifest,
            damaged_manifests,
            is_uneven: is_uneven != 0,
            files,
            base,
        })
    }
}

/// Without a manifest, the store of the file with the highest number: after an erasure, files of
/// the previous identity may still exist, and numbers continue.
fn identity_of_files(disk: &dyn Disk, directory: &Path, files: &[PresentFile]) -> Result<u64> {
    let mut newest_first: Vec<&PresentFile> = files.iter().collect();
    newest_first.sort_by_key(|it| std::cmp::Reverse(it.number));
    for file in newest_first {
        let path = directory.join(file.kind.name(file.number));
        let claimed = match file.kind {
            FileKind::Log => SegmentAnatomy::header_id(disk, &path)
                .into_backend()?
                .map(|it| it.log_id),
            _ => kvorum_sst::claimed_store(disk, &path, file.number).into_backend()?,
        };
        if let Some(identity) = claimed {
            return Ok(identity);
        }
    }
    let directory = directory.display();
    let detail = format!("{directory} has no manifest and no file that names its store");
    Err(BackendError::new(ErrorKind::Corrupt, detail))
}
