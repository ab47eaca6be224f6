//! The runtime that the rest of the program uses, and its owner.

use std::borrow::Cow;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use std::{panic, thread};

use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use crate::clock::{SimulatedClock, SystemClock};
use crate::net::{self, Network};
use crate::scope::Scope;
use crate::{
    Clock, ListenOptions, Listener, Moment, Randomness, Result, RuntimeError, SeededRandomness,
    Stream, TaskHandle, ThreadHandle, TimedOut, WallTime,
};

/// Stack size for deep calls: a member's start takes about 2.3 MiB without optimisation. Untouched
/// pages cost nothing.
const THREAD_STACK_BYTES: usize = 8 << 20;

/// Options of the production runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductionOptions {
    /// Threads that run tasks; `None` means one for each core the process may use.
    pub workers: Option<NonZeroUsize>,
    /// Maximum of threads in the blocking pool. Each runs one disk read at most, so this bounds the
    /// depth of the device's queue. Further work waits.
    pub blocking_threads_max: NonZeroUsize,
}

impl Default for ProductionOptions {
    fn default() -> Self {
        let blocking_threads_max = NonZeroUsize::MIN.saturating_add(63);
        Self {
            workers: None,
            blocking_threads_max,
        }
    }
}

impl ProductionOptions {
    /// Workers for each of several nodes on a machine with this many cores: an equal share, and at
    /// least one.
    pub fn workers_of_each(cores: usize, nodes: usize) -> NonZeroUsize {
        let share = cores.checked_div(nodes).and_then(NonZeroUsize::new);
        share.unwrap_or(NonZeroUsize::MIN)
    }
}

/// Owns the threads of a runtime and ends them when dropped. It must not be dropped inside a task.
#[derive(Debug)]
pub struct Executor {
    executor: tokio::runtime::Runtime,
    runtime: Runtime,
}

impl Executor {
    /// A handle to give to the rest of the program.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Runs a future on this thread and returns its result; when it ends, the tasks that it spawned stop in a
    /// simulation, and continue in production.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future)
    }

    /// Ends the runtime: tasks are dropped at their next point of waiting, and the blocking pool has
    /// this long to finish its work.
    pub fn shut_down(self, wait_max: Duration) {
        self.executor.shutdown_timeout(wait_max);
    }
}

/// Time, randomness, tasks and sockets. Clones are handles to the same runtime.
#[derive(Clone)]
pub struct Runtime {
    handle: Handle,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    /// The start of the clock.
    start: Instant,
    /// The sockets of a simulation; `None` in production.
    network: Option<Arc<Network>>,
    /// The machine of this runtime, in a simulation of several machines.
    machine: Option<Machine>,
}

/// A machine of a simulation, and the process that runs there.
#[derive(Clone)]
struct Machine {
    address: IpAddr,
    scope: Arc<Scope>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_simulated() {
            "simulated"
        } else {
            "production"
        };
        f.debug_tuple("Runtime").field(&kind).finish()
    }
}

impl Runtime {
    /// Builds the runtime of production: real time, threads and sockets.
    pub fn production(options: &ProductionOptions) -> Result<Executor> {
        let mut builder = Builder::new_multi_thread();
        builder.thread_stack_size(THREAD_STACK_BYTES);
        if let Some(workers) = options.workers {
            builder.worker_threads(workers.get());
        }
        builder.max_blocking_threads(options.blocking_threads_max.get());
        builder.thread_name("kvorum-worker").enable_all();
        let executor = builder.build().map_err(RuntimeError::Start)?;
        let start = Instant::now();
        let runtime = Self {
            handle: executor.handle().clone(),
            clock: Arc::new(SystemClock::new(start)),
            randomness: Arc::new(SeededRandomness::from_system()?),
            start,
            network: None,
            machine: None,
        };
        Ok(Executor { executor, runtime })
    }

    /// Builds the runtime of a simulation: one thread, time that jumps to the next timer when all
    /// tasks wait, randomness from the seed, and sockets in memory without loss or delay.
    pub fn simulated(seed: u64) -> Result<Executor> {
        let (executor, ..) = Self::simulated_over(seed, |_| (Network::default(), ()))?;
        Ok(executor)
    }

    /// The same over the network that `network` makes. Also returns the network and the second
    /// result of `network`.
    pub(crate) fn simulated_over<Beside>(
        seed: u64,
        network: impl FnOnce(&Handle) -> (Network, Beside),
    ) -> Result<(Executor, Arc<Network>, Beside)> {
        let mut builder = Builder::new_current_thread();
        let executor = builder
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(RuntimeError::Start)?;
        let handle = executor.handle().clone();
        let start = {
            let _inside = handle.enter();
            Instant::now()
        };
        let (network, beside) = network(&handle);
        let network = Arc::new(network);
        let runtime = Self {
            clock: Arc::new(SimulatedClock::new(handle.clone(), start)),
            handle,
            randomness: Arc::new(SeededRandomness::new(seed)),
            start,
            network: Some(network.clone()),
            machine: None,
        };
        Ok((Executor { executor, runtime }, network, beside))
    }

    /// The same runtime as seen by a process on a machine of a simulation, and the machine's clock.
    pub(crate) fn on_machine(
        &self,
        address: IpAddr,
        scope: Arc<Scope>,
    ) -> (Self, Arc<SimulatedClock>) {
        let clock = Arc::new(SimulatedClock::new(self.handle.clone(), self.start));
        let runtime = Self {
            clock: clock.clone(),
            machine: Some(Machine { address, scope }),
            ..self.clone()
        };
        (runtime, clock)
    }

    /// True for the runtime of a simulation.
    pub fn is_simulated(&self) -> bool {
        self.network.is_some()
    }

    /// The clock, for code that needs only the time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The generator, for code that needs only random numbers.
    pub fn randomness(&self) -> Arc<dyn Randomness> {
        Arc::clone(&self.randomness)
    }

    /// The present monotonic time.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The present wall-clock time.
    pub fn wall_time(&self) -> WallTime {
        self.clock.wall_time()
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        self.randomness.next_u64()
    }

    /// Starts a task.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, future: F) -> TaskHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let joined = self.handle.spawn(future);
        if let Some(machine) = &self.machine {
            machine.scope.note(joined.abort_handle());
        }
        TaskHandle::new(name.into(), joined)
    }

    /// Runs a closure that may wait for a device: on the blocking pool, or in place in a simulation
    /// after the other ready tasks have run. Nothing happens before the first poll; once started, the
    /// closure runs to its end even if the future is dropped. A panic of the closure continues in
    /// the caller.
    pub fn blocking<F, R>(&self, closure: F) -> impl Future<Output = R> + Send + use<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let pool = (!self.is_simulated()).then(|| self.handle.clone());
        async move {
            let Some(pool) = pool else {
                tokio::task::yield_now().await;
                return closure();
            };
            match pool
                .spawn_blocking(closure)
                .await
                .map_err(tokio::task::JoinError::try_into_panic)
            {
                Ok(result) => result,
                Err(Ok(panicked)) => panic::resume_unwind(panicked),
                // The runtime shuts down, and the caller with it: no task waits for the answer.
                Err(Err(_)) => std::future::pending().await,
            }
        }
    }

    /// Starts a thread for work that never ends or would block a pool. Only the node needs any. A
    /// simulation refuses with [`RuntimeError::NoThreads`].
    pub fn thread<F, R>(&self, name: &str, closure: F) -> Result<ThreadHandle<R>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let name = name.to_owned();
        if self.is_simulated() {
            return Err(RuntimeError::NoThreads { name });
        }
        match thread::Builder::new().name(name.clone()).spawn(closure) {
            Ok(joined) => Ok(ThreadHandle::new(name, joined)),
            Err(source) => Err(RuntimeError::Thread { name, source }),
        }
    }

    /// Lets the other ready tasks run first.
    pub async fn yield_now(&self) {
        tokio::task::yield_now().await;
    }

    /// Waits, to the millisecond.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until a moment, to the millisecond; returns at once for a past moment.
    pub async fn sleep_until(&self, moment: Moment) {
        match self.start.checked_add(moment.elapsed()) {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a future at most this long, and then drops it.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> std::result::Result<F::Output, TimedOut> {
        tokio::time::timeout(duration, future)
            .await
            .map_err(|_| TimedOut)
    }

    /// Listens on an address; port 0 lets the system choose one.
    pub fn listen(&self, address: SocketAddr, options: ListenOptions) -> Result<Listener> {
        let _inside = self.handle.enter();
        match &self.network {
            Some(network) => network.listen(address, options).map(Listener::simulated),
            None => net::listen(address, options),
        }
    }

    /// Connects to an address.
    pub async fn connect(&self, address: SocketAddr) -> Result<Stream> {
        match &self.network {
            Some(network) => {
                let from = self.machine.as_ref().map(|machine| machine.address);
                network.connect(from, address).await.map(Stream::simulated)
            }
            None => net::connect(address).await,
        }
    }
}
