//! The directory of the nodes' data, which is removed with the demo.
//!
//! A demo that was killed cannot remove its directory; the next demo does. A lock marks directories
//! in use.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kvorum_disk::{Disk as _, DiskLock, RealDisk};
use tempfile::TempDir;

/// The prefix of the directories' names.
const PREFIX: &str = "kvorum-demo-";

/// The name of the lock's file.
const LOCK: &str = "LOCK";

/// A directory that is removed when this is dropped.
pub(crate) struct Directory {
    /// Given up before the directory is removed.
    lock: Option<Box<dyn DiskLock>>,
    directory: TempDir,
}

impl Directory {
    /// Makes a new directory below `parent`, and removes the directories of demos that have ended.
    pub(crate) fn below(parent: &Path) -> anyhow::Result<Self> {
        remove_abandoned(parent);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let directory =
            made.with_context(|| format!("make a directory below {}", parent.display()))?;
        let lock = RealDisk.lock(&directory.path().join(LOCK), "kvorum demo\n");
        Ok(Self {
            lock: Some(lock.context("lock the demo's directory")?),
            directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// If a part of it is left.
    pub(crate) fn remove(mut self) -> anyhow::Result<()> {
        self.lock = None;
        let path = self.path().to_owned();
        let removed = self.directory.close();
        removed.with_context(|| format!("remove {}", path.display()))
    }
}

/// Removes the directories of demos that have ended. One that cannot be removed is another user's,
/// or is left to the next demo.
fn remove_abandoned(parent: &Path) {
    for directory in abandoned(parent) {
        let _removed_or_not_ours = fs::remove_dir_all(directory);
    }
}

fn abandoned(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let abandoned = named.map(|entry| entry.path()).filter(|path| {
        // A directory without the file is just being made.
        let lock = path.join(LOCK);
        lock.is_file() && RealDisk.lock(&lock, "kvorum demo\n").is_ok()
    });
    abandoned.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn it_goes_with_the_demo_and_one_in_use_stays() {
        let parent = TempDir::new().unwrap();
        let used = Directory::below(parent.path()).unwrap();
        let other = Directory::below(parent.path()).unwrap();
        assert_eq!(entries(parent.path()), 2);
        fs::write(other.path().join("data"), "x").unwrap();
        other.remove().unwrap();
        assert!(used.path().is_dir());
        drop(used);
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn what_a_killed_demo_left_is_removed_by_the_next() {
        let parent = TempDir::new().unwrap();
        let left = parent.path().join("kvorum-demo-left");
        let others = parent.path().join("kvorum-demo-of-somebody-else");
        for directory in [&left, &others] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(left.join(LOCK), "kvorum demo\n").unwrap();
        let new = Directory::below(parent.path()).unwrap();
        assert!(!left.exists());
        assert!(others.exists());
        drop(new);
    }
}
