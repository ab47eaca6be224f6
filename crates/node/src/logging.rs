//! Logs: their output and their form.
//!
//! One event is one line, whatever its fields contain: `logfmt` puts every text in quotes and
//! escapes line breaks, `json` makes an object of it. Operators use a node's name, so the name is
//! added beside the node's identity. A panic is an event like others.

mod line;
mod node_names;
mod rotating_file;

use std::panic::PanicHookInfo;
use std::sync::Mutex;

use anyhow::Context;
use kvorum_settings::{LogLevel, LogOutput, LogSettings};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};

use self::line::Lines;
pub(crate) use self::node_names::NodeNames;
use self::rotating_file::RotatingFile;

/// Starts logging for the rest of the process.
pub(crate) fn start(settings: &LogSettings) -> anyhow::Result<NodeNames> {
    let names = NodeNames::default();
    // These libraries log every step, and two lines a second about each node that is down.
    let filter = match settings.level {
        LogLevel::Debug => "debug,openraft=info,foca=info",
        LogLevel::Info => "info,openraft=off,foca=off",
        LogLevel::Warning => "warn,openraft=off,foca=off",
        LogLevel::Error => "error,openraft=off,foca=off",
        LogLevel::None => return Ok(names),
    };
    let file = || {
        let file = RotatingFile::open(&settings.file, settings.file_bytes_max, settings.files_max);
        file.with_context(|| format!("open the log file {}", settings.file.display()))
    };
    let writer = match settings.output {
        LogOutput::Off => return Ok(names),
        LogOutput::Console => BoxMakeWriter::new(std::io::stderr),
        LogOutput::File => BoxMakeWriter::new(Mutex::new(file()?)),
        LogOutput::Both => BoxMakeWriter::new(std::io::stderr.and(Mutex::new(file()?))),
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .event_format(Lines {
            format: settings.format,
            names: names.clone(),
        })
        .with_writer(writer)
        .init();
    std::panic::set_hook(Box::new(log_panic));
    Ok(names)
}

/// A panic as an event; without this it would be some lines on standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let place = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    tracing::error!(
        event = "panicked",
        thread = thread.name().unwrap_or("unnamed"),
        place = place.as_deref().unwrap_or("unknown"),
        reason = text.as_deref().unwrap_or("unknown"),
        "report this bug",
    );
}
