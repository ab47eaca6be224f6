//! Files that are written completely or not at all.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

/// Replaces a file in one step: a reader, or a run after a power cut, sees the old text or the new
/// one.
///
/// # Errors
/// Errors of the file system, with the path.
pub fn write_atomically(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let write = || -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Other users may read pages; the umask still applies.
            builder.permissions(std::fs::Permissions::from_mode(0o644));
        }
        let mut file = builder.prefix(".new-").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("page.html");
        write_atomically(&path, "one").unwrap();
        write_atomically(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1);
    }
}
