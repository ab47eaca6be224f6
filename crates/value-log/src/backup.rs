//! The log's part of a backup: second names for the closed segments that copies of stores need.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackedUp, BackendError, ErrorKind, Result, StoreId};
use kvorum_disk::create_directory_durably;

use crate::contents::contents_path;
use crate::error::from_disk;
use crate::log::ValueLog;
use crate::tenant::HeldSegments;

impl ValueLog {
    /// Makes a log in `directory`, which must not exist, for copies of stores. It contains every
    /// batch of a held segment that was appended before this call. A log without any append is not
    /// copied.
    ///
    /// # Errors
    /// Those of the disk; the caller removes the files that were made.
    pub fn backup(&self, directory: &Path) -> Result<BackedUp> {
        let mut backed_up = BackedUp::default();
        let held = self.held();
        let files = self.keeper.files();
        let next = self.keeper.close_written()?;
        if !files.has_files() {
            return Ok(backed_up);
        }
        let disk = &*files.disk;
        create_directory_durably(disk, directory).map_err(|error| from_disk(&error))?;
        let closed = files.segments();
        let closed: Vec<_> = closed.iter().filter(|it| it.number < next).collect();
        // The newest segment is linked so that its number is never given to another segment.
        let newest = closed.last().map(|it| it.number);
        let is_copied =
            |number: u32| Some(number) == newest || held.iter().any(|it| it.holds(number));
        for segment in closed.iter().filter(|it| is_copied(it.number)) {
            let mut link = |from: &Path| {
                let to = directory.join(from.file_name().unwrap_or_default());
                let linked = backed_up.link(disk, from, &to);
                linked.map_err(|error| from_disk(&error))
            };
            if !link(&segment.path)? {
                let detail = format!("{} is not there", segment.path.display());
                return Err(BackendError::new(ErrorKind::Failed, detail));
            }
            // A copy without the list reads the segment.
            link(&contents_path(&segment.path))?;
        }
        let segments: Vec<_> = closed.into_iter().cloned().collect();
        backed_up.count_copy(files.write_note_of_copy(directory, &segments, is_copied)?);
        let identity = self.keeper.identity.lock().known.clone();
        backed_up.count_copy(identity.write(disk, directory)?);
        Ok(backed_up)
    }

    /// Segments that copies of stores in progress need.
    fn held(&self) -> Vec<Arc<HeldSegments>> {
        let stores: Vec<StoreId> = self.keeper.stores.lock().keys().copied().collect();
        let tenants = stores
            .into_iter()
            .filter_map(|store| self.keeper.tenant(store));
        tenants.flat_map(|tenant| tenant.held()).collect()
    }
}
