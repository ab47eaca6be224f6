//! The decoder of requests and the resources behind it, on bursts of valid and damaged requests. `KVORUM_TEST_SEED`
//! sets the seed of the first one, and `KVORUM_TEST_LONG` has more of them.

use kvorum_hostile_requests::{Protocol, for_each_burst};

use crate::hostile::{abuse, assert_serving};
use crate::world::run;

/// A job that fails is answered with 500, as in Riak.
fn has_job(bytes: &[u8]) -> bool {
    bytes.windows(b"mapred".len()).any(|it| it == b"mapred")
}

#[test]
fn bursts_of_requests_are_answered_or_refused_and_nothing_stays_behind() {
    for_each_burst(Protocol::Http, |burst| {
        run(|world| async move {
            let statuses = abuse(&world, &burst.bytes).await;
            let is_fault = statuses.contains(&500) && !has_job(&burst.bytes);
            assert!(!is_fault, "{statuses:?}");
            assert_serving(&world).await;
            assert_eq!(world.room.taken_bytes(), 0, "all room is given back");
        });
    });
}
