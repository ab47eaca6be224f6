//! The command line of `kvorum bench`.

use std::path::PathBuf;

/// Load a server and measure it.
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// The commands of `kvorum bench` itself.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Run a basho_bench configuration.
    Run(Box<RunArguments>),
    /// Merge the results of several processes into one result, histogram by histogram.
    Merge(MergeArguments),
}

/// Arguments of `kvorum bench merge`.
#[derive(Debug, clap::Args)]
pub struct MergeArguments {
    /// Result directories, each with a run.json.
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// The directory to make.
    #[arg(long, short = 'o', value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Arguments of `kvorum bench run`.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Configuration files in Erlang terms; later ones win over earlier ones.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Directory that gets a directory per run, and `current`, a link to the newest.
    #[arg(long, short = 'd', value_name = "DIR", default_value = "tests")]
    pub(crate) out: PathBuf,
    /// Name of the run's directory; the time in UTC if not given.
    #[arg(long, short = 'n')]
    pub(crate) name: Option<String>,
    /// Run for this many seconds instead of the configured minutes.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Multiply duration and key space by this, to run a published test in a fraction of its time.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Let operations run for this many seconds before measuring begins.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) warm_up: f64,
    /// Open loop: this many operations a second of all workers together, due at fixed times, with
    /// latencies that count from when an operation was due.
    #[arg(long, value_name = "OPERATIONS")]
    pub(crate) rate: Option<f64>,
    /// Set a key to an Erlang term, over what files say; may be repeated.
    #[arg(long, value_name = "KEY=TERM")]
    pub(crate) set: Vec<String>,
    /// Threads that share the workers; half of the cores if not given.
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Mark every value written, and check every value read.
    #[arg(long)]
    pub(crate) verify: bool,
    /// The server holds keys already: how many gets can find anything is not worked out.
    #[arg(long)]
    pub(crate) filled: bool,
    /// This process is the I-th of N that make one load, here or on other machines: its workers
    /// get the ids, seeds and keys of their own. `kvorum bench merge` joins the results.
    #[arg(long, value_name = "I/N")]
    pub(crate) part: Option<Part>,
    /// Begin at this time, in seconds since 1970, so that several processes begin together.
    #[arg(long, value_name = "UNIX_SECONDS")]
    pub(crate) start_at: Option<f64>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// The server's description, and the sources of its figures.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArguments {
    /// Process id of a server on this machine, to sample its CPU time, memory and disk bytes; may
    /// be repeated.
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Vec<u32>,
    /// HTTP address of a server, to sample its /metrics and /stats; may be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server_http: Vec<String>,
    /// Data directory of a server on this machine, to sample its disk space; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) server_data: Vec<PathBuf>,
    /// A setting of the server, to be kept with the results; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) server_setting: Vec<String>,
    /// The server's version, to be kept with the results; asked of --server-http if not given.
    #[arg(long, value_name = "TEXT")]
    pub(crate) server_version: Option<String>,
    /// The engine, to be kept with the results; asked of --server-http if not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// The promise of an acknowledged write, to be kept with the results.
    #[arg(long, value_name = "NAME")]
    pub(crate) durability: Option<String>,
}

/// One of several processes that make one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of this one, from 1.
    pub(crate) index: u32,
    /// Number of processes.
    pub(crate) count: u32,
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, count)| {
            Some(Self {
                index: index.parse().ok()?,
                count: count.parse().ok()?,
            })
        });
        parsed
            .filter(|part| (1..=part.count).contains(&part.index) && part.count <= 10_000)
            .ok_or_else(|| "expected I/N, such as 1/4, with I from 1 to N".to_owned())
    }
}
