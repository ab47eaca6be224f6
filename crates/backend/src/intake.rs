//! The state of an open store's intake: it accepts no writes after the store was closed, after a
//! final failure of a write, and while the free space is reserved.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kvorum_disk::{Disk, Headroom, Reserve};
use parking_lot::Mutex;

use crate::{BackendError, ErrorKind, Purpose, Result, mark_suspect};

/// See the module's description.
pub struct Intake {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    is_closed: AtomicBool,
    /// Failure after which the store takes no more writes.
    failure: Mutex<Option<BackendError>>,
    /// The part of the space that puts to the store's own files may not take.
    reserve: OnceLock<Arc<Reserve>>,
}

impl Intake {
    /// The intake of a store in this directory. `reserve` belongs to its log, if it has one.
    pub fn new(disk: Arc<dyn Disk>, directory: PathBuf, reserve: Option<Arc<Reserve>>) -> Self {
        Self {
            disk,
            directory,
            is_closed: AtomicBool::new(false),
            failure: Mutex::new(None),
            reserve: reserve.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Sets the reserve; a second one is ignored.
    pub fn set_reserve(&self, reserve: Arc<Reserve>) {
        let _first = self.reserve.set(reserve);
    }

    /// Measures the free space again.
    pub fn measure(&self) {
        let _seen_from_now_on = self.reserve.get().map(|it| it.measure());
    }

    /// The room for the store's files at the last measurement.
    pub fn headroom(&self) -> Headroom {
        self.reserve.get().map_or(Headroom::UNKNOWN, |it| it.seen())
    }

    /// Takes room for puts to the store's own files.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] when there is not this much free space, or it is reserved.
    pub fn take_room(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        let has_room = |it: &Arc<Reserve>| it.take(bytes, purpose == Purpose::Free);
        if self.reserve.get().is_none_or(has_room) {
            return Ok(());
        }
        let detail = format!(
            "no space for {bytes} bytes: the free space at {} is reserved for merges",
            self.directory.display()
        );
        Err(BackendError::new(ErrorKind::Full, detail))
    }

    /// Refuses a write.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], or the error of [`Intake::check_not_failed`].
    pub fn check_writable(&self) -> Result<()> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(self.closed()),
            false => self.check_not_failed(),
        }
    }

    /// Refuses an action that would build on a failed write.
    ///
    /// # Errors
    /// The first failure that was passed to [`Intake::fail`].
    pub fn check_not_failed(&self) -> Result<()> {
        match &*self.failure.lock() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Accepts no writes from now on. True when it was closed already.
    pub fn close(&self) -> bool {
        self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// The error of a closed store.
    pub fn closed(&self) -> BackendError {
        let detail = format!("{} was closed", self.directory.display());
        BackendError::new(ErrorKind::Closed, detail)
    }

    /// Notes a failed sync: nothing more is written until the store is opened again.
    pub fn fail(&self, error: &BackendError) -> BackendError {
        let error = BackendError::new(ErrorKind::Failed, error.to_string());
        self.failure.lock().get_or_insert_with(|| error.clone());
        mark_suspect(&*self.disk, &self.directory);
        error
    }
}
