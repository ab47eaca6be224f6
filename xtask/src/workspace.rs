//! The place of the workspace, its packages, and the directory of its output.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cargo_metadata::{Metadata, MetadataCommand, Package};

/// The checkout that this binary was built from.
#[derive(Debug)]
pub(crate) struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// Reads cargo's metadata from the manifests, without the network or a lock file.
    pub(crate) fn find() -> anyhow::Result<Workspace> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        Workspace::of(&manifest)
    }

    /// The workspace of a manifest.
    pub(crate) fn of(manifest: &Path) -> anyhow::Result<Workspace> {
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .no_deps()
            .exec()
            .with_context(|| format!("reading the workspace of {}", manifest.display()))?;
        Ok(Workspace { metadata })
    }

    /// The directory with the root manifest.
    pub(crate) fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// The directory below which all output goes.
    pub(crate) fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// The directory `name` below the target directory, created if it is missing.
    pub(crate) fn scratch(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.target().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// The directory `name` below the target directory, emptied.
    pub(crate) fn clean_scratch(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.target().join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("emptying {}", path.display()))?;
        }
        self.scratch(name)
    }

    /// The packages of the workspace.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.metadata.packages
    }
}
