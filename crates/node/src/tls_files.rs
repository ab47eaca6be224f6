//! The three files with which a node proves its identity: reading, checks, and advice.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvorum_runtime::WallTime;
use kvorum_settings::{Settings, TlsMode};
use kvorum_tls::{DAY_SECONDS, Material, MaterialError, Part, Pem, day_of};

/// A certificate's end is reported from this time before it on.
const ENDS_SOON: Duration = Duration::from_secs(30 * DAY_SECONDS);

/// The contents of the three files at one time.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Vec<u8>,
}

impl TlsFiles {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// A line for each that cannot be read.
    pub(crate) fn read(settings: &Settings) -> Result<Self, String> {
        let mut problems = String::new();
        let mut read = |part| {
            let read = std::fs::read(path_of(settings, part));
            read.unwrap_or_else(|error| {
                let what = match error.kind() {
                    std::io::ErrorKind::NotFound => {
                        "there is no such file; `kvorum admin tls init` makes one for the first node, \
                         `kvorum admin tls issue` for the others"
                            .to_owned()
                    }
                    _ => error.to_string(),
                };
                let _infallible = writeln!(problems, "{}", problem_line(settings, part, &what));
                Vec::new()
            })
        };
        let files = Self {
            certificate: read(Part::Certificate),
            key: read(Part::Key),
            authority: read(Part::Authority),
        };
        if problems.is_empty() {
            Ok(files)
        } else {
            Err(problems.trim_end().to_owned())
        }
    }

    /// Checks that they fit one another, this node and the time.
    ///
    /// # Errors
    /// A line for a file that does not fit.
    pub(crate) fn material(&self, settings: &Settings, now: WallTime) -> Result<Material, String> {
        let pem = Pem {
            certificate: &self.certificate,
            key: &self.key,
            authority: &self.authority,
        };
        let node = &settings.node;
        let read = Material::read(pem, now).and_then(|material| {
            material.check_names(&node.cluster_name, &node.nodename)?;
            Ok(material)
        });
        let line = |error: MaterialError| problem_line(settings, error.part(), &error.to_string());
        read.map_err(line)
    }
}

/// Notes for the operator on files without errors; each fits into a line.
pub(crate) fn warnings(settings: &Settings, material: &Material, now: WallTime) -> Vec<String> {
    let mut found = Vec::new();
    let own = material.own();
    let left = own.not_after.since(now);
    if left < ENDS_SOON {
        let days = left.as_secs() / DAY_SECONDS;
        let what = format!(
            "this node's certificate is valid until {} ({days} days); issue a new one with `kvorum \
             admin tls issue` and put it in its place, the node reads it without a restart",
            day_of(own.not_after)
        );
        found.push(problem_line(settings, Part::Certificate, &what));
    }
    let key = path_of(settings, Part::Key);
    let mode = std::fs::metadata(key).map(|file| file.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let what = "others than its owner may read this private key; chmod 600 it";
        found.push(problem_line(settings, Part::Key, what));
    }
    found
}

/// The errors of a configuration's files, or notes on them: for `kvorum chkconfig`.
///
/// # Errors
/// A line for each problem.
pub(crate) fn check(settings: &Settings) -> Result<Vec<String>, String> {
    if settings.cluster_tls.mode == TlsMode::Off {
        return Ok(Vec::new());
    }
    let now = now();
    let material = TlsFiles::read(settings).and_then(|files| files.material(settings, now));
    Ok(warnings(settings, &material?, now))
}

/// The time, for commands without a running node.
pub(crate) fn now() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    WallTime::from_seconds(since_epoch.unwrap_or_default().as_secs())
}

pub(crate) fn path_of(settings: &Settings, part: Part) -> &Path {
    let tls = &settings.cluster_tls;
    let path: &PathBuf = match part {
        Part::Certificate => &tls.certificate,
        Part::Key => &tls.key,
        Part::Authority => &tls.authority,
    };
    path
}

fn problem_line(settings: &Settings, part: Part, what: &str) -> String {
    let key = match part {
        Part::Certificate => "cluster.tls.certfile",
        Part::Key => "cluster.tls.keyfile",
        Part::Authority => "cluster.tls.cacertfile",
    };
    format!("{key} = {}: {what}", path_of(settings, part).display())
}
