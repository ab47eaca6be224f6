//! Logs: where they go, in which form.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;

use anyhow::Context;
use kvorum_settings::{LogLevel, LogOutput, LogSettings};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};

/// Starts logging for the rest of the process.
pub(crate) fn start(settings: &LogSettings) -> anyhow::Result<()> {
    // The libraries under the cluster tell of every step, and of a node that is down twice a second.
    let filter = match settings.level {
        LogLevel::Debug => "debug,openraft=info,foca=info",
        LogLevel::Info => "info,openraft=off,foca=off",
        LogLevel::Warning => "warn,openraft=off,foca=off",
        LogLevel::Error => "error,openraft=off,foca=off",
        LogLevel::None => return Ok(()),
    };
    let writer = match settings.output {
        LogOutput::Off => return Ok(()),
        LogOutput::Console => BoxMakeWriter::new(std::io::stderr),
        LogOutput::File => BoxMakeWriter::new(file_writer(settings)?),
        LogOutput::Both => BoxMakeWriter::new(std::io::stderr.and(file_writer(settings)?)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_ansi(false)
        .with_writer(writer)
        .init();
    Ok(())
}

fn file_writer(
    settings: &LogSettings,
) -> anyhow::Result<impl for<'a> MakeWriter<'a, Writer: Write> + Send + Sync + 'static> {
    let path = &settings.file;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("create the log directory {}", directory.display()))?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open the log file {}", path.display()))?;
    Ok(Mutex::new(file))
}
