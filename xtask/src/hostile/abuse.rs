//! Hostile clients: connections with valid and damaged requests, which are read, held or dropped in
//! many ways.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_hostile_requests::{Burst, Protocol};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// The time after which a connection is dropped, whatever it waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause of a client that reads or writes slowly, and the bytes between two pauses.
const PAUSE: Duration = Duration::from_millis(50);
const SLOW_BYTES: usize = 256;

/// The time for which a connection is held without reading.
const UNREAD: Duration = Duration::from_secs(2);

/// A client of one protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abuse {
    pub(super) server: SocketAddr,
    pub(super) protocol: Protocol,
}

/// The work of hostile clients.
#[derive(Debug, Default)]
pub(super) struct Abused {
    connections: u64,
    requests: u64,
    /// Bytes that the server has answered.
    answered: u64,
}

/// The treatment of a connection.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Everything is sent, and all answers are read.
    Whole,
    /// The output ends in the middle of a request; answers are read.
    CutOff,
    /// The connection is dropped in the middle of a request.
    Dropped,
    /// The connection is dropped as soon as everything is sent.
    Unanswered,
    /// Answers are not read for some time, and the connection is dropped.
    Unread,
    /// Answers are read a few bytes at a time.
    ReadSlowly,
    /// Requests are sent a few bytes at a time.
    SentSlowly,
}

impl Abuse {
    /// Continues until `stop`.
    pub(super) async fn go_on(self, mut random: StdRng, stop: Arc<AtomicBool>) -> Abused {
        let mut abused = Abused::default();
        while !stop.load(Ordering::Relaxed) {
            let Burst { bytes, requests } = self.protocol.burst(&mut random);
            let manner = Manner::draw(&mut random);
            let Ok(stream) = connect(self.server, &mut random).await else {
                // The server may have no place for another connection now.
                sleep(PAUSE).await;
                continue;
            };
            abused.connections += 1;
            abused.requests += requests;
            let cut = random.random_range(0..=bytes.len());
            let answered = timeout(PATIENCE, manner.treat(stream, &bytes, cut)).await;
            // A connection that the server ended meanwhile counts too.
            abused.answered += answered.map_or(0, Result::unwrap_or_default);
        }
        abused
    }
}

impl Manner {
    fn draw(random: &mut StdRng) -> Self {
        match random.random_range(0..20) {
            0..10 => Self::Whole,
            10..12 => Self::CutOff,
            12..14 => Self::Dropped,
            14..16 => Self::Unanswered,
            16..18 => Self::Unread,
            18 => Self::ReadSlowly,
            _ => Self::SentSlowly,
        }
    }

    /// Sends the bytes, up to `cut` if the connection ends within a request; returns the number of
    /// bytes answered.
    async fn treat(self, stream: TcpStream, bytes: &[u8], cut: usize) -> std::io::Result<u64> {
        let (mut reading, mut writing) = stream.into_split();
        let part = match self {
            Self::CutOff | Self::Dropped => &bytes[..cut],
            _ => bytes,
        };
        let sent = async {
            match self {
                Self::SentSlowly => {
                    for piece in part.chunks(SLOW_BYTES) {
                        writing.write_all(piece).await?;
                        sleep(PAUSE).await;
                    }
                }
                _ => writing.write_all(part).await?,
            }
            match self {
                Self::Dropped | Self::Unanswered | Self::Unread => Ok(()),
                _ => writing.shutdown().await,
            }
        };
        match self {
            Self::Dropped | Self::Unanswered => sent.await.map(|()| 0),
            Self::Unread => {
                let _ended_or_full = timeout(UNREAD, sent).await;
                sleep(UNREAD).await;
                Ok(0)
            }
            _ => {
                let pause = matches!(self, Self::ReadSlowly).then_some(PAUSE);
                // The server may end the connection before everything is sent, with an answer that
                // gives the reason.
                let (_sent, read) = tokio::join!(sent, read_to_end(&mut reading, pause));
                read
            }
        }
    }
}

async fn read_to_end(
    reading: &mut (impl tokio::io::AsyncRead + Unpin),
    pause: Option<Duration>,
) -> std::io::Result<u64> {
    let mut buffer = vec![
        0;
        if pause.is_some() {
            SLOW_BYTES
        } else {
            64 << 10
        }
    ];
    let mut all = 0;
    loop {
        match reading.read(&mut buffer).await? {
            0 => return Ok(all),
            some => all += some as u64,
        }
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
}

/// Connects from one of many addresses of this machine: a used port is blocked for a minute, and
/// one address has too few ports.
async fn connect(server: SocketAddr, random: &mut StdRng) -> std::io::Result<TcpStream> {
    let from = Ipv4Addr::new(127, 0, 1, random.random_range(1..=250));
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(server).await
}

impl AddAssign for Abused {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.answered += other.answered;
    }
}

impl fmt::Display for Abused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.answered >> 20;
        let Self {
            connections,
            requests,
            ..
        } = self;
        write!(
            f,
            "{requests} requests of hostile clients on {connections} connections, {megabytes} MB of answers"
        )
    }
}
