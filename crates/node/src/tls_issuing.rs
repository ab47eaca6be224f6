//! `kvorum admin tls init` and `issue`: an authority of the cluster's own, and certificates of it.
//!
//! They need no running node, so the authority's key may be on a machine without one. No existing
//! file is overwritten, and keys are readable only by their owner from the first byte on.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use kvorum_settings::Settings;
use kvorum_tls::{AUTHORITY_VALIDITY, Authority, Identity, Issued, Part, Validity, day_of};
use serde_json::json;

use crate::arguments::AdminArguments;
use crate::configuration_file;
use crate::console::say;
use crate::tls_files::{now, path_of};

const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NODE_CERTIFICATE: &str = "node.crt";
const NODE_KEY: &str = "node.key";

#[derive(Subcommand)]
pub(crate) enum TlsVerb {
    /// Make a certificate authority for this cluster, and a certificate for this node
    Init(InitArguments),
    /// Issue a certificate for a node: a directory with the three files that it needs
    Issue(IssueArguments),
    /// The state of encryption on this node, and its certificate
    Status,
}

#[derive(Args)]
pub(crate) struct InitArguments {
    /// Directory of the authority [default: that of cluster.tls.cacertfile]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Days for which the node's certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Make the authority alone, on a machine that is not a node
    #[arg(long)]
    authority_only: bool,
}

#[derive(Args)]
pub(crate) struct IssueArguments {
    /// The node's name, as in its nodename
    node: String,
    /// A further name of the same node, for one that is being renamed; may be repeated
    #[arg(long, value_name = "NODE")]
    also: Vec<String>,
    /// Directory of the authority [default: that of cluster.tls.cacertfile]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The directory to make [default: one called like the node, in the authority's]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 730, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
}

/// A file to be made.
struct NewFile<'a> {
    path: PathBuf,
    text: &'a str,
    is_secret: bool,
}

/// Makes the authority, and the files of the first node.
pub(crate) fn init(init: &InitArguments, arguments: &AdminArguments) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.configuration.source())?;
    let settings = &loaded.configuration.settings;
    let cluster = &settings.node.cluster_name;
    let directory = authority_directory(init.dir.as_deref(), settings);
    let authority = Authority::make(cluster, validity(AUTHORITY_VALIDITY))?;
    let own = authority.issued();
    let mut files = vec![
        secret(directory.join(AUTHORITY_KEY), &own.key),
        open(directory.join(AUTHORITY_CERTIFICATE), &own.certificate),
    ];
    let name = &settings.node.nodename;
    let issued = authority.issue(&[identity(cluster, name)?], days(init.days))?;
    if !init.authority_only {
        files.push(secret(path_of(settings, Part::Key).into(), &issued.key));
        let certificate = path_of(settings, Part::Certificate).into();
        files.push(open(certificate, &issued.certificate));
        let believed = path_of(settings, Part::Authority);
        if *believed != directory.join(AUTHORITY_CERTIFICATE) {
            files.push(open(believed.into(), &own.certificate));
        }
    }
    make(&files)?;
    let until = day_of(authority.not_after());
    if arguments.json {
        let made = json!({
            "cluster": cluster,
            "valid_until": until,
            "authority": made_json(&files[..2]),
            "node": (!init.authority_only).then_some(name),
            "files": made_json(&files[2..]),
        });
        say(&format!("{made:#}"));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "the authority of cluster {cluster}, valid until {until}:"
    ));
    say_made(&files[..2]);
    if let [_, _, of_node @ ..] = &files[..]
        && !of_node.is_empty()
    {
        say(&format!("a certificate for {name}:"));
        say_made(of_node);
    }
    say(&format!(
        "the key {} makes nodes of this cluster: keep it away from all nodes, only `kvorum admin \
         tls issue` needs it",
        directory.join(AUTHORITY_KEY).display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Issues a certificate for a node.
pub(crate) fn issue(
    issue: &IssueArguments,
    arguments: &AdminArguments,
) -> anyhow::Result<ExitCode> {
    let loaded = configuration_file::load(&arguments.configuration.source())?;
    let settings = &loaded.configuration.settings;
    let cluster = &settings.node.cluster_name;
    let node = &issue.node;
    let names = [node].into_iter().chain(&issue.also);
    let identities: Vec<Identity> = names
        .map(|name| identity(cluster, name))
        .collect::<anyhow::Result<_>>()?;
    let directory = authority_directory(issue.dir.as_deref(), settings);
    let authority = read_authority(&directory)?;
    let Issued { certificate, key } = authority.issue(&identities, days(issue.days))?;
    let out = issue.out.clone();
    // A node's name may have a slash, a file's name may not.
    let out = out.unwrap_or_else(|| directory.join(node.replace('/', "_")));
    let files = [
        secret(out.join(NODE_KEY), &key),
        open(out.join(NODE_CERTIFICATE), &certificate),
        open(
            out.join(AUTHORITY_CERTIFICATE),
            &authority.issued().certificate,
        ),
    ];
    make(&files)?;
    if arguments.json {
        let made = json!({"cluster": cluster, "node": node, "files": made_json(&files)});
        say(&format!("{made:#}"));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("a certificate for {node} of cluster {cluster}:"));
    say_made(&files);
    say("copy them to where cluster.tls.keyfile, certfile and cacertfile are on that node");
    Ok(ExitCode::SUCCESS)
}

fn authority_directory(named: Option<&Path>, settings: &Settings) -> PathBuf {
    let believed = path_of(settings, Part::Authority).parent();
    named.or(believed).unwrap_or(Path::new(".")).to_owned()
}

fn read_authority(directory: &Path) -> anyhow::Result<Authority> {
    let read = |name| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).with_context(|| {
            format!(
                "read {} of the authority; name its directory with --dir, or make one with `kvorum \
                 admin tls init`",
                path.display()
            )
        })
    };
    let (certificate, key) = (read(AUTHORITY_CERTIFICATE)?, read(AUTHORITY_KEY)?);
    let authority = Authority::read(&certificate, &key);
    authority.with_context(|| format!("the authority in {}", directory.display()))
}

fn identity(cluster: &str, name: &str) -> anyhow::Result<Identity> {
    let is_name = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
    match name.split_once('@') {
        Some((front, host)) if is_name(front) && is_name(host) && !host.contains('@') => {
            Ok(Identity {
                cluster: cluster.to_owned(),
                node: name.to_owned(),
            })
        }
        _ => bail!("{name:?} is no node's name; expected name@host, as its nodename says"),
    }
}

fn days(days: u32) -> Validity {
    validity(Duration::from_secs(
        u64::from(days) * kvorum_tls::DAY_SECONDS,
    ))
}

fn validity(lasts: Duration) -> Validity {
    Validity { made: now(), lasts }
}

fn secret(path: PathBuf, text: &str) -> NewFile<'_> {
    NewFile {
        path,
        text,
        is_secret: true,
    }
}

fn open(path: PathBuf, text: &str) -> NewFile<'_> {
    NewFile {
        path,
        text,
        is_secret: false,
    }
}

/// Makes all files, or none when one is there already.
fn make(files: &[NewFile<'_>]) -> anyhow::Result<()> {
    if let Some(there) = files
        .iter()
        .find(|file| file.path.symlink_metadata().is_ok())
    {
        bail!(
            "{} is there already, and is not overwritten; move it away, or name another directory",
            there.path.display()
        );
    }
    for file in files {
        file.make()
            .with_context(|| format!("make {}", file.path.display()))?;
    }
    Ok(())
}

impl NewFile<'_> {
    fn make(&self) -> std::io::Result<()> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        let mode = if self.is_secret { 0o600 } else { 0o644 };
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&self.path);
        let mut file = opened?;
        file.write_all(self.text.as_bytes())?;
        file.sync_all()
    }
}

fn made_json(files: &[NewFile<'_>]) -> Vec<serde_json::Value> {
    let files = files.iter();
    let entry =
        |it: &NewFile<'_>| json!({"path": it.path.display().to_string(), "secret": it.is_secret});
    files.map(entry).collect()
}

fn say_made(files: &[NewFile<'_>]) {
    for file in files {
        let note = if file.is_secret { "  (secret)" } else { "" };
        say(&format!("  {}{note}", file.path.display()));
    }
}
