//! The remains of the traffic when it is over: every gauge of requests in progress has to go back to nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// Gauges of `/stats` for what is under way.
const GAUGES: [&str; 6] = [
    "pbc_active",
    "pipeline_active",
    "node_get_fsm_active",
    "node_put_fsm_active",
    "list_fsm_active",
    "index_fsm_active",
];

/// The longest time that a request may go on without its client. Far more than necessary: a job runs for a minute.
const OVER_WITHIN: Duration = Duration::from_secs(120);

/// Waits until nothing is under way.
///
/// # Errors
/// A gauge stays above zero.
pub(super) fn require_none(http: SocketAddr) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let left = under_way(http)?;
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() > OVER_WITHIN {
            bail!("still under way without a client: {}", left.join(", "));
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn under_way(http: SocketAddr) -> anyhow::Result<Vec<String>> {
    let stats = stats(http).context("reading the statistics")?;
    let mut left = Vec::new();
    for name in GAUGES {
        let value = stats.get(name).and_then(Value::as_i64);
        let value = value.with_context(|| format!("no {name} in the statistics"))?;
        if value != 0 {
            left.push(format!("{name} {value}"));
        }
    }
    Ok(left)
}

fn stats(http: SocketAddr) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(http)?;
    stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(serde_json::from_str(body)?)
}
