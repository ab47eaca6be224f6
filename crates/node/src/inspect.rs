//! `kvorum inspect`: a file as annotated bytes.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use kvorum_disk::RealDisk;
use kvorum_inspect::{InspectError, ShowOptions, show};

use crate::console::exit_code;

/// Arguments of `kvorum inspect`.
#[derive(Args)]
pub(crate) struct InspectArguments {
    /// A file of a data directory
    file: PathBuf,
    /// Begin with the piece that holds this byte
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// Show this many pieces at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print JSON, one piece a line, for programs
    #[arg(long)]
    json: bool,
    /// Show only pieces of this kind
    #[arg(long, value_enum)]
    only: Option<Only>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Only {
    /// Pieces with a byte that is not as it was written
    Damaged,
}

/// Prints the file; the exit code is 1 when a piece that was printed is damaged.
pub(crate) fn main(arguments: &InspectArguments) -> anyhow::Result<ExitCode> {
    let options = ShowOptions {
        from: arguments.from,
        limit: arguments.limit,
        is_json: arguments.json,
        only_damaged: arguments.only.is_some(),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let shown = show(&RealDisk, &arguments.file, options, &mut out);
    let shown = match shown.and_then(|shown| Ok(out.flush().map(|()| shown)?)) {
        // The reader has closed the pipe, as `head` does.
        Err(InspectError::Print(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        shown => shown?,
    };
    Ok(exit_code(shown.damaged == 0))
}
