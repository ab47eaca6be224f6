//! A store of the innostore engine checked from end to end without being opened: every page of its
//! tree is read, both copies of branches included.

use std::path::Path;

use kvorum_backend_bitcask::check::Checked;
use kvorum_backend_innostore::check::check_store;
use kvorum_disk::Disk;

use crate::Result;

/// Checks a store.
pub(crate) fn check(disk: &dyn Disk, directory: &Path, progress: &dyn Fn(u64)) -> Result<Checked> {
    let examined = check_store(disk, directory, progress)?;
    let mut checked = Checked {
        files: examined.files,
        bytes: examined.bytes,
        keys: examined.keys,
        ..Checked::default()
    };
    for defect in examined.defects {
        checked.find(&defect.file, defect.offset, defect.len, defect.what);
    }
    Ok(checked)
}
