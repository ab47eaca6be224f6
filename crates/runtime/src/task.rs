//! Handles of running tasks and threads.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use tokio::task::JoinHandle;

/// A running task. Waiting for it gives its result; dropping the handle does not end it.
#[derive(Debug)]
pub struct TaskHandle<T> {
    name: Cow<'static, str>,
    joined: JoinHandle<T>,
}

impl<T> TaskHandle<T> {
    pub(crate) fn new(name: Cow<'static, str>, joined: JoinHandle<T>) -> Self {
        Self { name, joined }
    }

    /// The name given to the task.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops the task at its next point of waiting, and drops its state.
    pub fn abort(&self) {
        self.joined.abort();
    }

    /// True when the task has ended, one way or another.
    pub fn is_finished(&self) -> bool {
        self.joined.is_finished()
    }

    /// A guard that aborts the task when dropped.
    pub fn abort_on_drop(self) -> TaskGuard<T> {
        TaskGuard { task: self }
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.joined).poll(context).map_err(|error| {
            let name = self.name.clone().into_owned();
            match error.try_into_panic() {
                Ok(panic) => TaskError::Panicked {
                    name,
                    message: panic_message(&*panic),
                },
                Err(_) => TaskError::Aborted { name },
            }
        })
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub struct TaskGuard<T> {
    task: TaskHandle<T>,
}

impl<T> TaskGuard<T> {
    /// The guarded task.
    pub fn task(&self) -> &TaskHandle<T> {
        &self.task
    }
}

impl<T> Future for TaskGuard<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(context)
    }
}

impl<T> Drop for TaskGuard<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reason why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The task was aborted, or its runtime shut down.
    #[error("the task {name} was aborted")]
    Aborted {
        /// The name given to the task.
        name: String,
    },
    /// The task panicked: a bug.
    #[error("the task {name} panicked: {message}")]
    Panicked {
        /// The name given to the task.
        name: String,
        /// The message of the panic.
        message: String,
    },
}

/// The time given to [`crate::Runtime::timeout`] was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct TimedOut;

/// A dedicated thread. Dropping the handle does not end it.
#[derive(Debug)]
pub struct ThreadHandle<T> {
    name: String,
    joined: thread::JoinHandle<T>,
}

impl<T> ThreadHandle<T> {
    pub(crate) fn new(name: String, joined: thread::JoinHandle<T>) -> Self {
        Self { name, joined }
    }

    /// True when the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.joined.is_finished()
    }

    /// Blocks until the thread has ended; tasks must not call it.
    pub fn join(self) -> Result<T, TaskError> {
        self.joined.join().map_err(|panic| TaskError::Panicked {
            name: self.name,
            message: panic_message(&*panic),
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
