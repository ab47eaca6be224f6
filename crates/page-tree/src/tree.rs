//! The tree of one root: open files, and lookups.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result, Timestamp};
use kvorum_disk::Reading;
use kvorum_encoding::{ByteReader, KeyRange, Truncated, put_varint, successor};

use crate::cache::PageCache;
use crate::entry::{Body, Entry};
use crate::failing::FailingPages;
use crate::file::{PageFile, file_name};
use crate::page::{BODY_LEVEL, Page};
use crate::place::PagePlace;

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The page.
    pub place: PagePlace,
    /// Its level: 0 for a leaf.
    pub level: u8,
    /// The number of keys in the tree.
    pub keys: u64,
}

/// A tree that never changes. It is cheap to clone.
#[derive(Clone)]
pub struct Tree {
    inner: Arc<Inner>,
}

struct Inner {
    /// The identity of the store.
    store: u64,
    root: Option<Root>,
    files: BTreeMap<u64, Arc<PageFile>>,
    cache: Arc<PageCache>,
    /// The store's number in the cache.
    owner: u64,
    failing: Arc<FailingPages>,
}

/// An unreadable page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPage {
    /// The page.
    pub place: PagePlace,
    /// The page is a branch. A rewrite loses the pages below it: [`crate::Rewritten::retired`] does
    /// not count their bytes as garbage, and [`crate::live_bytes`] does.
    pub is_branch: bool,
    /// The keys that it may have had.
    pub range: KeyRange,
    /// The finding as text.
    pub found: String,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// The value.
    Here(T),
    /// There is none.
    Absent,
    /// The read would have had to wait.
    WouldBlock,
    /// A page on the way is unreadable.
    Lost(LostPage),
}

/// A page below a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// The start of its keys, which end at the next child's start.
    pub(crate) lower: Bytes,
    pub(crate) place: PagePlace,
    /// The number of keys below it.
    pub(crate) keys: u64,
}

impl Child {
    /// The value of a branch's item: the place, and the varint number of keys below.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        self.place.encode(&mut out);
        put_varint(&mut out, self.keys);
        out.into()
    }

    fn decode(lower: Bytes, value: &[u8]) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(value);
        Ok(Self {
            lower,
            place: PagePlace::decode(&mut reader)?,
            keys: reader.varint()?,
        })
    }

    /// The place of a branch's child.
    pub(crate) fn place_of(
        branch: &Page,
        index: usize,
    ) -> std::result::Result<PagePlace, Truncated> {
        PagePlace::decode(&mut ByteReader::new(branch.value_bytes(index)))
    }

    /// A child of a branch.
    pub(crate) fn of(branch: &Page, index: usize) -> std::result::Result<Self, Truncated> {
        Self::decode(branch.key(index), &branch.value(index))
    }
}

/// The result of reading a page.
pub(crate) enum PageRead {
    Page(Arc<Page>),
    WouldBlock,
    /// Its bytes are wrong or missing, with the finding as text.
    Damaged(String),
    /// The device failed to read it, with the error as text. The page may be whole.
    Unread(String),
}

impl Tree {
    /// The tree of a store at its opening.
    pub fn new(
        store: u64,
        root: Option<Root>,
        files: BTreeMap<u64, Arc<PageFile>>,
        cache: Arc<PageCache>,
    ) -> Self {
        let owner = cache.new_owner();
        Self {
            inner: Arc::new(Inner {
                store,
                root,
                files,
                cache,
                owner,
                failing: Arc::default(),
            }),
        }
    }

    /// The same store with another root.
    pub(crate) fn with(&self, root: Option<Root>, files: BTreeMap<u64, Arc<PageFile>>) -> Self {
        let (inner, cache) = (&self.inner, self.inner.cache.clone());
        Self {
            inner: Arc::new(Inner {
                store: inner.store,
                root,
                files,
                cache,
                owner: inner.owner,
                failing: inner.failing.clone(),
            }),
        }
    }

    /// Counts a failure of upkeep at the page with the latest failed read, which counts as damaged
    /// after enough failures.
    pub fn count_unread(&self, error: &BackendError, now: Timestamp) {
        self.inner.failing.count(error, now);
    }

    /// The identity of the store.
    pub(crate) fn store(&self) -> u64 {
        self.inner.store
    }

    /// The root; `None` for a tree without keys.
    pub fn root(&self) -> Option<Root> {
        self.inner.root
    }

    /// The number of its keys.
    pub fn keys(&self) -> u64 {
        self.inner.root.map_or(0, |root| root.keys)
    }

    /// Its files, by their numbers.
    pub fn files(&self) -> &BTreeMap<u64, Arc<PageFile>> {
        &self.inner.files
    }

    /// The entry of a key. A body on a page of its own is not read.
    ///
    /// # Errors
    /// [`ErrorKind::Unread`] if the device failed to read a page, and errors of the disk that do not concern
    /// a single page.
    pub fn get(&self, key: &[u8], reading: Reading) -> Result<Found<Entry>> {
        let Some(root) = self.inner.root else {
            return Ok(Found::Absent);
        };
        let mut at = Descent {
            place: root.place,
            level: root.level,
            lower: Bytes::new(),
            upper: None,
        };
        loop {
            let page = match self.read(&at.place, at.level, reading, true)? {
                PageRead::Page(page) => page,
                PageRead::WouldBlock => return Ok(Found::WouldBlock),
                PageRead::Damaged(found) => return Ok(Found::Lost(at.lost(found))),
                PageRead::Unread(found) => return Err(unread(&at.place, &found)),
            };
            if at.level == 0 {
                return Ok(entry_of(&page, key, at));
            }
            let index = page.child_for(key);
            let Ok(place) = Child::place_of(&page, index) else {
                return Ok(Found::Lost(at.lost(UNDECODABLE.to_owned())));
            };
            at.descend(&page, index, place);
        }
    }

    /// The body of this key's entry.
    ///
    /// # Errors
    /// As for [`Tree::get`].
    pub fn body(&self, key: &[u8], entry: &Entry, reading: Reading) -> Result<Found<Bytes>> {
        let (place, len) = match &entry.body {
            Body::Inline(body) => return Ok(Found::Here(body.clone())),
            Body::Apart { place, len } => (*place, *len),
            Body::Lost => {
                let found = "the body was lost before it came here".to_owned();
                return Ok(Found::Lost(lost_body(key, NOWHERE, found)));
            }
        };
        let page = match self.read(&place, BODY_LEVEL, reading, false)? {
            PageRead::Page(page) => page,
            PageRead::WouldBlock => return Ok(Found::WouldBlock),
            PageRead::Damaged(found) => return Ok(Found::Lost(lost_body(key, place, found))),
            PageRead::Unread(found) => return Err(unread(&place, &found)),
        };
        let body = page.body();
        if page.lower() == key && body.len() as u64 == len {
            return Ok(Found::Here(body));
        }
        let found = "the body of another key".to_owned();
        Ok(Found::Lost(lost_body(key, place, found)))
    }

    /// True when this page of this level, or this body, is on the tree's path to the key.
    ///
    /// # Errors
    /// As for [`Tree::get`].
    pub(crate) fn leads_to(&self, key: &[u8], place: &PagePlace, level: u8) -> Result<bool> {
        if level == BODY_LEVEL {
            let found = self.get(key, Reading::MayBlock)?;
            return Ok(matches!(found, Found::Here(entry) if entry.is_at(place)));
        }
        let root = self.inner.root;
        let mut at = root.map(|root| (root.place, root.level));
        while let Some((here, here_level)) = at {
            if here_level <= level {
                return Ok(here_level == level && here == *place);
            }
            let read = self.read(&here, here_level, Reading::MayBlock, true)?;
            at = match read {
                PageRead::Page(page) => Child::place_of(&page, page.child_for(key)).ok(),
                PageRead::Unread(found) => return Err(unread(&here, &found)),
                PageRead::WouldBlock | PageRead::Damaged(_) => None,
            }
            .map(|child| (child, here_level - 1));
        }
        Ok(false)
    }

    /// The same tree without unused files.
    #[must_use]
    pub fn without_files(&self, is_gone: impl Fn(u64) -> bool) -> Self {
        let mut files = self.inner.files.clone();
        files.retain(|number, _| !is_gone(*number));
        self.with(self.inner.root, files)
    }

    /// Reads a page of this level. A branch has a second copy right behind the first. A failed read
    /// is repeated once.
    pub(crate) fn read(
        &self,
        place: &PagePlace,
        level: u8,
        reading: Reading,
        fills_cache: bool,
    ) -> Result<PageRead> {
        let inner = &self.inner;
        if let Some(page) = inner.cache.get(inner.owner, place) {
            return Ok(PageRead::Page(page));
        }
        let Some(file) = inner.files.get(&place.file) else {
            return Ok(PageRead::Damaged(NO_FILE.to_owned()));
        };
        let is_branch = level > 0 && level != BODY_LEVEL;
        let (mut found, mut is_unread) = (String::new(), false);
        for is_twin in [false, is_branch] {
            match self.read_once(file, place, level, is_twin, reading)? {
                PageRead::Damaged(damage) => found = damage,
                PageRead::Unread(failure) => (found, is_unread) = (failure, true),
                PageRead::WouldBlock => return Ok(PageRead::WouldBlock),
                PageRead::Page(page) => {
                    if fills_cache {
                        inner.cache.insert(inner.owner, place, &page);
                    }
                    return Ok(PageRead::Page(page));
                }
            }
        }
        Ok(match is_unread && !inner.failing.failed(place) {
            true => PageRead::Unread(found),
            false => PageRead::Damaged(found),
        })
    }

    /// True for a page that the device has failed to read too often.
    pub(crate) fn is_given_up(&self, place: &PagePlace) -> bool {
        self.inner.failing.failed(place)
    }

    /// One copy of a page in its file, past the cache. Leaves and bodies have only the first.
    pub(crate) fn read_copy(
        &self,
        place: &PagePlace,
        level: u8,
        is_twin: bool,
    ) -> Result<PageRead> {
        match self.inner.files.get(&place.file) {
            Some(file) => self.read_once(file, place, level, is_twin, Reading::MayBlock),
            None => Ok(PageRead::Damaged(NO_FILE.to_owned())),
        }
    }

    fn read_once(
        &self,
        file: &PageFile,
        place: &PagePlace,
        level: u8,
        is_twin: bool,
        reading: Reading,
    ) -> Result<PageRead> {
        use kvorum_disk::ErrorKind as Disk;
        let bytes = match file.read(place, is_twin, reading) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == Disk::WouldBlock => return Ok(PageRead::WouldBlock),
            Err(error) if error.kind() == Disk::Device => {
                return Ok(PageRead::Unread(error.to_string()));
            }
            Err(error) => return Err(BackendError::from(&error)),
        };
        Ok(match Page::open(bytes, place, self.inner.store) {
            Ok(page) if page.level() == level => PageRead::Page(Arc::new(page)),
            Ok(page) => PageRead::Damaged(format!("level {}, expected {level}", page.level())),
            Err(found) => PageRead::Damaged(found),
        })
    }
}

/// The error when the device failed to read a page.
pub(crate) fn unread(place: &PagePlace, found: &str) -> BackendError {
    let detail = format!("{} at {}: {found}", file_name(place.file), place.offset);
    BackendError::new(ErrorKind::Unread, detail)
}

const NO_FILE: &str = "its file is not there";
const UNDECODABLE: &str = "an item of a page with a good checksum does not decode";
/// The place of no page.
const NOWHERE: PagePlace = PagePlace {
    file: 0,
    offset: 0,
    len: 0,
    check: 0,
};

/// The state of a lookup: its page, and the range of keys that the page serves.
struct Descent {
    place: PagePlace,
    level: u8,
    lower: Bytes,
    upper: Option<Bytes>,
}

impl Descent {
    fn descend(&mut self, branch: &Page, index: usize, place: PagePlace) {
        // The first child also serves lookups of keys before it.
        if index > 0 {
            self.lower = branch.key(index);
        }
        if index + 1 < branch.items() {
            self.upper = Some(branch.key(index + 1));
        }
        self.place = place;
        self.level -= 1;
    }

    fn lost(self, found: String) -> LostPage {
        LostPage {
            place: self.place,
            is_branch: self.level > 0,
            range: range(&self.lower, self.upper.as_ref()),
            found,
        }
    }
}

fn entry_of(leaf: &Page, key: &[u8], at: Descent) -> Found<Entry> {
    let Ok(index) = leaf.search(key) else {
        return Found::Absent;
    };
    match Entry::decode(&leaf.value(index)) {
        Ok(entry) => Found::Here(entry),
        Err(_) => Found::Lost(at.lost(UNDECODABLE.to_owned())),
    }
}

pub(crate) fn lost_body(key: &[u8], place: PagePlace, found: String) -> LostPage {
    LostPage {
        place,
        is_branch: false,
        range: KeyRange {
            from: Bytes::copy_from_slice(key),
            to: Some(successor(key)),
        },
        found,
    }
}

/// The range from one key to another, or to the end.
pub(crate) fn range(from: &Bytes, to: Option<&Bytes>) -> KeyRange {
    KeyRange {
        from: from.clone(),
        to: to.cloned(),
    }
}
