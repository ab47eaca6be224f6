//! Honest clients beside the hostile ones. Each checks its answers.

use std::fmt;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings, Error, ErrorKind, pb};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The bucket type of counters, which no hostile client uses.
pub(super) const COUNTERS: &str = "counters_of_the_honest";

/// The bucket of the other objects.
const BUCKET: &str = "bucket_of_the_honest";

/// Far more than necessary: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause after an answer that requests one.
const PAUSE: Duration = Duration::from_millis(100);

/// The work of honest clients.
#[derive(Debug, Default)]
pub(super) struct Honest {
    pub(super) rounds: u64,
    /// Rounds that ended because the server had no room for another request.
    overloaded: u64,
}

/// One client, with the expected state of its objects.
struct HonestClient {
    number: u64,
    http: SocketAddr,
    connection: Client<TcpStream>,
    /// Increments that were acknowledged, and those that may have been made.
    increments: i64,
    in_doubt: i64,
}

/// The end of a round.
enum Round {
    Checked,
    Overloaded,
}

/// Continues until `stop`, or until an answer is wrong, which stops everything else too.
pub(super) async fn go_on(
    number: u64,
    (protobuf, http): (SocketAddr, SocketAddr),
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Honest> {
    let mut honest = Honest::default();
    let result = check_rounds(number, (protobuf, http), &stop, &mut honest).await;
    if result.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    let context = || format!("honest client {number}, round {}", honest.rounds + 1);
    result.with_context(context)?;
    Ok(honest)
}

async fn check_rounds(
    number: u64,
    (protobuf, http): (SocketAddr, SocketAddr),
    stop: &AtomicBool,
    honest: &mut Honest,
) -> anyhow::Result<()> {
    let settings = ClientSettings {
        answer_timeout: Some(PATIENCE),
        ..ClientSettings::default()
    };
    let mut client = HonestClient {
        number,
        http,
        connection: Client::connect(protobuf, &settings).await?,
        increments: 0,
        in_doubt: 0,
    };
    while !stop.load(Ordering::Relaxed) {
        match client.round(honest.rounds).await? {
            Round::Checked => honest.rounds += 1,
            Round::Overloaded => {
                honest.overloaded += 1;
                sleep(PAUSE).await;
            }
        }
    }
    client.check_counter().await
}

impl HonestClient {
    fn key(&self) -> String {
        format!("of client {}", self.number)
    }

    /// Makes a write, its reads over both protocols, an increment, and a job.
    async fn round(&mut self, round: u64) -> anyhow::Result<Round> {
        let value = format!("value {round} of client {}", self.number);
        match self.exchange(&value).await {
            Ok(()) => {}
            Err(error) if is_overload(&error) => return Ok(Round::Overloaded),
            Err(error) => return Err(error),
        }
        let key = self.key().replace(' ', "%20");
        let path = format!("GET /buckets/{BUCKET}/keys/{key} HTTP/1.1");
        let Some(over_http) = ask(self.http, &path, "").await? else {
            return Ok(Round::Overloaded);
        };
        ensure!(
            over_http == value,
            "{over_http:?} over HTTP, and not {value:?}"
        );
        let job = format!(
            r#"{{"inputs":[["{BUCKET}","{}"]],"query":[{{"map":{{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}}}]}}"#,
            self.key()
        );
        let path = "POST /mapred HTTP/1.1\r\nContent-Type: application/json";
        let Some(of_job) = ask(self.http, path, &job).await? else {
            return Ok(Round::Overloaded);
        };
        let expected = format!("[\"{value}\"]");
        ensure!(
            of_job == expected,
            "{of_job:?} of a job, and not {expected:?}"
        );
        Ok(Round::Checked)
    }

    async fn exchange(&mut self, value: &str) -> anyhow::Result<()> {
        let key = self.key();
        let (bucket, bytes) = (BUCKET.as_bytes(), Bytes::copy_from_slice(value.as_bytes()));
        let put = self.connection.put_value(bucket, key.as_bytes(), bytes);
        put.await?;
        let got = self.connection.get_key(bucket, key.as_bytes()).await?;
        let values: Vec<_> = got.content.iter().map(|it| it.value.clone()).collect();
        ensure!(values == [value], "{values:?} is read, and not {value:?}");
        self.in_doubt += 1;
        let request = pb::DtUpdateReq {
            op: pb::DtOp {
                counter_op: Some(pb::CounterOp { increment: Some(1) }),
                ..Default::default()
            },
            ..self.counter()
        };
        self.connection.update_data_type(&request).await?;
        self.in_doubt -= 1;
        self.increments += 1;
        Ok(())
    }

    fn counter(&self) -> pb::DtUpdateReq {
        pb::DtUpdateReq {
            bucket: Bytes::from_static(BUCKET.as_bytes()),
            key: Some(Bytes::from(self.key())),
            r#type: Bytes::from_static(COUNTERS.as_bytes()),
            ..Default::default()
        }
    }

    /// Checks that the counter has every acknowledged increment, and none that was not sent.
    async fn check_counter(&mut self) -> anyhow::Result<()> {
        let pb::DtUpdateReq {
            bucket,
            key,
            r#type,
            ..
        } = self.counter();
        let request = pb::DtFetchReq {
            bucket,
            key: key.unwrap_or_default(),
            r#type,
            ..Default::default()
        };
        let fetched = self.connection.fetch_data_type(&request).await?;
        let value = fetched.value.and_then(|it| it.counter_value).unwrap_or(0);
        let (least, most) = (self.increments, self.increments + self.in_doubt);
        ensure!(
            (least..=most).contains(&value),
            "the counter is {value}, and not from {least} to {most}"
        );
        Ok(())
    }
}

/// True for the answer of a server that has no room for another request now.
fn is_overload(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|it| it.kind() == ErrorKind::Server && it.to_string().contains("overload"))
}

/// The body of an answer with status 200; `None` for an answer to try again later.
async fn ask(server: SocketAddr, line: &str, body: &str) -> anyhow::Result<Option<String>> {
    let asked = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(server).await?;
        let length = body.len();
        let request = format!(
            "{line}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    });
    let answer = asked.await.context("no answer over HTTP in time")??;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("no answer over HTTP")?;
    match head.get("HTTP/1.1 ".len()..).and_then(|it| it.get(..3)) {
        Some("200") => Ok(Some(body.to_owned())),
        Some("503") => Ok(None),
        _ => bail!("{line}: {head}"),
    }
}

impl AddAssign for Honest {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.overloaded += other.overloaded;
    }
}

impl fmt::Display for Honest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, overloaded } = self;
        write!(
            f,
            "{rounds} rounds of honest clients right, {overloaded} ended by overload"
        )
    }
}
