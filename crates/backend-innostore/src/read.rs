//! Lookups of one key.

use bytes::Bytes;
use kvorum_backend::{BackendError, Lookup, ReadAt, Result};
use kvorum_page_tree::{Entry, Found, LostPage};

use crate::store::Store;
use crate::version::Version;

impl Store {
    /// The unexpired entry of a key. A body on a page of its own is not read.
    pub(crate) fn find(&self, version: &Version, key: &Bytes, at: ReadAt) -> Result<Lookup<Entry>> {
        let found = self.find_of_any_age(version, key, at)?;
        Ok(match found {
            Lookup::Found(entry) if self.expiry.is_over(&entry.fields, at.now) => Lookup::Absent,
            found => found,
        })
    }

    fn find_of_any_age(&self, version: &Version, key: &Bytes, at: ReadAt) -> Result<Lookup<Entry>> {
        let sequence = self.visible_sequence();
        let mut held = version.overlays().filter_map(|it| it.get(key, sequence));
        match held.next() {
            Some(Some(entry)) => return Ok(Lookup::Found(entry)),
            Some(None) => return Ok(Lookup::Absent),
            None => {}
        }
        self.looked_up(version.tree.get(key, at.reading.into())?)
    }

    /// The body of an entry that was found in this version.
    pub(crate) fn body(
        &self,
        version: &Version,
        key: &[u8],
        entry: &Entry,
        reading: kvorum_disk::Reading,
    ) -> Result<Lookup<Bytes>> {
        self.looked_up(version.tree.body(key, entry, reading)?)
    }

    fn looked_up<T>(&self, found: Found<T>) -> Result<Lookup<T>> {
        match found {
            Found::Here(found) => Ok(Lookup::Found(found)),
            Found::Absent => Ok(Lookup::Absent),
            Found::WouldBlock => Ok(Lookup::WouldBlock),
            Found::Lost(lost) => Err(self.corrupt(&lost)),
        }
    }

    /// True while a lookup of a damaged page's first key reaches the page.
    pub(crate) fn is_current(&self, lost: &LostPage) -> Result<bool> {
        let tree = self.version.load().tree.clone();
        let (key, reading) = (&lost.range.from, kvorum_disk::Reading::MayBlock);
        let found = match tree.get(key, reading)? {
            Found::Here(entry) => match tree.body(key, &entry, reading)? {
                Found::Lost(found) => found,
                Found::Here(_) | Found::Absent | Found::WouldBlock => return Ok(false),
            },
            Found::Lost(found) => found,
            Found::Absent | Found::WouldBlock => return Ok(false),
        };
        Ok(found.place == lost.place)
    }

    /// The error of a read for an unreadable page.
    pub(crate) fn corrupt(&self, lost: &LostPage) -> BackendError {
        self.count_corrupt_read();
        self.losses.note_page(lost)
    }
}
