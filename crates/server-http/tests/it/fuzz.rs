//! The decoder of requests and the resources behind it, on bursts of valid and damaged requests. `KVORUM_TEST_SEED`
//! sets the seed of the first one, and `KVORUM_TEST_LONG` has more of them.

use kvorum_hostile_requests::{Protocol, for_each_burst};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::hostile::{assert_serving, statuses_in};
use crate::world::{World, run};

/// A job that fails is answered with 500, as in Riak.
fn has_job(bytes: &[u8]) -> bool {
    bytes.windows(b"mapred".len()).any(|it| it == b"mapred")
}

/// True for bursts with an expectation. The HTTP library may leave a connection open if two requests follow
/// one with `Expect: 100-continue` whose body was sent at once, and no time limit of its ends that.
fn has_expectation(bytes: &[u8]) -> bool {
    bytes.windows(b"Expect".len()).any(|it| it == b"Expect")
}

/// Sends bytes and reads the statuses of all answers; the server must close too.
async fn exchange(world: &World, bytes: Vec<u8>) -> Vec<u16> {
    let (mut read, mut write) = world.connect().await.into_split();
    let sending = world.runtime.spawn("sender", async move {
        // The server may have closed already.
        let _ = write.write_all(&bytes).await;
        let _ = write.shutdown().await;
    });
    let mut replies = Vec::new();
    // A connection that is reset has its answers before.
    let _ = read.read_to_end(&mut replies).await;
    sending.await.unwrap();
    statuses_in(&replies)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the seed and the length of a run are those of the test command"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn bursts_of_requests_are_answered_or_refused_and_nothing_stays_behind() {
    for_each_burst(Protocol::Http, variable, |burst| {
        if has_expectation(&burst.bytes) {
            return;
        }
        run(|world| async move {
            let may_fail = has_job(&burst.bytes);
            let statuses = exchange(&world, burst.bytes).await;
            let is_fault = statuses.contains(&500) && !may_fail;
            assert!(!is_fault, "{statuses:?}");
            assert_serving(&world).await;
            assert_eq!(world.room.taken_bytes(), 0, "all room is given back");
        });
    });
}
