//! Cost of a request to another node over loopback, in the clear and encrypted. Both ends are in
//! this process; a few requests run at a time, each answered with its own body.
//!
//! `cargo run --release -p kvorum-peer --example request_cost plain|tls [BYTES] [REQUESTS]`, run
//! under `perf stat` with two counts of requests: the difference is the cost of the additional
//! requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_peer::{
    Admission, Caller, Directory, Encryption, Introduction, Lane, Message, PeerService,
    PeerSettings, Peers, Served,
};
use kvorum_ring::NodeId;
use kvorum_runtime::{ListenOptions, Moment, ProductionOptions, Runtime};
use kvorum_tls::{Authority, Identity, Material, Pem, Tls, Validity};

/// Requests under way at a time.
const AT_ONCE: usize = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Everybody(SocketAddr);

impl Directory for Everybody {
    fn introduction(&self) -> Introduction {
        Introduction {
            cluster: node(9),
            cluster_name: "cost".into(),
            node: node(1),
        }
    }

    fn address(&self, _: NodeId) -> Option<SocketAddr> {
        Some(self.0)
    }

    fn admit(&self, _: &Introduction) -> Admission {
        Admission::Member
    }
}

struct Echo;

impl PeerService for Echo {
    fn handle(&self, _: Caller, message: Message, _: Moment) -> Served {
        Served::Now(message)
    }
}

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn encryption(runtime: &Runtime) -> Result<Encryption, Failure> {
    let validity = Validity {
        made: runtime.wall_time(),
        lasts: Duration::from_secs(24 * 60 * 60),
    };
    let authority = Authority::make("cost", validity)?;
    let identity = Identity {
        cluster: "cost".into(),
        node: "node".into(),
    };
    let issued = authority.issue(&[identity], validity)?;
    let pem = Pem {
        certificate: issued.certificate.as_bytes(),
        key: issued.key.as_bytes(),
        authority: authority.issued().certificate.as_bytes(),
    };
    let material = Material::read(pem, runtime.wall_time())?;
    let tls = Tls::new(runtime.clone(), material)?;
    Ok(Encryption::Required(Arc::new(tls)))
}

#[expect(clippy::print_stdout, reason = "this is what it is run for")]
fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let is_encrypted = words.next().as_deref() == Some("tls");
    let bytes: usize = words.next().map_or(Ok(1_024), |word| word.parse())?;
    let requests: usize = words.next().map_or(Ok(200_000), |word| word.parse())?;
    let executor = Runtime::production(&ProductionOptions::default())?;
    let runtime = executor.runtime();
    let took: Duration = executor.block_on(async {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.listen(any, ListenOptions::default())?;
        let directory = Arc::new(Everybody(listener.local_address()));
        let encryption = match is_encrypted {
            true => encryption(&runtime)?,
            false => Encryption::Off,
        };
        let settings = PeerSettings::default();
        let peers = Peers::encrypted(runtime.clone(), directory, settings, encryption);
        let serving = peers.clone();
        let serve = async move { serving.serve(listener, Arc::new(Echo)).await };
        let _serving = runtime.spawn("serving", serve).abort_on_drop();
        let began = runtime.now();
        let callers = (0..AT_ONCE).map(|_| {
            let calls = call(runtime.clone(), peers.clone(), bytes, requests / AT_ONCE);
            runtime.spawn("caller", calls)
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await??;
        }
        Ok::<_, Failure>(runtime.now().since(began))
    })?;
    let micros = took.as_secs_f64() * 1e6 / requests as f64;
    println!("{bytes} bytes, {requests} requests: {micros:.2} us each");
    Ok(())
}

async fn call(
    runtime: Runtime,
    peers: Peers,
    bytes: usize,
    requests: usize,
) -> Result<(), Failure> {
    let message = Message {
        head: Bytes::from_static(b"head"),
        body: Bytes::from(vec![7; bytes]),
    };
    for _ in 0..requests {
        let deadline = runtime.now().plus(Duration::from_secs(10));
        let asked = peers.request(node(1), Lane::Requests, message.clone(), deadline);
        asked.await?;
    }
    Ok(())
}
