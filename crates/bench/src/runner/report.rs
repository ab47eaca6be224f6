//! The reporting thread: collects workers' records, writes rows, and ends the run in time.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use super::event::Event;
use super::options::RunOptions;
use super::run_error::RunError;
use crate::activity::{Activity, Records, StallWatch};
use crate::output::{ResultFiles, Totals};
use crate::process::ProcessUsage;
use crate::progress::Progress;
use crate::server_probe::ServerProbe;
use crate::settings::Settings;
use crate::worker::Control;

/// Number of looks at the workers between two renewals of the progress line.
const LOOKS_PER_TICK: u32 = 5;

/// Collects the threads' records, and writes them out.
pub(super) struct Report<'run> {
    settings: &'run Settings,
    options: &'run RunOptions,
    control: &'run Control,
    threads: Vec<Arc<Activity>>,
    /// Empty records that are swapped with a thread's records.
    scratch: Records,
    totals: Records,
    progress: Progress,
    threads_left: usize,
    abandoned: usize,
    stop_requested: Option<Instant>,
    looks: u32,
}

/// A measurement from its start on.
struct Measuring {
    start: Instant,
    started: SystemTime,
    warm_up: Option<Records>,
    own_before: Option<ProcessUsage>,
    probe: ServerProbe,
    stalls: StallWatch,
    reported: Duration,
    next_report: Duration,
}

impl<'run> Report<'run> {
    pub(super) fn new(
        settings: &'run Settings,
        options: &'run RunOptions,
        control: &'run Control,
        threads: Vec<Arc<Activity>>,
    ) -> Result<Self, RunError> {
        let operations = settings.operations.len();
        Ok(Self {
            settings,
            options,
            control,
            threads_left: threads.len(),
            threads,
            scratch: Records::new(operations)?,
            totals: Records::new(operations)?,
            progress: Progress::new(settings.duration),
            abandoned: 0,
            stop_requested: None,
            looks: 0,
        })
    }

    /// Reports until all threads of workers have ended; also returns the time of the stop.
    pub(super) fn until_the_end(
        mut self,
        events: &Receiver<Event>,
        files: &mut ResultFiles,
    ) -> Result<(Totals, Option<Instant>), RunError> {
        self.warm_up(events);
        let mut measuring = self.begin(files)?;
        let end = self.settings.duration.unwrap_or(Duration::MAX);
        let mut next_look = StallWatch::WINDOW;
        while self.threads_left > 0 {
            let elapsed = measuring.start.elapsed();
            if elapsed >= end {
                self.request_stop();
            }
            if elapsed >= next_look {
                measuring.stalls.look(elapsed, &self.threads);
                self.tick(elapsed);
                while next_look <= elapsed {
                    next_look += StallWatch::WINDOW;
                }
            }
            if elapsed >= measuring.next_report {
                self.write_rows(elapsed, &mut measuring, files)?;
                measuring.next_report += self.settings.report_interval;
                let (units, errors) = self.totals.counts();
                self.progress.interval(elapsed, units + errors, errors);
            }
            let wake = next_look.min(measuring.next_report).min(if elapsed < end {
                end
            } else {
                Duration::MAX
            });
            let wait = wake.saturating_sub(measuring.start.elapsed());
            self.wait(events, wait);
        }
        self.finish(measuring, files)
    }

    /// Lets the workers run without measuring.
    fn warm_up(&mut self, events: &Receiver<Event>) {
        let start = Instant::now();
        while self.threads_left > 0 && self.stop_requested.is_none() {
            let left = self.options.warm_up.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            self.progress.warming_up(left);
            self.wait(events, left.min(Duration::from_millis(500)));
        }
    }

    /// Sets aside the records so far, and begins to measure.
    fn begin(&mut self, files: &mut ResultFiles) -> Result<Measuring, RunError> {
        let probe_file = File::create(self.probe_path(files))?;
        let probe = ServerProbe::start(
            self.options.probe.clone(),
            self.settings.report_interval,
            probe_file,
        )?;
        let own_before = ProcessUsage::of(std::process::id());
        let mut warm_up = Records::new(self.settings.operations.len())?;
        if !self.options.warm_up.is_zero() {
            self.collect(&mut warm_up);
        }
        let started = SystemTime::now();
        files.begin(started)?;
        Ok(Measuring {
            start: Instant::now(),
            started,
            warm_up: Some(warm_up).filter(|_| !self.options.warm_up.is_zero()),
            own_before,
            probe,
            stalls: StallWatch::default(),
            reported: Duration::ZERO,
            next_report: self.settings.report_interval,
        })
    }

    fn probe_path(&self, files: &ResultFiles) -> PathBuf {
        files.directory().join("server.csv")
    }

    fn finish(
        mut self,
        mut measuring: Measuring,
        files: &mut ResultFiles,
    ) -> Result<(Totals, Option<Instant>), RunError> {
        let elapsed = measuring.start.elapsed();
        self.write_rows(elapsed, &mut measuring, files)?;
        self.progress.end();
        let own_after = ProcessUsage::of(std::process::id());
        let totals = Totals {
            elapsed,
            started: measuring.started,
            records: self.totals,
            warm_up: measuring.warm_up,
            abandoned: self.abandoned,
            overdue: 0,
            stalls: measuring.stalls.into_stalls(),
            own_usage: measuring
                .own_before
                .zip(own_after)
                .map(|(before, after)| after.since(&before)),
            server_usage: measuring.probe.stop()?,
        };
        Ok((totals, self.stop_requested))
    }

    fn tick(&mut self, elapsed: Duration) {
        self.looks = (self.looks + 1) % LOOKS_PER_TICK;
        if self.looks == 0 && self.progress.is_renewed() {
            let (units, errors) = self.present_counts();
            self.progress.tick(elapsed, units + errors, errors);
        }
    }

    fn request_stop(&mut self) {
        self.stop_requested.get_or_insert_with(Instant::now);
        self.control.request_stop();
    }

    fn wait(&mut self, events: &Receiver<Event>, timeout: Duration) {
        match events.recv_timeout(timeout) {
            Ok(Event::Ended { abandoned }) => {
                self.threads_left -= 1;
                self.abandoned += abandoned;
            }
            Ok(Event::Interrupted) => self.request_stop(),
            Err(RecvTimeoutError::Timeout) => {}
            // The threads panicked, since they ended without an event.
            Err(RecvTimeoutError::Disconnected) => self.threads_left = 0,
        }
    }

    /// Collects the records since the last rows, and writes them.
    fn write_rows(
        &mut self,
        elapsed: Duration,
        measuring: &mut Measuring,
        files: &mut ResultFiles,
    ) -> Result<(), RunError> {
        let mut interval = Records::new(self.settings.operations.len())?;
        self.collect(&mut interval);
        self.totals.merge(&interval);
        files.write_rows(elapsed, elapsed - measuring.reported, &interval)?;
        measuring.reported = elapsed;
        Ok(())
    }

    /// Moves the threads' records into `into`.
    fn collect(&mut self, into: &mut Records) {
        for thread in &self.threads {
            self.scratch.clear();
            std::mem::swap(&mut *thread.records(), &mut self.scratch);
            into.merge(&self.scratch);
        }
    }

    fn present_counts(&self) -> (u64, u64) {
        let (mut units, mut errors) = self.totals.counts();
        for thread in &self.threads {
            let (more_units, more_errors) = thread.records().counts();
            units += more_units;
            errors += more_errors;
        }
        (units, errors)
    }
}
