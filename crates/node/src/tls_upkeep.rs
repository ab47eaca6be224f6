//! Encryption between nodes while a node runs: begun from the files, and renewed when they change.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use kvorum_member::Encryption;
use kvorum_runtime::{Moment, Runtime};
use kvorum_settings::{Settings, TlsMode};
use kvorum_tls::{Tls, day_of};

use crate::tls_files::{self, TlsFiles};

/// Time between two looks at the files. Their contents are compared, which costs little for three
/// small files; times may be wrong.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// Time between two warnings that a certificate ends soon.
const SAY_PERIOD: Duration = Duration::from_secs(kvorum_tls::DAY_SECONDS);

/// Encryption as configured, and the task that keeps it up to date.
pub(crate) struct TlsUpkeep {
    pub(crate) encryption: Encryption,
    renewal: Option<Renewal>,
}

/// Reads the files periodically.
struct Renewal {
    tls: Arc<Tls>,
    runtime: Runtime,
    settings: Settings,
    files: TlsFiles,
    said_at: Moment,
}

impl TlsUpkeep {
    /// Reads the files, unless encryption is off.
    pub(crate) fn begin(settings: &Settings, runtime: &Runtime) -> anyhow::Result<Self> {
        let mode = settings.cluster_tls.mode;
        if mode == TlsMode::Off {
            return Ok(Self {
                encryption: Encryption::Off,
                renewal: None,
            });
        }
        let now = runtime.wall_time();
        let read =
            TlsFiles::read(settings).and_then(|files| Ok((files.material(settings, now)?, files)));
        let (material, files) = match read {
            Ok(read) => read,
            Err(problems) => bail!(
                "cluster.tls is not off, and this node has no usable certificate:\n{problems}"
            ),
        };
        let tls = Arc::new(Tls::new(runtime.clone(), material)?);
        let renewal = Renewal {
            tls: tls.clone(),
            runtime: runtime.clone(),
            settings: settings.clone(),
            files,
            said_at: runtime.now(),
        };
        renewal.say_in_use("tls_begun");
        renewal.warn();
        let encryption = match mode {
            TlsMode::Optional => Encryption::Optional(tls),
            TlsMode::On | TlsMode::Off => Encryption::Required(tls),
        };
        Ok(Self {
            encryption,
            renewal: Some(renewal),
        })
    }

    /// Uses changed files, for as long as it is polled.
    pub(crate) async fn keep(self) {
        let Some(mut renewal) = self.renewal else {
            return;
        };
        loop {
            renewal.runtime.sleep(LOOK_PERIOD).await;
            let runtime = renewal.runtime.clone();
            renewal = runtime.blocking(move || renewal.looked()).await;
        }
    }
}

impl Renewal {
    /// Checks the files. Files that do not fit (such as a certificate whose key is not copied yet)
    /// are reported once and checked again; the node keeps its present ones.
    fn looked(mut self) -> Self {
        let now = self.runtime.now();
        if now.since(self.said_at) >= SAY_PERIOD {
            self.said_at = now;
            self.warn();
        }
        let files = match TlsFiles::read(&self.settings) {
            Ok(files) => files,
            Err(problem) => {
                tracing::debug!(event = "tls_files_unreadable", problem);
                return self;
            }
        };
        if files == self.files {
            return self;
        }
        let material = files.material(&self.settings, self.runtime.wall_time());
        self.files = files;
        let replaced = material.and_then(|material| {
            let replaced = self.tls.replace(material);
            replaced.map_err(|error| error.to_string())
        });
        match replaced {
            Ok(()) => self.say_in_use("tls_renewed"),
            Err(problem) => tracing::error!(event = "tls_files_do_not_fit", problem),
        }
        self
    }

    fn say_in_use(&self, event: &'static str) {
        let material = self.tls.material();
        let own = material.own();
        tracing::info!(
            event,
            certificate = own.names(),
            number = own.serial,
            valid_until = day_of(own.not_after),
        );
    }

    fn warn(&self) {
        let material = self.tls.material();
        for warning in tls_files::warnings(&self.settings, &material, self.runtime.wall_time()) {
            tracing::warn!(event = "tls_files", warning);
        }
    }
}
