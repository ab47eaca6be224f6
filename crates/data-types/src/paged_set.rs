//! Large sets in pages, so that an update of a set of any size reads and writes a few kilobytes.
//!
//! The members lie in pages by a hash of the member (linear hashing): the object's value is a head
//! of a few hundred bytes, and each page is an entry of its own beside the object. The number of
//! pages follows from the members alone, so page names can be computed and no engine has to scan in
//! key order, which bitcask cannot. Two replicas with the same members have the same pages.
//!
//! The head has a digest of all members and their dots, which every change keeps up to date. Replicas
//! with equal heads have equal sets, so anti-entropy hashes heads and reads no page.
//!
//! Figures and rejected designs: `docs/decisions/0033-large-sets-in-pages.md`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, put_varint};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::causal::{Set, SetDelta};
use crate::clock::Clock;
use crate::clock_encoding::{ActorTable, put_clock, read_clock};
use crate::decode_error::DecodeError;
use crate::deferred::{Deferred, Removal};
use crate::delta::Gap;
use crate::dot_store::{DotStore as _, Dots, clock_of};
use crate::encoding::{VERSION, check_end, check_version};
use crate::field::Members;
use crate::operation::{OperationError, SetChange, Update};
use crate::part_encoding::{put_deferred, put_members, read_deferred, read_members};

/// The members' bytes that a page has on average.
pub const PAGE_BYTES: u64 = 2 << 10;
/// Sets with more bytes of members than this are stored in pages.
pub const WHOLE_BYTES_MAX: u64 = 2 * PAGE_BYTES;
/// Bytes that a member counts in addition to its own.
const MEMBER_OVERHEAD_BYTES: u64 = 8;
const PAGED_SET: u8 = 6;

/// The head of a set in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagedSet {
    clock: Clock,
    deferred: Deferred,
    members: u64,
    member_bytes: u64,
    digest: u128,
}

/// The source of pages.
pub trait PageSource {
    /// The reason why a page cannot be read.
    type Error: std::error::Error + 'static;

    /// The bytes of a page; `None` when there is none of this number.
    fn page(&mut self, number: u32) -> Result<Option<Bytes>, Self::Error>;
}

/// The writes of a change, to be made in one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageChange {
    /// The new head.
    pub head: PagedSet,
    /// Pages to write, or to remove.
    pub pages: BTreeMap<u32, Option<Bytes>>,
}

/// A set in pages cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum PagedSetError<E: std::error::Error + 'static> {
    /// A page cannot be read.
    #[error("page {number} of a set cannot be read")]
    Source {
        /// The page.
        number: u32,
        /// The reason.
        #[source]
        source: E,
    },
    /// A page in the head's count was not found: the copy is damaged.
    #[error("page {number} of a set is missing")]
    Missing {
        /// The page.
        number: u32,
    },
    /// A page is malformed: the copy is damaged.
    #[error("page {number} of a set is damaged")]
    Page {
        /// The page.
        number: u32,
        /// The reason.
        #[source]
        source: DecodeError,
    },
    /// The pages do not add up to the head: the copy is damaged.
    #[error(
        "pages of a set have {found} members, or others than its head says, which is {expected}"
    )]
    Digest {
        /// Members found.
        found: u64,
        /// Number of members in the head.
        expected: u64,
    },
    /// The operation cannot be carried out.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The whole set of the other replica is needed.
    #[error(transparent)]
    Gap(#[from] Gap),
}

impl Set {
    /// The members' bytes, with the overhead of each.
    pub fn member_bytes(&self) -> u64 {
        self.parts.keys().map(counted_bytes).sum()
    }

    /// True when the set has to be stored in pages.
    pub fn is_large(&self) -> bool {
        self.member_bytes() > WHOLE_BYTES_MAX
    }
}

impl PagedSet {
    /// A whole set in pages.
    pub fn split(set: &Set) -> PageChange {
        let mut head = Self {
            clock: set.clock.clone(),
            deferred: set.deferred.clone(),
            members: 0,
            member_bytes: 0,
            digest: 0,
        };
        for (member, dots) in &set.parts {
            head.count_in(member, dots);
        }
        let count = head.page_count();
        let mut pages: BTreeMap<u32, Members> = (0..count).map(|it| (it, Members::new())).collect();
        for (member, dots) in &set.parts {
            let page = pages.entry(page_of(member, count)).or_default();
            page.insert(member.clone(), dots.clone());
        }
        let encoded = |(number, members): (u32, Members)| (number, Some(encode_page(&members)));
        PageChange {
            head,
            pages: pages.into_iter().map(encoded).collect(),
        }
    }

    /// The clock that the set has seen.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The number of members.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// The members' bytes, with the overhead of each.
    pub fn member_bytes(&self) -> u64 {
        self.member_bytes
    }

    /// True when the set has to be stored in pages, not whole.
    pub fn is_large(&self) -> bool {
        self.member_bytes > WHOLE_BYTES_MAX
    }

    /// The number of pages; they are numbered from 0.
    pub fn page_count(&self) -> u32 {
        let pages = self.member_bytes.div_ceil(PAGE_BYTES).max(1);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// Carries out changes, all or none; returns the pages to write, and the delta that the other
    /// replicas need.
    ///
    /// # Errors
    /// [`PagedSetError`]; nothing must be written.
    pub fn update<S: PageSource>(
        &self,
        changes: &[SetChange],
        update: Update<'_>,
        source: &mut S,
    ) -> Result<(PageChange, SetDelta), PagedSetError<S::Error>> {
        let names = changes.iter().map(|change| change.member().clone());
        let mut names: BTreeSet<Bytes> = names.collect();
        names.extend(waiting_members(&self.deferred));
        self.change(names, source, |set| Ok(set.update(changes, update)?))
    }

    /// Applies the changes of an update at another replica; returns the pages to write.
    ///
    /// # Errors
    /// [`PagedSetError`]; nothing must be written.
    pub fn join<S: PageSource>(
        &self,
        delta: SetDelta,
        source: &mut S,
    ) -> Result<PageChange, PagedSetError<S::Error>> {
        let mut names: BTreeSet<Bytes> = delta.parts.keys().cloned().collect();
        names.extend(waiting_members(&self.deferred));
        names.extend(waiting_members(&delta.removes));
        let (change, ()) = self.change(names, source, |set| Ok(set.join(delta)?))?;
        Ok(change)
    }

    /// Reads all pages.
    ///
    /// # Errors
    /// [`PagedSetError`] when a page is missing or damaged, or the pages do not add up to the head.
    pub fn assemble<S: PageSource>(&self, source: &mut S) -> Result<Set, PagedSetError<S::Error>> {
        let mut found = Self {
            clock: self.clock.clone(),
            deferred: self.deferred.clone(),
            members: 0,
            member_bytes: 0,
            digest: 0,
        };
        let mut parts = Members::new();
        for number in 0..self.page_count() {
            let page = read_page(source, number)?;
            page.iter()
                .for_each(|(member, dots)| found.count_in(member, dots));
            parts.extend(page);
        }
        if found != *self {
            return Err(PagedSetError::Digest {
                found: found.members,
                expected: self.members,
            });
        }
        Ok(Set {
            clock: self.clock.clone(),
            parts,
            deferred: self.deferred.clone(),
        })
    }

    /// The bytes of the head.
    ///
    /// ```text
    /// head     = version   u8      1
    ///            kind      u8      6
    ///            clock
    ///            deferred
    ///            members   varint  their number
    ///            bytes     varint  of all members, and 8 for each
    ///            digest    u128    little-endian: the sum of the members' hashes
    /// ```
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION, PAGED_SET];
        put_clock(&mut out, &self.clock);
        put_deferred(&mut out, &self.deferred);
        put_varint(&mut out, self.members);
        put_varint(&mut out, self.member_bytes);
        out.put_u128_le(self.digest);
        out.into()
    }

    /// Reads what [`PagedSet::encode`] wrote; `None` when the bytes are a value that is not in pages.
    ///
    /// # Errors
    /// [`DecodeError`] for a head that is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        if reader.u8()? != PAGED_SET {
            return Ok(None);
        }
        let head = Self {
            clock: read_clock(&mut reader)?,
            deferred: read_deferred(&mut reader)?,
            members: reader.varint()?,
            member_bytes: reader.varint()?,
            digest: u128::from_le_bytes(reader.array()?),
        };
        check_end(&reader)?;
        Ok(Some(head))
    }

    fn change<S: PageSource, R>(
        &self,
        names: BTreeSet<Bytes>,
        source: &mut S,
        edit: impl FnOnce(&mut Set) -> Result<R, PagedSetError<S::Error>>,
    ) -> Result<(PageChange, R), PagedSetError<S::Error>> {
        let mut pages = Pages::new(source, self.page_count());
        let mut set = Set {
            clock: self.clock.clone(),
            parts: pages.members(&names)?,
            deferred: self.deferred.clone(),
        };
        let result = edit(&mut set)?;
        let mut head = self.clone();
        for name in names {
            let after = set.parts.remove(&name);
            head.replace(&name, pages.replace(&name, after.clone())?, after);
        }
        assert!(set.parts.is_empty(), "no other members were changed");
        head.clock = set.clock;
        head.deferred = set.deferred;
        pages.resize(head.page_count())?;
        let pages = pages.changed();
        Ok((PageChange { head, pages }, result))
    }

    fn replace(&mut self, member: &Bytes, before: Option<Dots>, after: Option<Dots>) {
        if let Some(dots) = before {
            self.members = self.members.saturating_sub(1);
            let bytes = counted_bytes(member);
            self.member_bytes = self.member_bytes.saturating_sub(bytes);
            self.digest = self.digest.wrapping_sub(hash_of(member, &dots));
        }
        if let Some(dots) = after {
            self.count_in(member, &dots);
        }
    }

    fn count_in(&mut self, member: &Bytes, dots: &Dots) {
        self.members = self.members.saturating_add(1);
        let bytes = counted_bytes(member);
        self.member_bytes = self.member_bytes.saturating_add(bytes);
        self.digest = self.digest.wrapping_add(hash_of(member, dots));
    }
}

/// Pages of one set while it is changed.
struct Pages<'a, S> {
    source: &'a mut S,
    count: u32,
    /// Pages that were read, with their changes.
    loaded: BTreeMap<u32, Members>,
    changed: BTreeSet<u32>,
    removed: BTreeSet<u32>,
}

impl<'a, S: PageSource> Pages<'a, S> {
    fn new(source: &'a mut S, count: u32) -> Self {
        Self {
            source,
            count,
            loaded: BTreeMap::new(),
            changed: BTreeSet::new(),
            removed: BTreeSet::new(),
        }
    }

    fn page(&mut self, number: u32) -> Result<&mut Members, PagedSetError<S::Error>> {
        if !self.loaded.contains_key(&number) {
            let page = read_page(self.source, number)?;
            self.loaded.insert(number, page);
        }
        Ok(self.loaded.entry(number).or_default())
    }

    /// The named members that are in the set.
    fn members(&mut self, names: &BTreeSet<Bytes>) -> Result<Members, PagedSetError<S::Error>> {
        let mut members = Members::new();
        for name in names {
            let page = self.page(page_of(name, self.count))?;
            if let Some(dots) = page.get(name) {
                members.insert(name.clone(), dots.clone());
            }
        }
        Ok(members)
    }

    /// Puts a member in its page, or removes it, and returns the former entry.
    fn replace(
        &mut self,
        name: &Bytes,
        after: Option<Dots>,
    ) -> Result<Option<Dots>, PagedSetError<S::Error>> {
        let number = page_of(name, self.count);
        let page = self.page(number)?;
        let before = page.remove(name);
        let is_changed = before != after;
        if let Some(dots) = after {
            page.insert(name.clone(), dots);
        }
        if is_changed {
            self.changed.insert(number);
        }
        Ok(before)
    }

    /// Divides pages, or joins them, until there are as many as the members need.
    fn resize(&mut self, count: u32) -> Result<(), PagedSetError<S::Error>> {
        while self.count < count {
            self.divide()?;
        }
        while self.count > count {
            self.fold_last()?;
        }
        Ok(())
    }

    /// Makes one more page, with members of the page that is divided.
    fn divide(&mut self) -> Result<(), PagedSetError<S::Error>> {
        let number = self.count;
        let parent = parent_of(number);
        self.count += 1;
        let count = self.count;
        let page = self.page(parent)?;
        let (moved, kept): (Members, Members) = std::mem::take(page)
            .into_iter()
            .partition(|(member, _)| page_of(member, count) == number);
        *page = kept;
        self.loaded.insert(number, moved);
        self.removed.remove(&number);
        self.changed.extend([parent, number]);
        Ok(())
    }

    /// Moves the members of the last page back to the page that was divided for it.
    fn fold_last(&mut self) -> Result<(), PagedSetError<S::Error>> {
        let number = self.count - 1;
        let members = std::mem::take(self.page(number)?);
        self.count = number;
        let parent = parent_of(number);
        self.page(parent)?.extend(members);
        self.loaded.remove(&number);
        self.changed.remove(&number);
        self.changed.insert(parent);
        self.removed.insert(number);
        Ok(())
    }

    fn changed(self) -> BTreeMap<u32, Option<Bytes>> {
        let written = self
            .loaded
            .iter()
            .filter(|(it, _)| self.changed.contains(it));
        let written = written.map(|(number, members)| (*number, Some(encode_page(members))));
        let removed = self.removed.iter().map(|number| (*number, None));
        written.chain(removed).collect()
    }
}

/// The page of a member in a set with this many pages.
pub fn page_of(member: &[u8], count: u32) -> u32 {
    let mask = u64::from(count).next_power_of_two() - 1;
    let hash = xxh3_64(member);
    let place = match hash & mask {
        place if place < u64::from(count) => place,
        place => place & (mask >> 1),
    };
    u32::try_from(place).unwrap_or(0)
}

/// The page that was divided to make this one.
fn parent_of(number: u32) -> u32 {
    assert!(number > 0, "the first page is a part of no other");
    number & !(1 << number.ilog2())
}

fn read_page<S: PageSource>(
    source: &mut S,
    number: u32,
) -> Result<Members, PagedSetError<S::Error>> {
    let found = source.page(number);
    let found = found.map_err(|source| PagedSetError::Source { number, source })?;
    let bytes = found.ok_or(PagedSetError::Missing { number })?;
    decode_page(&bytes).map_err(|source| PagedSetError::Page { number, source })
}

/// The bytes of a page.
///
/// ```text
/// page     = version   u8      1
///            clock             of the members' dots
///            members
/// ```
fn encode_page(members: &Members) -> Bytes {
    let clock = clock_of(members);
    let mut out = vec![VERSION];
    put_clock(&mut out, &clock);
    put_members(&mut out, members, &ActorTable::of(&clock));
    out.into()
}

fn decode_page(bytes: &[u8]) -> Result<Members, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    check_version(&mut reader)?;
    let clock = read_clock(&mut reader)?;
    let members = read_members(&mut reader, &ActorTable::of(&clock))?;
    check_end(&reader)?;
    match clock == clock_of(&members) {
        true => Ok(members),
        false => Err(DecodeError::Malformed { offset: 1 }),
    }
}

fn counted_bytes(member: &Bytes) -> u64 {
    member.len() as u64 + MEMBER_OVERHEAD_BYTES
}

fn hash_of(member: &Bytes, dots: &Dots) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&(member.len() as u64).to_le_bytes());
    hash.update(member);
    dots.each_dot(&mut |dot| {
        hash.update(&dot.actor.0.to_le_bytes());
        hash.update(&dot.counter.to_le_bytes());
    });
    hash.digest128()
}

fn waiting_members(deferred: &Deferred) -> impl Iterator<Item = Bytes> + '_ {
    let targets = deferred.iter().flat_map(|(_, targets)| targets);
    targets.filter_map(|target| match &target.removal {
        Removal::Member(member) if target.path.is_empty() => Some(member.clone()),
        Removal::Member(_) | Removal::Field(_) | Removal::Flag => None,
    })
}
