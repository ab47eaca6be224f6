//! One watched run on a separate thread: a run that does not end is distinguished from a long one.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_runtime::Runtime;
use kvorum_sim::{Outcome, RunPlan, Trace, run_traced};

/// More real time than any run takes: a longer run loops without progress of its virtual time. Its
/// thread cannot be ended, except with the process.
const RUN_WAIT_MAX: Duration = Duration::from_secs(240);

#[cfg(feature = "planted-defects")]
pub(crate) use kvorum_planted_defects::PlantedDefect;
/// Without the feature no defect can be planted.
#[cfg(not(feature = "planted-defects"))]
pub(crate) use std::convert::Infallible as PlantedDefect;

/// The way in which a plan is carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// The planted defect of the nodes.
    pub(crate) defect: Option<PlantedDefect>,
    /// True to keep the events in words.
    pub(crate) keep_trace: bool,
}

/// Carries out a plan. It has a separate thread because values that the standard library draws once
/// for each thread must not outlive a run.
pub(crate) fn one(runtime: &Runtime, plan: &RunPlan, manner: Manner) -> anyhow::Result<Outcome> {
    let trace = Arc::new(Trace::new(manner.keep_trace));
    let (plan, traced) = (plan.clone(), trace.clone());
    let (ended, end) = channel();
    let thread = runtime.thread("run", move || {
        #[cfg(feature = "planted-defects")]
        let _planted = manner.defect.map(kvorum_planted_defects::plant);
        // The receiver has gone if the run took too long.
        let _nobody = ended.send(run_traced(&plan, &traced));
    })?;
    match end.recv_timeout(RUN_WAIT_MAX) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Disconnected) => thread
            .join()
            .context("the run panicked")
            .and_then(|()| bail!("the run has no outcome")),
        Err(RecvTimeoutError::Timeout) => {
            let (part, since) = trace.part();
            let (waited, since) = (RUN_WAIT_MAX.as_secs(), since.as_millis());
            let what = format!(
                "no end after {waited} s of real time: {part}, which began at {since} ms, goes round \
                 without end; {} events until then",
                trace.events()
            );
            Ok(Outcome::unfinished(what, &trace))
        }
    }
}
