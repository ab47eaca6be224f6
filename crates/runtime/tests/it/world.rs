//! Machines of a simulation: killed, cut off, slow, and with clocks of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_runtime::{Link, ListenOptions, Runtime, SimulatedProcess, Stream, World};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn machine(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn service(number: u8) -> SocketAddr {
    SocketAddr::new(machine(number), 80)
}

fn simulated<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(World) -> F) {
    let (executor, world) = World::new(seed).unwrap();
    executor.block_on(test(world));
}

/// A machine that sends back the bytes that it gets.
fn echoing(world: &World, number: u8) -> SimulatedProcess {
    let process = world.start_process(machine(number));
    let runtime = process.runtime();
    let listener = runtime
        .listen(service(number), ListenOptions::default())
        .unwrap();
    process.runtime().spawn("listen", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            runtime.spawn("echo", async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    if stream.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    process
}

async fn round_trip(runtime: &Runtime, stream: &mut Stream) -> std::io::Result<Duration> {
    let before = runtime.now();
    stream.write_all(&[7]).await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    Ok(runtime.now().since(before))
}

fn slow(milliseconds: u64) -> Link {
    let delay = Duration::from_millis(milliseconds);
    Link {
        delay_min: delay,
        delay_max: delay,
        is_cut: false,
    }
}

const CUT: Link = Link {
    delay_min: Duration::ZERO,
    delay_max: Duration::ZERO,
    is_cut: true,
};

#[test]
fn a_link_takes_its_time_in_each_direction() {
    simulated(1, |world| async move {
        let _echoing = echoing(&world, 2);
        world.set_link(machine(1), machine(2), slow(30));
        world.set_link(machine(2), machine(1), slow(50));
        let asking = world.start_process(machine(1)).runtime();
        let mut stream = asking.connect(service(2)).await.unwrap();
        assert_eq!(stream.local_address().ip(), machine(1));
        let took = round_trip(&asking, &mut stream).await.unwrap();
        assert_eq!(took, Duration::from_millis(80));
    });
}

#[test]
fn a_cut_holds_back_until_it_is_mended_and_in_one_direction_only() {
    simulated(1, |world| async move {
        let _echoing = echoing(&world, 2);
        let process = world.start_process(machine(1));
        let asking = process.runtime();
        let mut stream = asking.connect(service(2)).await.unwrap();
        round_trip(&asking, &mut stream).await.unwrap();
        world.set_link(machine(2), machine(1), CUT);
        let second = Duration::from_secs(1);
        let waiting = asking
            .timeout(second, round_trip(&asking, &mut stream))
            .await;
        assert!(waiting.is_err());
        // The byte arrived, and its echo follows once the way back is open.
        world.set_link(machine(2), machine(1), Link::default());
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte, [7]);
        world.set_link(machine(1), machine(2), CUT);
        assert!(
            asking
                .timeout(second, asking.connect(service(2)))
                .await
                .is_err()
        );
    });
}

#[test]
fn a_killed_process_does_nothing_more_and_its_connections_end() {
    simulated(1, |world| async move {
        let echoing = echoing(&world, 2);
        let ticks = Arc::new(AtomicU64::new(0));
        let (runtime, counted) = (echoing.runtime(), ticks.clone());
        echoing.runtime().spawn("tick", async move {
            loop {
                runtime.sleep(Duration::from_millis(1)).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let asking = world.start_process(machine(1)).runtime();
        let mut stream = asking.connect(service(2)).await.unwrap();
        round_trip(&asking, &mut stream).await.unwrap();
        echoing.kill();
        asking.sleep(Duration::from_millis(5)).await;
        let ticked = ticks.load(Ordering::Relaxed);
        asking.sleep(Duration::from_millis(50)).await;
        assert_eq!(ticks.load(Ordering::Relaxed), ticked);
        assert!(round_trip(&asking, &mut stream).await.is_err());
        assert!(asking.connect(service(2)).await.is_err());
        assert_eq!(world.listeners(), []);
    });
}

#[test]
fn broken_connections_end_at_both_ends_and_new_ones_work() {
    simulated(1, |world| async move {
        let _echoing = echoing(&world, 2);
        let process = world.start_process(machine(1));
        let asking = process.runtime();
        let mut stream = asking.connect(service(2)).await.unwrap();
        round_trip(&asking, &mut stream).await.unwrap();
        world.break_connections(machine(2), machine(1));
        assert!(round_trip(&asking, &mut stream).await.is_err());
        let mut again = asking.connect(service(2)).await.unwrap();
        assert!(round_trip(&asking, &mut again).await.is_ok());
    });
}

#[test]
fn the_clock_on_one_wall_jumps_alone() {
    simulated(1, |world| async move {
        let (one, other) = (
            world.start_process(machine(1)),
            world.start_process(machine(2)),
        );
        let before = one.runtime().wall_time();
        one.jump_wall_clock(-5_000_000);
        assert_eq!(
            one.runtime().wall_time().micros(),
            before.micros() - 5_000_000
        );
        assert_eq!(other.runtime().wall_time(), before);
        assert_eq!(one.runtime().now(), other.runtime().now());
    });
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let course = |seed| {
        let events = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let noted = events.clone();
        simulated(seed, |world| async move {
            let _echoing = echoing(&world, 9);
            let mut tasks = Vec::new();
            let mut processes = Vec::new();
            for number in 1..4 {
                let drawn = Link {
                    delay_min: Duration::from_millis(1),
                    delay_max: Duration::from_millis(40),
                    is_cut: false,
                };
                world.set_link(machine(number), machine(9), drawn);
                let process = world.start_process(machine(number));
                let (runtime, noted) = (process.runtime(), noted.clone());
                tasks.push(process.runtime().spawn("ask", async move {
                    let mut stream = runtime.connect(service(9)).await.unwrap();
                    for _ in 0..20 {
                        let took = round_trip(&runtime, &mut stream).await.unwrap();
                        noted.lock().push((number, runtime.now(), took));
                    }
                }));
                processes.push(process);
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        Arc::into_inner(events).map(parking_lot::Mutex::into_inner)
    };
    assert_eq!(course(5), course(5));
    assert_ne!(course(5), course(6));
}
