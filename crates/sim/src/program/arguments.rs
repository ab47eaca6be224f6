//! The arguments of the program, and the threads that they ask for.

use clap::Parser;
use kvorum_runtime::Runtime;

/// Clusters on virtual time, under faults: one seed, one run.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// The first seed; a fresh one where none is given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Seeds to run, one after the other.
    #[arg(long, default_value_t = 1)]
    pub(crate) runs: u64,
    /// Begin no further run after this many seconds.
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Run every so many seeds twice and compare the traces.
    #[arg(long, default_value_t = 8)]
    pub(crate) twice_every: u64,
    /// Seeds that run side by side.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u64,
    /// Print every event of the run.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Print what the nodes log while they run, such as `info` or `kvorum_handoff=debug`, between the
    /// events of the run (`kvorum_sim=debug`).
    #[arg(long)]
    pub(crate) log: Option<String>,
    /// Runs that making a failing plan smaller may take.
    #[arg(long, default_value_t = 60)]
    pub(crate) shrink_runs: usize,
    /// Print at the end, in Markdown, the results of this version's runs.
    #[arg(long)]
    pub(crate) section: Option<String>,
    /// Print the plan before it runs.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print a line for every run, not only for those that fail.
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Run a scenario by its number, or every one with `all`; `runs` seeds of each.
    #[arg(long)]
    pub(crate) scenario: Option<String>,
    /// Plant every defect in turn, or the one that --defect names, and see that some seed finds it.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    pub(crate) planted: bool,
    /// Look in every third place only where a defect may be: the third with number 0, 1 or 2.
    #[cfg(feature = "planted-defects")]
    #[arg(long, value_parser = clap::value_parser!(u8).range(..3))]
    pub(crate) third: Option<u8>,
    /// Run with this defect, by name.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    pub(crate) defect: Option<String>,
}

impl Arguments {
    pub(crate) fn first_seed(&self, runtime: &Runtime) -> u64 {
        self.seed.unwrap_or_else(|| runtime.random_u64() >> 16)
    }

    /// Does the work on as many threads as are asked for, and waits for all of them.
    pub(crate) fn side_by_side(
        &self,
        runtime: &Runtime,
        name: &str,
        work: impl Fn() -> anyhow::Result<()> + Clone + Send + 'static,
    ) -> anyhow::Result<()> {
        let mut workers = Vec::new();
        for _ in 0..self.threads.max(1) {
            workers.push(runtime.thread(name, work.clone())?);
        }
        for worker in workers {
            worker.join()??;
        }
        Ok(())
    }
}
