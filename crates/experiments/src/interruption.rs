//! Ends long work in order when a person or the system asks for it: children are stopped, what is
//! done is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody asked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Whether somebody asked for the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Listens to SIGINT and SIGTERM from now on. Where that is not possible, they end the process
    /// as they always do.
    pub(crate) fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};

        let interruption = Self::default();
        let flag = Arc::clone(&interruption.0);
        let (ready, listening) = std::sync::mpsc::channel();
        let watch = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let (Ok(mut interrupt), Ok(mut terminate)) = (
                    signal(SignalKind::interrupt()),
                    signal(SignalKind::terminate()),
                ) else {
                    return;
                };
                let _ = ready.send(());
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                flag.store(true, Ordering::Relaxed);
            });
        };
        let _ = std::thread::Builder::new()
            .name("bench-signals".to_owned())
            .spawn(watch);
        // Ready, or gone: either way it is known from here on which.
        let _ = listening.recv();
        interruption
    }

    /// Whether somebody asked for the end.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails when somebody asked for the end.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.is_requested() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}
