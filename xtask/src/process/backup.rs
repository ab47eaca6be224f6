//! Backups of a running server, copied elsewhere with rsync. Compares the bytes of a second backup
//! with the changes since the first, and checks a server that is started on the copy.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use bytes::Bytes;
use kvorum_client::{Client, ClientSettings};

use crate::prerequisite::{self, RSYNC};
use crate::process::backend::BACKENDS;
use crate::run::Run;
use crate::server::Site;

const KEYS: u32 = 3_000;
const VALUE_BYTES: usize = 4_000;
/// One in this many keys is changed between two backups.
const CHANGED_EVERY: u32 = 100;
/// The most bytes copied beside the changed values: unshared files, and files that merges rewrote.
const BESIDE_BYTES_MAX: u64 = 1 << 20;

/// Tests every backend with files.
pub(crate) fn second_one_moves_what_is_new(
    run: &Run<'_>,
    directory: &Path,
) -> anyhow::Result<String> {
    prerequisite::require(&[RSYNC])?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the client's runtime")?;
    let mut figures = Vec::new();
    for backend in BACKENDS {
        let directory = directory.join(backend.name);
        std::fs::create_dir_all(&directory).context("creating a site")?;
        let site = Site::new(&run.binary, &directory, &backend.with(&[]))?;
        let moved = runtime.block_on(back_up_twice(&site, &directory))?;
        let (first, second, changed) = (moved.first, moved.second, moved.changed);
        let name = backend.name;
        ensure!(
            second <= 2 * changed + BESIDE_BYTES_MAX,
            "{name}: the second backup moved {second} bytes where {changed} had changed"
        );
        ensure!(
            first >= u64::from(KEYS) * VALUE_BYTES as u64,
            "{name}: the first backup moved {first} bytes, and cannot have everything"
        );
        figures.push(format!("{name} {second} bytes for {changed} changed"));
    }
    Ok(figures.join(", "))
}

struct Moved {
    first: u64,
    second: u64,
    changed: u64,
}

async fn back_up_twice(site: &Site, directory: &Path) -> anyhow::Result<Moved> {
    let server = site.start()?;
    let mut client = connect(site).await?;
    for key in 0..KEYS {
        put(&mut client, key, 0).await?;
    }
    let elsewhere = directory.join("elsewhere");
    let first = back_up_and_carry(site, &directory.join("first"), &elsewhere)?;
    let mut changed = 0;
    for key in (0..KEYS).step_by(CHANGED_EVERY as usize) {
        put(&mut client, key, 1).await?;
        changed += VALUE_BYTES as u64;
    }
    let second = back_up_and_carry(site, &directory.join("second"), &elsewhere)?;
    for key in 0..KEYS / 10 {
        put(&mut client, key, 2).await?;
    }
    drop(client);
    server.stop()?;

    std::fs::remove_dir_all(site.data()).context("losing the data")?;
    rsync(&elsewhere, site.data())?;
    let server = site.start().context("starting on the backup")?;
    let mut client = connect(site).await?;
    for key in 0..KEYS {
        let round = u32::from(key % CHANGED_EVERY == 0);
        let reply = client.get_key(b"backed up", &key.to_be_bytes()).await?;
        let found: Vec<Bytes> = reply.content.into_iter().map(|it| it.value).collect();
        ensure!(
            found == [value(key, round)],
            "key {key} is not what it was when the backup was made"
        );
    }
    drop(client);
    server.stop()?;
    Ok(Moved {
        first,
        second,
        changed,
    })
}

async fn connect(site: &Site) -> anyhow::Result<Client> {
    let connected = Client::connect(site.protobuf, &ClientSettings::default()).await;
    connected.context("connecting")
}

async fn put(client: &mut Client, key: u32, round: u32) -> anyhow::Result<()> {
    let (name, value) = (key.to_be_bytes(), value(key, round));
    client.put_value(b"backed up", &name, value).await?;
    Ok(())
}

/// Bytes that cannot be compressed.
fn value(key: u32, round: u32) -> Bytes {
    let mut state = key << 4 | round;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(VALUE_BYTES).collect()
}

/// Makes a backup and copies it; returns the number of copied bytes.
fn back_up_and_carry(site: &Site, backup: &Path, elsewhere: &Path) -> anyhow::Result<u64> {
    site.run(&["admin", "backup", &backup.to_string_lossy()])?;
    rsync(backup, elsewhere)
}

fn rsync(from: &Path, to: &Path) -> anyhow::Result<u64> {
    let mut command = Command::new("rsync");
    command.args(["--archive", "--delete", "--stats", "--no-human-readable"]);
    command.arg(from.join("")).arg(to);
    let output = command.output().context("running rsync")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "rsync failed: {text}");
    let moved = text
        .lines()
        .find_map(|line| line.strip_prefix("Literal data: ")?.split(' ').next());
    let moved = moved.context("rsync does not say how much it moved")?;
    let digits: String = moved.chars().filter(char::is_ascii_digit).collect();
    digits.parse().context("what rsync moved is no number")
}
