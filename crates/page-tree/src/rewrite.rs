//! Making the next tree: sorted changes are merged into the leaves that they touch, and these
//! leaves and the branches above are rewritten.
//!
//! The rewrite passes the tree once, in ascending order. It has a *frame* for each branch on the
//! path to its present leaf, with the remaining old children and the new children. Untouched pages
//! are not read; the new branch gets their places. A leaf that becomes small is merged with its
//! neighbour, and a leaf that becomes large is split. A leaf without keys is left out if the leaf
//! before it is readable.
//!
//! A rewrite is not visible before its end. If it is abandoned, its pages are garbage.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Fields, Result, StepOutcome};
use kvorum_disk::Reading;

use crate::entry::{Body, Entry};
use crate::file::PageFile;
use crate::output::{Output, OutputSettings, WrittenFile};
use crate::page::{BODY_LEVEL, Item};
use crate::place::PagePlace;
use crate::reach::{live_bytes, taken_bytes};
use crate::tree::{self, Child, Found, LostPage, PageRead, Root, Tree, range};
use crate::walk::{undecodable, unread};

/// A leaf smaller than a page by this factor is merged with its neighbour.
const SMALL_FACTOR: usize = 4;

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key gets this entry. The body is inline.
    Put(Entry),
    /// The key is removed.
    Remove,
    /// The key stays the same, but the pages on the way to it are rewritten.
    Touch,
}

/// Changes in ascending order of their keys, each key once.
pub type Changes = Box<dyn Iterator<Item = (Bytes, Change)> + Send>;

/// Sizes of pages.
#[derive(Clone)]
pub struct RewriteSettings {
    /// The approximate size of pages. One entry may make a page larger.
    pub page_bytes: usize,
    /// A body of this size or more gets a page of its own.
    pub body_apart_bytes: usize,
    /// Files to empty: a rewrite copies the bodies that it passes in them.
    pub leaving: BTreeSet<u64>,
}

/// The result of a rewrite: durable, and valid once a manifest names it.
pub struct Rewritten {
    /// The next tree, over the files of the old tree and the written files.
    pub tree: Tree,
    /// The files that were written, and the end of the last page of each.
    pub written: BTreeMap<u64, u64>,
    /// Bytes of each file that are in the next tree and not in the old one.
    pub added: BTreeMap<u64, u64>,
    /// Bytes of each file that are in the old tree and not in the next one.
    pub retired: BTreeMap<u64, u64>,
    /// Bytes of bodies on pages of their own: added, and removed.
    pub bodies: (u64, u64),
    /// Unreadable pages. Their keys are not in the next tree.
    pub lost: Vec<LostPage>,
}

/// See the module.
pub struct Rewrite {
    tree: Tree,
    settings: RewriteSettings,
    changes: Peekable<Changes>,
    is_gone: Box<dyn Fn(&Fields) -> bool + Send>,
    output: Output,
    /// The first frame is above the root, its only child.
    frames: Vec<Frame>,
    added: BTreeMap<u64, u64>,
    retired: BTreeMap<u64, u64>,
    bodies: (u64, u64),
    lost: Vec<LostPage>,
    /// Bytes read and written in this step.
    cost_bytes: u64,
}

/// A branch on the path.
struct Frame {
    /// The level of its children.
    level: u8,
    lower: Bytes,
    /// The first key behind the branch.
    upper: Option<Bytes>,
    /// The old children.
    old: Vec<Child>,
    /// The index of the next old child.
    next: usize,
    /// The new children.
    children: Vec<Child>,
    /// The leaf being merged, if the children are leaves.
    leaf: Option<OpenLeaf>,
    /// Merged items that are not on a page yet, and their bytes on pages.
    pending: Pending,
}

struct OpenLeaf {
    items: Peekable<std::vec::IntoIter<Item>>,
    upper: Option<Bytes>,
}

/// Items on their way to leaves.
#[derive(Default)]
struct Pending {
    /// The start of the keys that the next leaf serves.
    lower: Option<Bytes>,
    items: Vec<Item>,
    bytes: usize,
}

impl Pending {
    fn push(&mut self, item: Item) {
        // Once a page was written, the next leaf begins with its own first key.
        self.lower.get_or_insert_with(|| item.key.clone());
        self.bytes += item.page_bytes();
        self.items.push(item);
    }

    /// Takes items from the front, for a page of about this many bytes, and at least one. Returns
    /// them with the page's lower bound.
    fn take_front(&mut self, page_bytes: usize) -> Option<(Bytes, Vec<Item>)> {
        let mut bytes = 0;
        let fits = |item: &&Item| {
            let is_first = bytes == 0;
            bytes += item.page_bytes();
            is_first || bytes <= page_bytes
        };
        let count = self.items.iter().take_while(fits).count();
        let rest = self.items.split_off(count);
        let behind = rest.first().map(|it| it.key.clone());
        let lower = std::mem::replace(&mut self.lower, behind)?;
        let front = std::mem::replace(&mut self.items, rest);
        self.bytes = self.items.iter().map(Item::page_bytes).sum();
        Some((lower, front))
    }
}

impl Frame {
    fn of_children(level: u8, old: Vec<Child>, lower: Bytes, upper: Option<Bytes>) -> Self {
        Self {
            level,
            lower,
            upper,
            old,
            next: 0,
            children: Vec::new(),
            leaf: None,
            pending: Pending::default(),
        }
    }

    fn is_behind(&self, key: &Bytes) -> bool {
        self.upper.as_ref().is_some_and(|upper| key >= upper)
    }

    /// Keeps the old children before the key.
    fn pass_to(&mut self, key: &Bytes) {
        while let Some(behind) = self.old.get(self.next + 1) {
            if behind.lower > *key {
                break;
            }
            self.children.push(self.old[self.next].clone());
            self.next += 1;
        }
    }

    /// The next old child, and the range of keys that it serves.
    fn take_child(&mut self) -> Option<(Child, Bytes, Option<Bytes>)> {
        let child = self.old.get(self.next)?.clone();
        let lower = match self.next {
            0 => self.lower.clone(),
            _ => child.lower.clone(),
        };
        self.next += 1;
        let behind = self.old.get(self.next).map(|it| it.lower.clone());
        Some((child, lower, behind.or_else(|| self.upper.clone())))
    }

    fn has_more(&self) -> bool {
        self.next < self.old.len()
    }
}

impl Rewrite {
    /// Begins a rewrite of a tree. It drops the entries on its way for which `is_gone` is true.
    pub fn new(
        tree: Tree,
        changes: Changes,
        settings: RewriteSettings,
        output: OutputSettings,
        is_gone: Box<dyn Fn(&Fields) -> bool + Send>,
    ) -> Self {
        let root = tree.root().map(|root| Child {
            lower: Bytes::new(),
            place: root.place,
            keys: root.keys,
        });
        let level = tree.root().map_or(0, |root| root.level);
        let above = Frame::of_children(level, root.into_iter().collect(), Bytes::new(), None);
        Self {
            tree,
            settings,
            changes: changes.peekable(),
            is_gone,
            output: Output::new(output),
            frames: vec![above],
            added: BTreeMap::new(),
            retired: BTreeMap::new(),
            bodies: (0, 0),
            lost: Vec::new(),
            cost_bytes: 0,
        }
    }

    /// Continues until about this many bytes were read and written, or until the end.
    ///
    /// # Errors
    /// Those of the disk. The rewrite has to be abandoned then.
    pub fn step(&mut self, budget_bytes: u64) -> Result<StepOutcome> {
        self.cost_bytes = 0;
        loop {
            if !self.advance()? {
                return Ok(StepOutcome::done(self.cost_bytes));
            }
            if self.cost_bytes >= budget_bytes {
                return Ok(StepOutcome::partial(self.cost_bytes));
            }
        }
    }

    /// Merges about one page, or moves along the path; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(false);
        };
        if frame.leaf.is_some() {
            self.merge()?;
            return Ok(true);
        }
        // A small leaf is merged with its neighbour.
        if !frame.pending.items.is_empty() {
            self.open_leaf()?;
            return Ok(true);
        }
        let Some((key, _)) = self.changes.peek() else {
            return self.ascend();
        };
        if frame.is_behind(key) {
            return self.ascend();
        }
        frame.pass_to(key);
        match frame.level {
            0 => self.open_leaf()?,
            _ => self.descend()?,
        }
        Ok(true)
    }

    /// Leaves the lowest branch of the path; false above the root.
    fn ascend(&mut self) -> Result<bool> {
        if self.frames.len() <= 1 {
            return Ok(false);
        }
        let Some(mut frame) = self.frames.pop() else {
            return Ok(false);
        };
        let passed = frame.old.drain(frame.next..);
        frame.children.extend(passed);
        let Some(above) = self.frames.last() else {
            return Ok(false);
        };
        let level_above = above.level;
        let mut children = frame.children;
        // In place of a lost branch there are only leaves, so the levels between are written again.
        for level in frame.level + 1..=level_above {
            children = self.write_branches(level, &children)?;
        }
        if let Some(above) = self.frames.last_mut() {
            above.children.extend(children);
        }
        Ok(true)
    }

    /// Enters the next branch.
    fn descend(&mut self) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let level = frame.level;
        let Some((child, lower, upper)) = frame.take_child() else {
            return Ok(());
        };
        self.retire(&child.place, level);
        let frame = match self
            .tree
            .read(&child.place, level, Reading::MayBlock, true)?
        {
            PageRead::Page(page) => {
                self.cost_bytes += u64::from(child.place.len);
                let children = (0..page.items()).map(|it| Child::of(&page, it));
                let children: std::result::Result<Vec<Child>, _> = children.collect();
                Frame::of_children(level - 1, children.map_err(undecodable)?, lower, upper)
            }
            PageRead::Damaged(found) => {
                self.lose(child.place, true, (&lower, upper.as_ref()), found);
                Frame::of_children(0, Vec::new(), lower, upper)
            }
            PageRead::Unread(found) => return Err(tree::unread(&child.place, &found)),
            PageRead::WouldBlock => return Err(unread()),
        };
        self.frames.push(frame);
        Ok(())
    }

    /// Begins to merge the next leaf, or takes changes without a leaf.
    fn open_leaf(&mut self) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let Some((child, lower, upper)) = frame.take_child() else {
            let lower = frame.lower.clone();
            frame.pending.lower.get_or_insert(lower);
            frame.leaf = Some(OpenLeaf {
                items: Vec::new().into_iter().peekable(),
                upper: frame.upper.clone(),
            });
            return Ok(());
        };
        frame.pending.lower.get_or_insert_with(|| lower.clone());
        self.retire(&child.place, 0);
        let items = match self.tree.read(&child.place, 0, Reading::MayBlock, false)? {
            PageRead::Page(page) => (0..page.items()).map(|it| page.item(it)).collect(),
            PageRead::Damaged(found) => {
                self.lose(child.place, false, (&lower, upper.as_ref()), found);
                Vec::new()
            }
            PageRead::Unread(found) => return Err(tree::unread(&child.place, &found)),
            PageRead::WouldBlock => return Err(unread()),
        };
        self.cost_bytes += u64::from(child.place.len);
        if let Some(frame) = self.frames.last_mut() {
            frame.leaf = Some(OpenLeaf {
                items: items.into_iter().peekable(),
                upper,
            });
        }
        Ok(())
    }

    /// Merges the open leaf until there is a page to write, or until the leaf's end.
    fn merge(&mut self) -> Result<()> {
        let page_bytes = self.settings.page_bytes;
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(());
            };
            if frame.pending.bytes >= 2 * page_bytes {
                return self.write_leaf(page_bytes);
            }
            let Some(leaf) = &mut frame.leaf else {
                return Ok(());
            };
            match next_of(leaf, &mut self.changes) {
                Next::Kept(item) => self.keep(item)?,
                Next::Changed(old, key, change) => self.change(old, key, change)?,
                Next::End => return self.close_leaf(),
            }
        }
    }

    /// Keeps an unchanged or only touched item, unless it is dropped or its body moves.
    fn keep(&mut self, item: Item) -> Result<()> {
        let Ok(entry) = Entry::decode(&item.value) else {
            // Kept as it is: reads of the item return the error.
            self.push(item);
            return Ok(());
        };
        if (self.is_gone)(&entry.fields) {
            self.retire_body(&entry);
            return Ok(());
        }
        let item = match self.moved(&item.key, &entry)? {
            Some(moved) => encoded(item.key, &moved),
            None => item,
        };
        self.push(item);
        Ok(())
    }

    fn change(&mut self, old: Option<Item>, key: Bytes, change: Change) -> Result<()> {
        if change == Change::Touch {
            return old.map_or(Ok(()), |old| self.keep(old));
        }
        let old = old.and_then(|it| Entry::decode(&it.value).ok());
        if let Some(old) = old {
            self.retire_body(&old);
        }
        let Change::Put(entry) = change else {
            return Ok(());
        };
        if (self.is_gone)(&entry.fields) {
            return Ok(());
        }
        let entry = self.with_body_apart(&key, entry)?;
        self.push(encoded(key, &entry));
        Ok(())
    }

    fn push(&mut self, item: Item) {
        if let Some(frame) = self.frames.last_mut() {
            frame.pending.push(item);
        }
    }

    /// The entry with its body on a page of its own, if the body is large.
    fn with_body_apart(&mut self, key: &Bytes, entry: Entry) -> Result<Entry> {
        let body = match &entry.body {
            Body::Inline(body) if body.len() >= self.settings.body_apart_bytes => body.clone(),
            _ => return Ok(entry),
        };
        let place = self.output.append_body(key, &body)?;
        self.add(&place, BODY_LEVEL);
        let len = body.len() as u64;
        Ok(Entry {
            body: Body::Apart { place, len },
            ..entry
        })
    }

    /// The entry with its body in another place, if the body's file is being emptied. An unreadable
    /// body stays, and is lost with the file.
    fn moved(&mut self, key: &Bytes, entry: &Entry) -> Result<Option<Entry>> {
        let Body::Apart { place, .. } = &entry.body else {
            return Ok(None);
        };
        if !self.settings.leaving.contains(&place.file) {
            return Ok(None);
        }
        let body = match self.tree.body(key, entry, Reading::MayBlock)? {
            Found::Here(body) => body,
            Found::Lost(lost) => {
                self.lost.push(lost);
                return Ok(None);
            }
            Found::Absent | Found::WouldBlock => return Err(unread()),
        };
        self.cost_bytes += u64::from(place.len);
        self.retire(place, BODY_LEVEL);
        let inline = Entry {
            body: Body::Inline(body),
            ..entry.clone()
        };
        self.with_body_apart(key, inline).map(Some)
    }

    /// Ends a leaf. Its rest is written, unless the rest is small and there is a neighbour.
    fn close_leaf(&mut self) -> Result<()> {
        let page_bytes = self.settings.page_bytes;
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        frame.leaf = None;
        if frame.pending.items.is_empty() {
            return self.close_empty();
        }
        if frame.pending.bytes < page_bytes / SMALL_FACTOR && frame.has_more() {
            return Ok(());
        }
        let pages = frame.pending.bytes.div_ceil(page_bytes).max(1);
        let each = frame.pending.bytes.div_ceil(pages);
        while self.has_pending() {
            self.write_leaf(each)?;
        }
        Ok(())
    }

    /// Ends a leaf without keys, whose lookups the leaf before it will serve. If that leaf is
    /// unreadable, lookups would fail; in this case, and if there is no leaf before, a page without
    /// keys is written.
    fn close_empty(&mut self) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let Some(lower) = frame.pending.lower.take() else {
            return Ok(());
        };
        let before = frame.children.last().map(|it| it.place);
        if let Some(before) = before
            && self.is_readable(&before)?
        {
            return Ok(());
        }
        self.add_leaf(lower, &[])
    }

    fn is_readable(&mut self, leaf: &PagePlace) -> Result<bool> {
        if self.output.files_begun().contains(&leaf.file) {
            return Ok(true);
        }
        self.cost_bytes += u64::from(leaf.len);
        let read = self.tree.read(leaf, 0, Reading::MayBlock, false)?;
        Ok(matches!(read, PageRead::Page(_)))
    }

    fn has_pending(&self) -> bool {
        let frame = self.frames.last();
        frame.is_some_and(|it| !it.pending.items.is_empty())
    }

    /// Writes a leaf of about this many bytes from pending items.
    fn write_leaf(&mut self, page_bytes: usize) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let Some((lower, items)) = frame.pending.take_front(page_bytes) else {
            return Ok(());
        };
        self.add_leaf(lower, &items)
    }

    fn add_leaf(&mut self, lower: Bytes, items: &[Item]) -> Result<()> {
        let place = self.output.append(0, &lower, items)?;
        self.add(&place, 0);
        if let Some(frame) = self.frames.last_mut() {
            frame.children.push(Child {
                lower,
                place,
                keys: items.len() as u64,
            });
        }
        Ok(())
    }

    /// Writes branches of a level over these children, and returns them.
    fn write_branches(&mut self, level: u8, children: &[Child]) -> Result<Vec<Child>> {
        let mut branches = Vec::new();
        for part in parts(children, self.settings.page_bytes) {
            let items: Vec<Item> = part.iter().map(item_of).collect();
            let lower = part.first().map_or_else(Bytes::new, |it| it.lower.clone());
            let place = self.output.append(level, &lower, &items)?;
            self.add(&place, level);
            branches.push(Child {
                lower,
                place,
                keys: part.iter().map(|it| it.keys).sum(),
            });
        }
        Ok(branches)
    }

    fn lose(
        &mut self,
        place: PagePlace,
        is_branch: bool,
        (lower, upper): (&Bytes, Option<&Bytes>),
        found: String,
    ) {
        self.lost.push(LostPage {
            place,
            is_branch,
            range: range(lower, upper),
            found,
        });
    }

    fn add(&mut self, place: &PagePlace, level: u8) {
        let bytes = taken_bytes(place, level);
        self.cost_bytes += bytes;
        *self.added.entry(place.file).or_default() += bytes;
        if level == BODY_LEVEL {
            self.bodies.0 += bytes;
        }
    }

    fn retire(&mut self, place: &PagePlace, level: u8) {
        let bytes = taken_bytes(place, level);
        *self.retired.entry(place.file).or_default() += bytes;
        if level == BODY_LEVEL {
            self.bodies.1 += bytes;
        }
    }

    fn retire_body(&mut self, entry: &Entry) {
        if let Body::Apart { place, .. } = entry.body {
            self.retire(&place, BODY_LEVEL);
        }
    }

    /// Ends a finished rewrite: writes the root and makes everything durable.
    ///
    /// # Errors
    /// Those of the disk. After a failed sync nothing may be built on its files.
    pub fn finish(&mut self) -> Result<Rewritten> {
        while self.frames.len() > 1 {
            self.ascend()?;
        }
        let root = self.write_root()?;
        let written = self.output.finish()?;
        let mut files = self.tree.files().clone();
        files.extend(written.iter().map(|(number, it)| (*number, opened(it))));
        let tree = self.without_empty_pages(self.tree.with(root, files))?;
        Ok(Rewritten {
            tree,
            written: written
                .iter()
                .map(|(number, it)| (*number, it.len))
                .collect(),
            added: std::mem::take(&mut self.added),
            retired: std::mem::take(&mut self.retired),
            bodies: self.bodies,
            lost: std::mem::take(&mut self.lost),
        })
    }

    /// Makes a tree without keys a tree without pages.
    fn without_empty_pages(&mut self, tree: Tree) -> Result<Tree> {
        if tree.keys() > 0 {
            return Ok(tree);
        }
        for (file, bytes) in live_bytes(&tree)? {
            *self.retired.entry(file).or_default() += bytes;
        }
        Ok(tree.with(None, tree.files().clone()))
    }

    /// The numbers of the files that it has begun. They have to be removed if the rewrite is
    /// abandoned.
    pub fn files_begun(&self) -> std::ops::Range<u64> {
        self.output.files_begun()
    }

    fn write_root(&mut self) -> Result<Option<Root>> {
        let Some(above) = self.frames.pop() else {
            return Ok(None);
        };
        let mut level = above.level;
        let mut children = above.children;
        children.extend_from_slice(&above.old[above.next..]);
        while children.len() > 1 {
            level += 1;
            children = self.write_branches(level, &children)?;
        }
        let root = children.first();
        Ok(root.map(|it| Root {
            place: it.place,
            level,
            keys: it.keys,
        }))
    }
}

fn opened(written: &WrittenFile) -> Arc<PageFile> {
    written.file.clone()
}

fn item_of(child: &Child) -> Item {
    Item {
        key: child.lower.clone(),
        value: child.encode(),
    }
}

fn encoded(key: Bytes, entry: &Entry) -> Item {
    let mut value = Vec::new();
    entry.encode(&mut value);
    Item {
        key,
        value: value.into(),
    }
}

/// The next item when a leaf and changes are merged.
enum Next {
    /// An unchanged item.
    Kept(Item),
    /// A change, and the item with its key, if any.
    Changed(Option<Item>, Bytes, Change),
    End,
}

fn next_of(leaf: &mut OpenLeaf, changes: &mut Peekable<Changes>) -> Next {
    let is_in = |key: &Bytes| leaf.upper.as_ref().is_none_or(|upper| key < upper);
    let changed = changes.peek().map(|(key, _)| key).filter(|key| is_in(key));
    let order = match (leaf.items.peek(), changed) {
        (None, None) => return Next::End,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(item), Some(key)) => item.key.cmp(key),
    };
    let old = match order {
        Ordering::Greater => None,
        _ => leaf.items.next(),
    };
    if order == Ordering::Less {
        return old.map_or(Next::End, Next::Kept);
    }
    match changes.next() {
        Some((key, change)) => Next::Changed(old, key, change),
        None => Next::End,
    }
}

/// Cuts children into branches of about the same length, with at least two children each if there
/// are enough.
fn parts(children: &[Child], page_bytes: usize) -> Vec<&[Child]> {
    let of_one = |it: &Child| item_of(it).page_bytes();
    let bytes: usize = children.iter().map(of_one).sum();
    let each = bytes.div_ceil(bytes.div_ceil(page_bytes).max(1));
    let mut parts = Vec::new();
    let (mut from, mut taken) = (0, 0);
    for (index, child) in children.iter().enumerate() {
        let is_enough = taken >= each && index - from >= 2;
        // A branch with a single child would be of no use.
        if is_enough && index + 1 < children.len() {
            parts.push(&children[from..index]);
            (from, taken) = (index, 0);
        }
        taken += of_one(child);
    }
    if from < children.len() {
        parts.push(&children[from..]);
    }
    parts
}

#[cfg(test)]
#[path = "rewrite_test.rs"]
mod tests;
