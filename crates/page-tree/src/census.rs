//! A walk over all pages of a tree, past every cache. It finds damage before a reader does, and the
//! tree's pages in a file that cannot be read from its beginning.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Result;

use crate::entry::{Body, Entry};
use crate::page::{BODY_LEVEL, Page};
use crate::place::PagePlace;
use crate::reach::taken_bytes;
use crate::tree::{Child, LostPage, PageRead, Tree, range};

/// The next item of a census.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A page, and a key that leads to it.
    Page(Bytes, PagePlace),
    /// A branch with one unreadable copy. A rewrite that touches the first key of its range
    /// rewrites it.
    OneCopy(LostPage),
    /// An unreadable page; the pages below it cannot be read either.
    Lost(LostPage),
    /// The end of the tree.
    End,
}

/// A walk over all pages of a tree. Only the places of unread pages next to one path are in memory.
pub struct Census {
    tree: Tree,
    left: Vec<Left>,
}

/// A page to read.
struct Left {
    place: PagePlace,
    level: u8,
    lower: Bytes,
    /// The first key behind the page.
    upper: Option<Bytes>,
}

impl Left {
    fn lost(&self, found: String) -> LostPage {
        LostPage {
            place: self.place,
            is_branch: self.level > 0 && self.level != BODY_LEVEL,
            range: range(&self.lower, self.upper.as_ref()),
            found,
        }
    }
}

impl Census {
    /// A census of a tree.
    pub fn new(tree: Tree) -> Self {
        let root = tree.root().map(|root| Left {
            place: root.place,
            level: root.level,
            lower: Bytes::new(),
            upper: None,
        });
        Self {
            tree,
            left: root.into_iter().collect(),
        }
    }

    /// Advances to the next page. Returns the bytes read too.
    ///
    /// # Errors
    /// Errors of the disk that do not concern a single page.
    pub fn advance(&mut self) -> Result<(Counted, u64)> {
        let Some(next) = self.left.pop() else {
            return Ok((Counted::End, 0));
        };
        let bytes = taken_bytes(&next.place, next.level);
        let (page, found) = match self.read(&next) {
            Ok(read) => read,
            Err(error) => {
                self.left.push(next);
                return Err(error);
            }
        };
        let Some(page) = page else {
            return Ok((Counted::Lost(next.lost(found)), bytes));
        };
        self.add_below(&page, &next);
        let counted = match found.is_empty() {
            true => Counted::Page(next.lower, next.place),
            false => Counted::OneCopy(next.lost(found)),
        };
        Ok((counted, bytes))
    }

    /// The page, if one of its copies can be read, and the damage of an unreadable copy.
    fn read(&self, next: &Left) -> Result<(Option<Arc<Page>>, String)> {
        let copies = taken_bytes(&next.place, next.level) / u64::from(next.place.len.max(1));
        let (mut whole, mut damage, mut is_unread) = (None, String::new(), false);
        for copy in 0..copies {
            let read = self.tree.read_copy(&next.place, next.level, copy > 0)?;
            match read {
                PageRead::Page(page) => whole = Some(page),
                PageRead::Damaged(found) => damage = found,
                PageRead::Unread(found) => (damage, is_unread) = (found, true),
                PageRead::WouldBlock => return Err(crate::walk::unread()),
            }
        }
        if whole.is_none() && is_unread && !self.tree.is_given_up(&next.place) {
            return Err(crate::tree::unread(&next.place, &damage));
        }
        Ok((whole, damage))
    }

    fn add_below(&mut self, page: &Page, above: &Left) {
        match above.level {
            0 => self.left.extend(bodies_of(page)),
            BODY_LEVEL => {}
            level => self.left.extend(children_of(page, level - 1, above)),
        }
    }
}

/// The children in reverse order, since the vector's last page is read first.
fn children_of(branch: &Page, level: u8, above: &Left) -> Vec<Left> {
    let children = (0..branch.items()).filter_map(|index| Child::of(branch, index).ok());
    let mut below: Vec<Left> = Vec::new();
    for child in children {
        let is_first = below.is_empty();
        if let Some(before) = below.last_mut() {
            before.upper = Some(child.lower.clone());
        }
        below.push(Left {
            place: child.place,
            level,
            // The first child also serves lookups of keys before it.
            lower: if is_first {
                above.lower.clone()
            } else {
                child.lower
            },
            upper: above.upper.clone(),
        });
    }
    below.reverse();
    below
}

fn bodies_of(leaf: &Page) -> Vec<Left> {
    let body_of = |index: usize| {
        let entry = Entry::decode(&leaf.value(index)).ok()?;
        let Body::Apart { place, .. } = entry.body else {
            return None;
        };
        let key = leaf.key(index);
        Some(Left {
            place,
            level: BODY_LEVEL,
            upper: Some(kvorum_encoding::successor(&key)),
            lower: key,
        })
    };
    (0..leaf.items()).rev().filter_map(body_of).collect()
}
