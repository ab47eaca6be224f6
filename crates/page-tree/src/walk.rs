//! Walks through a tree in key order.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::Reading;
use kvorum_encoding::Truncated;

use crate::entry::Entry;
use crate::page::Page;
use crate::place::PagePlace;
use crate::tree::{self, Child, LostPage, PageRead, Tree, range};

/// The next item of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walked {
    /// A key and its entry.
    Entry(Bytes, Entry),
    /// An unreadable page.
    Lost(LostPage),
    /// The end of the tree.
    End,
}

/// A walk in ascending order from a key. It keeps the pages of one path.
pub struct Walk {
    tree: Tree,
    from: Bytes,
    /// Pages from the root down to a leaf.
    path: Vec<Stop>,
    is_begun: bool,
}

/// A page of the path, and its next item.
struct Stop {
    page: Arc<Page>,
    level: u8,
    next: usize,
    /// The start of the keys that the page serves.
    lower: Bytes,
    /// The first key behind the page.
    upper: Option<Bytes>,
}

impl Walk {
    /// A walk over the keys from this key on.
    pub fn new(tree: Tree, from: Bytes) -> Self {
        Self {
            tree,
            from,
            path: Vec::new(),
            is_begun: false,
        }
    }

    /// Advances to the next key, or to the next unreadable page.
    ///
    /// # Errors
    /// As for [`Tree::get`].
    pub fn advance(&mut self) -> Result<Walked> {
        if !self.is_begun {
            self.is_begun = true;
            if let Some(root) = self.tree.root() {
                let lost = self.enter(root.place, root.level, Bytes::new(), None)?;
                if let Some(lost) = lost {
                    return Ok(lost);
                }
            }
        }
        loop {
            let Some(stop) = self.path.last_mut() else {
                return Ok(Walked::End);
            };
            if stop.next >= stop.page.items() {
                self.path.pop();
                continue;
            }
            let (index, page) = (stop.next, stop.page.clone());
            stop.next += 1;
            let step = match stop.level {
                0 => self.entry(&page, index)?,
                level => self.descend(&page, index, level)?,
            };
            if let Some(walked) = step {
                return Ok(walked);
            }
        }
    }

    fn entry(&self, leaf: &Page, index: usize) -> Result<Option<Walked>> {
        let entry = Entry::decode(&leaf.value(index)).map_err(undecodable)?;
        Ok(Some(Walked::Entry(leaf.key(index), entry)))
    }

    fn descend(&mut self, branch: &Page, index: usize, level: u8) -> Result<Option<Walked>> {
        let child = Child::of(branch, index).map_err(undecodable)?;
        let stop = self.path.last();
        // The first child also serves lookups of keys before it.
        let lower = match (index, stop) {
            (0, Some(stop)) => stop.lower.clone(),
            _ => child.lower,
        };
        let upper = match index + 1 < branch.items() {
            true => Some(branch.key(index + 1)),
            false => stop.and_then(|it| it.upper.clone()),
        };
        self.enter(child.place, level - 1, lower, upper)
    }

    /// Enters a page at its first wanted key; returns the loss if the page is unreadable.
    fn enter(
        &mut self,
        place: PagePlace,
        level: u8,
        lower: Bytes,
        upper: Option<Bytes>,
    ) -> Result<Option<Walked>> {
        // Leaves are read once, and would evict pages that are read often.
        let page = match self
            .tree
            .read(&place, level, Reading::MayBlock, level > 0)?
        {
            PageRead::Page(page) => page,
            PageRead::Damaged(found) => {
                let from = lower.max(self.from.clone());
                return Ok(Some(Walked::Lost(LostPage {
                    place,
                    is_branch: level > 0,
                    range: range(&from, upper.as_ref()),
                    found,
                })));
            }
            PageRead::Unread(found) => return Err(tree::unread(&place, &found)),
            PageRead::WouldBlock => return Err(unread()),
        };
        let next = match level {
            0 => page.search(&self.from).unwrap_or_else(|index| index),
            _ => page.child_for(&self.from),
        };
        self.path.push(Stop {
            page,
            level,
            next,
            lower,
            upper,
        });
        Ok(None)
    }
}

/// An error for a page with a right checksum and impossible contents.
pub(crate) fn undecodable(error: Truncated) -> BackendError {
    let detail = format!("an item of a page with a good checksum does not decode: {error}");
    BackendError::new(ErrorKind::Corrupt, detail)
}

/// The error for a read that was allowed to wait and returned nothing.
pub(crate) fn unread() -> BackendError {
    BackendError::new(ErrorKind::Unread, "a page was not read")
}
