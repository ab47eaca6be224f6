//! The bytes of a tree in its files.

use std::collections::BTreeMap;

use kvorum_backend::Result;
use kvorum_disk::Reading;

use crate::entry::{Body, Entry};
use crate::page::{BODY_LEVEL, Page};
use crate::place::PagePlace;
use crate::tree::{Child, PageRead, Tree, unread};

/// The bytes of a page in its file.
pub(crate) fn taken_bytes(place: &PagePlace, level: u8) -> u64 {
    let copies = match level {
        0 | BODY_LEVEL => 1,
        _ => 2,
    };
    copies * u64::from(place.len)
}

/// Bytes of a tree's pages in each file, with branches counted twice. Reads all branches and
/// leaves, which is necessary only after the loss of a branch: otherwise the counts of rewrites are
/// exact. Pages below an unreadable one are not counted.
///
/// # Errors
/// As for [`Tree::get`].
pub fn live_bytes(tree: &Tree) -> Result<BTreeMap<u64, u64>> {
    let mut live = BTreeMap::new();
    let mut left: Vec<(PagePlace, u8)> = Vec::new();
    left.extend(tree.root().map(|root| (root.place, root.level)));
    while let Some((place, level)) = left.pop() {
        *live.entry(place.file).or_default() += taken_bytes(&place, level);
        let page = match tree.read(&place, level, Reading::MayBlock, false)? {
            PageRead::Page(page) => page,
            PageRead::Damaged(_) => continue,
            // Otherwise the pages below would count as garbage.
            PageRead::Unread(found) => return Err(unread(&place, &found)),
            PageRead::WouldBlock => return Err(crate::walk::unread()),
        };
        match level {
            0 => count_bodies(&page, &mut live),
            _ => left.extend(children(&page).map(|place| (place, level - 1))),
        }
    }
    Ok(live)
}

fn children(branch: &Page) -> impl Iterator<Item = PagePlace> + '_ {
    let children = (0..branch.items()).filter_map(|index| Child::of(branch, index).ok());
    children.map(|child| child.place)
}

fn count_bodies(leaf: &Page, live: &mut BTreeMap<u64, u64>) {
    for index in 0..leaf.items() {
        let entry = Entry::decode(&leaf.value(index));
        if let Ok(Body::Apart { place, .. }) = entry.map(|it| it.body) {
            *live.entry(place.file).or_default() += taken_bytes(&place, BODY_LEVEL);
        }
    }
}
