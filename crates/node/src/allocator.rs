//! The process's allocator, and the return of its free memory to the system.
//!
//! By default, the next thread that frees a page of its own returns everything that became free since
//! the last return. After a flush, that was half a gigabyte, and took 140 ms on a thread that
//! served requests, while others waited for the lock of its store. So a server returns memory
//! itself, on its maintenance thread. See `docs/performance.md`.

use std::ffi::c_long;

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time for which free memory is kept before any thread returns it, in milliseconds. The bindings name
/// this option only for older versions.
const PURGE_DELAY: mi_option_t = 15;
/// Never reached as long as maintenance runs.
const PURGE_DELAY_MILLIS: c_long = 60_000;

/// Gives every command memory in pages of the smallest size.
///
/// The allocator asks the kernel for transparent huge pages, with which memory is taken 2 MB at a time
/// and a key in memory costs up to a third more than its bytes. The setting is made for the process
/// and not in the allocator, so it also applies if the machine gives huge pages to all processes.
/// `docs/performance.md` has both costs.
pub(crate) fn refuse_huge_pages() {
    let _older_kernels_have_no_such_call = rustix::thread::disable_transparent_huge_pages(true);
}

/// Leaves the return of memory to [`give_back`]. A setting in the environment
/// (`MIMALLOC_PURGE_DELAY`) overrides this. Must be called before there are other threads.
#[expect(
    unsafe_code,
    reason = "the allocator's options have no other interface"
)]
pub(crate) fn keep_until_given_back() {
    // SAFETY: sets a number that other threads read without a lock, when there are none yet.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLIS) };
}

/// Returns wholly free pages to the system, on this thread. Does nothing while another thread does
/// it.
#[expect(
    unsafe_code,
    reason = "the allocator is asked for this by no other call"
)]
pub(crate) fn give_back() {
    // SAFETY: touches memory that is not allocated, and pages of this thread. May be called on any
    // thread at any time, except from within the allocator.
    unsafe { mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;
    use crate::figures::resident_bytes;

    /// The allocator has one state for all tests, so a single test covers it.
    #[test]
    #[expect(
        unsafe_code,
        reason = "the allocator's options have no other interface"
    )]
    fn freed_memory_is_given_back_on_request_and_the_rest_stays() {
        // SAFETY: reads a number.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        // Its default shows that the number is the one of this option.
        assert_eq!(delay(), 1000);
        keep_until_given_back();
        assert_eq!(delay(), PURGE_DELAY_MILLIS);
        let kept: Vec<Vec<u8>> = (0..250).map(|it: u8| vec![it; 4096]).collect();
        let freed: Vec<Vec<u8>> = (0..40_000).map(|_| vec![7; 4096]).collect();
        let before = resident_bytes();
        drop(freed);
        // Another test's node may return memory at the same moment.
        let is_given_back = (0..100).any(|_| {
            give_back();
            std::thread::sleep(std::time::Duration::from_millis(10));
            resident_bytes() + (100 << 20) < before
        });
        assert!(is_given_back, "{before} -> {}", resident_bytes());
        let is_whole = |(at, it): (u8, &Vec<u8>)| it.iter().all(|byte| *byte == at);
        assert!((0..).zip(&kept).all(is_whole));
    }
}
