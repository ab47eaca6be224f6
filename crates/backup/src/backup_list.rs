//! The existing backups, with the bytes that only they keep on disk.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kvorum_disk::{read_file, replace_file};
use kvorum_maintenance::{bytes_text, counted};
use serde_json::{Value, json};

use crate::made::Backups;
use crate::names::MARK_NAME;

const LIST_NAME: &str = "backups";
const LIST_BYTES_MAX: u64 = 1 << 20;

/// A backup of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    directory: PathBuf,
    files: u64,
    bytes: u64,
    /// Bytes of files that neither the node nor an earlier backup has.
    own_bytes: u64,
}

/// Files by device and number.
type Inodes = BTreeSet<(u64, u64)>;

impl Backups {
    /// Adds a backup to the list.
    pub(crate) fn keep(&self, directory: &Path) -> anyhow::Result<()> {
        let mut directories = self.listed();
        directories.retain(|it| it != directory);
        directories.push(directory.to_owned());
        let words: Vec<_> = directories.iter().map(|it| it.to_string_lossy()).collect();
        let path = self.parts.data_directory.join(LIST_NAME);
        let list = json!(words).to_string() + "\n";
        Ok(replace_file(&*self.parts.disk, &path, list.as_bytes())?)
    }

    /// Backups that were made and not removed since. An unreadable list counts as empty.
    fn listed(&self) -> Vec<PathBuf> {
        let disk = &*self.parts.disk;
        let path = self.parts.data_directory.join(LIST_NAME);
        let list = read_file(disk, &path, LIST_BYTES_MAX).unwrap_or_default();
        let words: Vec<String> = serde_json::from_slice(&list).unwrap_or_default();
        let directories = words.into_iter().map(PathBuf::from);
        let is_there = |it: &PathBuf| matches!(disk.info(&it.join(MARK_NAME)), Ok(Some(_)));
        directories.filter(is_there).collect()
    }

    fn kept(&self) -> Vec<Kept> {
        let parts = &self.parts;
        let mut seen = Inodes::new();
        let below = |name: &str| parts.data_directory.join(name);
        let mut roots = vec![below("hints"), below("value_log"), below("format")];
        roots.extend(parts.store_roots.iter().cloned());
        for root in roots {
            self.walk(&root, &mut |inode, _| {
                seen.insert(inode);
            });
        }
        let weigh = |directory: PathBuf| {
            let mut kept = Kept {
                files: 0,
                bytes: 0,
                own_bytes: 0,
                directory: directory.clone(),
            };
            self.walk(&directory, &mut |inode, len| {
                kept.files += 1;
                kept.bytes += len;
                if seen.insert(inode) {
                    kept.own_bytes += len;
                }
            });
            kept
        };
        self.listed().into_iter().map(weigh).collect()
    }

    /// Visits the files of a directory; unreadable ones are skipped.
    fn walk(&self, path: &Path, visit: &mut dyn FnMut((u64, u64), u64)) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        if !found.is_dir() {
            return visit((found.dev(), found.ino()), found.len());
        }
        for entry in self.parts.disk.list(path).unwrap_or_default() {
            self.walk(&path.join(entry.name), visit);
        }
    }

    /// The list for operators, at the end of `kvorum admin maintenance`, and for programs.
    pub fn show(&self) -> (String, Value) {
        let kept = self.kept();
        let mut text = String::new();
        if !kept.is_empty() {
            text.push_str("\nBackups\n");
        }
        for it in &kept {
            let (bytes, own) = (bytes_text(it.bytes), bytes_text(it.own_bytes));
            let directory = it.directory.display();
            let _infallible = writeln!(
                text,
                "{directory}: {bytes} in {}, {own} of it on disk for this backup alone",
                counted(it.files, "file")
            );
        }
        let data = kept.iter().map(|it| {
            json!({
                "directory": it.directory.to_string_lossy(),
                "files": it.files,
                "bytes": it.bytes,
                "own_bytes": it.own_bytes,
            })
        });
        (text, data.collect())
    }
}
