//! Ends long work in order on a signal: children are stopped, and finished work is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The user interrupts the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// A flag that is set when the user interrupts the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Listens to SIGINT and SIGTERM from now on. If that is not possible, they end the process, as is
    /// their default.
    pub(crate) fn listen() -> Self {
        let interruption = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let _ = signal_hook::flag::register(signal, Arc::clone(&interruption.0));
        }
        interruption
    }

    /// True if the user has interrupted the program.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails when the user has interrupted the program.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.is_requested() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}
