//! The card of a store: the file that makes one store of its children, kept twice.
//!
//! It has the identity of the whole, for the node, and the list of the store's children. Without it
//! a child's lost directory would be mistaken for that of a new child, and the data of a child that
//! was removed from the configuration would disappear unnoticed.

use std::path::Path;

use kvorum_backend::{
    BackendError, Belonging, ChosenCopy, ErrorKind, FoundStore, ReadCopy, Result, StoreCopy,
    StoreId, begin_copy, choose_copy, end_copy, open_copy, put_label, take_label, write_two_copies,
};
use kvorum_disk::{Disk, create_directory_durably, read_file};
use kvorum_encoding::{ByteReader, Truncated};

/// The files of the card in the store's directory.
pub(crate) const CARD_NAMES: [&str; 2] = ["multi-0", "multi-1"];
pub(crate) const MAGIC: [u8; 8] = *b"KVmulti\0";
const VERSION: u8 = 1;
/// Room for the most children with the longest names, and more.
pub(crate) const BYTES_MAX: u64 = 64 << 10;

/// A child of the store at its last opening. The child's data are persistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownChild {
    /// Its name, also that of its directory.
    pub name: String,
    /// Its engine, as in `storage_backend`.
    pub engine: String,
    /// Its identity.
    pub identity: StoreId,
}

/// The store's identity and children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// Counts the writes of the card.
    pub(crate) generation: u64,
    pub(crate) identity: u64,
    /// The identity before the last erasure; 0 for none.
    pub(crate) erased: u64,
    pub(crate) children: Vec<KnownChild>,
    /// The store's label on its node, as in [`Belonging::label`]; empty until one is given.
    pub(crate) label: String,
}

impl StoreCopy for Card {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn erased(&self) -> u64 {
        self.erased
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl Card {
    /// Encodes it:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVmulti" and a zero
    ///      8     1  format version: 1
    ///      9     3  zero
    ///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
    ///     16     8  generation
    ///     24     8  identity
    ///     32     8  identity before the last erasure
    ///     40     1  number of children; for each of them
    ///               1  length of its name (n)
    ///               n  name
    ///               1  length of its engine's name (e)
    ///               e  engine
    ///               8  identity
    ///            1  length of the label (l)
    ///            l  label
    /// ```
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = begin_copy(MAGIC, VERSION, self);
        let count = u8::try_from(self.children.len());
        assert!(count.is_ok(), "a store has fewer children");
        out.extend(count);
        for child in &self.children {
            put_label(&mut out, &child.name);
            put_label(&mut out, &child.engine);
            out.extend_from_slice(&child.identity.0.to_le_bytes());
        }
        put_label(&mut out, &self.label);
        end_copy(out)
    }

    /// `Ok(None)` for damaged bytes.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, MAGIC, VERSION, path)?;
        Ok(opened.and_then(|(_, fields)| Self::decode_fields(fields).ok()))
    }

    fn decode_fields(bytes: &[u8]) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let mut card = Self {
            generation: reader.u64()?,
            identity: reader.u64()?,
            erased: reader.u64()?,
            ..Self::default()
        };
        for _ in 0..reader.u8()? {
            card.children.push(KnownChild {
                name: take_label(&mut reader)?,
                engine: take_label(&mut reader)?,
                identity: StoreId(reader.u64()?),
            });
        }
        card.label = take_label(&mut reader)?;
        Ok(card)
    }
}

/// Reads both copies, and chooses the valid one.
pub(crate) fn read(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
) -> Result<ChosenCopy<Card>> {
    let read_copy = |name: &str| -> Result<ReadCopy<Card>> {
        let path = directory.join(name);
        if disk.info(&path)?.is_none() {
            return Ok(ReadCopy::Missing);
        }
        let bytes = read_file(disk, &path, BYTES_MAX)?;
        let decoded = Card::decode(&bytes, &path)?;
        Ok(decoded.map_or(ReadCopy::Damaged, ReadCopy::Whole))
    };
    let copies = [read_copy(CARD_NAMES[0])?, read_copy(CARD_NAMES[1])?];
    // No other file of the directory has the identity of the whole.
    choose_copy(directory, CARD_NAMES, copies, belonging, &|_| Ok(false))
}

/// The children of the store in a directory at its last opening; none for a directory without one.
///
/// # Errors
/// Those of the disk, [`ErrorKind::NewerFormat`], and [`ErrorKind::Corrupt`] for a card that cannot
/// be read or is another store's.
pub fn known_children(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
) -> Result<Vec<KnownChild>> {
    let found = read(disk, directory, belonging)?;
    match found.refusal {
        Some(why) => Err(BackendError::new(ErrorKind::Corrupt, why)),
        None => Ok(found.content.map(|card| card.children).unwrap_or_default()),
    }
}

/// Finds the store in a directory and compares it with the expected one. `find_child` searches the
/// directory of a child for a store of its engine. Writes nothing.
///
/// # Errors
/// Those of the disk, and [`ErrorKind::NewerFormat`].
pub fn find_store(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
    find_child: &dyn Fn(&KnownChild, &Path) -> Result<FoundStore>,
) -> Result<FoundStore> {
    let found = read(disk, directory, belonging)?;
    if let Some(why) = found.refusal {
        return Ok(FoundStore::Unusable(why));
    }
    let Some(card) = found.content else {
        return Ok(FoundStore::Nothing);
    };
    let mut log = 0;
    for child in &card.children {
        let place = directory.join(&child.name);
        match find_child(child, &place)? {
            FoundStore::Unusable(why) => return Ok(FoundStore::Unusable(why)),
            FoundStore::Nothing => {
                return Ok(FoundStore::Unusable(format!(
                    "{} is missing or empty, the {} store of the backend {} ({:#018x}); put the directory \
                     back",
                    place.display(),
                    child.engine,
                    child.name,
                    child.identity.0
                )));
            }
            FoundStore::Store {
                identity, erased, ..
            } if ![identity, erased].contains(&child.identity) => {
                return Ok(FoundStore::Unusable(exchanged(&place, identity, child)));
            }
            FoundStore::Store { log: its, .. } => log = log.max(its),
        }
    }
    Ok(FoundStore::Store {
        identity: StoreId(card.identity),
        erased: StoreId(card.erased),
        log,
        is_labelled: !card.label.is_empty() && card.label == belonging.label,
    })
}

/// Makes a store in `directory` with a former single store as its only child. The child's files are
/// moved there afterwards. The whole continues under the child's identity, so that all references
/// to the store stay correct.
///
/// # Errors
/// Those of the disk.
pub fn make_store_of(
    disk: &dyn Disk,
    directory: &Path,
    label: &str,
    child: KnownChild,
    erased: StoreId,
) -> Result<()> {
    create_directory_durably(disk, directory)?;
    let card = Card {
        generation: 1,
        identity: child.identity.0,
        erased: erased.0,
        children: vec![child],
        label: label.to_owned(),
    };
    write_two_copies(disk, directory, CARD_NAMES, &card.encode()).both()
}

/// True when a directory has the card of a store.
///
/// # Errors
/// Those of the disk.
pub fn is_store(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<bool> {
    for name in CARD_NAMES {
        if disk.info(&directory.join(name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The text about another store in the place of a child.
pub(crate) fn exchanged(place: &Path, found: StoreId, child: &KnownChild) -> String {
    format!(
        "{} holds another store ({:#018x}) than the backend {} had ({:#018x}); put back the directory that \
         belongs here",
        place.display(),
        found.0,
        child.name,
        child.identity.0
    )
}

#[cfg(test)]
#[path = "card_test.rs"]
mod tests;
