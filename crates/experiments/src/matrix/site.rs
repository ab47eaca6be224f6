//! The directory of a matrix: its record, results, logs, and running servers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::plan::Cell;
use crate::server_process::DIRECTORY_PREFIX;

/// The directories of a matrix.
pub(super) struct Site {
    pub(super) root: PathBuf,
}

impl Site {
    /// Makes the directory. Results in it are an error unless the matrix is resumed.
    pub(super) fn open(root: &Path, is_resumed: bool) -> anyhow::Result<Self> {
        let site = Self {
            // Servers and loads run in directories of their own.
            root: std::path::absolute(root).context("cannot find the current directory")?,
        };
        if site.record().exists() && !is_resumed {
            bail!(
                "{} holds results of a matrix; continue it with --resume or choose another --out",
                root.display()
            );
        }
        for directory in [site.cells(), site.running(), site.logs()] {
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        site.remove_left_overs()?;
        Ok(site)
    }

    pub(super) fn record(&self) -> PathBuf {
        self.root.join("matrix.json")
    }

    pub(super) fn cells(&self) -> PathBuf {
        self.root.join("cells")
    }

    pub(super) fn results(&self, cell: &Cell) -> PathBuf {
        self.cells().join(cell.name())
    }

    pub(super) fn running(&self) -> PathBuf {
        self.root.join("running")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Removes leftovers of cells that are not results: preloads, and the running cells of a matrix that
    /// was killed.
    pub(super) fn remove_left_overs(&self) -> anyhow::Result<()> {
        let list = |directory: &Path| {
            std::fs::read_dir(directory)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .with_context(|| format!("cannot list {}", directory.display()))
        };
        let mut left_overs: Vec<PathBuf> = list(&self.running())?
            .iter()
            .map(std::fs::DirEntry::path)
            .collect();
        let servers = list(&self.root)?;
        let is_server = |entry: &&std::fs::DirEntry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(DIRECTORY_PREFIX)
        };
        left_overs.extend(
            servers
                .iter()
                .filter(is_server)
                .map(std::fs::DirEntry::path),
        );
        for path in left_overs {
            let is_directory = path.is_dir() && !path.is_symlink();
            let removed = if is_directory {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}
