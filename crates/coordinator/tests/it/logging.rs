//! A full disk or a lost quorum fails every request in the same way, until an operator acts.
//!
//! Once, each of these failures wrote a line of its own, and warnings filled a full disk. Now each kind of
//! error has a limited number of lines a minute, and the next line has the number of omitted ones.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::ErrorKind;
use kvorum_coordinator::{GetOptions, RequestError};
use kvorum_object::Clock;
use kvorum_properties::Quorum;
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::world::{World, colocated, request};

/// The most lines of one kind in a minute.
const LINES_MAX: usize = 10;

/// The lines that were logged while a closure ran.
fn logged(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let written = lines.0.lock();
    let text = String::from_utf8_lossy(&written);
    text.lines().map(str::to_owned).collect()
}

fn with<'a>(lines: &'a [String], event: &str, error: &str) -> Vec<&'a String> {
    let event = format!("event=\"{event}\"");
    let of_kind = lines.iter();
    let of_kind = of_kind.filter(|line| line.contains(&event) && line.contains(error));
    of_kind.collect()
}

fn put(world: &World, key: &str) -> Result<(), RequestError> {
    let put = request("a", &Clock::new(), kvorum_coordinator::Condition::Always);
    world.try_put(key, put, &Default::default()).map(drop)
}

fn get_of_all(world: &World) -> Result<(), RequestError> {
    let options = GetOptions {
        pr: Some(Quorum::All),
        ..GetOptions::default()
    };
    world.try_get("k", &options).map(drop)
}

#[test]
fn failures_of_a_kind_are_logged_so_many_times_a_minute_and_do_not_hide_other_kinds() {
    let world = World::new(&colocated());
    put(&world, "k").unwrap();
    for backend in world.backends.values() {
        backend.refuse_puts(Some(ErrorKind::Full));
    }
    let lines = logged(|| {
        for _ in 0..100 {
            assert!(put(&world, "k").is_err());
        }
    });
    assert_eq!(with(&lines, "request_failed", "").len(), LINES_MAX);
    assert_eq!(with(&lines, "replica_failed", "disk_full").len(), LINES_MAX);

    // In the same minute another failure begins.
    let places = world
        .coordinator
        .preference_list(&crate::world::address("k"));
    world.vnodes.remove(places.unwrap()[0].partition);
    let mut failed = None;
    let lines = logged(|| {
        for _ in 0..100 {
            failed = get_of_all(&world).err();
            assert!(failed.is_some());
        }
    });
    let error = failed.unwrap().explain();
    assert_eq!(with(&lines, "request_failed", &error).len(), LINES_MAX);

    // A minute later the next line has the number of omitted lines.
    world.run(world.runtime.sleep(Duration::from_secs(60)));
    let lines = logged(|| assert!(get_of_all(&world).is_err()));
    let next = with(&lines, "request_failed", &error);
    assert!(next[0].contains("left_out=90"), "{next:?}");
}

#[test]
fn refusals_for_want_of_memory_are_limited_even_when_reads_go_on() {
    let mut setup = colocated();
    setup.is_full = true;
    let world = World::new(&setup);
    let lines = logged(|| {
        for _ in 0..100 {
            assert_eq!(put(&world, "k"), Err(RequestError::Overload));
            assert!(world.get("k").is_none());
            world.delete("k");
        }
    });
    assert_eq!(with(&lines, "request_failed", "overload").len(), LINES_MAX);
}

/// Bytes that several writers append to.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
