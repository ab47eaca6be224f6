//! The search for stores below a directory: finds the stores that Riak would open, and names all
//! others.
//!
//! A vnode of Riak opens one directory, `DATA_ROOT/PARTITION`. Real data roots contain more:
//! dropped partitions in `auto_cleanup`, older copies in `manual_cleanup` or under
//! `PARTITION-TIME`, and directories that operators renamed. A node's data directory also has
//! LevelDB stores of hash trees and queues. Objects in such directories were deleted or replaced
//! long ago, and an import would bring them back. So a store is imported only if its name is the
//! number of a partition of the ring. The ring's file has the size of the ring, if the file exists.
//! The report names the skipped directories.

use std::path::{Path, PathBuf};

use kvorum_disk::{DirectoryEntry, Disk, EntryKind};

use crate::error::ImportError;
use crate::partition::{PartitionIndex, ring_of};
use crate::passed_over::PassedOver;

/// The depth of the search: a directory of copies, a node's data directory, the data root, the
/// partitions.
const DEPTH_MAX: usize = 3;

/// Names of directories without objects that Riak serves, with a description of their content.
const OTHER_DIRECTORIES: &[(&str, &str)] = &[
    ("auto_cleanup", "partitions that Riak has dropped"),
    (
        "manual_cleanup",
        "older directories of partitions, which Riak has set aside",
    ),
    ("anti_entropy", "hash trees of active anti-entropy"),
    ("yz_anti_entropy", "hash trees of Riak Search"),
    ("tictac_aae", "key stores and trees of Tictac anti-entropy"),
    ("yz", "indexes of Riak Search"),
    ("yz_temp", "temporary files of Riak Search"),
    ("cluster_meta", "metadata of the cluster and its hash trees"),
    ("ring", "the ring"),
    ("kv_vnode", "identities of vnodes"),
    ("ensembles", "state of strongly consistent groups"),
    ("kv_reader", "a queue of Riak's"),
    ("kv_reaper", "a queue of Riak's"),
    ("kv_eraser", "a queue of Riak's"),
    ("riak_repl", "state of replication"),
    ("lost", "files that LevelDB has put aside"),
    (
        "lost+found",
        "files that a check of the file system has found",
    ),
];
/// Prefix of the names of LevelDB's own backups.
const BACKUP_PREFIX: &str = "backup";
/// Directories that only a node's data directory has.
const NODE_MARKS: [&str; 3] = ["ring", "cluster_meta", "kv_vnode"];

/// One kind of store: its name in messages, its usual data root, and its marks.
pub trait StoreKind {
    /// Completes "holds no ...".
    fn what(&self) -> &'static str;

    /// Last part of the data root's path by default.
    fn usual_root(&self) -> &'static str;

    /// Judges a directory by its entries.
    ///
    /// # Errors
    /// If the disk fails, or a directory may hold objects but cannot be imported.
    fn judge(&self, directory: &Path, entries: &[DirectoryEntry])
    -> Result<Judgement, ImportError>;
}

/// The kind of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// A store that may hold objects.
    Store,
    /// A store without any data; the text is the reason.
    Bare(&'static str),
    /// Not a store of this kind.
    Other,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct FoundStores {
    /// Directories of stores, each with its path below the directory that was searched.
    pub stores: Vec<FoundStore>,
    /// Skipped directories.
    pub passed_over: Vec<PassedOver>,
    /// True if a partition without data was found.
    has_bare: bool,
}

/// A store and its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStore {
    /// The directory.
    pub path: PathBuf,
    /// Path below the searched directory; empty for that directory itself.
    pub below_root: PathBuf,
}

/// Searches one directory of the user's choice.
///
/// # Errors
/// [`ImportError::NothingFound`], [`ImportError::SeveralRoots`], or the error of
/// [`StoreKind::judge`].
pub fn find_stores(
    disk: &dyn Disk,
    root: &Path,
    kind: &dyn StoreKind,
) -> Result<FoundStores, ImportError> {
    let is_directory = disk
        .info(root)?
        .is_some_and(|info| info.kind == EntryKind::Directory);
    if !is_directory {
        return Err(ImportError::NoDirectory {
            path: root.to_owned(),
        });
    }
    let mut search = Search {
        disk,
        kind,
        root,
        found: FoundStores::default(),
    };
    search.visit_root()?;
    let found = search.found;
    if found.stores.is_empty() && !found.has_bare {
        return Err(ImportError::NothingFound {
            path: root.to_owned(),
            what: kind.what(),
            passed_over: found.passed_over,
        });
    }
    Ok(found)
}

struct Search<'a> {
    disk: &'a dyn Disk,
    kind: &'a dyn StoreKind,
    root: &'a Path,
    found: FoundStores,
}

/// The content of a visited directory and of those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visited {
    /// The children are directories of partitions.
    DataRoot,
    /// Data root further down, or a directory named by the user.
    Above,
    /// Neither.
    Nothing,
}

impl Search<'_> {
    fn visit_root(&mut self) -> Result<(), ImportError> {
        let entries = self.disk.list(self.root)?;
        match self.kind.judge(self.root, &entries)? {
            Judgement::Store => self.take(self.root),
            Judgement::Bare(reason) => self.pass_bare(self.root, reason),
            Judgement::Other => {
                self.visit(self.root, &entries, DEPTH_MAX)?;
            }
        }
        Ok(())
    }

    /// Visits a directory that is not a store itself.
    fn visit(
        &mut self,
        directory: &Path,
        entries: &[DirectoryEntry],
        depth: usize,
    ) -> Result<Visited, ImportError> {
        let children = self.directories(directory, entries)?;
        let mut judged = Vec::new();
        for name in &children {
            let path = directory.join(name);
            if let Some(reason) = other_directory(name) {
                self.pass(&path, reason.to_owned());
                continue;
            }
            let entries = self.disk.list(&path)?;
            let judgement = self.kind.judge(&path, &entries)?;
            judged.push((name, path, entries, judgement));
        }
        let is_data_root = judged.iter().any(|(name, _, _, judgement)| {
            is_partition_name(name) && *judgement != Judgement::Other
        });
        let ring = match is_data_root {
            true => directory.parent().and_then(|node| ring_of(self.disk, node)),
            false => None,
        };
        let mut data_roots = Vec::new();
        let mut is_above = false;
        for (name, path, entries, judgement) in judged {
            if let Some(partitions) = ring
                && PartitionIndex::of_name(name).is_some_and(|it| !it.is_in_ring_of(partitions))
            {
                let reason = format!(
                    "the ring has {partitions} partitions, and this is none of them; name the \
                     directory itself if it is to be imported"
                );
                self.pass(&path, reason);
                continue;
            }
            match judgement {
                Judgement::Store if is_partition_name(name) => self.take(&path),
                Judgement::Bare(reason) if is_partition_name(name) => self.pass_bare(&path, reason),
                Judgement::Other if is_partition_name(name) && entries.is_empty() => {
                    self.pass(&path, "is empty".to_owned());
                }
                _ if is_data_root => {
                    let reason = "its name is no partition's number, so Riak does not open it";
                    self.pass(&path, reason.to_owned());
                }
                Judgement::Store => {
                    is_above = true;
                    let reason = "its name is no partition's number, so Riak does not open it; name \
                                  the directory itself if it is to be imported";
                    self.pass(&path, reason.to_owned());
                }
                Judgement::Bare(reason) => self.pass(&path, reason.to_owned()),
                Judgement::Other if depth == 0 => {
                    let reason = "lies too deep to be searched; name it if it has stores";
                    self.pass(&path, reason.to_owned());
                }
                Judgement::Other => {
                    let before = self.found.passed_over.len();
                    match self.visit(&path, &entries, depth - 1)? {
                        Visited::DataRoot => data_roots.push(path),
                        Visited::Above => is_above = true,
                        Visited::Nothing => {
                            self.found.passed_over.truncate(before);
                            self.pass(&path, format!("holds no {}", self.kind.what()));
                        }
                    }
                }
            }
        }
        self.refuse_several(directory, &children, &data_roots)?;
        Ok(match (is_data_root, is_above || !data_roots.is_empty()) {
            (true, _) => Visited::DataRoot,
            (false, true) => Visited::Above,
            (false, false) => Visited::Nothing,
        })
    }

    /// A node serves the data roots in its riak.conf, which is elsewhere. If a data directory has
    /// several, some may be left over from a move, so the user has to choose.
    fn refuse_several(
        &self,
        directory: &Path,
        children: &[String],
        data_roots: &[PathBuf],
    ) -> Result<(), ImportError> {
        let is_node = children.iter().any(|name| NODE_MARKS.contains(&&**name));
        let usual = directory.join(self.kind.usual_root());
        if data_roots.len() > 1 && (is_node || data_roots.contains(&usual)) {
            return Err(ImportError::SeveralRoots {
                path: directory.to_owned(),
                roots: data_roots.to_vec(),
            });
        }
        Ok(())
    }

    /// Names of directories, including links to directories: data roots are often links to another
    /// disk.
    fn directories(
        &self,
        directory: &Path,
        entries: &[DirectoryEntry],
    ) -> Result<Vec<String>, ImportError> {
        let mut names = Vec::new();
        for entry in entries {
            let is_directory = entry.kind == EntryKind::Directory
                || self
                    .disk
                    .info(&directory.join(&entry.name))?
                    .is_some_and(|info| info.kind == EntryKind::Directory);
            if is_directory {
                names.push(entry.name.clone());
            }
        }
        Ok(names)
    }

    fn take(&mut self, path: &Path) {
        let below_root = path.strip_prefix(self.root).unwrap_or(path).to_owned();
        self.found.stores.push(FoundStore {
            path: path.to_owned(),
            below_root,
        });
    }

    fn pass_bare(&mut self, path: &Path, reason: &'static str) {
        self.found.has_bare = true;
        self.pass(path, reason.to_owned());
    }

    fn pass(&mut self, path: &Path, reason: String) {
        self.found.passed_over.push(PassedOver {
            path: path.to_owned(),
            reason,
        });
    }
}

/// A description of a directory with a known name, which has no stores; `None` for other names.
fn other_directory(name: &str) -> Option<&'static str> {
    let known = OTHER_DIRECTORIES.iter().find(|(other, _)| *other == name);
    match known {
        Some((_, reason)) => Some(reason),
        None => name
            .starts_with(BACKUP_PREFIX)
            .then_some("a backup; name the directory itself if it is to be imported"),
    }
}

/// True for the number of a partition in Riak's form: an index that some ring has.
pub fn is_partition_name(name: &str) -> bool {
    PartitionIndex::of_name(name).is_some()
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode};

    use super::*;

    const RING: &[u8] =
        include_bytes!("../tests/fixtures/riak-3.2/riak_core_ring.default.20261126010837");

    /// A kind of store with a file `data`, or a file `lock` for a store without data.
    struct Plain;

    impl StoreKind for Plain {
        fn what(&self) -> &'static str {
            "data"
        }

        fn usual_root(&self) -> &'static str {
            "plain"
        }

        fn judge(&self, _: &Path, entries: &[DirectoryEntry]) -> Result<Judgement, ImportError> {
            let has = |name: &str| entries.iter().any(|entry| entry.name == name);
            Ok(match (has("data"), has("lock")) {
                (true, _) => Judgement::Store,
                (false, true) => Judgement::Bare("holds no data"),
                (false, false) => Judgement::Other,
            })
        }
    }

    /// Partitions of a ring of 64.
    const ONE: &str = "22835963083295358096932575511191922182123945984";
    const TWO: &str = "45671926166590716193865151022383844364247891968";

    /// The files with the names of partitions for `ONE` and `TWO`.
    fn filled(files: &[&str]) -> Vec<String> {
        let fill = |file: &&str| file.replace("ONE", ONE).replace("TWO", TWO);
        files.iter().map(fill).collect()
    }

    fn search(files: &[&str]) -> Result<FoundStores, ImportError> {
        let disk = MemoryDisk::new();
        for file in filled(files) {
            let path = Path::new("r").join(&file);
            disk.create_directory(path.parent().unwrap()).unwrap();
            let opened = disk.open(&path, OpenMode::CreateNew).unwrap();
            if file.contains("riak_core_ring.") {
                opened.write_at(RING, 0).unwrap();
            }
        }
        find_stores(&disk, Path::new("r"), &Plain)
    }

    fn stores(files: &[&str]) -> Vec<String> {
        let found = search(files).unwrap();
        let stores = found.stores.iter();
        let names = stores.map(|store| shown(&store.below_root));
        names.collect()
    }

    fn passed(files: &[&str]) -> Vec<String> {
        let found = search(files).unwrap();
        let passed = found.passed_over.iter();
        let names = passed.map(|passed| shown(&passed.path));
        names.collect()
    }

    fn shown(path: &Path) -> String {
        let text = path.display().to_string();
        text.replace(ONE, "ONE").replace(TWO, "TWO")
    }

    #[test]
    fn a_directory_may_be_a_store_a_data_root_a_node_or_copies_of_nodes() {
        assert_eq!(stores(&["data"]), [""]);
        assert_eq!(stores(&["0/data", "ONE/data"]), ["0", "ONE"]);
        assert_eq!(stores(&["plain/0/data", "ring/file"]), ["plain/0"]);
        assert_eq!(
            stores(&["a/plain/0/data", "b/plain/ONE/data", "c/TWO/data"]),
            ["a/plain/0", "b/plain/ONE", "c/TWO"]
        );
    }

    #[test]
    fn dropped_renamed_and_saved_partitions_are_passed_over_by_name() {
        let files = [
            "plain/0/data",
            "plain/auto_cleanup/ONE/data",
            "plain/manual_cleanup/ONE-2/data",
            "plain/0.old/data",
            "plain/0-1382/data",
            "plain/007/data",
            "plain/20240131/data",
            "plain/17/data",
            "plain/old/ONE/data",
            "plain/backup.1/ONE/data",
            "anti_entropy/0/data",
            "cluster_meta/trees/data",
            "lost/0/data",
        ];
        assert_eq!(stores(&files), ["plain/0"]);
        let mut expected: Vec<String> = files[1..]
            .iter()
            .map(|file| {
                let parts: Vec<&str> = file.split('/').collect();
                let shown = if parts[0] == "plain" { 2 } else { 1 };
                format!("r/{}", parts[..shown].join("/"))
            })
            .collect();
        expected.sort();
        let mut passed = passed(&files);
        passed.sort();
        assert_eq!(passed, expected);
    }

    #[test]
    fn stores_without_data_are_named_and_no_reason_to_fail() {
        let files = ["plain/0/data", "plain/ONE/lock", "plain/TWO/data"];
        assert_eq!(stores(&files), ["plain/0", "plain/TWO"]);
        assert_eq!(passed(&files), ["r/plain/ONE"]);
        assert_eq!(stores(&["plain/ONE/lock"]), [""; 0]);
    }

    /// Regression: `20240131` beside `0`, a copy that an operator had named by date, was imported
    /// as a partition.
    #[test]
    fn numbers_that_no_partition_has_are_passed_over() {
        let files = ["plain/0/data", "plain/ONE/data", "plain/20240131/data"];
        assert_eq!(stores(&files), ["plain/0", "plain/ONE"]);
        assert_eq!(passed(&files), ["r/plain/20240131"]);
        let alone = search(&["20240131/data"]).unwrap_err();
        assert!(matches!(alone, ImportError::NothingFound { .. }), "{alone}");
        assert!(alone.to_string().contains("20240131"), "{alone}");
    }

    /// The fixture's ring has 8 partitions; the two partitions of a ring of 64 remain from before a
    /// change.
    #[test]
    fn the_ring_says_which_partitions_there_are() {
        const HALF: &str = "730750818665451459101842416358141509827966271488";
        let half = format!("plain/{HALF}/data");
        let without = ["plain/0/data", &half, "plain/ONE/data", "plain/TWO/lock"];
        let mut with = without.to_vec();
        with.push("ring/riak_core_ring.default.1");
        assert_eq!(
            stores(&without),
            ["plain/0", "plain/ONE", &half[..half.len() - 5]]
        );
        assert_eq!(stores(&with), ["plain/0", &half[..half.len() - 5]]);
        assert_eq!(passed(&with), ["r/ring", "r/plain/ONE", "r/plain/TWO"]);
        let reason = &search(&with).unwrap().passed_over[1].reason;
        assert!(reason.contains("the ring has 8 partitions"), "{reason}");
    }

    #[test]
    fn a_tree_without_a_store_is_refused_and_named_at_its_top() {
        let error = search(&["x/y/z/file", "etc/file"]).unwrap_err();
        let ImportError::NothingFound { passed_over, .. } = error else {
            panic!("{error}");
        };
        let names = passed_over.iter().map(|passed| passed.path.clone());
        assert_eq!(
            names.collect::<Vec<_>>(),
            [PathBuf::from("r/etc"), PathBuf::from("r/x")]
        );
        let missing = find_stores(&MemoryDisk::new(), Path::new("none"), &Plain);
        assert!(matches!(missing, Err(ImportError::NoDirectory { .. })));
    }

    #[test]
    fn of_several_data_roots_in_one_node_the_user_chooses() {
        for files in [
            &["plain/0/data", "plain.old/0/data"][..],
            &["new/0/data", "plain2/ONE/data", "ring/file"],
        ] {
            let error = search(files).unwrap_err();
            assert!(matches!(error, ImportError::SeveralRoots { .. }), "{error}");
        }
        assert_eq!(stores(&["a/0/data", "b/0/data"]), ["a/0", "b/0"]);
    }
}
