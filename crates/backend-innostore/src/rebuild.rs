//! A manifest for a store that has lost both copies of it, made from the files of pages alone.
//!
//! Each rewrite has files of its own and ends with its root. So the root of the newest tree whose pages
//! are all there is found among the last pages of the files. Three things remain unknown: a later rewrite
//! whose files are damaged or gone, the end of a rewrite that was cut right behind a page that looks like
//! a root, and removals behind the newest entry. All keys are therefore in doubt: a key that is not found
//! is reported as damaged, and comes back from the replicas. The log replays what it has behind the newest
//! entry; if it lacks the next batch, the store counts as one that has lost writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, Belonging, ErrorKind, LOST_NAME, Result};
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, DoubtRecord};
use kvorum_page_tree::manifest::{self, Manifest};
use kvorum_page_tree::{
    Body, Census, Counted, FileRecord, PageCache, PageFile, PossibleRoot, Tree, Walk, Walked,
    file_name, live_bytes, number_of, possible_root, store_of_file,
};

use crate::store::LOCK_NAME;

/// Pages that are kept while a store is read.
const CACHE_BYTES: u64 = 4 << 20;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Keys of the tree that was found, those of index entries included.
    pub keys: u64,
    /// Files without a page of it, which were moved to `lost/`.
    pub set_aside: Vec<String>,
}

/// The files of pages of a directory, by their numbers.
type Files = BTreeMap<u64, Arc<PageFile>>;

/// True for a store that has files of pages and no copy of its manifest.
///
/// # Errors
/// Those of the disk, and [`ErrorKind::NewerFormat`].
pub fn lacks_manifest(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    let found = manifest::read(disk, directory, &Belonging::by_directory(directory))?;
    let has_pages = manifest::name_of_data(disk, directory)?.is_some();
    // A copy of another store is not this one's, and is left to the operator.
    Ok(found.content.is_none() && found.foreign.is_empty() && has_pages)
}

/// Finds the newest whole tree of a store, and writes a manifest that names it, unless it is a dry run.
///
/// # Errors
/// Those of the disk, and [`ErrorKind::Corrupt`] if there is no whole tree.
pub fn rebuild_manifest(disk: &dyn Disk, directory: &Path, is_dry_run: bool) -> Result<Rebuilt> {
    let lock = || disk.lock(&directory.join(LOCK_NAME), "kvorum repair\n");
    let _held = (!is_dry_run).then(lock).transpose()?;
    let files = page_files(disk, directory)?;
    let store = store_of(disk, directory, &files)?;
    let tree = newest_whole(store, &files)?.ok_or_else(|| without_tree(directory))?;
    let manifest = manifest_of(store, &files, &tree)?;
    let is_used = |number: &u64| manifest.files.iter().any(|it| it.number == *number);
    let unused = files.keys().filter(|it| !is_used(it));
    let rebuilt = Rebuilt {
        keys: tree.keys(),
        set_aside: unused.map(|number| file_name(*number)).collect(),
    };
    if !is_dry_run {
        // An opening removes files that no manifest lists.
        set_aside(disk, directory, &rebuilt.set_aside)?;
        manifest::write(disk, directory, &manifest).both()?;
    }
    Ok(rebuilt)
}

fn page_files(disk: &dyn Disk, directory: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in disk.list(directory)? {
        if let Some(number) = number_of(&entry.name) {
            let file = PageFile::open(disk, directory, number);
            let file = file.map_err(|error| BackendError::from(&error))?;
            files.insert(number, Arc::new(file));
        }
    }
    Ok(files)
}

/// The store that all files with a readable header belong to.
fn store_of(disk: &dyn Disk, directory: &Path, files: &Files) -> Result<u64> {
    let mut store = None;
    for number in files.keys() {
        let its = store_of_file(disk, &directory.join(file_name(*number)))?;
        match (store, its) {
            (Some(store), Some(its)) if store != its => {
                let detail = format!(
                    "{} has files of two stores ({store:#018x} and {its:#018x}): move those away that do not \
                     belong here",
                    directory.display()
                );
                return Err(BackendError::new(ErrorKind::Corrupt, detail));
            }
            _ => store = store.or(its),
        }
    }
    store.ok_or_else(|| without_tree(directory))
}

fn newest_whole(store: u64, files: &Files) -> Result<Option<Tree>> {
    let mut roots: Vec<(u64, PossibleRoot)> = Vec::new();
    for (number, file) in files {
        let root = possible_root(file, store)?;
        roots.extend(root.map(|root| (*number, root)));
    }
    roots.sort_unstable_by_key(|(number, it)| std::cmp::Reverse((it.generation, *number)));
    for (_, possible) in roots {
        let cache = Arc::new(PageCache::new(CACHE_BYTES));
        let tree = Tree::new(store, Some(possible.root), files.clone(), cache);
        if is_whole(&tree)? {
            return Ok(Some(tree));
        }
    }
    Ok(None)
}

fn is_whole(tree: &Tree) -> Result<bool> {
    let mut census = Census::new(tree.clone());
    loop {
        match census.advance()?.0 {
            Counted::Page(..) | Counted::OneCopy(_) => {}
            Counted::Lost(_) => return Ok(false),
            Counted::End => return Ok(true),
        }
    }
}

fn manifest_of(store: u64, files: &Files, tree: &Tree) -> Result<Manifest> {
    let (mut sequence, mut body_bytes) = (0, 0);
    let mut walk = Walk::new(tree.clone(), Bytes::new());
    loop {
        match walk.advance()? {
            Walked::Entry(_, entry) => {
                sequence = sequence.max(entry.sequence);
                if let Body::Apart { place, .. } = entry.body {
                    body_bytes += u64::from(place.len);
                }
            }
            // It was whole a moment ago.
            Walked::Lost(lost) => return Err(BackendError::new(ErrorKind::Unread, lost.found)),
            Walked::End => break,
        }
    }
    let live = live_bytes(tree)?;
    let record = |(number, live_bytes): (&u64, &u64)| FileRecord {
        number: *number,
        len: files.get(number).map_or(0, |file| file.bytes()),
        live_bytes: *live_bytes,
    };
    Ok(Manifest {
        generation: 1,
        identity: store,
        next_number: files.keys().last().map_or(1, |number| number + 1),
        body_bytes,
        sequence,
        // Without the manifest it is not known that there were none.
        has_extras: true,
        root: tree.root(),
        files: live.iter().map(record).collect(),
        doubts: DoubtRecord {
            open: vec![(DoubtKind::Lost, KeyRange::everything())],
            blocks: Vec::new(),
        },
        ..Manifest::default()
    })
}

fn set_aside(disk: &dyn Disk, directory: &Path, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let lost = directory.join(LOST_NAME);
    create_directory_durably(disk, &lost)?;
    for name in names {
        disk.rename(&directory.join(name), &lost.join(name))?;
    }
    disk.sync_directory(&lost)?;
    Ok(disk.sync_directory(directory)?)
}

fn without_tree(directory: &Path) -> BackendError {
    let detail = format!(
        "no file of pages in {} ends with the root of a tree whose pages are all there: restore one of {} and \
         {} from a backup, or move the directory away and have the other nodes fill an empty store",
        directory.display(),
        manifest::NAMES[0],
        manifest::NAMES[1]
    );
    BackendError::new(ErrorKind::Corrupt, detail)
}
