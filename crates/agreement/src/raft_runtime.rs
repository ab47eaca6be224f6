//! The library's runtime on top of ours: its tasks belong to a node, its randomness to a seed.
//!
//! The library takes a runtime by type, not by value. So the node's runtime is in a task-local,
//! which all of its tasks inherit. The timers are tokio's, which a simulation pauses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use kvorum_runtime::{Randomness, Runtime, TaskError, TaskHandle};
use openraft::{AsyncRuntime, OptionalSend, TokioInstant, TokioRuntime};
use rand_core_06::{Error, RngCore};

tokio::task_local! {
    static CURRENT: Runtime;
}

/// Runs a future whose Raft tasks belong to `runtime`.
pub(crate) async fn within<F: Future>(runtime: Runtime, future: F) -> F::Output {
    CURRENT.scope(runtime, future).await
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SeamRuntime;

/// Random numbers from the seam in the library's form.
pub(crate) struct SeamRandomness(Arc<dyn Randomness>);

impl RngCore for SeamRandomness {
    fn next_u32(&mut self) -> u32 {
        // Any half of the bits will do.
        u32::try_from(self.0.next_u64() >> 32).unwrap_or(0)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.fill(bytes);
        Ok(())
    }
}

type LibrarySleep = <TokioRuntime as AsyncRuntime>::Sleep;

/// Turns that a timer gives to other tasks: more than any path needs from one node's socket to
/// another's log.
const TURNS: u32 = 64;

/// A timer. In simulated time it fires after all other events of the same moment.
///
/// The library waits for a timer or a message. When both are ready, tokio draws one of them without
/// a seed. The message has to be first, so that a simulation can be repeated.
pub(crate) struct SeamSleep {
    sleep: Pin<Box<LibrarySleep>>,
    is_over: bool,
    turns: u32,
}

impl SeamSleep {
    fn new(sleep: LibrarySleep) -> Self {
        let is_simulated = CURRENT.try_with(Runtime::is_simulated).unwrap_or(false);
        Self {
            sleep: Box::pin(sleep),
            is_over: false,
            turns: if is_simulated { TURNS } else { 0 },
        }
    }
}

impl Future for SeamSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_over {
            ready!(self.sleep.as_mut().poll(context));
            self.is_over = true;
        }
        let Some(turns) = self.turns.checked_sub(1) else {
            return Poll::Ready(());
        };
        self.turns = turns;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn current() -> Runtime {
    CURRENT.with(Clone::clone)
}

impl AsyncRuntime for SeamRuntime {
    type JoinError = TaskError;
    type JoinHandle<T: OptionalSend + 'static> = TaskHandle<T>;
    type Sleep = SeamSleep;
    type Instant = TokioInstant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = SeamRandomness;
    type OneshotSender<T: OptionalSend> = <TokioRuntime as AsyncRuntime>::OneshotSender<T>;
    type OneshotReceiverError = <TokioRuntime as AsyncRuntime>::OneshotReceiverError;
    type OneshotReceiver<T: OptionalSend> = <TokioRuntime as AsyncRuntime>::OneshotReceiver<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let runtime = current();
        runtime.spawn("agreement", within(runtime.clone(), future))
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        SeamSleep::new(TokioRuntime::sleep(duration))
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        SeamSleep::new(TokioRuntime::sleep_until(deadline))
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        matches!(error, TaskError::Panicked { .. })
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        SeamRandomness(current().randomness())
    }

    fn oneshot<T>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>)
    where
        T: OptionalSend,
    {
        TokioRuntime::oneshot()
    }
}
