//! The agreed state of a single node: one file, and the generation before it.
//!
//! A state is written to a temporary name, synced and renamed into place, and the directory is
//! synced: a crash leaves the old or the new state intact. The generation before is kept the same
//! way, in case the newest cannot be read. In Riak, a full disk could leave an empty ring file, and
//! so a node without its cluster. A damaged file never leads to a new cluster:
//! [`LocalState::create`] needs a directory with neither file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use kvorum_disk::{Disk, DiskError, ErrorKind, read_file, replace_file};
use kvorum_ring::{NodeId, Ring, RingSize};
use parking_lot::Mutex;

use crate::agreed::{AgreedState, Look, ProposeError};
use crate::cluster_id::ClusterId;
use crate::command::{Command, apply};
use crate::content::Member;
use crate::document;
use crate::file_format::DecodeError;
use crate::state::ClusterState;

const NEWEST: &str = "cluster";
const PREVIOUS: &str = "cluster.previous";
const DAMAGED: &str = "cluster.damaged";

/// Far more than the largest ring with a million custom buckets needs. It bounds the memory
/// allocated for a damaged length.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 28;

/// The start of a new cluster of one. Identities are drawn by the caller.
#[derive(Clone, Debug)]
pub struct Founding {
    /// The cluster's identity.
    pub cluster_id: ClusterId,
    /// The cluster's name.
    pub cluster_name: String,
    /// This node's identity.
    pub node: NodeId,
    /// This node as a member; its name is the configured one.
    pub member: Member,
    /// The number of partitions, which never changes.
    pub ring_size: RingSize,
}

/// The agreed state of a single node.
pub struct LocalState {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    this_node: NodeId,
    current: ArcSwap<ClusterState>,
    /// Held from reading the current state until its successor is stored.
    proposing: Mutex<()>,
}

/// An opened state, and a note for the operator if a file could not be read.
pub struct Opened {
    /// The state.
    pub state: LocalState,
    /// Present when one of the two files could not be read. The caller logs it as a warning.
    pub note: Option<OpenNote>,
}

/// One of the two files could not be read, and the other one served.
#[derive(Debug)]
pub struct OpenNote {
    /// The file that could not be read.
    pub file: PathBuf,
    /// The reason.
    pub reason: Unreadable,
    /// The unreadable file, kept for inspection, if there was one.
    pub kept_as: Option<PathBuf>,
    /// The version of the state that is used instead, if it may be an older state.
    pub older_version: Option<u64>,
    /// The reason why the file could not be written again, if it could not.
    pub not_restored: Option<ProposeError>,
}

/// The reason why one of the two files does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file is missing.
    #[error("it is missing")]
    Missing,
    /// The file can be read, but its bytes have changed.
    #[error(transparent)]
    Damaged(DecodeError),
    /// The disk returned an error.
    #[error(transparent)]
    Disk(DiskError),
}

/// The reason why the state of a node cannot be opened or created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no state: the directory is new, or was emptied.
    #[error("no cluster state in {}", directory.display())]
    Missing {
        /// The directory of the files.
        directory: PathBuf,
    },
    /// Neither generation can be read. Restore one of the files, or start over in another directory.
    #[error(
        "neither {} ({newest}) nor {} ({previous}) can be read; restore one of them from a backup, \
         a new cluster is not started over existing data",
        directory.join(NEWEST).display(),
        directory.join(PREVIOUS).display()
    )]
    BothUnreadable {
        /// The directory of the two files.
        directory: PathBuf,
        /// The reason why the newest generation cannot be read.
        newest: Box<Unreadable>,
        /// The reason why the previous generation cannot be read.
        previous: Box<Unreadable>,
    },
    /// A later version wrote the file. Run that version or a newer one.
    #[error("{}: {error}", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The error about the format.
        error: DecodeError,
    },
    /// The data belongs to a node of another name. Set the name back, or choose another directory.
    #[error(
        "the data in {} belongs to node {stored} of cluster {cluster}, but the configured nodename \
         is {configured}; set nodename = {stored}, or use another data directory",
        directory.display()
    )]
    NodeRenamed {
        /// The directory of the data.
        directory: PathBuf,
        /// The name of the node that wrote it.
        stored: String,
        /// Its cluster's name.
        cluster: String,
        /// The name in the configuration.
        configured: String,
    },
    /// The directory has a cluster state already, readable or not.
    #[error("{} exists already", file.display())]
    AlreadyExists {
        /// The existing file.
        file: PathBuf,
    },
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The state cannot be written down.
    #[error("write down the cluster state: {0}")]
    Encode(DecodeError),
}

impl LocalState {
    /// Opens the state in `directory` for the node that is configured as `node_name`.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        node_name: &str,
    ) -> Result<Opened, OpenError> {
        let newest_file = directory.join(NEWEST);
        let previous_file = directory.join(PREVIOUS);
        let newest = load(&*disk, &newest_file)?;
        let previous = load(&*disk, &previous_file)?;
        let (this_node, state, bad, older) = match (newest, previous) {
            (Ok((node, state)), Ok(_)) => (node, state, None, false),
            (Ok((node, state)), Err(reason)) => (node, state, Some((previous_file, reason)), false),
            (Err(reason), Ok((node, state))) => (node, state, Some((newest_file, reason)), true),
            (Err(Unreadable::Missing), Err(Unreadable::Missing)) => {
                return Err(OpenError::Missing {
                    directory: directory.to_owned(),
                });
            }
            (Err(newest), Err(previous)) => {
                return Err(OpenError::BothUnreadable {
                    directory: directory.to_owned(),
                    newest: Box::new(newest),
                    previous: Box::new(previous),
                });
            }
        };
        check_name(directory, this_node, &state, node_name)?;
        let older_version = older.then(|| state.version());
        let opened = Self::new(disk, directory, this_node, state);
        let note = bad.map(|(file, reason)| opened.restore(file, reason, older_version));
        Ok(Opened {
            state: opened,
            note,
        })
    }

    /// Founds a cluster of one in `directory`, which must hold no cluster state, not even a damaged
    /// one. The directory is created if it is missing.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        founding: Founding,
    ) -> Result<Self, OpenError> {
        for file in [NEWEST, PREVIOUS].map(|name| directory.join(name)) {
            if disk.info(&file)?.is_some() {
                return Err(OpenError::AlreadyExists { file });
            }
        }
        kvorum_disk::create_directory_durably(&*disk, directory)?;
        let Founding {
            cluster_id,
            cluster_name,
            node,
            member,
            ring_size,
        } = founding;
        let ring = Ring::single(ring_size, node);
        let state = ClusterState::found(cluster_id, &cluster_name, node, member, ring);
        let bytes = document::encode(node, &state).map_err(OpenError::Encode)?;
        replace_file(&*disk, &directory.join(PREVIOUS), &bytes)?;
        replace_file(&*disk, &directory.join(NEWEST), &bytes)?;
        Ok(Self::new(disk, directory, node, state))
    }

    /// The identity of this node.
    pub fn this_node(&self) -> NodeId {
        self.this_node
    }

    fn new(disk: Arc<dyn Disk>, directory: &Path, this_node: NodeId, state: ClusterState) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            this_node,
            current: ArcSwap::from_pointee(state),
            proposing: Mutex::new(()),
        }
    }

    /// Sets the unreadable file aside and writes the state in its place. The node can run without
    /// that, so a failure is only reported in the note.
    fn restore(&self, file: PathBuf, reason: Unreadable, older_version: Option<u64>) -> OpenNote {
        let (kept_as, not_restored) = match self.put_aside(&file, &reason) {
            Ok(kept_as) => (kept_as, self.rewrite(&file).err()),
            Err(error) => (None, Some(error.into())),
        };
        OpenNote {
            file,
            reason,
            kept_as,
            older_version,
            not_restored,
        }
    }

    fn put_aside(&self, file: &Path, reason: &Unreadable) -> Result<Option<PathBuf>, DiskError> {
        if matches!(reason, Unreadable::Missing) {
            return Ok(None);
        }
        let aside = self.directory.join(DAMAGED);
        self.disk.rename(file, &aside)?;
        self.disk.sync_directory(&self.directory)?;
        Ok(Some(aside))
    }

    fn rewrite(&self, file: &Path) -> Result<(), ProposeError> {
        let bytes = document::encode(self.this_node, &self.current.load());
        let bytes = bytes.map_err(|_| ProposeError::Unwritable)?;
        Ok(replace_file(&*self.disk, file, &bytes)?)
    }

    fn store(&self, before: &ClusterState, after: &ClusterState) -> Result<(), ProposeError> {
        let encode = |state| document::encode(self.this_node, state);
        let (Ok(before), Ok(after)) = (encode(before), encode(after)) else {
            return Err(ProposeError::Unwritable);
        };
        // Each step leaves both files intact, and one of them with an agreed state.
        replace_file(&*self.disk, &self.directory.join(PREVIOUS), &before)?;
        replace_file(&*self.disk, &self.directory.join(NEWEST), &after)?;
        Ok(())
    }
}

impl AgreedState for LocalState {
    fn current(&self) -> Arc<ClusterState> {
        self.current.load_full()
    }

    fn look(&self) -> Look {
        Look::from(self.current.load())
    }

    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        let _proposing = self.proposing.lock();
        let before = self.current();
        let after = apply(&before, command)?;
        if after.version() == before.version() {
            return Ok(before);
        }
        self.store(&before, &after)?;
        let after = Arc::new(after);
        self.current.store(Arc::clone(&after));
        Ok(after)
    }
}

/// Reads one generation. The inner error means that the other generation can serve. The outer error
/// is any other, such as a later format or a missing permission.
fn load(
    disk: &dyn Disk,
    file: &Path,
) -> Result<Result<(NodeId, ClusterState), Unreadable>, OpenError> {
    let bytes = match read_file(disk, file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound => Ok(Err(Unreadable::Missing)),
                ErrorKind::Device | ErrorKind::TooLarge => Ok(Err(Unreadable::Disk(error))),
                _ => Err(error.into()),
            };
        }
    };
    match document::decode(&bytes) {
        Ok(loaded) => Ok(Ok(loaded)),
        Err(error @ DecodeError::NewerFormat { .. }) => Err(OpenError::NewerFormat {
            file: file.to_owned(),
            error,
        }),
        Err(error) => Ok(Err(Unreadable::Damaged(error))),
    }
}

fn check_name(
    directory: &Path,
    this_node: NodeId,
    state: &ClusterState,
    configured: &str,
) -> Result<(), OpenError> {
    let stored = state
        .member(this_node)
        .map_or("", |member| member.name.as_str());
    if stored == configured {
        return Ok(());
    }
    Err(OpenError::NodeRenamed {
        directory: directory.to_owned(),
        stored: stored.to_owned(),
        cluster: state.name().to_owned(),
        configured: configured.to_owned(),
    })
}

impl fmt::Display for OpenNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.file.display(), self.reason)?;
        match self.older_version {
            Some(version) => write!(
                f,
                "; the generation before it serves, version {version}, later changes may be lost"
            )?,
            None => write!(f, "; the newest generation is sound")?,
        }
        if let Some(kept_as) = &self.kept_as {
            write!(f, "; kept as {}", kept_as.display())?;
        }
        if let Some(error) = &self.not_restored {
            write!(f, "; not written anew: {error}")?;
        }
        Ok(())
    }
}
