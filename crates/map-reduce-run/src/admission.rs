//! Admission of a job: its text is read, and room is taken for its decoded form.
//!
//! A job with keys is as large as its text; a job that lists keys is small, and takes more memory later.

use bytes::Bytes;
use kvorum_coordinator::Coordinator;
use kvorum_map_reduce::{Job, JobForm, Refusal};
use kvorum_runtime::{Room, Taken};

/// The longest text of a job, in bytes, after inflation: some hundred thousand keys.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The most bytes of memory for one byte of a job's text: two of them can be an element of a list.
const READ_BYTES_PER_BYTE: usize = 16;

/// The longest text that is read on the same thread, in bytes.
const READ_IN_PLACE_BYTES_MAX: usize = 16 << 10;

/// An admitted job, with the memory of its text.
pub struct AdmittedJob {
    pub(crate) job: Job,
    pub(crate) room: Taken,
}

/// Reason to refuse a job.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    /// Refusal in Riak's words.
    #[error("the job is refused")]
    Refused(Refusal),
    /// Its text is too long.
    #[error("the job's text has {bytes} bytes, at most {bytes_max} are read; send it in parts")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Requests in progress leave no memory for it. Retry after a pause.
    #[error("overload")]
    Overload,
}

impl NotAdmitted {
    /// The text of an error message over protocol buffers.
    pub fn protocol_buffers(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.protocol_buffers(),
            other => other.to_string(),
        }
    }
}

impl AdmittedJob {
    /// Reads a job; reports a refused one.
    ///
    /// # Errors
    ///
    /// The text is not a valid job, or there is no room for it.
    pub async fn read(
        coordinator: &Coordinator,
        room: &Room,
        form: JobForm,
        text: Bytes,
    ) -> Result<Self, NotAdmitted> {
        let read = Self::read_unreported(coordinator, room, form, text).await;
        read.inspect_err(|_| {
            let now = coordinator.runtime().now();
            coordinator.meter().job_refused(now);
        })
    }

    async fn read_unreported(
        coordinator: &Coordinator,
        room: &Room,
        form: JobForm,
        text: Bytes,
    ) -> Result<Self, NotAdmitted> {
        let bytes = Job::read_bytes(form, &text);
        if bytes > TEXT_BYTES_MAX {
            let bytes_max = TEXT_BYTES_MAX;
            return Err(NotAdmitted::TooLong { bytes, bytes_max });
        }
        let room = room
            .take(bytes * READ_BYTES_PER_BYTE)
            .ok_or(NotAdmitted::Overload)?;
        let job = match bytes <= READ_IN_PLACE_BYTES_MAX {
            true => Job::read(form, &text),
            false => {
                let runtime = coordinator.runtime();
                runtime.blocking(move || Job::read(form, &text)).await
            }
        };
        match job {
            Ok(job) => Ok(Self { job, room }),
            Err(refusal) => Err(NotAdmitted::Refused(refusal)),
        }
    }
}
