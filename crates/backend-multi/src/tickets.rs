//! A ticket for several stores: it resolves when the tickets of all stores have.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kvorum_backend::{Durable, Result, SyncPoint, SyncTicket};

/// See the module's description.
struct AllSynced(Vec<SyncTicket>);

/// The promise that holds when all of these do.
pub(crate) fn all_of(promises: impl IntoIterator<Item = Durable>) -> Durable {
    let tickets = promises.into_iter().filter_map(|promise| match promise {
        Durable::Already => None,
        Durable::After(ticket) => Some(ticket),
    });
    let mut tickets: Vec<SyncTicket> = tickets.collect();
    match tickets.pop() {
        None => Durable::Already,
        Some(only) if tickets.is_empty() => Durable::After(only),
        Some(last) => {
            tickets.push(last);
            Durable::After(SyncTicket::new(Arc::new(AllSynced(tickets)), 0))
        }
    }
}

impl SyncPoint for AllSynced {
    fn poll_synced(&self, _position: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut context = Context::from_waker(waker);
        for ticket in &self.0 {
            match Pin::new(&mut ticket.clone()).poll(&mut context) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wait_synced(&self, _position: u64) -> Result<()> {
        self.0.iter().try_for_each(SyncTicket::wait)
    }

    fn is_driven(&self) -> bool {
        self.0.iter().all(SyncTicket::is_driven)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_backend::{BackendError, ErrorKind};
    use parking_lot::Mutex;

    use super::*;

    /// Durable up to a position, or failed.
    struct Point(Mutex<std::result::Result<u64, BackendError>>);

    impl SyncPoint for Point {
        fn poll_synced(&self, position: u64, _waker: &Waker) -> Poll<Result<()>> {
            match &*self.0.lock() {
                Ok(synced) if *synced >= position => Poll::Ready(Ok(())),
                Ok(_) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error.clone())),
            }
        }

        fn wait_synced(&self, _position: u64) -> Result<()> {
            self.0.lock().clone().map(drop)
        }

        fn is_driven(&self) -> bool {
            true
        }
    }

    fn poll(promise: &Durable) -> Poll<Result<()>> {
        let Durable::After(ticket) = promise else {
            return Poll::Ready(Ok(()));
        };
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut ticket.clone()).poll(&mut context)
    }

    #[test]
    fn it_resolves_with_the_last_one_and_fails_with_any() {
        let points = [0, 1].map(|synced| Arc::new(Point(Mutex::new(Ok(synced)))));
        let promises = || {
            points
                .clone()
                .map(|it| Durable::After(SyncTicket::new(it, 1)))
        };
        let both = all_of(promises());
        assert_eq!(poll(&both), Poll::Pending);
        *points[0].0.lock() = Ok(1);
        assert_eq!(poll(&both), Poll::Ready(Ok(())));
        *points[1].0.lock() = Err(BackendError::new(ErrorKind::Failed, "sync"));
        assert!(matches!(poll(&both), Poll::Ready(Err(_))));
        let Durable::After(ticket) = both else {
            panic!("there were two tickets");
        };
        assert!(ticket.is_driven() && ticket.wait().is_err());
        assert!(matches!(all_of([Durable::Already]), Durable::Already));
    }
}
