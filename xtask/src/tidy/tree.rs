//! The files of the repository: files that git tracks, and files that it would add.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::command;

/// A file, with its path and its content.
#[derive(Debug)]
pub(crate) struct TreeFile {
    /// The path from the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// All files of the tree, ordered by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<TreeFile>,
}

impl Tree {
    /// Reads the files below `root`, without ignored files, and without removed files whose removal
    /// is not committed.
    pub(crate) fn of(root: &Path) -> anyhow::Result<Tree> {
        let mut git = Command::new("git");
        git.current_dir(root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let mut paths: Vec<String> = command::capture(&mut git)?
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let full: PathBuf = root.join(&path);
            if full.is_file() {
                let content =
                    std::fs::read(&full).with_context(|| format!("reading {}", full.display()))?;
                files.push(TreeFile { path, content });
            }
        }
        Ok(Tree { files })
    }

    /// The files whose name ends in `.extension`.
    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &TreeFile> {
        let ending = format!(".{extension}");
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(&ending))
    }

    /// True if a file or directory is at `path`, which starts at the root and has no dots.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self
                .files
                .iter()
                .any(|file| file.path == path || file.path.starts_with(&directory))
    }

    /// A tree for a test.
    #[cfg(test)]
    pub(crate) fn planted(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, content)| TreeFile {
                path: (*path).to_owned(),
                content: content.as_bytes().to_vec(),
            })
            .collect();
        Tree { files }
    }
}

impl TreeFile {
    /// The content as text; invalid bytes become replacement characters.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }
}
