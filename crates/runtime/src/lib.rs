//! Clock, randomness, tasks, the blocking pool and sockets: the runtime seam.
//!
//! Everything that would make two runs of one program differ goes through [`Runtime`]: nothing
//! below the node reads a clock, draws a random number, starts a task or opens a socket in another
//! way (`clippy.toml` forbids it). In production a [`Runtime`] is tokio's multi-threaded executor;
//! in a simulation it is one thread. Its time stands still until all tasks wait, its randomness
//! comes from a seed, and its sockets are pipes in memory. A [`World`] is a simulation of several
//! machines, with links between them that can be slow, cut or broken.
//!
//! Code that needs only the time takes an `Arc<dyn `[`Clock`]`>`, and for random numbers an
//! `Arc<dyn `[`Randomness`]`>`, not a runtime.
//!
//! The simulated runtime does not control the choice of an unbiased `tokio::select!`, the first
//! task that `tokio::sync::watch` wakes, or the order of a `std` hash map. Our code uses `biased;`,
//! [`Watched`] and ordered maps.

mod clock;
mod error;
mod log_quota;
mod net;
mod randomness;
mod room;
mod runtime;
mod scope;
mod task;
mod watched;
mod world;

pub use clock::{Clock, ManualClock, Moment, WallTime};
pub use error::{Result, RuntimeError};
pub use log_quota::LogQuota;
pub use net::{Link, ListenOptions, Listener, ReadHalf, Stream, WriteHalf};
pub use randomness::{Randomness, SeededRandomness};
pub use room::{COUNTED_BYTES_MIN, Room, Taken};
pub use runtime::{Executor, ProductionOptions, Runtime};
pub use task::{TaskError, TaskGuard, TaskHandle, ThreadHandle, TimedOut};
pub use watched::{Gone, Watched, Watcher};
pub use world::{SimulatedProcess, World};
