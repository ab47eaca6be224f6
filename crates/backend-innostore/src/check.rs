//! A check of a store without opening it: its identity, and the readability of its pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackendError, Belonging, FoundStore, Result, StoreId};
use kvorum_disk::Disk;
use kvorum_page_tree::manifest::{self, Manifest};
use kvorum_page_tree::{
    Census, Counted, LostPage, PageCache, PageFile, Tree, file_name, number_of, store_of_file,
};

pub use crate::losses::{INDEX as LOST_PAGES, MAGIC as LOST_PAGES_MAGIC};
use crate::opening::without_copies;

/// Branches that are kept while a store is read.
const CACHE_BYTES: u64 = 1 << 20;

/// Something wrong in a file of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The name of the file.
    pub file: String,
    /// Its offset, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// The defect in words.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// The defects.
    pub defects: Vec<Defect>,
    /// Files that were looked at.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Keys of the tree; those in the log alone are not counted.
    pub keys: u64,
}

/// The store in a directory, compared with an expected one. Writes nothing.
///
/// # Errors
/// Those of the disk, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn find_store(disk: &dyn Disk, directory: &Path, belonging: &Belonging) -> Result<FoundStore> {
    if disk.info(directory)?.is_none() {
        return Ok(FoundStore::Nothing);
    }
    let found = manifest::read(disk, directory, belonging)?;
    if let Some(manifest) = found.content {
        return Ok(FoundStore::Store {
            identity: StoreId(manifest.identity),
            erased: StoreId(manifest.erased),
            log: manifest.value_log,
            is_labelled: !manifest.label.is_empty() && manifest.label == belonging.label,
        });
    }
    Ok(
        match (found.refusal, manifest::name_of_data(disk, directory)?) {
            (Some(refusal), _) => FoundStore::Unusable(refusal),
            (None, Some(name)) => FoundStore::Unusable(without_copies(directory, &name)),
            (None, None) => FoundStore::Nothing,
        },
    )
}

/// The identity of a store; `None` if no copy of the manifest can be read.
///
/// # Errors
/// Those of the disk, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn identity_of(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
    let belonging = Belonging::by_directory(directory);
    let found = manifest::read(disk, directory, &belonging)?;
    Ok(found.content.map(|it| it.identity))
}

/// True for a directory with a file that only stores of this engine have.
///
/// # Errors
/// Those of the disk.
pub fn has_store_files(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<bool> {
    let entries = disk.list(directory)?;
    let is_own = |name: &str| number_of(name).is_some() || manifest::NAMES.contains(&name);
    Ok(entries.iter().any(|it| is_own(&it.name)))
}

/// Reads the manifest and every page of its tree. `progress` gets the number of bytes read.
///
/// # Errors
/// Errors of the disk that do not concern a single page, and [`kvorum_backend::ErrorKind::NewerFormat`].
pub fn check_store(disk: &dyn Disk, directory: &Path, progress: &dyn Fn(u64)) -> Result<Examined> {
    let mut examined = Examined::default();
    let belonging = Belonging::by_directory(directory);
    let found = manifest::read(disk, directory, &belonging)?;
    examined.files += manifest::NAMES.len() as u64;
    for name in &found.damaged {
        examined.find(name, "a copy of the manifest that cannot be read");
    }
    for foreign in &found.foreign {
        let what = format!("a copy of the manifest that belongs to {}", foreign.of);
        examined.find(foreign.name, &what);
    }
    match (found.content, found.refusal) {
        (Some(manifest), _) => examined.read(disk, directory, &manifest, progress)?,
        (None, Some(refusal)) => examined.find(manifest::NAMES[0], &refusal),
        (None, None) => {
            if let Some(name) = manifest::name_of_data(disk, directory)? {
                examined.find(manifest::NAMES[0], &without_copies(directory, &name));
            }
        }
    }
    Ok(examined)
}

impl Examined {
    fn find(&mut self, file: &str, what: &str) {
        self.defects.push(Defect {
            file: file.to_owned(),
            offset: 0,
            len: 0,
            what: what.to_owned(),
        });
    }

    fn find_page(&mut self, page: &LostPage, what: &str) {
        self.defects.push(Defect {
            file: file_name(page.place.file),
            offset: page.place.offset,
            len: u64::from(page.place.len),
            what: format!("{what}: {}", page.found),
        });
    }

    fn read(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        progress: &dyn Fn(u64),
    ) -> Result<()> {
        let files = self.open_files(disk, directory, manifest)?;
        let cache = Arc::new(PageCache::new(CACHE_BYTES));
        let tree = Tree::new(manifest.identity, manifest.root, files, cache);
        self.keys = tree.keys();
        let mut census = Census::new(tree);
        loop {
            let (counted, read) = census.advance()?;
            self.bytes += read;
            progress(read);
            match counted {
                Counted::Page(..) => {}
                Counted::OneCopy(page) => {
                    self.find_page(&page, "one of two copies of a branch; nothing is lost");
                }
                Counted::Lost(page) => self.find_page(&page, "a page"),
                Counted::End => return Ok(()),
            }
        }
    }

    fn open_files(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
    ) -> Result<BTreeMap<u64, Arc<PageFile>>> {
        let mut files = BTreeMap::new();
        for record in &manifest.files {
            let name = file_name(record.number);
            let path = directory.join(&name);
            let Some(info) = disk.info(&path)? else {
                self.find(&name, "missing");
                continue;
            };
            self.files += 1;
            if info.len < record.len {
                let what = format!("{} bytes instead of {}", info.len, record.len);
                self.find(&name, &what);
            }
            if store_of_file(disk, &path)? != Some(manifest.identity) {
                self.find(&name, "its header is damaged, or that of another store");
            }
            let file = PageFile::open(disk, directory, record.number);
            let file = file.map_err(|error| BackendError::from(&error))?;
            files.insert(record.number, Arc::new(file));
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;

    use super::*;

    #[test]
    fn a_directory_of_nothing_is_no_store_and_pages_without_a_manifest_are_unusable() {
        let disk = MemoryDisk::new();
        let (directory, belonging) = (Path::new("7"), Belonging::default());
        let find = || find_store(&disk, directory, &belonging);
        assert_eq!(find(), Ok(FoundStore::Nothing));
        disk.create_directory(directory).unwrap();
        assert_eq!(find(), Ok(FoundStore::Nothing));
        assert!(!has_store_files(&disk, directory).unwrap());
        let path = directory.join(file_name(1));
        disk.open(&path, kvorum_disk::OpenMode::CreateNew).unwrap();
        assert!(matches!(find(), Ok(FoundStore::Unusable(_))));
        assert!(has_store_files(&disk, directory).unwrap());
        assert_eq!(identity_of(&disk, directory), Ok(None));
        let examined = check_store(&disk, directory, &|_| {}).unwrap();
        assert_eq!(examined.defects.len(), 1);
    }
}
